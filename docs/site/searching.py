"""Search the built site as its search box does: `python docs/site/searching.py FOLDER` fails if a page is missed.

A page is found if every word, cut to its stem, stands in its text or titles; a word that no page has, within another.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# What users ask in their own words, and the page that answers it.
ASKED = {
    "number of topics": "ranks.md",
    "how many topics": "ranks.md",
    "how many components": "ranks.md",
    "MCMC": "posteriors.md",
    "heatmap": "gallery.py",
    "custom prior": "programs.md",
    "getting started": "get_started.md",
    "quickstart": "get_started.md",
    "load a csv file": "input.md",
    "overdispersion": "noise.md",
    "negative binomial": "noise.md",
    "batch effect": "batches.md",
    "marker genes": "fields/cells.md",
    "COSMIC signatures": "fields/signatures.md",
    "topic coherence": "fields/texts.md",
    "uncertainty of loadings": "posteriors.md",
    "confidence intervals": "posteriors.md",
    "multi-omics": "several.md",
    "save a fit": "checkpoints.md",
    "recommend items": "fields/items.md",
    "R-hat": "reliability.md",
    "random seeds give different results": "modes.md",
    "out of memory": "on_disk.md",
    "scikit-learn pipeline": "input.md",
    "goodness of fit": "reliability.md",
}


def index_of(site: Path) -> dict[str, Any]:
    """Return the index that Sphinx has written for the search box."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text[text.index("(") + 1 : text.rindex(")")])


def pages_with(index: dict[str, Any], query: str) -> set[str]:
    """Return the pages that a query finds, by name."""
    import snowballstemmer
    from sphinx.search.en import SearchEnglish

    stem = snowballstemmer.stemmer("english").stemWord
    words = [word for word in query.lower().replace("-", " ").split() if word not in SearchEnglish.stopwords]
    found = None
    for word in words:
        numbers: set[int] = set()
        for terms in (index["terms"], index["titleterms"]):
            exact = terms.get(stem(word))
            parts = [exact] if exact is not None else [terms[term] for term in terms if len(word) > 2 and word in term]
            numbers.update(number for part in parts for number in ([part] if isinstance(part, int) else part))
        found = numbers if found is None else found & numbers
    return {index["docnames"][number] for number in found or ()}


def missed(site: Path) -> list[str]:
    """Return the questions whose page is not found."""
    index = index_of(site)
    return [query for query, page in ASKED.items() if page.rsplit(".", 1)[0] not in pages_with(index, query)]


if __name__ == "__main__":
    if wrong := missed(Path(sys.argv[1])):
        sys.exit(f"the search box does not find the page of: {', '.join(wrong)}")
    print(f"the search box finds the page of each of {len(ASKED)} questions")
