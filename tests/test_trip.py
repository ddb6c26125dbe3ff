"""How many files one plain call visits, and that CONTRIBUTING.md names them in order."""

import re
import sys
from pathlib import Path

import numpy as np

import bayesnmf

ROOT = Path(__file__).parent.parent
MOST = 47  # lower it with every file fewer
COUNTS = np.random.default_rng(0).poisson(3, (16, 12))


def visited():
    """Files of the package in which a function is called, in order, once all is imported."""
    seen = {}
    bayesnmf.fit(COUNTS, rank=3, seed=0, options=bayesnmf.VI(tol=1e-3))

    def visit(frame, event, _):
        if event == "call":
            seen[frame.f_code.co_filename] = None

    before = sys.getprofile()
    sys.setprofile(visit)
    try:
        bayesnmf.fit(COUNTS, "gamma_poisson", 10, "vi", seed=0)
    finally:
        sys.setprofile(before)
    package = ROOT / "bayesnmf"
    return [str(Path(file).relative_to(package)) for file in seen if Path(file).is_relative_to(package)]


def test_a_plain_fit_visits_few_files_and_the_guide_names_them():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    page = text.split("## The trip of one call")[1].split("\n## ")[0]
    files = visited()
    assert re.findall(r"`([\w/]+\.py)`", page) == files
    assert len(files) <= MOST
