"""Words that the command line takes, and what it prints of a fit."""

import io
import os
import re
import runpy
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
import smallfits

import bayesnmf
from bayesnmf import cli
from bayesnmf.cli import arguments, entry
from bayesnmf.cli.writing import leading
from bayesnmf.fitting import job
from bayesnmf.fitting.job import progress_line
from bayesnmf.pages.parts import Page
from bayesnmf.pages.report import render


@pytest.mark.parametrize("text", ["2-99999999999", "1-1001", "5,2-9999999999999999999999"])
def test_ranges_without_end_are_refused(text):
    with pytest.raises(
        ValueError, match=r"--ranks must (have at most 1,000 numbers: .*; give a smaller range|be at most 9,223,)"
    ):
        arguments.ranks(text, "--ranks")


def test_ranges_of_ranks_are_read():
    assert arguments.ranks("2-4,8", "--ranks") == [2, 3, 4, 8]
    assert len(arguments.ranks("1-1000", "--ranks")) == 1000


def test_a_setting_is_given_once():
    with pytest.raises(ValueError, match="--set must give each name once: found max_iter twice"):
        arguments.read_settings(["max_iter=3", "max_iter=4"], bayesnmf.VI)


@pytest.mark.parametrize("text", ["Dirichlet(9**9**9)", "Gamma(x, 1)", "Gamma([a for a in b], 1)", "Gamma(f'{1}', 1)"])
def test_what_is_no_prior_is_repeated_as_it_was_written(text):
    with pytest.raises(ValueError, match="must be a prior such as") as caught:
        arguments.prior(text, "--prior-loadings")
    assert "<ast" not in str(caught.value)
    assert "is no number, word or list" in str(caught.value)


def test_an_error_without_words_is_named(capsys, monkeypatch, tmp_path):
    def run(options):
        raise MemoryError

    monkeypatch.setattr(entry.COMMANDS["fit"], "run", run)
    assert cli.main(["fit", str(tmp_path / "counts.csv"), "--rank", "2"]) == 2
    assert capsys.readouterr().err == "bayesnmf: error: MemoryError\n"


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_is_printed_into_a_closed_stream_is_lost_without_an_error(name, monkeypatch):
    """Python has None for a stream that was closed before it started, as by >&-."""

    def run(options):
        for stream in (sys.stdout, sys.stderr):
            print("words", file=stream)
            stream.isatty()
        return 0

    monkeypatch.setattr(entry.COMMANDS["fit"], "run", run)
    monkeypatch.setattr(sys, name, None)
    assert cli.main(["fit", "counts.csv", "--rank", "2"]) == 0
    getattr(sys, name).close()


def broken_pipe():
    """Return a stream whose reader has gone away."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", encoding="utf-8", buffering=1)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize(("words", "code"), [("words", 0), (ValueError("no counts"), 2)])
def test_what_is_printed_into_a_broken_standard_error_is_lost_without_an_error(words, code, monkeypatch):
    """As by `2>&1 | head -1`: the bar of progress ended the fit, whose result was lost."""

    def run(options):
        with progress_line() as report:
            report("fit", 1, 2, 0.0)
        if isinstance(words, ValueError):
            raise words
        warnings.warn(words, bayesnmf.DataWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(entry.COMMANDS["fit"], "run", run)
    monkeypatch.setattr(sys, "stderr", broken := broken_pipe())
    assert cli.main(["fit", "counts.csv", "--rank", "2"]) == code
    broken.close()


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_fit_goes_on_if_nobody_reads_its_progress(monkeypatch):
    monkeypatch.setattr(sys, "stderr", broken := broken_pipe())
    with progress_line() as report:
        report("fit", 1, 2, 0.0)
    assert os.path.samestat(os.fstat(broken.fileno()), os.stat(os.devnull)), "the closed pipe was met, and left"
    broken.close()


def test_a_line_of_what_has_ended_is_complete(capsys):
    """A start mostly ends before its last step, and the next one begins; the last line shows how far it came."""
    with progress_line() as report:
        report("vi start 0", 100, 5000, -1.0)
        report("vi", 3, 5000, -1.0)
    first, second = [line for line in capsys.readouterr().err.splitlines() if "vi" in line]
    assert "100/100" in first.replace(" ", "")
    assert "3/5000" in second.replace(" ", "")


def test_chains_that_report_at_once_have_one_line(capsys):
    with progress_line() as report, ThreadPoolExecutor(4) as chains:
        list(chains.map(lambda chain: report("gibbs", 1 + chain, 14000, -1.0), range(4)))
    assert len([line for line in capsys.readouterr().err.splitlines() if "gibbs" in line]) == 1


class Watched(io.StringIO):
    """What stands for a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Return what stands for a terminal, in which everything is shown at once."""
    monkeypatch.setattr(job, "SILENT", 0.0)
    monkeypatch.setattr(job, "REFRESHED", 0.0)
    monkeypatch.delenv("BAYESNMF_PROGRESS", raising=False)
    return Watched()


def test_a_terminal_has_one_line_that_is_gone_in_the_end(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_line() as report:
        for done in range(3):
            report("a long label of what goes on", done, 2, -1.0)
        report("short", 1, 2, -1.0)
    first, *lines, last = terminal.getvalue().split("\r")
    assert "\n" not in terminal.getvalue()
    assert first == last == ""
    assert [line.split(" 0:")[0].rstrip() for line in lines[:-1]] == [
        *(f"a long label of what goes on {done}/2" for done in range(3)),
        "short 1/2",
    ]
    assert len(lines[3]) == len(lines[2]), "spaces are written over what stood there"
    assert lines[-1].strip() == ""


COUNTS = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]


@pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.FitWarning")
def test_by_default_a_line_is_shown_where_somebody_sees_it(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    fit = partial(bayesnmf.fit, COUNTS, rank=1, seed=0)
    fit()
    assert "gamma_poisson" in terminal.getvalue()
    for silent in (lambda: fit(progress=False), lambda: fit(progress=lambda *_: None)):
        terminal.seek(0)
        terminal.truncate()
        silent()
        assert terminal.getvalue() == ""
    monkeypatch.setenv("BAYESNMF_PROGRESS", "0")
    fit()
    assert terminal.getvalue() == ""
    monkeypatch.delenv("BAYESNMF_PROGRESS")
    monkeypatch.setattr(job, "SILENT", 100.0)
    fit()
    assert terminal.getvalue() == "", "not before a call has taken a while"
    monkeypatch.setattr(job, "SILENT", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    fit()
    assert sys.stderr.getvalue() == "", "a file is no terminal"


def test_what_a_call_calls_itself_shows_no_line_of_its_own(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_line() as outer, job.progress_context(None) as inner:
        inner("inner", 1, 2, 0.0)
        outer("outer", 1, 2, 0.0)
    assert "inner" not in terminal.getvalue()
    assert "outer" in terminal.getvalue()


def test_a_notebook_is_watched(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=0)))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with job.progress_context(None) as report:
        assert report is not job._no_report


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_number_of_a_bar_is_cut(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    with progress_line() as report:
        report("vi gamma_poisson, start 1, exchanges of components, other start", 2000, 2000, -1238504.8)
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.strip()]
    assert len(line.rstrip()) <= width
    assert "2000/2000 0:00:00" in line
    assert width == 40 or line.rstrip().endswith("-1,238,504.8")


HUGE = {
    "modes": ("--rank", "--starts", "--jobs", "--seed"), "fit": ("--rank", "--restarts", "--seed"),
    "select": ("--ranks", "--seed"), "simulate": ("--rows", "--features", "--rank", "--totals", "--seed"),
    "compare": ("--rank", "--seed"), "equivalences": ("--rank", "--iterations", "--seed"),
    "assign": ("--chains", "--draws", "--warmup", "--seed"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "option"), [(each, option) for each in HUGE for option in HUGE[each]])
def test_numbers_beyond_all_bounds_are_refused_by_name(command, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"simulate": [], "assign": ["counts.csv", "known.csv"]}.get(command, ["counts.csv"])
    needed = ["--ranks", "2"] if command == "select" and option != "--ranks" else []
    assert cli.main([command, *given, *needed, option, str(10**40)]) == 2
    assert re.fullmatch(
        rf"bayesnmf: error: ({option}|{option[2:]}) must be at most [\d,]+: found a number of 41 digits\n",
        capsys.readouterr().err,
    )


def test_starts_have_a_bound_that_memory_holds():
    """A list of as many runs was built first."""
    with pytest.raises(ValueError, match="starts must be at most 100,000: found 1000000000000000"):
        bayesnmf.modes([[1, 2], [3, 4]], rank=1, starts=10**15)


def test_the_package_is_a_program(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bayesnmf", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("bayesnmf", run_name="__main__")
    assert bayesnmf.__version__ in capsys.readouterr().out


@smallfits.quietly
def test_leading_features_have_a_line_for_each_component(monkeypatch):
    fit = smallfits.fit()
    lines = leading(fit, 4).splitlines()
    assert [line.split()[:2] for line in lines] == [["component", str(k)] for k in range(3)]
    assert lines[0].split(None, 2)[2] == ", ".join(fit.top_features(4).iloc[:, 0])

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 9)))
    cut = leading(fit, 8).splitlines()
    assert [len(line) for line in cut] == [20] * 3
    assert all(line.endswith("…") for line in cut)


def test_pages_have_no_control_characters():
    page = render(Page("cells \x1b[31m\x00 \x85 & more\t", []))
    assert "<h1>cells \ufffd[31m\ufffd \ufffd &amp; more" in page
    assert not {*page} & {*map(chr, range(32))} - {*"\t\n"}
