"""What pages show as printed is what their code prints, up to rounding and to seconds."""

import re

import numpy as np
import pytest
from test_guides import ROOT, from_site

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
SECONDS = re.compile(r"[\d.,]+ (s|min|h)\b")


def alike(stated: str, printed: str) -> bool:
    """Return whether two texts differ in seconds, and in numbers by rounding, alone."""
    one, two = (SECONDS.sub(r"some \1", text) for text in (stated, printed))
    if [each.split() for each in NUMBER.split(one)] != [each.split() for each in NUMBER.split(two)]:
        return False
    numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (one, two)]
    return np.allclose(*numbers, rtol=0.02, atol=0.03)


def outputs():
    return from_site("outputs")


@pytest.mark.long
@pytest.mark.parametrize("name", outputs().PAGES)
def test_pages_show_what_their_code_prints(name):
    found = list(outputs().outputs_of(ROOT / name))
    assert found
    for each in found:
        assert alike(each.stated, each.printed), f"{each.code}\n{each.printed}\nrun python docs/outputs.py"
        assert not each.picture or (ROOT / name).parent.joinpath(each.picture).is_file()


def test_another_output_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('b 2.001, after 3 s')\n```\n\n```text\nb 2.0, after 7 s\n```\n", encoding="utf-8")
    (found,) = outputs().outputs_of(page)
    assert alike(found.stated, found.printed)
    assert not alike(found.stated, "b 2.5, after 7 s")
    assert not alike(found.stated, "c 2.0, after 7 s")
    page.write_text("```python\nprint(1)\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="whose output it does not show"):
        list(outputs().outputs_of(page))
