"""Files of every format version of saved fits: ``saved_fits.zip`` has them, each with a text of what it held.

``python tests/golden/saved_fits.py FOLDER`` writes the files that the package makes, of its format version, and the
texts. Those of earlier versions were written by commits of their time, with this script: 97439593^ (version 2),
263db12b^ (3), 19bd611c^ (4), 4380932c^ (5 with counts on disk), f2b97ca6^ (5), d62db922^ (6), c2f2f422^ (7),
86dd1f99^ (8) and e2ecd9b6 (9, and the first of assignments).
"""

import json
import sys
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import issparse

COUNTS = [[3, 0, 1, 2], [0, 2, 4, 0], [5, 1, 0, 1], [0, 3, 6, 2], [2, 2, 0, 9]]
K = 2
SECOND = [[1, 0], [2, 4], [0, 0], [3, 1], [5, 2]]
WITHOUT = {"store", "scratch", "held", "reference"}  # where counts on disk are; and what no file has


def plain(value):
    """Return a value as lists, words and numbers that JSON gives back: of arrays, their type and values."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.name not in WITHOUT}
        return {"kind": type(value).__name__, **named}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"kind": type(value).__name__, **{name: plain(part) for name, part in value._asdict().items()}}
    if issparse(value):
        return plain(value.toarray())
    if hasattr(value, "columns"):
        return {"columns": plain(value.columns.to_numpy()), "values": [plain(value[name].to_numpy()) for name in value]}
    if isinstance(value, np.ndarray):
        listed = value.astype("U").tolist() if value.dtype.kind in "OMm" else value.tolist()
        return listed if value.dtype.kind == "U" else {"dtype": value.dtype.str, "values": listed}
    if isinstance(value, np.generic):
        return {"dtype": value.dtype.str, "values": value.item()}
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | float | None) else type(value).__name__


def cases(bayesnmf):
    """Return what makes each file, by name; a case that a version cannot make says so when it is made."""
    from bayesnmf import BLD, MAP, VI, Dirichlet, Gamma, Gibbs, Priors, Start

    vi, quick = VI(start="random", max_iter=20, threads=1), {"threads": 1, "start": "random"}
    small = Gibbs(**quick, chains=2, draws=3, warmup=2)
    first = bayesnmf.fit(COUNTS, "gamma_poisson", K, "map", seed=0, options=MAP(**quick, max_iter=5))

    def fit(model, method, options, counts=COUNTS, **more):
        return bayesnmf.fit(counts, model, K, method, seed=1, options=options, **more)

    def of_start():
        start = Start(Gamma(first.loadings + 1, np.ones((5, K))), Dirichlet(first.components + 1))
        return fit("gamma_poisson", "vi", VI(start=start, max_iter=3, threads=1, learn=("loadings",)))

    def of_priors():
        priors = Priors(Gamma(2.0, np.full((5, 1), 0.5)), Dirichlet(np.full((K, 4), 1.5)))
        return fit("gamma_poisson", "map", MAP(**quick, max_iter=5, priors=priors))

    return {
        "vi": lambda: fit("dirichlet_gamma", "vi", vi),
        "start": of_start,
        "priors": of_priors,
        "bld": lambda: fit("dirichlet_gamma", "bld", BLD(**quick, max_iter=5)),
        "gibbs": lambda: fit("dirichlet_gamma", "gibbs", small),
        "moments": lambda: fit("gamma_poisson", "gibbs", Gibbs(**quick, chains=2, draws=3, warmup=2, keep="moments")),
        "hierarchical": lambda: fit("hierarchical_poisson", "vi", vi),
        "exposures": lambda: fit("gamma_poisson", "vi", vi, row_exposure=[1, 2, 1, 2, 1.5]),
        "renamed": lambda: fit("poisson", "map", MAP(**quick, max_iter=5)).rename(components=["x", "y"]),
        "intervals": lambda: fit("gamma_poisson", "vi", vi).with_intervals("sampled", draws=8),
        "known": lambda: fit("gamma_poisson", "vi", vi, fixed_components=[[0.1, 0.2, 0.3, 0.4]]),
        "quasi": lambda: fit("gamma_poisson", "vi", vi, noise="quasi"),
        "nb1": lambda: fit("gamma_poisson", "vi", vi, noise="nb1"),
        "by_row": lambda: fit("gamma_poisson", "vi", vi, noise=bayesnmf.NegativeBinomial("quadratic", "row")),
        "zip": lambda: fit("gamma_poisson", "map", MAP(**quick, max_iter=5), noise="zip"),
        "missing": lambda: fit("gamma_poisson", "vi", vi, missing=np.eye(5, 4) > 0),
        "covariates": lambda: fit("gamma_poisson", "vi", vi, covariates=np.arange(5.0)[:, None]),
        "several": lambda: fit(
            "gamma_poisson", "vi", vi, {"one": COUNTS, "two": SECOND}, noise={"one": "nb2", "two": "poisson"}
        ),
        "weighted": lambda: fit("gamma_poisson", "map", MAP(**quick, max_iter=5), {"one": COUNTS, "two": SECOND},
                                weights={"two": 0.5}),
        "batch": lambda: fit("gamma_poisson", "vi", vi, batch=list("ababb")),
        "batch_draws": lambda: fit("gamma_poisson", "gibbs", small, batch=list("ababb")),
        "assignment": lambda: bayesnmf.assign(COUNTS, first.components / first.components.sum(axis=1, keepdims=True),
                                              chains=2, draws=20, warmup=20),
    }  # fmt: skip


def main(folder):
    """Write all files that this version of the package can make, and what is in them."""
    import bayesnmf

    warnings.simplefilter("ignore")
    for name, make in cases(bayesnmf).items():
        try:
            made = make()
        except (TypeError, ValueError, AttributeError) as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:150]}")
            continue
        path = folder / f"{name}.nc"
        made.save(path)
        path.with_suffix(".json").write_text(json.dumps(plain(bayesnmf.load(path))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
