"""The command line: one line for what is wrong, exit codes, files written; --help is quick."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz

import bayesnmf
from bayesnmf import MAP, VI, cli
from bayesnmf.cli import entry
from bayesnmf.fitting import job
from bayesnmf.options import METHODS, Gibbs
from bayesnmf.pages import report
from bayesnmf.priors.specification import MODELS
from bayesnmf.studies.comparison import comparing, measures
from bayesnmf.studies.comparison.comparing import Settings
from bayesnmf.theorems import likelihoods, statements, updates

COUNTS = np.random.default_rng(0).poisson(3, (20, 6))


def as_csv(values):
    return pd.DataFrame(values, columns=[f"f{j}" for j in range(np.shape(values)[1])]).to_csv(index=False)


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(as_csv(COUNTS))
    return path


def run(capsys, *words):
    """Exit code, standard output, standard error."""
    return run_command(capsys, "compare", *words)


def run_command(capsys, *words):
    """The same of any command."""
    code = cli.main([*map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys, rule, *words):
    """One line that names the argument and the rule; nothing on standard output."""
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("bayesnmf: error: ")
    assert err.count("\n") == 1, err
    assert err.endswith("\n")
    assert re.search(rule, err), err


# --- files that cannot be read ------------------------------------------------------------------------


def bytes_of_npz(tmp_path):
    save_npz(tmp_path / "whole.npz", csr_array(COUNTS))
    return (tmp_path / "whole.npz").read_bytes()


def truncated_npz(tmp_path):
    data = bytes_of_npz(tmp_path)
    return "counts.npz", data[: len(data) // 2]


def changed_entry(value):
    entries = COUNTS.astype(object)
    entries[2, 3] = value
    return as_csv(entries)


FILES = {
    "truncated": (truncated_npz, r"counts\.npz must be a SciPy sparse matrix .*not a complete zip archive"),
    "not an npz": ("counts.npz", "f0,f1\n1,2\n", r"counts\.npz must be a SciPy sparse matrix"),
    "not an mtx": ("counts.mtx", "f0,f1\n1,2\n", r"counts\.mtx must be a Matrix Market file"),
    "not gzipped": ("counts.csv.gz", "f0,f1\n1,2\n", r"counts\.csv\.gz must be a comma-separated table"),
    "binary": ("counts.csv", bytes(range(256)), r"counts\.csv must be a comma-separated table"),
    "empty": ("counts.csv", "", r"counts\.csv must be a comma-separated table"),
    "no rows": ("counts.csv", "f0,f1\n", r"counts in .*counts\.csv must "),
    "ragged": ("counts.csv", "f0,f1\n1,2\n1,2,3\n", r"counts\.csv must be a comma-separated table"),
    "other separator": ("counts.csv", "f0;f1\n1;2\n", r"separated by ','"),
    "suffix": ("counts.xlsx", "f0,f1\n1,2\n", r"counts\.xlsx must end in one of \.npz, \.mtx"),
    "no suffix": ("counts", "f0,f1\n1,2\n", r"counts must end in one of"),
    "negative": ("counts.csv", changed_entry(-1), r"counts in .* must be nonnegative: found -1\.0 at row 2, column 3"),
    "missing": ("counts.csv", changed_entry(""), r"counts in .* must be finite .*found nan at row 2, column 3"),
    "NaN": ("counts.csv", changed_entry("NaN"), r"counts\.csv .*column 'f3'|must be finite"),
    "text": ("counts.csv", changed_entry("many"), r"counts\.csv must be a .*column 'f3'.*many"),
    "fractions": ("counts.csv", changed_entry(1.5),
                  r"counts must be whole numbers for compare, which thins them: found 1\.5 at row 2, column 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_not_counts_are_refused(capsys, tmp_path, case):
    *source, rule = FILES[case]
    name, content = source[0](tmp_path) if callable(source[0]) else source
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(capsys, rule, path, "--out", tmp_path / "out", "--quiet")
    assert not list(tmp_path.glob("out/*"))


def test_no_such_file_and_a_directory(capsys, tmp_path):
    out = ("--out", tmp_path / "out", "--quiet")
    refused(capsys, r"there is no file .*nowhere\.csv; check the path", tmp_path / "nowhere.csv", *out)
    refused(capsys, "must be a file, not a directory", tmp_path, *out)
    assert not (tmp_path / "out").exists()


def test_a_bad_list_of_names_beside_the_file(capsys, tmp_path):
    path = tmp_path / "whole.npz"
    bytes_of_npz(tmp_path)
    path.with_suffix(".json").write_text(json.dumps({"rows": ["one"]}))
    refused(capsys, r"'rows' in .*whole\.json must have 20 names: found 1", path, "--out", tmp_path / "out")


# --- arguments that make no sense ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("--rank must be at least 1: found 0", ("--rank", "0")),
        ("--rank must be at least 1: found -3", ("--rank=-3",)),
        ("--rank must be a whole number: found 'x'", ("--rank", "x")),
        (r"--rank must be a whole number: found '2\.5'", ("--rank", "2.5")),
        ("--rank must be a whole number: found ''", ("--rank", "")),
        ("--seed must be at least 0: found -1", ("--seed", "-1")),
        ("--seed must be a whole number: found 'now'", ("--seed", "now")),
        ("--model must be one of 'poisson', .*: found 'lda'", ("--model", "lda")),
        ("--model must be one of .*did you mean 'gamma_poisson'", ("--model", "gamma-poisson")),
        ("--methods must be one of 'map', .*: found 'mcmc'", ("--methods", "map,mcmc")),
        ("--methods must be one of .*: found 'gibs'; did you mean 'gibbs'", ("--methods", "gibs")),
        ("--methods must be one of .*: found ''", ("--methods", "map,")),
        ("--methods must be one of .*: found ''", ("--methods", "")),
        (r"methods must name at least one, and none twice: found \['map', 'map'\]", ("--methods", "map,map")),
    ],
)
def test_arguments_that_make_no_sense_are_refused(capsys, good, tmp_path, rule, words):
    refused(capsys, rule, good, "--out", tmp_path / "out", "--quiet", *words)


def test_out_must_be_a_folder_that_can_be_made(capsys, good, tmp_path):
    (tmp_path / "taken").write_text("mine")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        refused(capsys, r"--out must be a folder that can be written to: .*taken", good, "--out", place, "--quiet")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    "words", [["fits"], ["fit"], ["compare", "--rank"], ["compare", "a.csv", "b.csv"], ["compare", "-x"]]
)
def test_what_argparse_refuses(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: bayesnmf")
    assert "error:" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["fti", "counts.csv"], "fit"), (["fit", "counts.csv", "--rnak", "2"], "--rank"),
     (["select", "counts.csv", "--rank=4"], "--ranks"), (["compare", "--layot", "long"], "--layout"),
     (["fit", "counts.csv", "--layout", "lnog"], "long"), (["xyz"], None)],
)  # fmt: skip
def test_a_misspelt_command_or_option_is_met_with_the_one_that_is_meant(capsys, words, meant):
    with pytest.raises(SystemExit):
        cli.main(words)
    told = capsys.readouterr().err.rstrip()
    assert told.endswith(f"; did you mean {meant}?") if meant else "did you mean" not in told


def test_without_a_command_there_is_help(capsys):
    assert cli.main([]) == 0
    out, err = capsys.readouterr()
    assert "bayesnmf COMMAND --help explains each command." in out
    assert err == ""


# --- help ---------------------------------------------------------------------------------------------


def test_help_and_version(capsys):
    for words, shown in (
        (["--help"], "compare"),
        (["--version"], f"bayesnmf {bayesnmf.__version__}"),
        (["equivalences", "--help"], "--iterations N"),
        (["compare", "--help"], "--methods LIST"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(words)
        assert stopped.value.code == 0
        out, err = capsys.readouterr()
        assert shown in out
        assert err == ""
    for word in (*METHODS, *MODELS, "--rank", "--seed", "--out", "--quiet"):
        assert word in out


def python(code, *words):
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False)


HEAVY = ("jax", "numba", "numpyro", "anndata", "arviz", "matplotlib", "pandas", "scipy", "sklearn", "xarray", "rich")


def test_help_loads_nothing_heavy():
    """Of any command, so that it is there at once."""
    words = [["--help"], ["--version"], *([command, "--help"] for command in entry.COMMANDS)]
    code = (
        "import sys; from bayesnmf.cli import main\n"
        f"for words in {words!r}:\n"
        "    try: main(words)\n"
        "    except SystemExit as stopped: assert stopped.code == 0\n"
        f"    print(words, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [f"{each} []" for each in words]


def test_words_are_refused_before_anything_heavy_is_loaded():
    code = (
        "import sys; from bayesnmf.cli import main; code = main(sys.argv[1:])\n"
        "print([name for name in ('jax', 'numba', 'arviz') if name in sys.modules]); sys.exit(code)"
    )
    done = python(code, "compare", "--rank", "0", "--quiet")
    assert (done.returncode, done.stdout) == (2, "[]\n")
    assert done.stderr == "bayesnmf: error: --rank must be at least 1: found 0\n"


# --- as a user runs it --------------------------------------------------------------------------------


def test_errors_are_printed_without_a_traceback(tmp_path):
    """Of the command itself, in a process of its own, with nothing in between."""
    done = subprocess.run(
        [sys.executable, "-m", "bayesnmf.cli", "compare", str(tmp_path / "nowhere.csv"), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert re.fullmatch(r"bayesnmf: error: there is no file .*nowhere\.csv; check the path .*\n", done.stderr)


def test_a_backend_that_does_not_exist_is_refused_before_the_first_fit(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)  # which reads it once
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: pytest.fail("a fit was begun"))
    refused(
        capsys, "MPLBACKEND must name a backend of matplotlib: found 'nonsense'; unset it", "--out", tmp_path / "out"
    )
    assert not list((tmp_path / "out").iterdir())


@pytest.fixture
def without_figures(monkeypatch):
    """Figures are most of the work of a small comparison."""
    monkeypatch.setattr(comparing, "figures", lambda *_: [])
    monkeypatch.setattr(report, "png_of", lambda _: bytes(24))


@pytest.mark.parametrize("error", [ValueError("no such font"), KeyboardInterrupt()], ids=["value", "ctrl-c"])
def test_whatever_fails_while_files_are_written_the_table_is_printed(capsys, good, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("bayesnmf.studies.comparison.comparing.write", fail)
    words = (good, "--rank", "1", "--methods", "map", "--out", tmp_path / "out", "--quiet")
    code, out, err = run(capsys, *words)
    assert "cosine, other start" in out
    assert (code, "no such font" in err) == ((2, True) if isinstance(error, ValueError) else (130, False))


def test_the_command_is_installed():
    from importlib.metadata import entry_points

    scripts = {script.name: script.value for script in entry_points(group="console_scripts")}
    assert scripts["bayesnmf"] == "bayesnmf.cli:main"


@pytest.mark.usefixtures("without_figures")
def test_a_comparison_writes_its_files_and_prints_its_table(capsys, good, tmp_path, monkeypatch):
    for method, options in (("map", MAP(start="svd")), ("vi", VI(start="svd", tol=1e-2))):
        monkeypatch.setitem(comparing.DEFAULTS, method, options)
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    out = tmp_path / "deep" / "out"
    code, told, err = run(
        capsys, good, "--model", "gamma_poisson", "--rank", "2", "--methods", "map, vi", "--seed", "3", "--out", out,
        "--quiet",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert {path.name for path in out.iterdir()} >= {"compare.nc", "table.csv", "report.txt", "fits"}
    assert {path.name for path in (out / "fits").iterdir()} == {"map.nc", "vi.nc"}
    table = pd.read_csv(out / "table.csv", index_col="method")
    assert list(table.index) == ["map", "vi"]
    assert np.isfinite(table.loc["vi", "elbo_marginal"])
    fitted = bayesnmf.load(out / "fits" / "vi.nc")
    assert (fitted.model, fitted.rank, fitted.seed) == ("gamma_poisson", 2, 3)
    assert list(fitted.feature_names) == [f"f{j}" for j in range(6)]
    assert "gamma_poisson, rank 2: 18 samples × 6 features" in told
    assert "held-out/count, new rows" in told
    assert told.endswith(f"\nopen {out / 'report.html'}\non your own counts: bayesnmf compare FILE\n")
    assert "held-out/count, thinned" in (out / "report.html").read_text(encoding="utf-8")
    assert "counts trained on" in (out / "report.txt").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
def test_what_it_shows_is_what_compare_gives(capsys, good, tmp_path):
    code, _, _ = run(capsys, good, "--rank", "1", "--methods", "map", "--out", tmp_path / "out", "--quiet")
    assert code == 0
    expected = bayesnmf.compare(bayesnmf.read_counts(good), rank=1, methods="map", seed=0).table
    table = pd.read_csv(tmp_path / "out" / "table.csv", index_col="method")
    np.testing.assert_allclose(table.drop(columns="seconds"), expected.drop(columns="seconds"))


@pytest.mark.usefixtures("without_figures")
def test_progress_goes_to_standard_error(capsys, tmp_path, monkeypatch):
    for name, value in {"_is_watched": lambda: True, "SILENT": 0.0, "REFRESHED": 0.0}.items():
        monkeypatch.setattr(job, name, value)
    path = tmp_path / "counts.tsv.gz"
    path.write_bytes(gzip.compress(as_csv(COUNTS).replace(",", "\t").encode()))
    code, out, err = run(capsys, path, "--rank", "1", "--methods", "map", "--out", tmp_path / "out")
    assert code == 0
    assert "map gamma_poisson" in err
    assert "scoring" in err
    assert "map gamma_poisson" not in out


@pytest.mark.usefixtures("without_figures")
def test_cautions_are_shown(capsys, good, tmp_path, monkeypatch):
    monkeypatch.setitem(comparing.DEFAULTS, "gibbs", Gibbs(chains=1, warmup=2, draws=5))
    monkeypatch.setitem(comparing.DISPERSED, "gibbs", {"warmup": 2, "draws": 5})
    assert Settings().of("gibbs").draws == 5
    code, out, _ = run(capsys, good, "--rank", "1", "--methods", "gibbs", "--out", tmp_path / "out", "--quiet")
    assert code == 0
    assert "CAUTION gibbs: ESS" in out


def test_ctrl_c_has_its_own_exit_code(capsys, good, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(comparing, "compare", stop)
    code, out, err = run(capsys, good, "--out", tmp_path / "out", "--quiet")
    assert (code, out, err) == (130, "", "bayesnmf: interrupted\n")


@pytest.mark.usefixtures("without_figures")
def test_ctrl_c_after_the_first_method_has_it_too_and_results_are_written(capsys, good, tmp_path, monkeypatch):
    plain = comparing.fit

    def stop_at_vi(*arguments, **settings):
        if arguments[3] == "vi":
            raise KeyboardInterrupt
        return plain(*arguments, **settings)

    monkeypatch.setattr(comparing, "fit", stop_at_vi)
    words = (good, "--rank", "1", "--methods", "map,vi", "--out", tmp_path / "out", "--quiet")
    code, out, _ = run(capsys, *words)
    assert code == 130
    assert "CAUTION vi is left out: interrupted" in out
    assert (tmp_path / "out" / "compare.nc").is_file()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("methods", ["vi,map", "map,vi"], ids=["in the first method", "in the second"])
def test_a_signal_has_its_own_exit_code_and_results_are_written(capsys, good, tmp_path, monkeypatch, number, methods):
    plain, before = comparing.fit, signal.getsignal(number)

    def signalled(*arguments, **settings):
        if arguments[3] == "vi":
            os.kill(os.getpid(), number)
        return plain(*arguments, **settings)

    monkeypatch.setattr(comparing, "fit", signalled)
    words = (good, "--rank", "1", "--methods", methods, "--out", tmp_path / "out", "--quiet")
    code, _, err = run(capsys, *words)
    assert code == 128 + number
    assert err == ("" if methods == "map,vi" else "bayesnmf: interrupted\n")
    assert (tmp_path / "out" / "compare.nc").is_file() == (methods == "map,vi")
    assert signal.getsignal(number) is before


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ignored_signals_stay_ignored(capsys, good, tmp_path, monkeypatch):
    """As under nohup."""
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: os.kill(os.getpid(), signal.SIGHUP) or 1 / 0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(ZeroDivisionError):
            run(capsys, good, "--out", tmp_path / "out", "--quiet")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("command", ["compare", "equivalences", "fit"])
def test_a_closed_pipe_ends_it_quietly(good, tmp_path, monkeypatch, command):
    """Not with 1, which says that an identity does not hold; what is written is written first."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", open(writer, "w", encoding="utf-8"))  # noqa: SIM115
    monkeypatch.setattr(statements, "STATEMENTS", (updates.half_steps,))
    own = {
        "compare": ("--methods", "map", "--out", tmp_path),
        "equivalences": ("--csv", tmp_path / "table.csv"),
        "fit": ("--start", "random", "--out", tmp_path / "fit.nc", "--loadings", tmp_path / "table.csv"),
    }[command]
    assert cli.main([str(word) for word in (command, good, "--rank", "1", "--quiet", *own)]) == 141
    sys.stdout.close()
    assert (tmp_path / "table.csv").is_file()


@pytest.mark.usefixtures("without_figures")
def test_a_terminal_that_knows_no_greek_gets_the_table_all_the_same(good, tmp_path, monkeypatch):
    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, encoding="ascii"))
    words = ["compare", good, "--rank", "1", "--methods", "map", "--quiet", "--out", tmp_path / "out"]
    assert cli.main([str(word) for word in words]) == 0
    sys.stdout.flush()
    assert b"held-out/count, new rows" in screen.getvalue()
    assert b"samples ? 6 features" in screen.getvalue()


def test_without_a_file_digits_are_compared(capsys, tmp_path, monkeypatch):
    asked = {}

    def noted(counts, *arguments, **settings):
        asked.update(shape=counts.shape, arguments=arguments, settings=settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(comparing, "compare", noted)
    code, _, _ = run(capsys, "--out", tmp_path / "out", "--quiet")
    assert code == 130
    assert asked["shape"] == (334, 64)
    assert asked["arguments"] == ("gamma_poisson", 8, ["map", "vi", "gibbs", "nuts"])
    assert asked["settings"].pop("settings").draws == "thinned"
    assert asked["settings"].pop("seeds") is None
    assert asked["settings"] == {"seed": 0, "out": Path(tmp_path / "out"), "checkpoint": None, "progress": False}


# --- equivalences -------------------------------------------------------------------------------------


@pytest.fixture
def cheap(monkeypatch):
    """Those statements that compile no program."""
    monkeypatch.setattr(statements, "STATEMENTS", (updates.half_steps, likelihoods.four_likelihoods))


@pytest.mark.usefixtures("cheap")
def test_equivalences_are_printed_and_written(capsys, good, tmp_path):
    path = tmp_path / "table.csv"
    code, out, err = run_command(capsys, "equivalences", good, "--rank", "2", "--csv", path, "--quiet")
    assert (code, err) == (0, "")
    assert "20 samples × 6 features" in out
    assert "4 of 4 judged rows hold" in out
    assert max(map(len, out.splitlines())) <= 80
    table = pd.read_csv(path)
    expected = bayesnmf.equivalences(bayesnmf.read_counts(good), 2).table
    np.testing.assert_allclose(table.left, expected.left)
    assert list(table.statement) == list(expected.statement)


@pytest.mark.usefixtures("cheap")
def test_an_equivalence_that_does_not_hold_has_an_exit_code(capsys, good, monkeypatch):
    monkeypatch.setattr(likelihoods, "poisson_loglik", lambda *_: -1.0)
    code, out, _ = run_command(capsys, "equivalences", good, "--rank", "2", "--quiet")
    assert code == 1
    assert "1 of 4 judged rows hold" in out
    assert " NO " in out


def test_equivalences_print_what_there_is_after_ctrl_c(capsys, good, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(statements, "STATEMENTS", (updates.half_steps, stop))
    code, out, _ = run_command(capsys, "equivalences", good, "--rank", "2")
    assert code == 130
    assert "1 of 1 judged rows hold" in out
    assert "interrupted" in out


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("--rank must be at least 1: found 0", ("--rank", "0")),
        ("--iterations must be a whole number: found 'many'", ("--iterations", "many")),
        ("--seed must be at least 0: found -1", ("--seed", "-1")),
    ],
)
def test_words_that_equivalences_does_not_know_are_refused(capsys, good, rule, words):
    code, out, err = run_command(capsys, "equivalences", good, *words)
    assert (code, out, err) == (2, "", f"bayesnmf: error: {rule}\n")


def test_a_csv_file_in_no_folder_is_refused_before_anything_runs(capsys, good, tmp_path):
    code, out, err = run_command(capsys, "equivalences", good, "--csv", tmp_path / "deep" / "table.csv")
    rule = f"--csv must be in a folder that exists: {tmp_path / 'deep'} does not; create the folder"
    assert (code, out, err) == (2, "", f"bayesnmf: error: {rule}\n")
    assert not (tmp_path / "deep").exists()


def test_without_a_file_equivalences_run_on_digits(capsys, monkeypatch):
    asked = {}

    def noted(counts, *arguments, **settings):
        asked.update(shape=counts.shape, arguments=arguments, settings=settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(statements, "equivalences", noted)
    code, _, _ = run_command(capsys, "equivalences", "--quiet")
    assert code == 130
    assert asked == {
        "shape": (334, 64),
        "arguments": (5,),
        "settings": {"iterations": 20, "seed": 0, "progress": False},
    }
