"""What would the tests find? Plants faults in the package, one at a time, and runs the tests that execute them.

``python tests/faults.py --out FOLDER [--number 60] [--seed 0] [--processes 1]`` works in a copy of the checkout:

1. It runs all tests, long ones too, and writes down the lines that each executes, and its CPU seconds (`tracing.py`).
2. It chooses faults from all that it could plant: a wrong operator, a sign, an index, a boundary, a forgotten term, an
   argument that is swallowed; over the rooms of the package in proportion to their lines of code.
3. For each fault it runs the tests of the default suite that execute the faulty line, the cheapest first and one of
   each test function before the second of any, until one fails or five CPU minutes are spent; and then those of
   the long suite in the same way. It prints which suite finds the fault, and by which test.

What has been done is kept in the folder, so that an interrupted run goes on. `EQUIVALENT` lists the faults that change
nothing that anyone could see, each with the reason; others take their place.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SECONDS = 300  # of the CPU, for one fault and suite: ten minutes for a fault
STAGES = (12, 100, 1_000_000)  # as many tests are run before more are looked for
SUITES = {"default": "not long", "long": "long"}

# Files whose code is to be replaced: nothing is planted there.
PASSING = ("*on_disk.py",)

# Faults that change nothing, by what `Fault.name` prints of them.
EQUIVALENT = {
    "operator: bayesnmf/data/simulation.py:132 `exposed.feature_factor * np.ones(m)` → "
    "`(exposed.feature_factor / np.ones(m))`":
        "what is divided by 1 is what is multiplied by it",
    'swallowed argument: bayesnmf/studies/calibration/calibrating.py:544 `NUTS(start="random", chains=1, warmup=300, '
    "draws=4 * draws)` → `(NUTS(start='random', chains=1, draws=4 * draws))`":
        "300 is the default of NUTS",
    'swallowed argument: bayesnmf/inference/marginal/allocation_model.py:276 `np.asarray(scaled, order="C")` → '
    "`(np.asarray(scaled))`":
        "how an array lies in memory changes no number",
    "index: bayesnmf/inference/response/spread.py:369 `self.of_components[0]` → `(self.of_components[1])`":
        "only its shape is asked for, and both have the same",
    "boundary: bayesnmf/inference/tempering/annealing.py:216 `spread_of(logs) <= WIDEST_SPREAD` → "
    "`(spread_of(logs) < WIDEST_SPREAD)`":
        "a spread of numbers that are drawn is never the limit itself",
}  # fmt: skip

SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div}
EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXTREMES = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}


class Fault(NamedTuple):
    """A place in a file, and what stands there instead."""

    kind: str
    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """The fault in one line."""
        return f"{self.kind}: {self.file}:{self.line} `{self.before}` → `{self.after}`"


# --- what can be planted ----------------------------------------------------------------------------


def is_text(node: ast.AST) -> bool:
    """Return whether an operand is a piece of text."""
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Give the kinds of faults that a node allows, each with the node that replaces it."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED and not (is_text(left) or is_text(right)):
            yield "operator", ast.BinOp(left, SWAPPED[type(op)](), right)
            yield "forgotten term", left
        case ast.BoolOp(values=[*most, _]):
            yield "forgotten term", ast.BoolOp(node.op, most) if len(most) > 1 else most[0]
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value):
            yield "sign", ast.AugAssign(target, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), value)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand
        case ast.Subscript(slice=ast.Constant(value=int(at))):
            yield "index", ast.Subscript(node.value, ast.Constant(at + 1), node.ctx)
        case ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            yield "index", ast.Subscript(node.value, ast.Constant(0), node.ctx)
        case ast.Compare(ops=[op]) if type(op) in EDGES:
            yield "boundary", ast.Compare(node.left, [EDGES[type(op)]()], node.comparators)
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            yield "boundary", ast.Call(ast.Name(EXTREMES[name], ast.Load()), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(attr=name)) if name in EXTREMES:
            func = ast.Attribute(node.func.value, EXTREMES[name], ast.Load())
            yield "boundary", ast.Call(func, node.args, node.keywords)
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            match keyword:
                case ast.keyword(arg="axis", value=ast.Constant(value=0 | 1 as axis)):
                    others = [ast.keyword("axis", ast.Constant(1 - axis)) if k is keyword else k for k in node.keywords]
                    yield "index", ast.Call(node.func, node.args, others)
                case ast.keyword(arg=str()):
                    others = [k for k in node.keywords if k is not keyword]
                    yield "swallowed argument", ast.Call(node.func, node.args, others)


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """Give a node and what stands in it, without annotations, messages of errors and declarations of decorators."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(value, ast.Raise | ast.JoinedStr):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and not isinstance(each, ast.Raise | ast.JoinedStr | ast.ImportFrom):
                yield from inner(each)


def faults_of(path: Path) -> Iterator[Fault]:
    """Give all faults that can be planted in a file."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text.encode()))
    raw = source.encode()
    for node in inner(ast.parse(source)):
        for kind, other in changes(node):
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            before, after = raw[start:end].decode(), ast.unparse(ast.fix_missing_locations(other))
            after = after if isinstance(node, ast.stmt) else f"({after})"
            yield Fault(kind, str(path.relative_to(ROOT)), node.lineno, start, end, before, after)


def room(path: Path) -> str:
    """Return the folder of a file; those of `inference` and `kernels` count one by one."""
    return str(path.parent.relative_to(ROOT))


def choose(number: int, seed: int) -> list[Fault]:
    """Choose faults over the rooms in proportion to their lines of code, each kind as often where it is possible."""
    files = defaultdict(list)
    for path in sorted([*(ROOT / "bayesnmf").rglob("*.py"), *(ROOT / "models").rglob("*.py")]):
        if not any(path.match(pattern) for pattern in PASSING):
            files[room(path)].append(path)
    sizes = {name: sum(len(path.read_text(encoding="utf-8").splitlines()) for path in of) for name, of in files.items()}
    share = {name: number * size / sum(sizes.values()) for name, size in sizes.items()}
    places = {name: int(each) for name, each in share.items()}
    for name in sorted(share, key=lambda name: places[name] - share[name])[: number - sum(places.values())]:
        places[name] += 1
    found = []
    for name, wanted in sorted(places.items()):
        generator = random.Random(f"{seed} {name}")
        by_kind = defaultdict(list)
        for fault in (fault for path in files[name] for fault in faults_of(path)):
            by_kind[fault.kind].append(fault)
        for _ in range(wanted):
            fault = None
            while fault is None or fault.name in EQUIVALENT:
                of_kind = by_kind[generator.choice(sorted(kind for kind, left in by_kind.items() if left))]
                fault = of_kind.pop(generator.randrange(len(of_kind)))
            found.append(fault)
    return found


# --- which tests execute what -----------------------------------------------------------------------


def copy_to(folder: Path) -> Path:
    """Copy the files of the checkout that git knows, and new ones that it does not ignore."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def run(tree: Path, *words: str, **environment: str) -> tuple[int, float]:
    """Run pytest in a copy of the checkout, whose package stands before the installed one.

    Returns
    -------
    code, seconds : int, float
        Exit code, and CPU seconds. What it printed is in ``printed.txt``.
    """
    (tree / "site").mkdir(exist_ok=True)
    (tree / "site" / "sitecustomize.py").write_text(
        'import os\n\nif os.environ.get("PYTEST_CURRENT_TEST"):\n    import tracing\n\n    tracing.watch_program()\n',
        encoding="utf-8",
    )
    paths = os.pathsep.join(str(tree / each) for each in ("site", "tests", "."))
    data = os.environ.get("BAYESNMF_DATA") or str(ROOT.parent / "shared" / "data")
    known = {**os.environ, "PYTHONPATH": paths, "BAYESNMF_DATA": data, **environment}
    command = [sys.executable, "-m", "pytest", "-p", "tracing", "-p", "no:cacheprovider", *words]
    with open(tree / "printed.txt", "wb") as printed:
        process = subprocess.Popen(command, cwd=tree, env=known, stdout=printed, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


class Table:
    """The tests of both suites: their CPU seconds and the lines that they execute."""

    def __init__(self, folder: Path) -> None:
        self.cost: dict[str, dict[str, float]] = {}
        self.lines: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for suite in SUITES:
            costs: dict[str, float] = defaultdict(float)
            for path in sorted((folder / suite).glob("*.jsonl")):
                for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                    for name, bits in row["lines"].items():
                        self.lines[row["test"]][name] |= int(bits, 16)
                    if row["outcome"] in ("passed", "") and row["test"]:
                        costs[row["test"]] += row["cpu"]
            self.cost[suite] = costs

    def tests(self, fault: Fault, suite: str) -> list[str]:
        """Return the tests that execute a line; of a line that is executed on import, those that use the file."""
        bit = 0 if self.lines[""][fault.file] >> fault.line & 1 else fault.line
        ran = {
            test: bits >> bit & 1 if bit else bits
            for test in self.cost[suite]
            if (bits := self.lines[test][fault.file])
        }
        seen: Counter[str] = Counter()
        ranked = []
        does = [test for test, bits in ran.items() if (bits & 1 if bit else bits)]
        for test in sorted(does, key=self.cost[suite].__getitem__):
            function = test.partition("[")[0]
            ranked.append((seen[function], self.cost[suite][test], test))
            seen[function] += 1
        return [test for *_, test in sorted(ranked)]


def trace(folder: Path) -> Table:
    """Run both suites, once, and return what their tests execute."""
    for suite, marks in SUITES.items():
        if (folder / suite / "done").exists():
            continue
        (folder / suite).mkdir(parents=True, exist_ok=True)
        for old in (folder / suite).glob("*.jsonl"):
            old.unlink()
        with tempfile.TemporaryDirectory() as work:
            run(copy_to(Path(work)), "-m", marks, BAYESNMF_LINES=str(folder / suite))
            printed = (Path(work) / "printed.txt").read_text(encoding="utf-8")
        (folder / suite / "done").write_text(printed, encoding="utf-8")
        print(f"{suite}: {printed.splitlines()[-1]}", flush=True)
    return Table(folder)


# --- the hunt ---------------------------------------------------------------------------------------


def first_failure(tree: Path, tests: dict[str, float], seconds: float) -> tuple[str, float]:
    """Run tests until one fails; return its name, or nothing, and the CPU seconds that were spent."""
    running = tree / "running.txt"
    running.write_text("before the first test", encoding="utf-8")
    chosen = {"tests": tests, "seconds": seconds, "running": str(running)}
    (tree / "chosen.json").write_text(json.dumps(chosen), encoding="utf-8")
    files = sorted({test.partition("::")[0] for test in tests})
    code, spent = run(
        tree, "-n", "0", "-x", "-m", "long or not long", *files, BAYESNMF_CHOSEN=str(tree / "chosen.json")
    )
    if code == 5:
        raise ValueError(f"none of the tests in {files} was found")
    return running.read_text(encoding="utf-8") if code else "", spent


def hunt(fault: Fault, table: Table, tree: Path) -> dict[str, Any]:
    """Plant a fault, run the tests that execute it, and take it away again."""
    path = tree / fault.file
    clean = path.read_bytes()
    planted = clean[: fault.start] + fault.after.encode() + clean[fault.end :]
    found: dict[str, Any] = {"fault": fault.name, "found by": "none", "test": "", "seconds": 0.0}
    for suite in SUITES:
        tests, spent, done = table.tests(fault, suite), 0.0, 0
        found[suite] = len(tests)
        for stage in STAGES:
            chosen = {test: table.cost[suite][test] for test in tests[done:stage]}
            while chosen and spent < SECONDS:
                path.write_bytes(planted)
                failed, seconds = first_failure(tree, chosen, SECONDS - spent)
                path.write_bytes(clean)
                spent, found["seconds"] = spent + seconds, found["seconds"] + seconds
                if not failed:
                    break
                if failed not in chosen or not first_failure(tree, {failed: chosen[failed]}, SECONDS)[0]:
                    return {**found, "found by": suite, "test": failed}
                chosen = dict(list(chosen.items())[list(chosen).index(failed) + 1 :])  # it fails without the fault, too
            done = stage
    return found


def main() -> None:
    """Hunt for the faults that an earlier run has left, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of what has been done")
    parser.add_argument("--number", type=int, default=60, help="number of faults")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice")
    parser.add_argument("--processes", type=int, default=1, help="faults that are hunted at the same time")
    parser.add_argument("--list", action="store_true", help="only print the faults")
    given = parser.parse_args()
    faults = choose(given.number, given.seed)
    if given.list:
        print("\n".join(fault.name for fault in faults))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "faults.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    table = trace(given.out.resolve())
    left = [fault for fault in faults if fault.name not in results]

    def follow(mine: list[Fault]) -> None:
        with tempfile.TemporaryDirectory() as work:
            tree = copy_to(Path(work))
            for fault in mine:
                results[fault.name] = hunt(fault, table, tree)
                kept.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
                print(json.dumps(results[fault.name], ensure_ascii=False), flush=True)

    with ThreadPoolExecutor(given.processes) as pool:
        list(pool.map(follow, (left[i :: given.processes] for i in range(given.processes))))
    counts = Counter(results[fault.name]["found by"] for fault in faults)
    print(f"{len(faults)} faults, found by: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
