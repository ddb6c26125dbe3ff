"""The page of a fit, and its sections that need few lines each: covariates, checks, methods, settings, citations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

import bayesnmf
from bayesnmf import plots
from bayesnmf.assessment.matching import Match
from bayesnmf.assessment.predictive_checks import headings_and_lines, verdict_of
from bayesnmf.data.labels import listed as listed_labels
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.pages.in_short import in_short, tiles
from bayesnmf.pages.of_components import components_of_matrices
from bayesnmf.pages.of_evidence import evidence
from bayesnmf.pages.of_samples import composition, uncertainty
from bayesnmf.pages.parts import Number, Page, Section, Table, drawn
from bayesnmf.pages.reading import Given, Read, read
from bayesnmf.pages.words import capital, counted, listed, model_in_words, references_of, say
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.results.cautions import cautions_of, cautions_of_model
from bayesnmf.results.checks import check_groups
from bayesnmf.results.describing import noise_in_words
from bayesnmf.results.draws import is_resampled
from bayesnmf.results.effects import has_effects_to_show
from bayesnmf.results.intervals import kind_of_intervals, share_unmixed
from bayesnmf.results.record import LEARNED
from bayesnmf.text import rate

LONGEST = 600  # characters of priors and options


def page_of_fit(fit: Fit, given: Given, told: ProgressReport) -> Page:
    """Return the page."""
    number = f"{counted(fit.rank, 'component')} of {counted(fit.counts.shape[0], 'sample')}"
    if given.groups is not None:
        given = given._replace(groups=check_groups(given.groups, fit.row_names))
    told("report", 0, 10, np.nan)
    found, made = read(fit, given), []
    parts = (
        lambda: [composition(found)],
        lambda: [covariates(fit)] if has_effects_to_show(fit) else [],
        lambda: [] if given.known is None else [known_components(fit, given.known)],
        lambda: components_of_matrices(found),
        lambda: evidence(found),
        lambda: [convergence(fit)],
        lambda: [uncertainty(found)],
        lambda: [checks(found)],
        lambda: [methods(found), settings(fit), citations(found)],
    )
    for done, part in enumerate(parts, 1):
        told("report", done, len(parts) + 1, np.nan)
        made.extend(part())
    told("report", len(parts) + 1, len(parts) + 1, np.nan)
    cautions = [*cautions_of(fit), *cautions_of_model(fit)]  # that of intervals is in what may be trusted
    return Page(number, made, in_short(found), tiles(found), cautions)


def known_components(fit: Fit, known: Match) -> Section:
    """Return the known component that each component matches, with their cosines."""
    titles, rows = fit.component_titles, []
    for each in known.table.to_dict("records"):
        ends = [each["low"], each["high"]] if "low" in each else []
        told = f"{each['cosine']:.2f}{' [{:.2f}, {:.2f}]'.format(*ends) if ends else ''}"
        other = "" if each["closest"] == each["reference"] else f"{each['closest']} ({each['closest cosine']:.2f})"
        rows.append([titles[each["component"]], str(each["reference"]), Number(told, each["cosine"], *ends), other])
    text = [say("known.about"), *([say("known.ends")] if "low" in known.table else [])]
    if len(known.unmatched):
        text.append(say("known.unmatched", names=", ".join(titles[k] for k in known.unmatched)))
    text.append(say("known.leftover", number=len(known.leftover)))
    tables = [Table(["component", "known as", "cosine", "closest, if another"], rows)]
    return Section("Known components", text, tables=tables)


def covariates(fit: Fit) -> Section:
    """Return the effects of covariates on the components, with intervals."""
    table, titles = fit.effects(), dict(zip(fit.component_labels, fit.component_titles, strict=True))
    effects, draws = cast(Any, table.itertuples()), table.attrs["draws"]
    rows = []
    for (component, term), row in zip(table.index, effects, strict=True):
        effect = Number(f"{row.effect:.3g} [{row.low:.3g}, {row.high:.3g}]", row.effect, row.low, row.high)
        rows.append([titles[component], str(term), effect, Number(rate(row.lfsr, draws), row.lfsr)])
    text = f"Effects are on the {table.attrs['scale']}, in the units of the covariates; {table.attrs['intervals']}."
    tables = [Table(["component", "term", "effect", "lfsr"], rows)]
    return Section("What the loadings depend on", [text], cautions=table.attrs["cautions"], tables=tables)


def convergence(fit: Fit) -> Section:
    """Return the course of the fit."""
    text = [f"{capital(fit.status.reason)}; {fit.seconds:,.1f} s."]
    if fit.estimate.kind == "draws" and is_resampled(fit):
        return Section("Convergence", [*text, say("convergence.particles")])
    if fit.estimate.kind == "draws":
        figure = drawn(lambda: plots.chains(fit, 3), say("convergence.traces"))
        return Section("Convergence", [*text, say("convergence.chains")], figures=[figure])
    if not fit.by.runner:  # it has no course
        return Section("Convergence", text)
    figure = drawn(lambda: plots.objectives(fit), say("convergence.objective", objective=fit.objective))
    return Section("Convergence", text, figures=[figure])


def checks(read: Read) -> Section:
    """Return predictive checks; where there are none, why."""
    heading, found = "Could the model have made these counts?", read.checks
    if found is None:
        return Section(heading, [read.unchecked])
    figure = drawn(lambda: plots.predictive_checks(found), say("checks.picture"))
    text = [verdict_of(found), *([say("checks.misfit")] if found.failed else []), say("checks.p_values")]
    text += [f"{capital(note)}." for note in found.notes if not note.startswith("CAUTION ")]
    _, lines = headings_and_lines(found)
    numbers = found.table[["observed", "mean", "low", "high", "p_value", "p_adjusted"]].to_numpy()
    rows = [
        [name, Number(observed, own[0]), Number(f"{mean} [{low}, {high}]", *own[1:4]), *map(Number, chances, own[4:])]
        for (name, observed, mean, low, high, *chances), own in zip(lines, numbers, strict=True)
    ]
    table = Table(["statistic", "observed", f"right model [{found.interval:.0%}]", "p-value", "adjusted"], rows)
    return Section(heading, text, tables=[table], figures=[figure])


def methods(read: Read) -> Section:
    """Return what was done, as a paragraph for a paper."""
    fit, (n, m), noise = read.fit, read.fit.counts.shape, noise_in_words(read.fit).removeprefix(", ")
    told = [
        say("paper.counts", features=m, samples=n, total=fit.counts.total, components=_components(fit),
            version=bayesnmf.__version__, model=model_in_words(fit),
            noise=say("paper.noise", noise=noise) if noise else ""),
        *([say("paper.exposed")] if fit.counts.exposed else []),
        say("paper.method", method=say(f"methods.{fit.method}.told"), unmixed=_unmixed(read),
            seed=f" (seed {fit.seed})" if fit.by.runner else "",
            intervals=say(f"intervals.{kind_of_intervals(read.intervals)}.brief")),
        _checked(read),
    ]  # fmt: skip
    return Section("Methods, for a paper", [" ".join(told)])


def _unmixed(read: Read) -> str:
    """Return where the chain of the intervals has not mixed, which a paper has to say; "" where it has."""
    found = read.intervals.intervals
    if found is None or not found.share_above:
        return ""
    return say("paper.unmixed", where=share_unmixed(found), r_hat=found.r_hat)


def _components(fit: Fit) -> str:
    number = counted(fit.rank, "component")
    if fit.is_projected:
        return say("paper.held", number=number)
    if isinstance(fit.priors.components, PartlyKnown):
        return say("paper.given", number=number, given=len(fit.priors.components.known))
    return number


def _checked(read: Read) -> str:
    found = read.checks
    if found is None or np.isnan(found.p_value):
        return say("paper.unchecked")
    names = listed(map(str, found.table.index))
    return say("paper.checked", refits=found.refits, differed=listed(found.failed) or "nothing", names=names)


def settings(fit: Fit) -> Section:
    """Return what is needed to repeat the fit."""
    # Given components are left out, since all their numbers would be shown.
    own = replace(fit.priors, components=getattr(fit.priors.components, "free_prior", fit.priors.components))
    given: Any = fit.noise
    noise = f"bayesnmf.{given.with_dispersion(None)!r}" if LEARNED in fit.diagnostics else "fit.noise"
    noise = "fit.noise.with_dispersion(None)" if LEARNED in fit.diagnostics and given.by == "matrix" else noise
    rows = [
        ["model", fit.model],
        ["method", f"{fit.method} (bayesnmf.{fit.by.options.__name__})"],
        ["rank", str(fit.rank)],
        ["seed", str(fit.seed)],
        ["objective", f"{fit.objective} {fit.trace.mean() if fit.trace.ndim == 2 else fit.trace[-1]:,.3f}"],
        ["priors", _cut(repr(own))],
        ["noise", _cut(repr(fit.noise))],
        ["options", _cut(repr(replace(fit.options, priors=own)))],
    ]
    if fit.batch is not None:
        rows.append(["batches", f"{listed_labels(fit.batch.names.tolist())}; factors of shape {fit.batch.shape:.3g}"])
    if not fit.by.runner or unknown_side(fit.priors):
        from_where = "fit" if fit.estimate.kind == "point" else "fit.posterior"
        code = say("code.elsewhere", given=f"({from_where}.loadings, {from_where}.components)")
    else:
        code = say("code.project" if fit.is_projected else "code.repeat", noise=noise)
    return Section("How to repeat it", tables=[Table(["", ""], rows, numeric=False)], code=code)


def _cut(text: str) -> str:
    """Return a text, or its beginning where it has all numbers of an array."""
    return text if len(text) <= LONGEST else say("paper.cut", text=text[:LONGEST])


def citations(read: Read) -> Section:
    """Return what to cite: the model, the method, and what the page computes."""
    fit = read.fit
    chains = fit.estimate.kind == "draws" and not fit.by.resampled
    more = ["cite.signs", *["cite.chains"] * chains, *["cite.neighbours"] * (fit.rank > 2)]
    return Section("How to cite", references=references_of(fit.model, [fit.method], more))
