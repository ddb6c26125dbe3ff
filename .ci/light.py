"""Use a light installation: fit, transform, save, load and read; and ask for what it does not have."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

import bayesnmf
from bayesnmf import *  # noqa: F403  names that cannot be had here are left out

warnings.simplefilter("ignore")  # small counts and short chains
counts = np.random.default_rng(0).poisson(3.0, (12, 9))
options = {
    "map": bayesnmf.MAP(max_iter=20),
    "vi": bayesnmf.VI(max_iter=20),
    "gibbs": bayesnmf.Gibbs(chains=2, warmup=10, draws=20),
}
fits = {method: bayesnmf.fit(counts, rank=2, method=method, seed=0, options=each) for method, each in options.items()}
for method, fit in fits.items():
    fit.save(f"{method}.nc")
    assert (bayesnmf.load(f"{method}.nc").components == fit.components).all()
    assert fit.transform(counts[:3]).shape == (3, 2)
    assert len(fit.top_features(3)) == 3
    assert len(fit.shares(rows=[0])) == 2
    assert method in repr(fit)
assert len(bayesnmf.markers(fits["gibbs"])) == 18
assert bayesnmf.predictive_checks(fits["gibbs"], draws=5).table.notna().to_numpy().any()

for words, call in {
    "fit.summary needs arviz": fits["vi"].summary,
    "fit.to_datatree needs arviz": fits["vi"].to_datatree,
    "method='nuts' needs numpyro": lambda: bayesnmf.fit(counts, rank=2, method="nuts"),
    "bayesnmf.plots needs matplotlib": lambda: bayesnmf.plots,
    "bayesnmf.BayesNMF needs scikit-learn": lambda: bayesnmf.BayesNMF,
    "bayesnmf.report needs matplotlib": lambda: bayesnmf.report,
}.items():
    said = "nothing"
    try:
        call()
    except ImportError as error:
        said = str(error)
    assert said.startswith(f"{words}, which is not installed: pip install "), said

if "" not in sys.path:  # as a program in a file, where the command is installed beside Python
    np.savetxt("counts.csv", counts, "%d", ",", header=",".join("abcdefghi"), comments="")
    command = [str(Path(sys.executable).with_name("bayesnmf")), "fit", "counts.csv", "--rank", "2", "--out", "shell.nc"]
    subprocess.run([*command, "--markers", "markers.csv", "--quiet"], check=True)
    assert bayesnmf.load("shell.nc").rank == 2
    assert Path("markers.csv").stat().st_size > 100
print(json.dumps(list(fits)))
