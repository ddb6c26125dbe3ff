"""The page of the glossary, from the terms that reports explain, too."""

from __future__ import annotations

from bayesnmf.pages.words import TERMS


def glossary_page() -> str:
    """Return the page, with a place for each term to which others can link."""
    terms = "\n\n".join(f"   {term}\n      {text}" for term, text in sorted(TERMS.items(), key=lambda t: t[0].lower()))
    return f"Glossary\n========\n\nThe words of fits, figures and reports.\n\n.. glossary::\n\n{terms}\n"
