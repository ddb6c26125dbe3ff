"""Every command as it is typed, from files in the usual layouts to files that others read."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from sameness import same as same_result
from scipy.io import mmwrite
from scipy.sparse import coo_array

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, HierarchicalGamma, Priors, ScaledDirichlet, cli
from bayesnmf.cli import arguments, entry
from bayesnmf.data.mutations import sbs96_types
from bayesnmf.fitting import job
from bayesnmf.options import METHODS
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.thinning import components_table, loadings_table
from bayesnmf.studies.comparison import comparing, measures

pytestmark = pytest.mark.filterwarnings(  # anndata under pandas 3
    "ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"
)
DRAWN = bayesnmf.simulate(size=(24, 8), rank=2, totals=300, seed=5)
FRAME = pd.DataFrame(
    DRAWN.counts.matrix.toarray().astype(int), [f"s{i}" for i in range(24)], [f"g{j}" for j in range(8)]
)
RANDOM = ("--quiet", "--rank", "2", "--start", "random")
QUICK = (*RANDOM, "--set", "tol=1e-2", "--seed", "0")
OPTIONS = VI(start="random", tol=1e-2)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with counts.csv, which is the working directory."""
    FRAME.to_csv(tmp_path / "counts.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    code = cli.main([*map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def done(capsys, *words):
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    return out


def same(table, expected):
    np.testing.assert_allclose(table.to_numpy(), expected.to_numpy(), rtol=1e-7)
    assert list(map(str, table.columns)) == list(map(str, expected.columns))
    assert list(map(str, table.index)) == list(map(str, expected.index))


# --- fit ----------------------------------------------------------------------------------------------


def test_fit_writes_what_fit_returns_in_every_format(capsys, here):
    out = done(capsys, "fit", "counts.csv", *QUICK, "--loadings", "loadings.csv.gz", "--components", "components.tsv",
               "--markers", "markers.parquet", "--anndata", "fitted.h5ad")  # fmt: skip
    fit = bayesnmf.fit(FRAME, rank=2, seed=0, options=OPTIONS)
    np.testing.assert_array_equal(bayesnmf.load("fit.nc").components, fit.components)
    same(pd.read_csv("loadings.csv.gz", index_col="row"), loadings_table(fit))
    same(pd.read_csv("components.tsv", sep="\t", index_col="feature"), components_table(fit))
    pd.testing.assert_frame_equal(pd.read_parquet("markers.parquet"), bayesnmf.markers(fit), check_dtype=False)
    adata = anndata.read_h5ad("fitted.h5ad")
    np.testing.assert_allclose(adata.varm["bayesnmf"], fit.components.T)
    np.testing.assert_array_equal(adata.X.toarray(), FRAME.to_numpy())
    assert "gamma_poisson by vi, rank 2, 24 rows × 8 features" in out
    for name in ("fit.nc", "loadings.csv.gz", "components.tsv", "markers.parquet", "fitted.h5ad"):
        assert f"wrote {name}\n" in out


def test_without_options_a_fit_is_that_of_the_library(capsys, here):
    done(capsys, "fit", "counts.csv", "--quiet", "--rank", "1")
    found = bayesnmf.load("fit.nc")
    expected = bayesnmf.fit(FRAME, rank=1, seed=found.seed)  # which is a new one each time, as in Python
    done(capsys, "fit", "counts.csv", "--quiet", "--rank", "1", "--out", "again.nc")
    assert bayesnmf.load("again.nc").seed != found.seed
    assert (found.model, found.method, found.options.start) == ("gamma_poisson", "vi", "descent")
    np.testing.assert_array_equal(found.loadings, expected.loadings)
    assert repr(found.status) == repr(expected.status)


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz"])
def test_tables_of_other_suffixes_read_back(capsys, here, suffix):
    done(capsys, "fit", "counts.csv", *QUICK, "--loadings", f"table.{suffix}")
    table = pd.read_csv(f"table.{suffix}", sep="\t" if "tsv" in suffix else ",", index_col=0)
    same(table, loadings_table(bayesnmf.load("fit.nc")))


def test_fit_takes_priors_restarts_start_and_any_option(capsys, here):
    done(capsys, "fit", "counts.csv", *RANDOM, "--prior-loadings", "Gamma(0.5, rate=0.01)", "--prior-components",
         "Dirichlet(0.3)", "--restarts", "2", "--set", "max_iter=800", "--set", "dtype=float32",
         "--set", "tol=1e-2", "--seed", "7")  # fmt: skip
    options = VI(priors=Priors(Gamma(0.5, 0.01), Dirichlet(0.3)), restarts=2, start="random", max_iter=800,
                 dtype="float32", tol=1e-2)  # fmt: skip
    expected = bayesnmf.fit(FRAME, rank=2, seed=7, options=options)
    found = bayesnmf.load("fit.nc")
    np.testing.assert_array_equal(found.components, expected.components)
    assert found.options.restarts == 2
    done(capsys, "fit", "counts.csv", *RANDOM[:3], "--start", "fit.nc", "--out", "again.nc", "--set", "tol=1e-3")
    assert bayesnmf.load("again.nc").status.converged


def test_fit_takes_known_components_and_exposures(capsys, here):
    known = pd.DataFrame(DRAWN.components[:1, ::-1], ["known"], FRAME.columns[::-1])
    known.to_csv("known.csv")
    depth = pd.DataFrame({"sample": FRAME.index[::-1], "depth": np.linspace(1, 3, 24)})
    depth.to_csv("depth.tsv", sep="\t", index=False)
    done(capsys, "fit", "counts.csv", *QUICK, "--fixed-components", "known.csv", "--row-exposure", "depth.tsv")
    found = bayesnmf.load("fit.nc")
    np.testing.assert_allclose(found.components[0], DRAWN.components[0], rtol=1e-6)
    np.testing.assert_allclose(found.counts.row_exposure, np.linspace(1, 3, 24)[::-1])


def test_given_components_keep_their_names(capsys, here):
    known = pd.DataFrame(DRAWN.components[:1], ["SBS1"], FRAME.columns)
    known.to_csv("known.csv")
    done(capsys, "fit", "counts.csv", *QUICK, "--fixed-components", "known.csv", "--components", "out.csv")
    assert bayesnmf.load("fit.nc").component_names.tolist() == ["SBS1", "component 1"]
    assert list(pd.read_csv("out.csv", index_col=0).columns[:2]) == ["SBS1", "component 1"]
    known.set_axis(["component 1"]).to_csv("known.csv")  # the title of the other one
    done(capsys, "fit", "counts.csv", *QUICK, "--fixed-components", "known.csv")
    assert bayesnmf.load("fit.nc").component_names is None


def test_components_without_counts_are_a_caution(capsys, here):
    known = pd.DataFrame(np.eye(8)[:1], ["nothing"], FRAME.columns)
    known.to_csv("known.csv")
    without = FRAME.assign(**{FRAME.columns[0]: 0})
    without[without.sum(axis=1) > 0].to_csv("no_first.csv")
    out = done(capsys, "fit", "no_first.csv", *QUICK, "--fixed-components", "known.csv")
    assert "caution: nothing explains less than one count of every sample; a lower rank may do" in " ".join(out.split())
    found = json.loads(done(capsys, "transform", "fit.nc", "no_first.csv", "--json"))
    assert found["cautions"] == ["nothing explains less than one count of every sample"]


@pytest.mark.filterwarnings("default:these draws are large")
def test_other_warnings_of_the_library_are_lines_too(capsys, here, monkeypatch):
    import warnings

    from bayesnmf.results import thinning

    plain = thinning.loadings_table

    code = compile("def table(fit):\n    warnings.warn('these draws are large')\n    return plain(fit)",
                   thinning.__file__, "exec")  # fmt: skip
    names = {"warnings": warnings, "plain": plain}
    exec(code, names)
    monkeypatch.setattr(thinning, "loadings_table", names["table"])
    status, _, err = run(capsys, "fit", "counts.csv", *QUICK, "--loadings", "a.csv")
    assert (status, err) == (0, "bayesnmf: warning: these draws are large\n")


def test_json_has_the_numbers_and_nothing_else_is_printed(capsys, here):
    out = done(capsys, "fit", "counts.csv", *QUICK, "--json")
    found = json.loads(out)
    fit = bayesnmf.load("fit.nc")
    assert found["objective"] == fit.trace[-1]
    assert found["counts"] == {"rows": 24, "features": 8, "nonzeros": fit.counts.nnz, "total": fit.counts.total}
    assert (found["converged"], found["cautions"], found["written"]) == (True, [], {"out": "fit.nc"})


def test_an_unconverged_fit_is_written_and_warned_of_in_one_line(capsys, here):
    code, out, err = run(capsys, "fit", "counts.csv", *QUICK, "--set", "max_iter=2")
    assert code == 0
    assert re.fullmatch(r"bayesnmf: warning: vi did not converge .*\n", err)
    assert Path("fit.nc").is_file()
    assert "not converged" in out


def test_progress_is_on_standard_error_of_a_terminal(capsys, here, monkeypatch):
    assert run(capsys, "fit", "counts.csv", *QUICK[1:])[::2] == (0, "")
    for name, value in {"_is_watched": lambda: True, "SILENT": 0.0, "REFRESHED": 0.0}.items():
        monkeypatch.setattr(job, name, value)
    code, out, err = run(capsys, "fit", "counts.csv", *QUICK[1:])
    assert code == 0
    assert "\rvi gamma_poisson" in err
    assert "\r" not in out


def test_ctrl_c_writes_the_last_state(capsys, here, monkeypatch):
    from bayesnmf.inference.ascent import coordinate_ascent

    plain, calls = coordinate_ascent.allocate, []

    def stop(*arguments, **more):
        calls.append(0)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return plain(*arguments, **more)

    monkeypatch.setattr(coordinate_ascent, "allocate", stop)
    code, _, err = run(capsys, "fit", "counts.csv", *RANDOM, "--set", "tol=0")
    assert code == 130
    assert "was interrupted" in err
    assert bayesnmf.load("fit.nc").status.reason == "interrupted"


# --- from files of other programs ---------------------------------------------------------------------


def test_a_10x_folder_to_loadings_and_components(capsys, here):
    folder = here / "filtered_feature_bc_matrix"
    folder.mkdir()
    mmwrite(folder / "matrix.mtx", coo_array(FRAME.to_numpy().T))
    (folder / "barcodes.tsv").write_text("".join(f"{name}\n" for name in FRAME.index))
    (folder / "features.tsv").write_text("".join(f"ENSG{j}\tGENE{j}\tGene Expression\n" for j in range(8)))
    done(capsys, "fit", folder, *QUICK, "--loadings", "loadings.csv", "--components", "genes.csv")
    same(pd.read_csv("loadings.csv", index_col=0), loadings_table(bayesnmf.fit(FRAME, rank=2, seed=0, options=OPTIONS)))
    assert pd.read_csv("genes.csv", index_col=0).index[0] == "GENE0"


def test_a_table_of_mutation_types_to_signatures(capsys, here):
    drawn = bayesnmf.simulate(size=(6, 96), rank=2, totals=900, seed=2).counts.matrix.toarray().astype(int)
    table = pd.DataFrame(drawn.T, pd.Index(sbs96_types(), name="MutationType"), [f"tumour {i}" for i in range(6)])
    table.to_csv("BRCA.SBS96.all", sep="\t")
    code, _, err = run(capsys, "fit", "BRCA.SBS96.all", *QUICK, "--components", "signatures.tsv")
    assert code == 0
    assert re.fullmatch("bayesnmf: warning: .*96 mutation types in their rows; they were turned.*\n", err)
    assert list(pd.read_csv("signatures.tsv", sep="\t", index_col=0).index) == list(sbs96_types())
    signatures = pd.read_csv("signatures.tsv", sep="\t", index_col=0).filter(regex=r"^component \d$")
    signatures.to_csv("COSMIC.txt", sep="\t", index_label="Type")
    for known in ("signatures.tsv", "fit.nc"):  # with columns of standard deviations, and with all of a fit
        done(capsys, "fit", "BRCA.SBS96.all", *QUICK, "--transpose", "--out", "a.nc", "--fixed-components", known)
        np.testing.assert_allclose(bayesnmf.load("a.nc").components.T, signatures, rtol=1e-6)
    done(
        capsys, "fit", "BRCA.SBS96.all", *QUICK, "--transpose", "--out", "known.nc", "--fixed-components", "COSMIC.txt"
    )
    np.testing.assert_allclose(bayesnmf.load("known.nc").components.T, signatures, rtol=1e-6)


def test_an_annotated_file_keeps_what_it_has(capsys, here):
    adata = anndata.AnnData(FRAME.to_numpy().astype(float) / 2, FRAME[[]].assign(kind="cell"), pd.DataFrame(
        {"symbol": [f"SYM{j}" for j in range(8)]}, FRAME.columns), layers={"raw": FRAME.to_numpy()})  # fmt: skip
    adata.write_h5ad("cells.h5ad")
    done(capsys, "fit", "cells.h5ad", *QUICK, "--layer", "raw", "--feature-labels", "symbol", "--anndata", "out.h5ad",
         "--components", "genes.csv")  # fmt: skip
    found = anndata.read_h5ad("out.h5ad")
    assert list(found.obs["kind"]) == ["cell"] * 24
    assert found.obsm["X_bayesnmf"].shape == (24, 2)
    np.testing.assert_array_equal(found.X, adata.X)
    assert pd.read_csv("genes.csv", index_col=0).index[0] == "SYM0"


# --- the other commands -------------------------------------------------------------------------------


def test_transform_gives_the_loadings_of_new_samples(capsys, here):
    done(capsys, "fit", "counts.csv", *QUICK)
    FRAME.iloc[:5].to_csv("new.csv")
    done(capsys, "transform", "fit.nc", "new.csv", "--out", "new_loadings.parquet", "--quiet")
    fit = bayesnmf.load("fit.nc")
    expected = fit.project(FRAME.iloc[:5])
    same(pd.read_parquet("new_loadings.parquet"), loadings_table(expected))
    about = json.loads(done(capsys, "transform", "fit.nc", "new.csv", "--out", "projected.nc", "--json"))
    assert about["counts"]["rows"] == 5
    np.testing.assert_array_equal(bayesnmf.load("projected.nc").loadings, expected.loadings)


def test_assign_writes_the_table_of_the_library(capsys, here):
    known = pd.DataFrame(DRAWN.components, ["a", "b"], FRAME.columns)
    known[FRAME.columns[::-1]].to_csv("known.csv")
    words = ("assign", "counts.csv", "known.csv", "--chains", "1", "--draws", "5", "--warmup", "9", "--seed", "2",
             "--noise", "nb2", "--dispersion", "0.1", "--interval", "0.8", "--quiet")  # fmt: skip
    out = done(capsys, *words, "--out", "table.tsv", "--least", "0.5")
    noise = bayesnmf.NegativeBinomial("quadratic", 0.1)
    expected = bayesnmf.assign(FRAME, known, noise=noise, chains=1, draws=5, warmup=9, interval=0.8, seed=2)
    found = pd.read_csv("table.tsv", sep="\t")
    pd.testing.assert_frame_equal(found, expected.table(0.5), check_dtype=False, rtol=1e-6)
    assert repr(expected) in out
    more = ("--json", "--plot", "a.png", "--checkpoint", "run", "--save", "found.nc")
    about = json.loads(done(capsys, *words, *more))
    assert same_result(bayesnmf.load("found.nc"), expected)
    assert list(Path("run").glob("journal-*"))
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert (about["components"], about["noise"], about["dispersion"]) == (2, "nb2", 0.1)
    assert len(about["table"]) == len(pd.read_csv("assignment.csv")) == len(expected.table())


def test_select_ranks_candidates(capsys, here):
    words = ("select", "counts.csv", "--method", "map", "--start", "random", "--set", "tol=1e-4", "--quiet")
    out = done(capsys, *words, "--ranks", "1,2", "--table", "ranks.csv", "--plot", "a.png")
    expected = bayesnmf.select(FRAME, ranks=(1, 2), method="map", options=MAP(start="random", tol=1e-4))
    table = pd.read_csv("ranks.csv", index_col=["model", "rank"])
    np.testing.assert_allclose(table["mean"], expected.table["mean"], rtol=1e-6)
    assert repr(expected) in out
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_select_ranks_models_by_stability(capsys, here):
    about = json.loads(done(capsys, "select", "counts.csv", "--ranks", "2", "--models", "gamma_poisson,poisson",
                            "--method", "map", "--start", "random", "--set", "tol=1e-4", "--criterion", "stability",
                            "--quiet", "--json"))  # fmt: skip
    assert about["criterion"] == "stability"
    assert [(line["model"], line["rank"]) for line in about["table"]] == [("gamma_poisson", 2), ("poisson", 2)]


def test_without_options_candidates_are_ranked_as_by_the_library(capsys, here, monkeypatch):
    from bayesnmf.studies.selection import selecting

    asked = {}

    def noted(counts, *arguments, **settings):
        asked.update(shape=counts.shape, arguments=arguments, settings=settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(selecting, "select", noted)
    assert run(capsys, "select", "counts.csv", "--quiet")[0] == 130
    assert repr(asked["settings"].pop("options")) == repr(VI())
    assert (asked["shape"], asked["arguments"]) == ((24, 8), (["gamma_poisson"], [2, 3, 4, 5, 6, 8, 10], None))
    assert {name: value for name, value in asked["settings"].items() if value is not None} == {
        "noise": ["poisson"], "seed": 0, "progress": False,
    }  # fmt: skip


def test_modes_groups_runs(capsys, here):
    words = ("modes", "counts.csv", *RANDOM, "--set", "tol=1e-4", "--starts", "2")
    out = done(capsys, *words, "--table", "modes.csv", "--runs", "runs.tsv", "--components", "recurrence.csv",
               "--out", "best.nc", "--plot", "modes.png")  # fmt: skip
    expected = bayesnmf.modes(FRAME, rank=2, starts=2, options=replace(OPTIONS, tol=1e-4), scored=0)
    np.testing.assert_allclose(pd.read_csv("modes.csv")["objective"], expected.table["objective"])
    assert len(pd.read_csv("runs.tsv", sep="\t")) == 2
    np.testing.assert_array_equal(bayesnmf.load("best.nc").components, expected.best.components)
    assert "1 mode in 2 runs" in out


def test_modes_goes_on_from_a_folder(capsys, here):
    words = ("modes", "counts.csv", *RANDOM, "--set", "tol=1e-4", "--checkpoint", "runs", "--json")
    for starts in (1, 2):
        found = json.loads(done(capsys, *words, "--starts", starts))
        assert found["modes"][0]["runs"] == starts
    assert len(list(Path("runs").glob("start-*/fit.nc"))) == 2


def test_simulate_writes_counts_that_fit_reads(capsys, here):
    done(capsys, "simulate", "--rows", "30", "--features", "6", "--rank", "2", "--seed", "4", "--loadings", "a.csv",
         "--components", "truth.csv")  # fmt: skip
    drawn = bayesnmf.simulate(size=(30, 6), rank=2, seed=4)
    counts = bayesnmf.read_counts("counts.npz")
    np.testing.assert_array_equal(counts.matrix.toarray(), drawn.counts.matrix.toarray())
    assert counts.feature_names[0] == "feature 0"
    np.testing.assert_allclose(pd.read_csv("truth.csv", index_col=0).to_numpy().T, drawn.components, rtol=1e-6)
    done(capsys, "fit", "counts.npz", *QUICK)
    done(capsys, "simulate", "--model", "dirichlet_gamma", "--rows", "5", "--features", "4", "--rank", "2", "--out",
         "counts.tsv", "--totals", "100")  # fmt: skip
    assert bayesnmf.read_counts("counts.tsv").shape == (5, 4)
    done(capsys, "simulate", "--rows", "9", "--noise", "nb1", "--dispersion", "2", "--seed", "4", "--out", "more.npz")
    noisy = bayesnmf.simulate(size=(9, 50), noise=bayesnmf.NegativeBinomial(dispersion=2), seed=4)
    np.testing.assert_array_equal(bayesnmf.read_counts("more.npz").matrix.toarray(), noisy.counts.matrix.toarray())


@pytest.mark.usefixtures("without_pictures")
def test_report_shows_names_groups_title_and_known_components(capsys, here):
    done(capsys, "fit", "counts.csv", *QUICK)
    pd.Series(["one", "two"] * 12, FRAME.index, name="kind").to_csv("groups.csv")
    Path("names.csv").write_text("number,name\n1,T cells\n")
    pd.DataFrame(bayesnmf.load("fit.nc").components, ["Helper", "B"], FRAME.columns).to_csv("known.csv")
    about = json.loads(done(capsys, "report", "fit.nc", "--groups", "groups.csv", "--names", "names.csv", "--title",
                            "A <page>", "--catalogue", "known.csv", "--json", "--quiet"))  # fmt: skip
    assert about["written"] == {"out": "report.html"}
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<h1>A &lt;page&gt;</h1>" in page
    assert "T cells" in page
    assert "component 1" not in page
    assert re.search(r"T cells</t[dh]>\s*<td[^>]*>B</td>\s*<td[^>]*>1.00</td>", page)
    assert {"one (12)", "two (12)"} <= set(re.findall(r">([\w ()]+)<", page))


def test_browse_shows_names_texts_and_title(capsys, here):
    done(capsys, "fit", "counts.csv", *QUICK)
    pd.Series(["a text about g0 g1 g2 g3 g4 g5 g6 g7"] * 23 + [None], FRAME.index, name="text").to_csv("texts.csv")
    Path("names.csv").write_text("number,name\n1,T cells\n")
    about = json.loads(done(capsys, "browse", "fit.nc", "--texts", "texts.csv", "--names", "names.csv", "--title",
                            "A <page>", "--json", "--quiet"))  # fmt: skip
    assert about["written"] == {"out": "browse.html"}
    page = Path("browse.html").read_text(encoding="utf-8")
    assert "<h1>A &lt;page&gt;</h1>" in page
    assert '"title":"T cells"' in page
    assert '["a text about ","g' in page


@pytest.mark.usefixtures("without_pictures")
def test_compare_writes_a_page(capsys, here, monkeypatch):
    for method, options in (("map", MAP(start="svd")), ("vi", VI(start="svd", tol=1e-2))):
        monkeypatch.setitem(comparing.DEFAULTS, method, options)
    monkeypatch.setattr(comparing, "figures", lambda *_: [])  # those of the folder, not of the page
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    code, out, _ = run(capsys, "compare", "counts.csv", "--rank", "2", "--methods", "map,vi", "--html", "all.html")
    assert code == 0
    assert "open all.html\n" in out
    assert not Path("results/report.html").exists()
    assert "held-out/count, thinned" in Path("all.html").read_text(encoding="utf-8")


# --- refused ------------------------------------------------------------------------------------------

FIT = ("fit", "counts.csv", "--quiet")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((*FIT, "--rank", "0"), "--rank must be at least 1: found 0"),
        ((*FIT, "--method", "mcmc"), "--method must be one of 'map'"),
        ((*FIT, "--model", "lda"), "model must be one of .*did you mean 'dirichlet_poisson'"),
        ((*FIT, "--out", "fit.csv"), r"--out must end in one of \.nc, \.zarr"),
        ((*FIT, "--out", "deep/fit.nc"), "--out must be in a folder that exists"),
        ((*FIT, "--loadings", "a.xlsx"), r"--loadings must end in one of \.csv"),
        ((*FIT, "--loadings", "a.csv", "--components", "a.csv"), "--components must be a file of its own"),
        ((*FIT, "--components", "counts.csv"), r"--components would replace counts\.csv, which is read; change"),
        ((*FIT, "--fixed-components", "text.nc", "--out", "./text.nc"), r"--out would replace \./text\.nc"),
        (("transform", "text.nc", "counts.csv", "--out", "text.nc"), r"--out would replace text\.nc"),
        (("equivalences", "counts.csv", "--csv", "counts.csv"), r"--csv would replace counts\.csv"),
        ((*FIT, "--rank", "1", "--markers", "a.csv"), "--markers needs at least two components"),
        (("assign", "counts.csv", "counts.csv", "--out", "counts.csv"), r"--out would replace counts\.csv"),
        (("assign", "counts.csv", "counts.csv", "--save", "a.csv"), r"--save must end in one of \.nc, \.zarr"),
        (("assign", "counts.csv", "counts.csv", "--noise", "quasi"), "--noise must be one of 'poisson', 'nb1', 'nb2'"),
        (("assign", "counts.csv", "counts.csv", "--least", "5 %"), "--least must be a number from 0 to 1: found '5 %'"),
        (("assign", "counts.csv", "counts.csv", "--interval", "1"), "interval must be below 1"),
        (("assign", "counts.csv", "nowhere.csv"), r"there is no file nowhere\.csv"),
        (("report", "counts.csv"), r"counts\.csv must end in \.nc or \.zarr, as files of fits do; make one"),
        ((*FIT, "--anndata", "a.csv"), r"--anndata must end in one of \.h5ad"),
        ((*FIT, "--layer", "raw"), "layer needs counts in counts.csv in an AnnData object"),
        ((*FIT, "--prior-loadings", "Gamma(0.3"), "--prior-loadings must be a prior such as"),
        (
            (*FIT, "--prior-loadings", "Gamma(-1, 1)"),
            r"priors\.loadings\.shape must be positive",
        ),
        ((*FIT, "--prior-loadings", "__import__('os')"), "the family must be one of 'Gamma', "),
        ((*FIT, "--prior-loadings", "Normal(0, 1)"), "the family must be one of 'Gamma', .*found 'Normal'"),
        ((*FIT, "--prior-components", "ScaledDirichlet(1, 1, 1)"), "components"),
        ((*FIT, "--set", "max_iter"), "--set must be NAME=VALUE"),
        ((*FIT, "--set", "max_itr=3"), r"--set of bayesnmf\.VI must be one of .*did you mean 'max_iter'"),
        ((*FIT, "--set", "max_iter=many"), "max_iter"),
        ((*FIT, "--set", "priors=1"), "--set cannot give priors; use --prior-loadings"),
        ((*FIT, "--method", "gibbs", "--restarts", "3"), r"--restarts is no option of bayesnmf\.Gibbs"),
        ((*FIT, "--start", "nowhere.nc"), r"there is no nowhere\.nc"),
        ((*FIT, "--start", "top"), "start must be"),
        ((*FIT, "--fixed-components", "nowhere.csv"), r"there is no file nowhere\.csv"),
        ((*FIT, "--row-exposure", "counts.csv"), "--row-exposure must be a table with a header line and two columns"),
        (("fit", "nowhere.csv"), r"there is no file nowhere\.csv"),
        (("transform", "counts.csv", "counts.csv"), r"counts\.csv must end in"),
        (("transform", "nowhere.nc", "counts.csv"), r"there is no nowhere\.nc"),
        (("transform", "text.nc", "counts.csv"), r"text\.nc"),
        (("report", "text.nc"), r"text\.nc"),
        (("report", "text.nc", "--out", "page.pdf"), r"--out must end in one of \.html"),
        (("browse", "text.nc", "--out", "page.pdf"), r"--out must end in one of \.html"),
        (("report", "text.nc", "--image-shape", "8"), "--image-shape must be two whole numbers"),
        (("select", "counts.csv", "--ranks", ""), "--ranks must be a whole number"),
        (("select", "counts.csv", "--ranks", "5-2"), "--ranks must name at least one"),
        (("select", "counts.csv", "--criterion", "bic"), "--criterion must be one of"),
        (("select", "counts.csv", "--models", "lda"), "--models must be one of"),
        (("modes", "counts.csv", "--method", "gibbs"), "--method must be one of 'map', 'vi', 'bld'"),
        (("modes", "counts.csv", "--starts", "0"), "--starts must be at least 1"),
        (("simulate", "--rows", "0"), "--rows must be at least 1"),
        (("simulate", "--model", "poisson"), "loadings"),
        (("simulate", "--noise", "nb1"), "--noise nb1 needs --dispersion, a number"),
        (("simulate", "--noise", "quasi"), "--noise must be one of 'poisson', 'nb1', 'nb2'"),
        (("simulate", "--dispersion", "2"), "--dispersion needs --noise nb1 or nb2"),
        (("simulate", "--noise", "nb2", "--dispersion", "-1"), "--dispersion must be a number of at least 0"),
        (("compare", "--html", "page.pdf"), r"--html must end in one of \.html"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line_and_nothing_is_written(capsys, here, words, rule):
    (here / "text.nc").write_text("not a fit")
    before = {*here.iterdir()}
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("bayesnmf: error: ")
    assert err.count("\n") == 1
    assert re.search(rule, err), err
    assert {*here.iterdir()} == before


def test_a_table_that_cannot_be_written_does_not_lose_the_fit(capsys, here, monkeypatch):
    from bayesnmf.cli import writing

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(writing, "write_table", full)
    code, out, err = run(capsys, "fit", "counts.csv", *QUICK, "--loadings", "loadings.csv")
    assert (code, "no space left" in err) == (2, True)
    assert "gamma_poisson by vi" in out
    assert bayesnmf.load("fit.nc").rank == 2


def test_priors_are_written_as_in_python():
    for text, expected in (
        ("Gamma(0.3, 1.0)", Gamma(0.3, 1.0)),
        ("Dirichlet(concentration=0.1)", Dirichlet(0.1)),
        ("ScaledDirichlet(1.0, 2.0, 0.5)", ScaledDirichlet(1.0, 2.0, 0.5)),
        (
            "HierarchicalGamma(1.0, Gamma(1e-3, 1e-3), 'component')",
            HierarchicalGamma(1.0, Gamma(1e-3, 1e-3), "component"),
        ),
    ):
        assert repr(arguments.prior(text, "--prior")) == repr(expected)
    assert arguments.prior("parameter", "--prior") == "parameter"
    assert arguments.ranks("2-4, 8", "--ranks") == [2, 3, 4, 8]


# --- help ---------------------------------------------------------------------------------------------


def test_names_in_help_are_those_of_the_library():
    assert tuple(MODELS) == arguments.MODELS
    assert tuple(METHODS) == arguments.METHODS


def test_arguments_are_of_commands_that_there_are():
    named = {word for group in arguments.ARGUMENTS.values() for each in group for word in each.commands.split()}
    assert named == {*entry.COMMANDS}


@pytest.mark.parametrize("command", entry.COMMANDS)
def test_help_teaches_by_examples_that_parse(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    examples = [line.strip() for line in out.splitlines() if line.startswith("  bayesnmf ")]
    assert examples
    import shlex

    for line in examples:
        options = entry.build_parser().parse_args(shlex.split(line)[1:])
        assert options.command == command


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_closed_pipe_ends_fit_quietly_after_writing(here):
    words = [sys.executable, "-m", "bayesnmf.cli", "fit", "counts.csv", *QUICK]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert (child.stderr.read(), child.wait()) == (b"", 141)
    assert Path("fit.nc").is_file()


def test_noise_and_missing_entries_of_a_table(here, capsys):
    """Rows of the table of missing entries are in another order: names decide."""
    missing = (np.random.default_rng(0).random(FRAME.shape) < 0.2).astype(int)
    pd.DataFrame(missing, FRAME.index, FRAME.columns).iloc[::-1].to_csv("missing.csv")
    code, out, _ = run(capsys, "fit", "counts.csv", *QUICK, "--noise", "quasi", "--missing", "missing.csv")
    assert code == 0
    assert "quasi-Poisson noise" in out
    fit = bayesnmf.load("fit.nc")
    np.testing.assert_array_equal(fit.counts.mask.hidden(slice(None)), missing)
    assert run(capsys, "fit", "counts.csv", *QUICK, "--missing", "zeros", "--out", "zeros.nc")[0] == 0
    assert bayesnmf.load("zeros.nc").counts.mask.number == (FRAME == 0).to_numpy().sum()
    for given, own in (("0.5", 0.5), ("row", None)):
        done(capsys, "fit", "counts.csv", *QUICK, "--noise", "nb1", "--dispersion", given, "--out", "own.nc")
        noise = bayesnmf.load("own.nc").noise
        assert noise.by == ("row" if own is None else None)
        assert own in (None, noise.dispersion if noise.by is None else None)
    code, _, err = run(capsys, "fit", "counts.csv", *QUICK, "--noise", "quasi", "--dispersion", "1")
    assert "--dispersion needs --noise nb1 or nb2" in err
    code, _, err = run(capsys, "fit", "counts.csv", *QUICK, "--noise", "nb")
    assert code != 0
    assert "--noise must be one of 'poisson', 'nb1', 'nb2', 'quasi'" in err


def test_nan_in_a_file_are_missing_entries(here, capsys):
    lost = np.random.default_rng(0).random(FRAME.shape) < 0.2
    FRAME.mask(lost).to_csv("holes.csv", na_rep="NA")
    code, _, error = run(capsys, "fit", "holes.csv", *QUICK)
    assert code == 2
    assert "--missing nan" in error
    assert run(capsys, "fit", "holes.csv", *QUICK, "--missing", "nan", "--out", "nan.nc")[0] == 0
    np.testing.assert_array_equal(bayesnmf.load("nan.nc").counts.mask.hidden(slice(None)), lost)
