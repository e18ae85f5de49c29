"""The report of a posterior: what the true counts may be, in pictures, then in tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.posterior import Columns, Posterior
from trueup.model.spec import Spec
from trueup.report.blocks import Block, Column, Facts, Page, Section, Table, Text
from trueup.report.counts import counts_table, place_names
from trueup.report.origin import Ledger
from trueup.report.pictures import Axis, Figure, Mark, Shape
from trueup.report.ridges import Ridge, Ridges, steps
from trueup.report.words import number, numbers, percent, plain, plural, said
from trueup.version import __version__

EACH = 5
"""Smallest counts, and largest ones, that are drawn as hills."""

MOST_ROWS = 30
"""Rows of the picture of intervals."""


def posterior_page(posterior: Posterior, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of a posterior; it is made from public records, so there is no ledger to name."""
    unit = plural(spec.table.counts)
    view = _View(posterior, unit)
    return Page(
        spec.title,
        "Posterior of the true counts: what they may be, given everything that was published",
        "",
        _summary(posterior),
        tuple(
            section
            for section in (
                _reading(posterior),
                _shapes(view),
                _intervals(view),
                _tables(posterior, unit),
                _ratios(posterior),
                _making(posterior, spec),
                _words(),
            )
            if section is not None
        ),
    )


class _View:
    """The finest counts as the pictures need them: their summary, names and what was published of them."""

    def __init__(self, posterior: Posterior, unit: str) -> None:
        self.posterior, self.unit = posterior, unit
        self.table = posterior.summary()
        self.by_size = np.argsort(self.table["mean"], kind="stable")
        self.noisy = None if posterior.noisy is None else posterior.noisy[0]

    @property
    def origin(self) -> tuple[str, NDArray]:
        """What differences are taken from: released counts, or noisy ones, or posterior medians."""
        if self.posterior.released is not None:
            return "released count", self.posterior.released
        if self.noisy is not None and np.isfinite(self.noisy).all():
            return "noisy count", self.noisy
        return "median", self.table["median"]

    def name(self, cell: int) -> str:
        """Readable name of a cell."""
        return cell_name(self.posterior.cells, cell)

    def masses(self, cell: int) -> tuple[NDArray, NDArray]:
        """Values of a count in order, and their probabilities."""
        exact = self.posterior.drawn.marginals.get(self.posterior.cells.finest)
        if exact is not None:
            return exact.pmf(cell)
        values, times = np.unique(self.posterior.draws[..., cell], return_counts=True)
        return values, times / times.sum()


def cell_name(cells: Cells, cell: int) -> str:
    """Readable name of one of the finest cells."""
    place, *_ = np.unravel_index(cell, cells.shape)
    named = place_names(cells, len(cells.tree.levels) - 1, np.array([place]))
    label = cells.label(cell)
    return (
        label
        if named is None
        else label.replace(cells.tree.label(cells.tree.levels[-1], int(place)), named[0], 1)
    )


def _summary(posterior: Posterior) -> tuple[tuple[str, str], ...]:
    chains, draws, n = posterior.draws.shape
    kind = "independent" if posterior.drawn.independent else f"from {chains} Markov chains that agree"
    return (
        ("Counts", number(n)),
        ("Draws of all counts together", f"{number(chains * draws)}, {kind}"),
        ("Intervals", f"at least {percent(posterior.level)} each"),
        ("Method", str(posterior.method["method"])),
    )


def _reading(posterior: Posterior) -> Section:
    sure = percent(posterior.level)
    return Section(
        "reading",
        "How to read this page",
        (
            Text(
                (
                    "The published counts carry random noise of a known law, so the true counts are not known. But not "
                    "everything is equally likely: the law of the noise, the rules that true counts obey (they are not "
                    "negative, and parts add up to their wholes) and all published counts together leave a probability "
                    "for every possible value. That is the posterior.",
                    f"The interval of a count holds the true count with the probability stated beside it, at least {sure}. "
                    "Counts are whole, so an interval can rarely hold exactly what was asked for.",
                    "Counts are not independent of each other: where one is larger, others must be smaller. For "
                    "a sum, a difference or a ratio of your own, use the draws (each is one possible table of true counts), "
                    "and do not add up the ends of intervals.",
                    "The posterior is computed from published numbers alone. It takes nothing away from the protection.",
                )
            ),
        ),
    )


def _shapes(view: _View) -> Section:
    """Hills of the smallest, the largest and the chosen counts."""
    origin, at = view.origin
    rows = tuple(_ridge(view, cell, float(at[cell])) for cell in _shown(view))
    lowest, highest = min(r.edges[0] for r in rows), max(r.edges[-1] for r in rows)
    axis = Axis.around([lowest, highest, 0.0], f"true count − {origin} ({view.unit})")
    rows = tuple(
        Ridge(r.name, r.note, r.edges, r.heights, tuple(m for m in r.marks if axis.low <= m.at <= axis.high))
        for r in rows
    )
    noisy = view.noisy is not None and origin == "released count"
    legend = _legend(view, noisy)
    widest = max(rows, key=lambda row: row.edges[-1] - row.edges[0])
    picture = Ridges(
        f"Picture of hills: the probability of each possible true count of {len(rows)} counts; the widest hill is "
        f"that of {widest.name}.",
        f"Each hill shows how probable every true count is, as its difference from the {origin} (dashed line). All "
        "hills are drawn to the same height. "
        + ("A noisy count beyond the picture is not drawn." if noisy else ""),
        axis,
        rows,
        legend,
    )
    few = (
        "All counts, from the smallest to the largest."
        if len(rows) == len(view.by_size)
        else (
            f"The {EACH} smallest and the {EACH} largest of the finest counts"
            + (", and those that were asked for" if view.posterior.chosen else "")
            + ". The tables below hold all of them."
        )
    )
    return Section("shapes", "What the true counts may be", (Text((few,)), picture))


def _legend(view: _View, noisy: bool) -> tuple[tuple[Shape, str], ...]:
    shapes: tuple[tuple[Shape, str], ...] = (
        ("thin", f"{percent(view.posterior.level)} interval"),
        ("tick", "median"),
        ("diamond", "noisy count"),
    )
    return shapes if noisy else shapes[:2]


def _shown(view: _View) -> list[int]:
    """Cells drawn as hills, from the smallest to the largest."""
    order = view.by_size
    if len(order) <= 2 * EACH + 2:
        return order.tolist()
    labels = {view.posterior.cells.label(cell): cell for cell in range(len(order))}
    chosen = [labels[name] for name in view.posterior.chosen if name in labels]
    some = {*order[:EACH].tolist(), *order[-EACH:].tolist(), *chosen}
    return [cell for cell in order.tolist() if cell in some]


def _ridge(view: _View, cell: int, origin: float) -> Ridge:
    values, masses = view.masses(cell)
    whole = bool(np.all(values == np.round(values)))
    edges, heights = steps(values - origin, masses, whole)
    low, median, high = (float(view.table[k][cell]) for k in ("low", "median", "high"))
    marks = [Mark("thin", low - origin, high - origin), Mark("tick", median - origin)]
    if view.noisy is not None and view.origin[0] == "released count" and np.isfinite(view.noisy[cell]):
        marks.append(Mark("diamond", float(view.noisy[cell]) - origin))
    note = (
        f"{view.origin[0]} {number(origin)}; {percent(view.posterior.level)}: {number(low)} to {number(high)}"
    )
    return Ridge(view.name(cell), note, edges, heights, tuple(marks))


def _intervals(view: _View) -> Section | None:
    """Intervals of the largest counts against what was published of them."""
    origin, at = view.origin
    if origin == "median":
        return None
    cells = view.by_size[::-1][:MOST_ROWS].tolist()
    rows = tuple((view.name(c), _interval_marks(view, c, float(at[c]))) for c in cells)
    axis = Axis.around(
        [0.0, *(v for _, marks in rows for m in marks for v in (m.at, m.to))],
        f"true count − {origin} ({view.unit})",
    )
    table, n = view.table, len(at)
    outside = int(np.sum((at < table["low"]) | (at > table["high"])))
    said_outside = f"Every {origin} lies inside the interval of its true count."
    if outside:
        said_outside = (
            f"{number(outside)} of {number(n)} {origin}s lie outside the interval of their true count: the other "
            "published counts, or the rules, speak against them."
        )
    noisy = view.noisy is not None and origin == "released count"
    picture = Figure(
        f"Picture of intervals of the true count around the {origin}, for the {len(cells)} largest counts. {said_outside}",
        f"Intervals of the {len(cells)} largest counts, largest first, as differences from the {origin}.",
        axis,
        rows,
        (*_legend(view, noisy), ("circle", origin)),
    )
    return Section("intervals", f"Intervals against {origin}s", (Text((said_outside,)), picture))


def _interval_marks(view: _View, cell: int, origin: float) -> tuple[Mark, ...]:
    low, median, high = (float(view.table[k][cell]) - origin for k in ("low", "median", "high"))
    marks = [Mark("thin", low, high), Mark("tick", median, median), Mark("circle", 0.0)]
    if view.noisy is not None and view.origin[0] == "released count" and np.isfinite(view.noisy[cell]):
        noisy = float(view.noisy[cell]) - origin
        marks.insert(2, Mark("diamond", noisy, noisy))
    return tuple(marks)


def _tables(posterior: Posterior, unit: str) -> Section:
    """A summary of every count, one table per margin."""
    margins = list(dict.fromkeys([*posterior.drawn.marginals, posterior.cells.finest]))
    text = Text(
        (
            "Mean, standard deviation, median and interval of every true count, the probability of the interval itself, "
            "and what was published. The mean has the smallest expected squared error; it need not be whole.",
        )
    )
    return Section("counts", "All counts", (text, *(_table(posterior, m, unit) for m in margins)))


def _table(posterior: Posterior, margin: Margin, unit: str) -> Table:
    described = posterior.summary(margin)

    def columns(at: slice) -> list[Column]:
        return [*_described(described, at, unit), *_published(posterior, margin, at, unit)]

    return counts_table(posterior.cells, margin, "posterior counts", "summary", columns)


def _described(described: Columns, at: slice, unit: str) -> list[Column]:
    named = (
        ("mean", "Mean"),
        ("sd", "Standard deviation"),
        ("median", "Median"),
        ("low", "Interval from"),
        ("high", "to"),
    )
    found = [
        Column(f"{name} ({unit})" if unit else name, numbers(described[key][at]), numeric=True)
        for key, name in named
    ]
    found.append(Column("Its probability (%)", numbers(100 * described["mass"][at]), numeric=True))
    if np.any(described["mcse"][at] > 0):
        found.append(Column("Simulation error of the mean", numbers(described["mcse"][at]), numeric=True))
    return found


def _published(posterior: Posterior, margin: Margin, at: slice, unit: str) -> list[Column]:
    found = []
    if posterior.released is not None:
        released = posterior.cells.sum(posterior.released, margin)
        found.append(Column(f"Released ({unit})", numbers(released[at]), numeric=True))
    if posterior.noisy is not None and margin == posterior.cells.finest:
        found.append(Column(f"Noisy ({unit})", numbers(posterior.noisy[0][at]), numeric=True))
    return found


def _ratios(posterior: Posterior) -> Section | None:
    """Ratios that the spec asks for, beside their Fieller sets."""
    if not posterior.ratios:
        return None
    columns = posterior.ratio_summary()
    every = slice(None)
    found = [Column("Place", columns["place"].tolist()), Column("Quantity", columns["quantity"].tolist())]
    found += _described(columns, every, "")
    if "noisy" in columns:
        found += [
            Column("Ratio of noisy counts", numbers(columns["noisy"]), numeric=True),
            Column("Fieller set", columns["fieller"].tolist()),
            Column("from", numbers(columns["fieller_low"]), numeric=True),
            Column("to", numbers(columns["fieller_high"]), numeric=True),
        ]
    text = Text(
        (
            "The posterior interval of a ratio is always an interval inside the rules. The Fieller set beside it knows the "
            "noisy counts alone: where the denominator may be zero it is the complement of an interval, or the whole line.",
        )
    )
    size = len(columns["place"])
    table = Table(
        "Ratios at every place", tuple(found), summary=f"{number(size)} ratios", unfolded=size <= 60
    )
    return Section("ratios", "Ratios", (text, table))


def _making(posterior: Posterior, spec: Spec) -> Section:
    """Method, parameters, what the method has to confess, and the digest of its source."""
    parameters = [
        (plain(k).capitalize(), said(v)) for k, v in sorted(posterior.method.items()) if k != "method"
    ]
    facts = (
        ("Method of inference", str(posterior.method["method"])),
        *parameters,
        *((plain(k).capitalize(), said(v)) for k, v in sorted(posterior.drawn.stats.items())),
        ("Software", f"trueup {__version__}"),
        ("Dataset", spec.table.name),
        ("Digest of the published record (SHA-256)", posterior.source),
    )
    blocks: tuple[Block, ...] = (
        Text((_draws_are(posterior),)),
        Facts(tuple((name, value) for name, value in facts if value)),
    )
    return Section("making", "How it was made", blocks)


def _draws_are(posterior: Posterior) -> str:
    if posterior.drawn.independent:
        return (
            "The draws are independent and follow the posterior exactly, up to the mass that is reported as dropped; "
            "their only error is that there are finitely many of them."
        )
    return (
        "The draws are those of Markov chains, which were checked: they agree with each other and hold enough "
        "independent information, or else this page would not have been written."
    )


def _words() -> Section:
    return Section(
        "words",
        "Words used on this page",
        (
            Facts(
                (
                    (
                        "Posterior",
                        "The probability of every possible table of true counts, given what was published.",
                    ),
                    (
                        "Prior",
                        "What was assumed of the true counts before anything was published; 'flat' means nothing.",
                    ),
                    (
                        "Noisy count",
                        "The true count plus a random number from a known law. It may be negative.",
                    ),
                    (
                        "Released count",
                        "What reconciliation made of the noisy counts: whole, not negative, adding up.",
                    ),
                    ("Median", "The value that the true count is as likely to be below as above."),
                    ("Draw", "One possible table of all true counts, chosen with its posterior probability."),
                )
            ),
        ),
    )
