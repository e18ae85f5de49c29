"""The report page of a posterior: pictures of possible true counts, then tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trueup.io.bundle.posterior import margins
from trueup.model.cells import Margin
from trueup.model.records.drawn import Columns
from trueup.model.records.posterior import Posterior
from trueup.model.spec import Spec
from trueup.reporting.drawing import Block, Column, Facts, Page, Section, Table, Text, numeric, present
from trueup.reporting.drawing.words import number, numbers, percent, plain, plural, said
from trueup.reporting.sections.counts import HIDDEN, counts_table
from trueup.reporting.sections.opening import counted, counted_line
from trueup.reporting.sections.origin import Ledger, reported
from trueup.reporting.sections.posterior_pictures import PosteriorView, intervals, shapes
from trueup.reporting.sections.results import asked_results, posterior_results
from trueup.version import __version__


def posterior_page(
    posterior: Posterior, spec: Spec, ledger: Ledger, areas: Mapping[str, NDArray] | None = None
) -> Page:
    """Return the report page of a posterior."""
    unit = plural(spec.table.counts)
    published = hasattr(spec, "published")  # a spec of tables that somebody else published
    view = PosteriorView(posterior, unit, published=published)
    return Page(
        spec.title,
        "Posterior of the true counts: what they may be, given everything that was published",
        "",
        (*counted_line(spec, unit), *posterior_facts(posterior)),
        present(
            asked_results(posterior, counted(spec, unit), areas),
            posterior_results(posterior, counted(spec, unit)),
            ratios(posterior, view.noisy_name),
            shapes(view),
            reading_section(posterior, perturbed=published),
            intervals(view),
            tables(posterior, unit, published=published),
            _making(posterior, spec),
            _words(posterior, published=published),
        ),
    )


def posterior_facts(posterior: Posterior) -> tuple[tuple[str, str], ...]:
    chains, draws, n = posterior.draws.shape
    drawn = posterior.drawn
    known = "converged" if drawn.connected else "agree"
    given = posterior.method.get("prior")
    prior = "flat" if given is None else str(dict(given)["name"])
    kind = "independent" if drawn.independent else f"from {chains} Markov chains that {known}"
    intervals = (
        "contradicted by the measurements"
        if posterior.conflicts
        else f"at least {percent(posterior.level)} each"
    )
    return (
        ("Counts", number(n)),
        ("Draws of all counts together", f"{number(chains * draws)}, {kind}"),
        ("Intervals", intervals),
        ("Assumed before", _ASSUMED.get(prior, posterior.prior.removeprefix("the "))),
        ("Method", str(posterior.method["method"])),
    )


_ASSUMED = {  # words for the prior on which the posterior is based
    "hierarchical": "how unevenly wholes split into parts, as the published numbers themselves say",
    "flat": "nothing: every count that the rules allow was equally likely",
    "estimated": "how large counts usually are, as the published numbers themselves say",
}


_NOISY = (
    "The published counts carry random noise of a known law, so the true counts are not known. But not everything is "
    "equally likely: the law of the noise",
    "The posterior is computed from published numbers alone. It takes nothing away from the protection.",
)
_PERTURBED = (
    "Another producer rounded, changed or withheld the published counts, so the true counts are not known. But not "
    "everything is equally likely: how values follow from true counts, as far as that is stated",
    "The posterior is computed from published numbers alone. What they give away of anybody is not bounded by a formal "
    "guarantee, neither by their producer's method nor by this page.",
)


def reading_section(posterior: Posterior, *, perturbed: bool) -> Section:
    """Return the section on how to read the posterior."""
    first, last = _PERTURBED if perturbed else _NOISY
    return Section(
        "reading",
        "How to read this page",
        (
            Text(
                f"{first}, the rules that true counts obey (they are not negative, and parts add up to their "
                "wholes) and all published counts together leave a probability for every possible value. That is "
                "the posterior.",
                f"{posterior.promise} Counts are whole, so an interval can rarely hold exactly what was asked for.",
                "Counts are not independent of each other: where one is larger, others must be smaller. For "
                "a sum, a difference or a ratio of your own, use the draws (each is one possible table of true counts), "
                "and do not add up the ends of intervals.",
                last,
            ),
        ),
    )


def _making(posterior: Posterior, spec: Spec) -> Section:
    """Return the section on method, parameters, cautions, and the digest of the measurements."""
    parameters = [
        (plain(k).capitalize(), said(v)) for k, v in sorted(posterior.method.items()) if k != "method"
    ]
    facts = (
        ("Method of inference", str(posterior.method["method"])),
        *parameters,
        *reported(posterior.drawn.stats, posterior.method),
        ("Software", f"trueup {__version__}"),
        ("Dataset", spec.table.name),
        ("Digest of the published record (SHA-256)", posterior.source),
    )
    blocks: tuple[Block, ...] = (
        Text(_draws_are(posterior)),
        Facts(tuple((name, value) for name, value in facts if value)),
    )
    return Section("making", "How it was made", blocks)


def _draws_are(posterior: Posterior) -> str:
    if posterior.drawn.independent:
        return (
            "The draws are independent and follow the posterior exactly, up to the mass that is reported as dropped; "
            "their only error is that there are finitely many of them."
        )
    if posterior.drawn.connected:
        return (
            "The draws are those of Markov chains that converged: their moves are proved to reach every possible table, they "
            "agree with each other, and every count and sum that was watched has enough independent information."
        )
    return (
        "The draws are those of Markov chains that agree with each other and hold enough independent information; that they "
        "reach every possible table is not known, so a part of the posterior may be missing."
    )


_WORDS = {
    "Posterior": "The probability of every possible table of true counts, given what was published.",
    "Prior": "What was assumed of the true counts before anything was published; 'flat' means nothing.",
    "Published count": f"The number that its producer shows: exact, rounded or changed; '{HIDDEN}' where no number is shown.",
    "Noisy count": "The true count plus a random number from a known law. It may be negative.",
    "Released count": "What reconciliation made of the noisy counts: whole, not negative, adding up.",
    "Median": "The value that the true count is as likely to be below as above.",
    "Draw": "One possible table of all true counts, chosen with its posterior probability.",
}


def _words(posterior: Posterior, *, published: bool) -> Section:
    """Return the section that explains the words used on the page."""
    left = ("Noisy count", *(() if posterior.released is not None else ("Released count",)))
    left = left if published else ("Published count",)
    words = Facts(tuple((word, text) for word, text in _WORDS.items() if word not in left))
    return Section("words", "Words used on this page", (words,))


def tables(posterior: Posterior, unit: str, *, published: bool = False) -> Section:
    """Return the section with a summary table of every margin."""
    text = Text(
        "Mean, standard deviation, median and interval of every true count, the probability of the interval itself, "
        "and what was published. The mean has the smallest expected squared error; it need not be whole."
    )
    shown = (_table(posterior, m, unit, published=published) for m in margins(posterior))
    return Section("counts", "All counts", (text, *shown))


def _table(posterior: Posterior, margin: Margin, unit: str, *, published: bool) -> Table:
    described = posterior.summary(margin)

    def columns(at: slice) -> list[Column]:
        return [
            *_described(described, at, unit),
            *_published(posterior, margin, at, unit, published=published),
        ]

    return counts_table(posterior.cells, margin, "posterior counts", "summary", columns)


def _described(described: Columns, at: slice, unit: str) -> list[Column]:
    named = (
        ("mean", "Mean"),
        ("sd", "Standard deviation"),
        ("median", "Median"),
        ("low", "Interval from"),
        ("high", "to"),
    )
    found = [numeric(f"{name} ({unit})" if unit else name, described[key][at]) for key, name in named]
    found.append(numeric("Its probability (%)", 100 * described["mass"][at]))
    if np.any(described["mcse"][at] > 0):
        found.append(numeric("Simulation error of the mean", described["mcse"][at]))
    return found


def _published(
    posterior: Posterior, margin: Margin, at: slice, unit: str, *, published: bool
) -> list[Column]:
    found = []
    if posterior.released is not None:
        released = posterior.cells.sum(posterior.released, margin)
        found.append(numeric(f"Released ({unit})", released[at]))
    if posterior.noisy is not None and margin in posterior.cells.finest_tables:
        own = posterior.noisy[0][at]
        texts = (
            [HIDDEN if v != v else text for v, text in zip(own, numbers(own))] if published else numbers(own)
        )
        found.append(numeric(f"{'Published' if published else 'Noisy'} ({unit})", texts))
    return found


def ratios(posterior: Posterior, noisy: str = "noisy count") -> Section | None:
    """Return the section on the ratios in the spec, with Fieller confidence sets; None without ratios."""
    if not posterior.ratios:
        return None
    columns = posterior.ratio_summary()
    every = slice(None)
    found = [Column("Place", columns["place"].tolist()), Column("Quantity", columns["quantity"].tolist())]
    found += _described(columns, every, "")
    if np.any(columns["denominator_zero"] > 0):
        zero = numbers(100 * columns["denominator_zero"])
        found.append(numeric("Probability that the denominator is 0 (%)", zero))
    if "noisy" in columns:
        found += [
            numeric(f"Ratio of {noisy}s", columns["noisy"]),
            Column("Fieller set", columns["fieller"].tolist()),
            numeric("from", columns["fieller_low"]),
            numeric("to", columns["fieller_high"]),
        ]
    text = Text(
        "The posterior interval of a ratio is always an interval inside the rules. The Fieller set beside it knows the "
        f"{noisy}s alone: where the denominator may be zero it is the complement of an interval, or the whole line. "
        "Where the true denominator may be 0 its probability is stated, and the rest holds given that it is not."
    )
    size = len(columns["place"])
    table = Table(
        "Ratios at every place", tuple(found), summary=f"{number(size)} ratios", unfolded=size <= 60
    )
    return Section("ratios", "Ratios", (text, table))
