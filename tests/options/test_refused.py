"""Refused inputs at a glance: what is passed, the error, and what its message says.

Counts themselves stand in `test_checks.BAD`, files in `test_io_errors.WRONG`, hyperparameters and options against
the model in `test_checks_fit.py`.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import bayesnmf
from bayesnmf import BLD, MAP, NUTS, SVI, VI, Dirichlet, Effort, Gamma, Gibbs, Priors, ScaledDirichlet, Settings, Start
from bayesnmf.checks import check_fraction, check_share

COUNTS = np.arange(35).reshape(7, 5) % 4
QUICK = VI(max_iter=2, tol=0.0)
ARRAY = np.ones(3)
HUGE = 10**5000


def refuse(call, error, rule):
    with pytest.raises(error, match=rule) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- sparse matrices whose parts do not fit together: some ended the interpreter, some lost counts ----------


def altered(form, **parts):
    """Return a sparse matrix with other parts than SciPy gave it."""
    matrix = getattr(sp, f"{form}_array")(COUNTS)
    for part, change in parts.items():
        setattr(matrix, part, change(getattr(matrix, part)))
    return matrix


def moved(axis, to):
    """Return a COO matrix with one entry at another place."""
    coords = [positions.copy() for positions in sp.coo_array(COUNTS).coords]
    coords[axis][1] = to
    return altered("coo", coords=lambda _: tuple(coords))


def lil(row, indices=None, data=None):
    matrix = sp.lil_array(COUNTS)
    matrix.rows[row] = matrix.rows[row] if indices is None else indices
    matrix.data[row] = matrix.data[row] if data is None else data
    return matrix


def dok(key, value=3):
    matrix = sp.dok_array(COUNTS)
    matrix._dict[key] = value
    return matrix


def halves(positions):
    return positions + 0.5


SPARSE = {
    "coo, row too large": (moved(0, 99), "row indices must be from 0 to 6: found 99"),
    "coo, row negative": (moved(0, -3), "row indices must be from 0 to 6: found -3"),
    "coo, column too large": (moved(1, 77), "column indices must be from 0 to 4: found 77"),
    "coo, halves": (
        altered("coo", coords=lambda c: (halves(c[0]), c[1])),
        "row indices must be an array of whole numbers: found dtype float64",
    ),
    "coo, values missing": (altered("coo", data=lambda d: d[:-1]), "row indices must have one entry for each value"),
    "coo, no values": (altered("coo", data=lambda _: None), "data must be an array: found NoneType"),
    "coo, one axis": (altered("coo", coords=lambda c: c[:1]), "coords must be 2 arrays: found 1"),
    "coo, masked": (altered("coo", data=np.ma.masked_array), "data must be an array: found MaskedArray"),
    "csr, no values": (altered("csr", data=lambda _: None), "data must be an array: found NoneType"),
    "csr, halves": (altered("csr", indices=halves), "indices must be an array of whole numbers: found dtype float"),
    "csr, list": (altered("csr", indices=list), "indices must be an array of whole numbers: found list"),
    "csc, halves of rows": (altered("csc", indptr=halves), "indptr must be an array of whole numbers"),
    "bsr, booleans": (altered("bsr", indices=lambda i: i > 0), "indices must be an array of whole numbers"),
    "bsr, out of range": (altered("bsr", indices=lambda i: i + 9), "column index values must be < 5"),
    "lil, column too large": (lil(2, [99], [1]), "indices must be < 5"),
    "lil, column negative": (lil(2, [-1], [1]), "indices must be >= 0"),
    "lil, half": (lil(2, [0.5], [1]), "column indices must be an array of whole numbers"),
    "lil, values missing": (lil(2, [1, 2], [1]), "rows and data must hold one list for each row, of the same lengths"),
    "lil, text": (lil(2, [1], ["a"]), "invalid literal"),
    "dok, row too large": (dok((99, 0)), "row indices must be from 0 to 6: found 99"),
    "dok, half": (dok((0.5, 0)), "row indices must be an array of whole numbers"),
    "dok, one number": (dok(3), "inhomogeneous"),
    "dia, too far": (sp.dia_array((np.ones((1, 5)), [99]), shape=(7, 5)), "offsets must be from -6 to 4: found 99"),
    "dia, list": (altered("dia", offsets=list), "offsets must be an array of whole numbers: found list"),
}


@pytest.mark.parametrize("case", SPARSE)
def test_a_corrupt_sparse_matrix_is_refused(case):
    x, rule = SPARSE[case]
    refuse(lambda: bayesnmf.fit(x, rank=2), ValueError, f"counts must be a valid sparse matrix: .*{rule}.*; rebuild it")


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_a_sound_sparse_matrix_passes(form, kind):
    matrix = getattr(sp, f"{form}_{kind}")(COUNTS)
    np.testing.assert_array_equal(bayesnmf.data.conversion.as_counts(matrix).dense, COUNTS)


# --- arguments of the wrong type or size ------------------------------------------------------------------


@pytest.fixture(scope="module")
def fit():
    return bayesnmf.fit(COUNTS, rank=2, seed=0, options=QUICK)


def fit_with(**options):
    return bayesnmf.fit(COUNTS, rank=2, options=VI(max_iter=1, tol=0.0, **options))


def start(**factors):
    return fit_with(start=Start(**{"loadings": np.ones((7, 2)), "components": np.full((2, 5), 0.2)} | factors))


def simulate(**settings):
    return bayesnmf.simulate(size=(4, 3), rank=2, **settings)


def given_totals(totals):
    return bayesnmf.simulate("dirichlet_poisson", size=(2, 3), rank=2, totals=totals)


def evidence(**settings):
    return bayesnmf.log_evidence([[1, 2], [0, 1]], rank=2, **settings)


GAMMA, SPREAD = Gamma(1.0, 1.0), Dirichlet(1.0)
ARGUMENTS = {
    "fit(counts=None)": (lambda fit: bayesnmf.fit(None), TypeError, "counts must be real numbers: found dtype object"),
    "fit(model=array)": (
        lambda fit: bayesnmf.fit(COUNTS, ARRAY),
        ValueError,
        "model must be one of 'poisson', .*of shape",
    ),
    "fit(model='nmf')": (lambda fit: bayesnmf.fit(COUNTS, "nmf"), ValueError, "model must be one of .*: found 'nmf'"),
    "fit(rank='3')": (lambda fit: bayesnmf.fit(COUNTS, rank="3"), TypeError, "rank must be a whole number .* not '3'"),
    "fit(rank=True)": (lambda fit: bayesnmf.fit(COUNTS, rank=True), TypeError, "rank must be a whole number"),
    "fit(rank=0)": (lambda fit: bayesnmf.fit(COUNTS, rank=0), ValueError, "rank must be at least 1: found 0"),
    "fit(rank=1e15)": (
        lambda fit: bayesnmf.fit(COUNTS, rank=10**15),
        ValueError,
        "components of rank 10+ would take .*lower rank",
    ),
    "fit(rank=1e30)": (lambda fit: bayesnmf.fit(COUNTS, rank=10**30), ValueError, "rank must be at most 9,.*31 digits"),
    "fit(rank=1e5000)": (lambda fit: bayesnmf.fit(COUNTS, rank=HUGE), ValueError, "rank must be at most .*5001 digits"),
    "fit(rank=array)": (lambda fit: bayesnmf.fit(COUNTS, rank=ARRAY), TypeError, r"not ndarray of shape \(3,\)"),
    "fit(method=None)": (lambda fit: bayesnmf.fit(COUNTS, method=None), ValueError, "method must be one of 'map'"),
    "fit(seed=-1)": (lambda fit: bayesnmf.fit(COUNTS, seed=-1), ValueError, "seed must be at least 0"),
    "fit(seed=2**63)": (lambda fit: bayesnmf.fit(COUNTS, seed=2**63), ValueError, "seed must be at most 9,223"),
    "fit(options='x')": (
        lambda fit: bayesnmf.fit(COUNTS, options="x"),
        TypeError,
        r"options must be bayesnmf.VI\(...\)",
    ),
    "fit(options=MAP())": (lambda fit: bayesnmf.fit(COUNTS, options=MAP()), TypeError, "for method='vi': found MAP"),
    "fit(progress=array)": (
        lambda fit: bayesnmf.fit(COUNTS, progress=ARRAY),
        TypeError,
        "progress must be True, False or a fun",
    ),
    "fit(progress='yes')": (
        lambda fit: bayesnmf.fit(COUNTS, progress="yes"),
        TypeError,
        "progress must be .*: found 'yes'",
    ),
    "MAP(priors='x')": (lambda fit: MAP(priors="x"), TypeError, r"priors must be bayesnmf.Priors\(.*found 'x'"),
    "VI(priors=fit)": (lambda fit: VI(priors=fit), TypeError, "priors must be bayesnmf.Priors"),
    "Gibbs(priors=3)": (lambda fit: Gibbs(priors=3), TypeError, "priors must be bayesnmf.Priors"),
    "NUTS(priors=Gamma)": (lambda fit: NUTS(priors=GAMMA), TypeError, "priors must be bayesnmf.Priors"),
    "SVI(priors=None)": (lambda fit: SVI(priors=None), TypeError, "priors must be bayesnmf.Priors"),
    "BLD(priors=[])": (lambda fit: BLD(priors=[]), TypeError, "priors must be bayesnmf.Priors"),
    "VI(threads=0)": (lambda fit: VI(threads=0), ValueError, "threads must be at least 1"),
    "VI(threads=2**70)": (lambda fit: VI(threads=2**70), ValueError, "threads must be at most"),
    "VI(max_iter=1e30)": (lambda fit: VI(max_iter=10**30), ValueError, "max_iter must be at most"),
    "VI(tol=1e5000)": (
        lambda fit: VI(tol=HUGE),
        ValueError,
        "tol must be at least 0 and finite: found a number of 5001",
    ),
    "VI(extrapolate='no')": (lambda fit: VI(extrapolate="no"), TypeError, "extrapolate must be True or False"),
    "VI(learn=array)": (lambda fit: VI(learn=ARRAY), TypeError, "learn must be a tuple of sides"),
    "VI(start=array)": (
        lambda fit: VI(start=ARRAY),
        TypeError,
        "start must be a bayesnmf.Start.*: found ndarray of shape",
    ),
    "NUTS(max_tree_depth=99)": (lambda fit: NUTS(max_tree_depth=99), ValueError, "max_tree_depth must be at most 30"),
    "Priors(components=array)": (
        lambda fit: Priors(components=np.ones((9, 9))),
        TypeError,
        r"priors.components must be .*: found ndarray of shape \(9, 9\)$",
    ),
    "Priors(loadings='flat')": (
        lambda fit: Priors("flat"),
        TypeError,
        "priors.loadings must be one of Gamma, HierarchicalGamma, Dirichlet",
    ),
    "Gamma('1', 1)": (
        lambda fit: Priors(Gamma("1", 1.0)),
        TypeError,
        "priors.loadings.shape must be a number .*: found '1'",
    ),
    "Gamma(True, 1)": (
        lambda fit: Priors(Gamma(True, 1.0)),
        TypeError,
        "priors.loadings.shape must be a number .*: found True",
    ),
    "Gamma(nan, 1)": (
        lambda fit: Priors(Gamma(np.nan, 1.0)),
        ValueError,
        "priors.loadings.shape must be positive and fin",
    ),
    "Gamma(array with -1)": (
        lambda fit: Priors(Gamma(np.array([1.0, -1]), 1.0)),
        ValueError,
        "must be positive and finite: found ndarray",
    ),
    "Dirichlet(None)": (
        lambda fit: Priors(None, Dirichlet(None)),
        TypeError,
        "priors.components.concentration must be a number",
    ),
    "Dirichlet(masked)": (
        lambda fit: Priors(None, Dirichlet(np.ma.ones(5))),
        TypeError,
        "must be a number or an array of numbers",
    ),
    "ScaledDirichlet(1, 1, 'x')": (
        lambda fit: Priors(ScaledDirichlet(1.0, 1.0, "x")),
        TypeError,
        "priors.loadings.rate must be a number",
    ),
    "Start(loadings=text)": (
        lambda fit: start(loadings=[["a"]]),
        TypeError,
        "start.loadings must be an array of numbers or a distribution",
    ),
    "Start(loadings of a wrong shape)": (
        lambda fit: start(loadings=ARRAY),
        ValueError,
        r"start.loadings must have shape \(7, 2\)",
    ),
    "Start(components=nan)": (
        lambda fit: start(components=np.full((2, 5), np.nan)),
        ValueError,
        "start.components must be nonnegative",
    ),
    "elbo_augmented('x')": (
        lambda fit: bayesnmf.elbo_augmented("x"),
        TypeError,
        "fit must be a result of bayesnmf.fit: found str",
    ),
    "elbo_marginal(None)": (
        lambda fit: bayesnmf.elbo_marginal(None),
        TypeError,
        "fit must be a result of bayesnmf.fit",
    ),
    "elbo_marginal(draws=1)": (
        lambda fit: bayesnmf.elbo_marginal(fit, 1),
        ValueError,
        "draws must be at least 2: found 1",
    ),
    "elbo_marginal(draws=1.5)": (
        lambda fit: bayesnmf.elbo_marginal(fit, 1.5),
        TypeError,
        "draws must be a whole number",
    ),
    "elbo_marginal(draws=1e12)": (lambda fit: bayesnmf.elbo_marginal(fit, 10**12), ValueError, "ask for fewer draws"),
    "elbo_marginal(seed=True)": (
        lambda fit: bayesnmf.elbo_marginal(fit, seed=True),
        TypeError,
        "seed must be a whole number",
    ),
    "elbo_marginal(seed=[1])": (
        lambda fit: bayesnmf.elbo_marginal(fit, seed=[1]),
        TypeError,
        r"seed must be .* not \[1\]",
    ),
    "Effort(draws=1e30)": (
        lambda fit: bayesnmf.equivalences(COUNTS, effort=Effort(draws=10**30)),
        ValueError,
        "draws must be at most",
    ),
    "equivalences(effort='x')": (
        lambda fit: bayesnmf.equivalences(COUNTS, effort="x"),
        TypeError,
        "effort must be bayesnmf.Effort",
    ),
    "to_datatree(log_likelihood='yes')": (
        lambda fit: fit.to_datatree(log_likelihood="yes"),
        TypeError,
        "log_likelihood must be True or False: found 'yes'",
    ),
    "to_datatree(posterior_predictive=[])": (
        lambda fit: fit.to_datatree(posterior_predictive=[]),
        TypeError,
        "posterior_predictive must be True",
    ),
    "to_datatree(row=...)": (
        lambda fit: fit.to_datatree(row=[0]),
        TypeError,
        "a keyword of to_datatree must be .*: found 'row'; did you mean 'rows'",
    ),
    "summary(rows='x')": (lambda fit: fit.summary(rows="x"), TypeError, "rows must be a list of names, not 'x'"),
    "top_features(0)": (lambda fit: fit.top_features(0), ValueError, "n must be at least 1"),
    "top_rows(0)": (lambda fit: fit.top_rows(0), ValueError, "n must be at least 1"),
    "shares(rows='x')": (lambda fit: fit.shares(rows="x"), TypeError, "rows must be a list of names, not 'x'"),
    "loo('x')": (lambda fit: bayesnmf.loo("x"), TypeError, "fit must be a result of bayesnmf.fit"),
    "predictive_checks(draws=nan)": (
        lambda fit: bayesnmf.predictive_checks(fit, np.nan),
        TypeError,
        "draws must be a whole number",
    ),
    "posterior_agreement(reference=array)": (
        lambda fit: bayesnmf.posterior_agreement({"a": fit}, ARRAY),
        ValueError,
        "reference must be the label of .*: found ndarray",
    ),
    "to_topic_model(text)": (
        lambda fit: bayesnmf.to_topic_model(([["a"]], [[1]])),
        TypeError,
        "loadings must be an array of numbers",
    ),
    "simulate(size=3)": (lambda fit: bayesnmf.simulate(size=3), TypeError, r"size must be \(rows, features\): found 3"),
    "simulate(rank=1e12)": (
        lambda fit: bayesnmf.simulate(rank=10**12),
        ValueError,
        "components of rank 10+ would take",
    ),
    "simulate(priors='x')": (lambda fit: simulate(priors="x"), TypeError, "priors must be bayesnmf.Priors"),
    "simulate(totals=1e20)": (
        lambda fit: simulate(totals=1e20),
        ValueError,
        r"counts must have means of at most 2\*\*53 to be drawn.*lower totals",
    ),
    "simulate(totals=inf), given": (
        lambda fit: given_totals(np.inf),
        ValueError,
        r"totals must be whole numbers from 0 to 2\*\*53",
    ),
    "simulate(totals=1e300), given": (
        lambda fit: given_totals([5, 1e300]),
        ValueError,
        r"totals must be whole numbers from 0 to 2\*\*53",
    ),
    "simulate(totals='x'), given": (
        lambda fit: given_totals("x"),
        TypeError,
        "totals must be a number or an array of numbers",
    ),
    "calibrate(method=array)": (lambda fit: bayesnmf.calibrate(method=ARRAY), ValueError, "method must be one of"),
    "calibrate(priors='x')": (lambda fit: bayesnmf.calibrate(priors="x"), TypeError, "priors must be bayesnmf.Priors"),
    "calibrate(simulations=1e30)": (
        lambda fit: bayesnmf.calibrate(simulations=10**30),
        ValueError,
        "simulations must be at most 1,000,000",
    ),
    "log_evidence(runs=1e30)": (lambda fit: evidence(runs=10**30), ValueError, "runs must be at most 100,000"),
    "log_p_allocation(text)": (
        lambda fit: bayesnmf.log_p_allocation("x", GAMMA, SPREAD),
        TypeError,
        "allocations must be an array of numbers",
    ),
    "select(ranks=b'x')": (lambda fit: bayesnmf.select(COUNTS, ranks=b"x"), TypeError, "ranks must be a whole number"),
    "select(models=3.5)": (
        lambda fit: bayesnmf.select(COUNTS, 3.5),
        TypeError,
        "models must be a list of words, not 3",
    ),
    "Settings(options=[VI()])": (
        lambda fit: Settings(options=[VI()]),
        TypeError,
        "options must map methods to options",
    ),
    "Settings(options=VI())": (lambda fit: Settings(options=VI()), TypeError, "options must map methods to options"),
    "Settings(priors='x')": (lambda fit: Settings(priors="x"), TypeError, "priors must be bayesnmf.Priors"),
    "Settings(dispersed='no')": (
        lambda fit: Settings(dispersed="no"),
        TypeError,
        "dispersed must be True or False: found 'no'",
    ),
    "Settings(withhold=array)": (
        lambda fit: Settings(withhold=ARRAY),
        TypeError,
        "withhold must be a number of at least 0, not ndarray",
    ),
    "compare(out=3)": (
        lambda fit: bayesnmf.compare(COUNTS, out=3),
        TypeError,
        "out must be a path, a string or pathlib.Path: found 3",
    ),
    "compare(out='a NUL')": (
        lambda fit: bayesnmf.compare(COUNTS, out="a\0b"),
        ValueError,
        "out must be a path without the character NUL",
    ),
    "read_counts(3)": (
        lambda fit: bayesnmf.read_counts(3),
        TypeError,
        "path must be a path, a string or pathlib.Path: found 3",
    ),
    "read_counts(b'x')": (lambda fit: bayesnmf.read_counts(b"x"), TypeError, "path must be a path"),
    "read_counts(transpose='no')": (
        lambda fit: bayesnmf.read_counts("x.csv", "no"),
        TypeError,
        "transpose must be True or False",
    ),
    "load(None)": (
        lambda fit: bayesnmf.load(None),
        TypeError,
        "path must be a path, a string or pathlib.Path: found None",
    ),
    "save(3)": (lambda fit: fit.save(3), TypeError, "path must be a path"),
    "Calibration.load(3)": (lambda fit: bayesnmf.Calibration.load(3), TypeError, "path must be a path"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_that_make_no_sense_are_refused(case, fit):
    call, error, rule = ARGUMENTS[case]
    refuse(lambda: call(fit), error, rule)


def test_means_beyond_whole_numbers_are_not_replicated():
    fit = bayesnmf.fit([[1e19, 2e19], [3e19, 1e19]], rank=1, seed=0, options=QUICK)
    refuse(lambda: fit.sample_posterior_predictive(2), ValueError, r"means of at most 2\*\*53 to be drawn")


def test_numbers_of_numpy_become_those_of_python():
    """What threadpoolctl and others refuse, or what would not go into a file."""
    options = VI(threads=np.int64(2), max_iter=np.int32(2), tol=np.float32(0.0), extrapolate=np.True_)
    fit = bayesnmf.fit(COUNTS, rank=np.int64(2), seed=np.uint32(3), options=options)
    for owner, names in ((options, ("threads", "max_iter", "tol", "extrapolate")), (fit, ("rank", "seed"))):
        for name in names:
            assert type(getattr(owner, name)) in (int, float, bool), name
    assert type(Gibbs(draws=np.int16(5)).draws) is int
    assert type(SVI(learning_rate=np.float64(0.1)).learning_rate) is float
    assert type(BLD(restarts=np.int8(1)).restarts) is int


def test_the_published_races_name_the_file_that_is_missing(tmp_path):
    """Golden values are not looked for in the folder that BAYESNMF_DATA names."""
    code = "import common; common.shared('golden', 'gone.csv')"
    folder = Path(__file__).parents[2] / "benchmarks" / "published"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("gone.csv does not exist: put it there")


def test_shares_may_be_0_and_1_and_fractions_may_not():
    assert (check_share(0, "density"), check_share(1, "density"), check_fraction(0.5, "keep")) == (0.0, 1.0, 0.5)
    refuse(lambda: check_share(np.nextafter(1, 2), "density"), ValueError, "density must be at most 1")
    for edge in (0, 1):
        refuse(lambda edge=edge: check_fraction(edge, "keep"), ValueError, "keep must be (positive|below 1)")
