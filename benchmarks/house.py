"""How large the code is: lines of code, files, imports, `Any`, and how many files one call visits.

``python -m benchmarks.house [FOLDER]`` counts the package and the models of a checkout, this one by default. Lines
without code (docstrings, comments, blank ones) do not count, and `Array`, which is an array of anything, is no `Any`.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
WALK = """
import sys
import bayesnmf
call = lambda: bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0]], rank=1, seed=0)
call()  # what is imported is no part of the trip
seen = set()
sys.setprofile(lambda frame, event, _: seen.add(frame.f_code.co_filename) if event == "call" else None)
call()
sys.setprofile(None)
print(sum("bayesnmf" in name and "site-packages" not in name and not name.startswith("<") for name in seen))
"""


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines with code."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    told = {id(node.body[0].value): node.body[0] for node in ast.walk(tree)
            if isinstance(node, kinds) and node.body and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant) and isinstance(node.body[0].value.value, str)}  # fmt: skip
    without = {line for each in told.values() for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {line for token in tokens if token.type not in IGNORED for line in range(token.start[0], token.end[0] + 1)}
    return found - without


def sizes(folder: Path) -> dict[str, float]:
    """Return what is counted of a checkout."""
    found: Counter[str] = Counter()
    for path in [*(folder / "bayesnmf").rglob("*.py"), *(folder / "models").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        code = code_lines(text, tree)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        found["files"] += 1
        found["code lines"] += len(code)
        found["lines of imports"] += sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)
        found["Any"] += sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
        found["isinstance"] += text.count("isinstance(")
        found["raise"] += sum(isinstance(node, ast.Raise) for node in ast.walk(tree))
    return {**found, "imports, %": 100 * found["lines of imports"] / found["code lines"]}


def main() -> None:
    """Print what is counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT)
    folder = parser.parse_args().folder
    for name, value in sizes(folder).items():
        print(f"{name:18} {value:10,.1f}" if name.endswith("%") else f"{name:18} {value:10,}")
    done = subprocess.run([sys.executable, "-c", WALK], cwd=folder, capture_output=True, text=True, check=False)
    print(f"{'files of a fit':18} {done.stdout.strip() or done.stderr.strip()[-60:]:>10}")


if __name__ == "__main__":
    main()
