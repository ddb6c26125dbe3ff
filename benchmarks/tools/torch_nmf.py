"""Fit by torchnmf: multiplicative updates for sparse counts, on the CPU."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch
from torchnmf.nmf import NMF, _get_H_kl_positive, _get_W_kl_positive, _sp_double_backward_update

from benchmarks.worker import Clock, Job


def nmf(job: Job, clock: Clock) -> None:
    """Fit NMF(beta=1) by the body of its loop, without the check of convergence."""
    torch.set_num_threads(job.threads)
    counts = job.counts.tocoo()
    places = torch.from_numpy(np.stack(counts.coords).astype(np.int64))
    V = torch.sparse_coo_tensor(places, torch.from_numpy(counts.data.astype(np.float32)), counts.shape).coalesce()
    start = (np.ascontiguousarray(side, np.float32) for side in (job.start["loadings"], job.start["components"].T))
    model = NMF(H=torch.from_numpy(next(start)), W=torch.from_numpy(next(start)))
    W, H = model.W, model.H
    clock.start(version("torchnmf"))
    while True:
        positive = _get_W_kl_positive(H.detach())
        pos, neg = model._sp_recon_beta_pos_neg(V, H.detach(), W, 1)
        _sp_double_backward_update(pos, neg, W, 1, 0, 0, positive)
        positive = _get_H_kl_positive(W.detach())
        pos, neg = model._sp_recon_beta_pos_neg(V, H, W.detach(), 1)
        _sp_double_backward_update(pos, neg, H, 1, 0, 0, positive)
        clock.tick(lambda: {"loadings": H.detach().numpy(), "components": W.detach().numpy().T})
