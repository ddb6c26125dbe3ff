"""A pytest plugin for `tests/faults.py`: records which lines each test executes, and runs chosen tests in one order.

``BAYESNMF_LINES=folder`` writes a file for each process into the folder: for every test the CPU seconds it took, its
outcome, and for every file of the package the lines that it executed, as the bits of a number in hexadecimal. Lines of
a compiled function count as executed where Python calls it, or another compiled function that calls it. A test also
gets the lines of the fixtures, and of the cached functions of tests, whose values it uses. Programs that a test starts
are recorded for the test.

``BAYESNMF_CHOSEN=file.json`` runs the tests that the file names, in its order, until their CPU seconds are spent.
"""

import atexit
import faulthandler
import functools
import json
import os
import resource
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = str(HERE.parent)
PACKAGE = tuple(f"{ROOT}/{folder}/" for folder in ("bayesnmf", "models"))
COMPILED = {"CPUDispatcher", "PjitFunction", "_Intrinsic"}
PATIENCE, SLOWER = 120, 20  # a test that runs this many seconds longer than so many times its usual time has no end

on = sys.monitoring if sys.version_info >= (3, 12) else None
lines: dict[str, int] = defaultdict(int)  # of the test that is running, by file
of_setup: dict[object, dict[str, int]] = {}


def cpu() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent)


def span(code) -> int:
    """Return all lines of a function and of those inside it, as bits."""
    own = [line for *_, line in code.co_lines() if line]
    found = sum(1 << line for line in range(code.co_firstlineno, max(own) + 1))
    for inner in code.co_consts:
        if hasattr(inner, "co_lines"):
            found |= span(inner)
    return found


@functools.cache
def lines_of_compiled(function) -> dict[str, int]:
    """Return the lines of a compiled function and of all the compiled functions that it names."""
    found: dict[str, int] = defaultdict(int)
    waiting, seen = [function], set()
    while waiting:
        each = waiting.pop()
        plain = next((getattr(each, name) for name in ("py_func", "__wrapped__", "_defn") if hasattr(each, name)), each)
        if id(plain) in seen or not hasattr(plain, "__code__"):
            continue
        seen.add(id(plain))
        if plain.__code__.co_filename.startswith(PACKAGE):
            found[plain.__code__.co_filename] |= span(plain.__code__)
            names = set(plain.__code__.co_names).union(
                *(c.co_names for c in plain.__code__.co_consts if hasattr(c, "co_names"))
            )
            known = [plain.__globals__.get(name) for name in names]
            known += [cell.cell_contents for cell in plain.__closure__ or () if cell != type(cell)()]
            waiting += [k for k in known if type(k).__name__ in COMPILED or hasattr(k, "__code__")]
    return found


def add(new: dict[str, int]) -> None:
    """Count lines as executed by the test that is running."""
    for name, bits in new.items():
        lines[name] |= bits


def on_start(code, _offset):
    """Watch the lines and calls of a function of the package, and the calls of a test."""
    if code.co_filename.startswith(PACKAGE):
        on.set_local_events(on.COVERAGE_ID, code, on.events.LINE | on.events.CALL)
    elif code.co_filename.startswith(str(HERE)) and code.co_filename != __file__:
        on.set_local_events(on.COVERAGE_ID, code, on.events.CALL)
    return on.DISABLE


def on_line(code, line):
    """Record a line."""
    lines[code.co_filename] |= 1 << line
    return on.DISABLE


def on_call(_code, _offset, function, _first):
    """Record the lines of a compiled function."""
    if type(function).__name__ not in COMPILED:
        return on.DISABLE
    add(lines_of_compiled(function))
    return None


def begin() -> dict[str, int]:
    """Begin with no lines; return those until now. A line is reported once after each beginning."""
    before = dict(lines)
    lines.clear()
    on.restart_events()
    return before


def watch() -> None:
    """Begin to record."""
    on.use_tool_id(on.COVERAGE_ID, "bayesnmf lines")
    for event, handler in ((on.events.PY_START, on_start), (on.events.LINE, on_line), (on.events.CALL, on_call)):
        on.register_callback(on.COVERAGE_ID, event, handler)
    on.set_events(on.COVERAGE_ID, on.events.PY_START)
    atexit.register(on.set_events, on.COVERAGE_ID, 0)


def write(test: str, seconds: float, outcome: str) -> None:
    """Append what a test executed to the file of this process."""
    found = {name.removeprefix(f"{ROOT}/"): f"{bits:x}" for name, bits in list(lines.items()) if bits}
    with open(Path(os.environ["BAYESNMF_LINES"]) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "cpu": round(seconds, 4), "outcome": outcome, "lines": found}) + "\n")


def watch_program() -> None:
    """Record a program that a test starts: called by the `sitecustomize` of `tests/faults.py`."""
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if test and os.environ.get("BAYESNMF_LINES"):
        atexit.register(write, test.rsplit(" ", 1)[0], 0.0, "")
        watch()


def remembering(make):
    """Return `functools.cache`, which for functions of tests gives each caller the lines that made the value."""

    def cache(function):
        if not function.__code__.co_filename.startswith(str(HERE)) or function.__code__.co_filename == __file__:
            return make(function)
        made: dict[object, dict[str, int]] = {}

        def recorded(*args, **kwargs):
            before = begin()
            try:
                return function(*args, **kwargs)
            finally:
                made[args, tuple(kwargs.items())] = begin()
                add(before)
                add(made[args, tuple(kwargs.items())])

        kept = make(functools.wraps(function)(recorded))

        @functools.wraps(function)
        def found(*args, **kwargs):
            value = kept(*args, **kwargs)
            add(made.get((args, tuple(kwargs.items())), {}))
            return value

        return found

    return cache


def wrapping(hook):
    """Declare a hook of pytest that runs around the others."""
    return sys.modules["pytest"].hookimpl(wrapper=True)(hook) if "pytest" in sys.modules else hook


class Lines:
    """Write what each test executes."""

    def pytest_collection_finish(self, session):
        """Record what importing executes, for no test."""
        write("", 0.0, "")

    @wrapping
    def pytest_fixture_setup(self, fixturedef, request):
        """Record what a fixture that several tests share executes."""
        if fixturedef.scope == "function":
            return (yield)
        before = begin()
        try:
            return (yield)
        finally:
            of_setup[fixturedef] = begin()
            add(before)

    @wrapping
    def pytest_runtest_protocol(self, item, nextitem):
        """Record one test."""
        begin()
        self.outcome, start = "passed", cpu()
        found = yield
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            for each in definitions:
                add(of_setup.get(each, {}))
        write(item.nodeid, cpu() - start, self.outcome)
        return found

    def pytest_runtest_logreport(self, report):
        """Keep the outcome."""
        if report.outcome != "passed":
            self.outcome = report.outcome


class Chosen:
    """Run the tests of a list in its order, until the seconds are spent, and write down which test is running."""

    def __init__(self, path: str) -> None:
        chosen = json.loads(Path(path).read_text(encoding="utf-8"))
        self.costs, self.left, self.running = chosen["tests"], chosen["seconds"], Path(chosen["running"])

    def pytest_collection_modifyitems(self, config, items):
        """Keep the tests of the list."""
        place = {test: at for at, test in enumerate(self.costs)}
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])
        self.end = cpu() + self.left

    @wrapping
    def pytest_runtest_protocol(self, item, nextitem):
        """Run one test, and end the process where it does not end."""
        if cpu() > self.end:
            sys.modules["pytest"].exit("the seconds are spent", returncode=0)
        self.running.write_text(item.nodeid, encoding="utf-8")
        faulthandler.dump_traceback_later(PATIENCE + SLOWER * self.costs[item.nodeid], exit=True, file=sys.__stderr__)
        found = yield
        faulthandler.cancel_dump_traceback_later()
        return found


def pytest_configure(config):
    """Do what the environment asks for."""
    if os.environ.get("BAYESNMF_LINES") and not (
        config.getoption("numprocesses", 0) and not hasattr(config, "workerinput")
    ):
        config.pluginmanager.register(Lines())
    if os.environ.get("BAYESNMF_CHOSEN"):
        config.pluginmanager.register(Chosen(os.environ["BAYESNMF_CHOSEN"]))


if os.environ.get("BAYESNMF_LINES") and "pytest" in sys.modules:
    functools.cache = remembering(functools.cache)
    watch()
