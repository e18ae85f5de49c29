"""The record of `infer`: what the true counts may be, given what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError, load_extra
from trueup.kernel.histogram.marginals import marginalise
from trueup.model.cells import Cells, Margin
from trueup.model.linear import parse_linear, parse_sum
from trueup.model.records.tabled import Tabled
from trueup.model.spec import Spec
from trueup.model.tables import probability_of

Reals = NDArray[np.float64]
Columns = dict[str, NDArray]
PIECE = 1 << 23
"""Draws of counts that are described at a time."""
LARGE = 1 << 25
"""Draws of counts in all, above which Monte Carlo errors come from means of batches, without ranks."""
GROUPS = 1 << 18
"""Groups of marginals that are asked at a time."""


@dataclass(frozen=True, eq=False)
class Marginals:
    """Exact probability masses of several integer counts, each on its own window.

    Attributes
    ----------
    start
        `(groups + 1,)` where each group's masses start.
    offset
        `(groups,)` the count of each group's first mass.
    masses
        All masses end to end; each group's sum to 1.

    Examples
    --------
    >>> coin = Marginals(np.array([0, 2]), np.array([5]), np.array([0.5, 0.5]))
    >>> coin.mean.tolist(), coin.mass(5, 5).tolist(), coin.quantile(0.6).tolist()
    ([5.5], [0.5], [6])
    """

    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    masses: Reals

    @cached_property
    def mean(self) -> Reals:
        """Posterior means (counts)."""
        return self._blockwise(lambda block: np.add.reduceat(block.masses * block.counts, block.start[:-1]))

    @cached_property
    def sd(self) -> Reals:
        """Posterior standard deviations (counts)."""
        return self._blockwise(_Block.sd)

    def cdf(self, count: ArrayLike) -> Reals:
        """Probability that each group's count is at most `count`."""
        up_to = np.broadcast_to(np.floor(count), self.offset.shape)
        return self._blockwise(lambda block: block.cdf(up_to[block.groups]))

    def mass(self, low: ArrayLike, high: ArrayLike) -> Reals:
        """Probability of `low <= count <= high` for each group."""
        return np.maximum(self.cdf(high) - self.cdf(np.ceil(low) - 1), 0.0)

    def quantile(self, probability: float) -> NDArray[np.int64]:
        """Smallest count whose cdf reaches `probability`, for each group."""
        return self._blockwise(lambda block: block.quantile(probability))

    def pmf(self, group: int) -> tuple[NDArray[np.int64], Reals]:
        """Return the counts of a group's window and their masses."""
        masses = self.masses[self.start[group] : self.start[group + 1]]
        return self.offset[group] + np.arange(len(masses)), masses

    def _blockwise(self, each: Callable[[_Block], NDArray]) -> NDArray:
        """Ask some groups at a time, so that a nation's take little more memory than they hold."""
        edges = np.append(np.arange(0, len(self.offset), GROUPS), len(self.offset))
        found = [each(_Block.of(self, int(first), int(last))) for first, last in pairwise(edges)]
        return np.concatenate(found) if found else np.zeros(0)


class _Block(NamedTuple):
    """Some groups of `Marginals`; `running` is the sum of all masses before each position."""

    groups: slice
    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    masses: Reals
    running: Reals

    @classmethod
    def of(cls, every: Marginals, first: int, last: int) -> _Block:
        start = every.start[first : last + 1]
        masses = every.masses[start[0] : start[-1]]
        running = np.concatenate([[0.0], np.cumsum(masses)])
        return cls(slice(first, last), start - start[0], every.offset[first:last], masses, running)

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.arange(len(self.masses)) + np.repeat(self.offset - self.start[:-1], np.diff(self.start))

    def sd(self) -> Reals:
        counts = self.counts
        mean = np.add.reduceat(self.masses * counts, self.start[:-1])
        centred = counts - np.repeat(mean, np.diff(self.start))
        return np.sqrt(np.add.reduceat(self.masses * centred**2, self.start[:-1]))

    def cdf(self, count: NDArray) -> Reals:
        ahead = np.clip(count - self.offset + 1, 0, np.diff(self.start)).astype(np.int64)
        return np.clip(self.running[self.start[:-1] + ahead] - self.running[self.start[:-1]], 0.0, 1.0)

    def quantile(self, probability: float) -> NDArray[np.int64]:
        reached = self.running[self.start[:-1]] + probability * (1 - 1e-12)
        at = np.searchsorted(self.running, reached, side="left") - 1
        return self.offset + np.clip(at - self.start[:-1], 0, np.diff(self.start) - 1)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a method of inference returns.

    Attributes
    ----------
    draws
        `(chains, draws, n)` counts of the finest cells.
    independent
        Whether draws are exact and independent (one chain); otherwise they are Markov chains.
    connected
        Of Markov chains: whether their moves are proved to reach every possible table.
    marginals
        Exact marginals of margins, where the method has them.
    mode
        `(n,)` a most probable vector of counts, where the method has one.
    r_hat, ess
        `(n,)` diagnostics of chains; None for independent draws.
    status
        `solved`, or the sentence that says what went wrong.
    stats
        Dropped mass, acceptance rates, chains: what a reader must know of how it was computed.
    tables
        Margins to report besides those with exact marginals and the finest.
    approximate
        What the draws approximate, and how far they were checked; empty where they are those of the posterior.
    """

    draws: NDArray
    independent: bool
    marginals: Mapping[Margin, Marginals] = field(default_factory=dict)
    mode: NDArray | None = None
    r_hat: Reals | None = None
    ess: Reals | None = None
    status: str = "solved"
    stats: Mapping[str, Any] = field(default_factory=dict)
    connected: bool = False
    tables: tuple[Margin, ...] = ()
    approximate: str = ""

    @property
    def kind(self) -> str:
        """What the draws are, in words: nothing is said to have converged that may lack a part of the posterior.

        Examples
        --------
        >>> Drawn(np.zeros((4, 9, 1)), independent=False).kind
        'draws of Markov chains that agree; that they reach every possible table is not known'
        """
        if self.approximate:
            return "approximate draws of Markov chains of a fixed length"
        if self.independent:
            return "independent draws"
        known, unknown = "converged", "agree; that they reach every possible table is not known"
        return f"draws of Markov chains that {known if self.connected else unknown}"


class Conflict(NamedTuple):
    """A query whose noisy counts lie further from the posterior than they can by chance.

    Attributes
    ----------
    margin, query
        What was measured.
    residual
        Root mean square of its residuals from the posterior means, in standard deviations of the noise.
    log_probability
        Upper bound on the log probability of residuals as large as these, if the truth follows the prior.
    """

    margin: str
    query: str
    residual: float
    log_probability: float

    def __str__(self) -> str:
        tenth = int(np.ceil(self.log_probability / np.log(10)))
        return (
            f"'{self.query}' of '{self.margin}' (residuals of {self.residual:.1f} standard deviations of the noise; "
            f"probability below 1e{tenth} if the truth follows the prior)"
        )


@dataclass(frozen=True, eq=False)
class Quantity:
    """Draws of one quantity: a count, a sum over an area, a ratio, a rank.

    Means, intervals and probabilities are conditional on the quantity being defined, as a ratio is where its denominator is
    not 0; `undefined` says how probable the opposite is.

    Attributes
    ----------
    name
        As the user wrote it.
    draws
        `(chains, draws)` values, NaN where undefined.

    Examples
    --------
    >>> q = Quantity("a", np.arange(100).reshape(1, 100))
    >>> q.mean, q.interval(0.9), q.probability(below=50)
    (49.5, (4.0, 94.0, 0.91), 0.5)
    >>> share = Quantity("a / b", np.array([[0.5, np.nan, 0.5, 0.25]]))
    >>> share.undefined, round(share.mean, 4)
    (0.25, 0.4167)
    """

    name: str
    draws: NDArray

    @property
    def undefined(self) -> float:
        """Share of draws without a value."""
        return float(np.mean(np.isnan(self.draws)))

    @cached_property
    def _known(self) -> NDArray:
        known = self.draws[~np.isnan(self.draws)]
        return known if known.size else np.full(1, np.nan)

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return float(self._known.mean())

    @property
    def sd(self) -> float:
        """Posterior standard deviation."""
        return float(self._known.std())

    @property
    def median(self) -> float:
        """Posterior median."""
        return float(np.quantile(self._known, 0.5, method="inverted_cdf"))

    def interval(self, level: float | str = 0.9) -> tuple[float, float, float]:
        """Return low, high and the share of draws inside: equal tails, at least `level`."""
        low, high = equal_tails(self._known, level)
        return float(low), float(high), self._share((self._known >= low) & (self._known <= high))

    def probability(self, *, below: float = np.inf, above: float = -np.inf) -> float:
        """Return the share of draws strictly below and strictly above the limits."""
        return self._share((self._known < below) & (self._known > above))

    def _share(self, holds: NDArray[np.bool_]) -> float:
        return float("nan") if np.isnan(self._known).any() else float(np.mean(holds))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums of cells at every place: `(under18 + over18) / families`.

    Without a denominator it is the sum itself.
    """

    name: str
    numerator: str
    denominator: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Tabled):
    """The posterior of the true counts: draws of all `n` cells, exact marginals where they exist.

    Attributes
    ----------
    cells
        The finest cells.
    drawn
        Draws, marginals, diagnostics.
    method
        Name and parameters of the method.
    source
        Digest of the public record it was made from.
    level
        Probability of the intervals in its tables.
    ratios
        Ratios the spec asks for; see `ratio_summary`.
    noisy
        `(n,)` each cell's own noisy value and its variance, NaN where there is none; None where no
        noisy value is known.
    released
        `(n,)` released counts, where it was made from a release.
    chosen
        Labels of counts that its report shows beside the largest and the smallest.
    conflicts
        What was measured and the posterior contradicts; None where no noisy value with a law of its own is
        known (releases, noise on a lattice), so that this was not checked.
    frame
        The library of dataframes in which its tables are made; None for the first that is installed.
    spec
        The spec of what it was made from, where that is known.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> draws = np.array([[[3, 4], [5, 4], [4, 4], [4, 6]]])
    >>> posterior = Posterior(cells, Drawn(draws, True), {"method": "demo"}, "")
    >>> posterior.quantity("a + b").mean, posterior.probability("a >= b")
    (8.5, 0.5)
    """

    cells: Cells
    drawn: Drawn
    method: Mapping[str, Any]
    source: str
    level: float = 0.9
    ratios: tuple[Ratio, ...] = ()
    noisy: tuple[Reals, Reals] | None = None
    released: NDArray | None = None
    chosen: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] | None = None
    frame: str | None = None
    spec: Spec | None = None

    def _lines(self) -> tuple[str, str, str]:
        chains, draws, cells = self.draws.shape
        several = f" in each of {chains} chains" if chains > 1 else ""
        return (
            f"Posterior: {self.spec.title if self.spec else 'spec not known'}",
            f"{draws:,} {self.drawn.kind}{several}, of {cells:,} cells, by the method '{self.method.get('method')}'",
            f"under {self.prior}; intervals at {100 * self.level:.3g} %",
        )

    @property
    def draws(self) -> NDArray:
        """`(chains, draws, n)` counts of the finest cells."""
        return self.drawn.draws

    @property
    def prior(self) -> str:
        """The prior that it rests on, in words."""
        given = self.method.get("prior")
        if given is None:
            return "a flat prior on all counts that the rules allow"
        more = [f"{k} = {_short(v)}" for k, v in dict(given).items() if k != "name" and v not in ((), None)]
        return f"the prior '{dict(given)['name']}'" + (f" ({', '.join(more)})" if more else "")

    @property
    def promise(self) -> str:
        """What its intervals hold, and under what: no more than is known."""
        if self.conflicts:
            which = "; ".join(map(str, self.conflicts))
            return (
                f"The measurements contradict {self.prior}: {which}. How often the intervals hold the true counts is "
                "therefore not known; choose a prior that allows what was measured."
            )
        known = (
            ""
            if self.drawn.independent or self.drawn.connected
            else " and if the Markov chains reached every possible table"
        )
        if self.drawn.approximate:
            return (
                f"{self.drawn.approximate} Under {self.prior}, intervals hold the true count with about the probability stated "
                "beside them, as far as that."
            )
        checked = (
            " No noisy value with a law of its own is known here, so the prior could not be checked against any."
            if self.conflicts is None
            else ""
        )
        return (
            f"Under {self.prior}{known}, the interval of a count holds the true count with the probability stated beside it, "
            f"at least {100 * self.level:.3g} %.{checked}{self._of_the_prior}"
        )

    @property
    def _of_the_prior(self) -> str:
        """What to know of a prior whose parameters were estimated."""
        known = self.drawn.stats.get("prior", {})
        if doubt := self.drawn.stats.get("doubt"):
            return f" {doubt}"
        if dict(self.method.get("prior") or {}).get("name") == "estimated":
            return " The prior was estimated from the published values, and is taken as known."
        if "estimates" not in known:
            return ""
        held = (
            " The prior's parameters were estimated from the noisy values; those whose uncertainty would widen intervals by "
            "less than a hundredth are taken as known."
        )
        return " ".join([held, *known["doubts"]])

    def sums(self, margin: Margin | str) -> NDArray:
        """Draws `(chains, draws, groups)` of a margin."""
        return self.cells.sum(self.draws, self.cells.margin(margin))

    def _facts(self) -> Mapping[str, Any]:
        flat = {k: v for k, v in self.drawn.stats.items() if isinstance(v, int | float | str)}
        return {"method": str(self.method["method"]), "source": self.source, **flat}

    def figures(self, margin: Margin, level: float | str | None = None) -> Columns:
        """Return the columns of `summary` but its labels."""
        return {name: column for name, column in self.summary(margin, level).items() if name != "label"}

    def area(self, places: Mapping[str, str | Sequence[str]]) -> Quantity:
        """Return draws of the sum over an area: places by their level.

        Raises
        ------
        SpecError
            If a place is unknown, or lies within another one of the area.

        Examples
        --------
        >>> from trueup.model.tree import Tree
        >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}]))
        >>> posterior = Posterior(cells, Drawn(np.array([[[3, 4, 9], [5, 4, 9]]]), True), {"method": "demo"}, "")
        >>> posterior.area({"area": ["a", "b"]}).mean
        8.0
        """
        if not isinstance(places, Mapping):
            raise SpecError(
                f"a {type(places).__name__} is given as an area",
                needed=f"places by their level, such as {{'{self.cells.tree.levels[-1]}': [...]}}",
            )
        if overlapping := [a.name for a in self.cells.attributes if not a.partition]:
            raise SpecError(
                f"the values of '{overlapping[0]}' overlap, so that places have no single count",
                needed="a sum of labelled counts: `posterior.quantity`",
            )
        listed = [(lv, p) for lv, of in places.items() for p in ((of,) if isinstance(of, str) else of)]
        if not listed:
            raise SpecError("the area holds no place", needed="at least one")
        tree, last = self.cells.tree, len(self.cells.tree.levels) - 1
        times = np.zeros(tree.sizes[-1], np.int64)
        for name, place in listed:
            times += tree.ancestors(last, tree.level(name)) == self._place(name, place)
        if times.max() > 1:
            twice = tree.label(tree.levels[-1], int(times.argmax()))
            raise SpecError(f"the area holds '{twice}' more than once", needed="places that do not overlap")
        draws = self.draws.reshape(*self.draws.shape[:2], len(times), -1)
        return Quantity(", ".join(str(place) for _, place in listed), draws[:, :, times > 0].sum(axis=(2, 3)))

    def _place(self, level: str, label: str) -> int:
        tree, at = self.cells.tree, self.cells.tree.level(level)
        found = [place for place in range(tree.sizes[at]) if tree.label(level, place) == str(label)]
        if not found:
            raise SpecError(
                f"level '{level}' has no place '{label}'",
                needed=f"a key such as '{tree.label(level, 0)}'",
            )
        return found[0]

    def summary(
        self, margin: Margin | str | None = None, level: float | str | None = None, rows: int | None = None
    ) -> Columns:
        """Describe every count of a margin (by default the finest), or the first `rows` of them.

        Returns
        -------
        Columns `label`, `mean`, `sd`, `median`, `low`, `high`, `mass` (the probability of the
        interval itself, at least the level because counts are whole), `mcse` (Monte Carlo standard
        error of the mean; 0 where masses are exact), `ess`, `r_hat` (NaN: independent draws).
        """
        margin = self.cells.margin(margin or self.cells.finest)
        level = probability_of(self.level if level is None else level)
        size = self.cells.size(margin) if rows is None else min(rows, self.cells.size(margin))
        labels = np.array([self.cells.margin_label(margin, g) for g in range(size)])
        if (exact := self.drawn.marginals.get(margin)) is not None:
            return {"label": labels, **{k: v[:size] for k, v in _describe_exact(exact, level).items()}}
        pieces, done = [], 0
        for draws in self._in_pieces(margin):
            pieces.append(self.describe(draws[:, :, : max(size - done, 1)], level))
            done += draws.shape[2]
            if done >= size:
                break
        return {"label": labels, **{k: np.concatenate([p[k] for p in pieces])[:size] for k in pieces[0]}}

    def _in_pieces(self, margin: Margin) -> Iterator[NDArray]:
        """Draws of a margin, of a large table of the lowest places some places at a time."""
        cells, (chains, draws, n) = self.cells, self.draws.shape
        places = max(1, PIECE // max(chains * draws * (n // cells.shape[0]), 1))
        if margin.where or margin.level != cells.tree.levels[-1] or places >= cells.shape[0]:
            yield self.sums(margin)
            return
        table = self.draws.reshape(chains, draws, cells.shape[0], -1)
        for i in range(0, cells.shape[0], places):
            own = marginalise(table[:, :, i : i + places], cells.marginal(margin.attributes))
            yield own.reshape(chains, draws, -1)

    def describe(self, draws: NDArray, level: float) -> Columns:
        """Return the columns of `summary` but its labels, for draws `(chains, draws, k)` of any quantities."""
        flat = np.sort(np.ascontiguousarray(draws.reshape(-1, draws.shape[-1]).T), axis=1, kind="stable")
        low, median, high = (
            flat[:, quantile_at(flat.shape[1], p)] for p in ((1 - level) / 2, 0.5, (1 + level) / 2)
        )
        r_hat, ess = self._diagnostics(draws)
        sd = flat.std(axis=1)
        return {
            "mean": flat.mean(axis=1),
            "sd": sd,
            "median": median,
            "low": low,
            "high": high,
            "mass": ((flat >= low[:, None]) & (flat <= high[:, None])).mean(axis=1),
            "mcse": sd / np.sqrt(ess),
            "ess": ess,
            "r_hat": r_hat,
        }

    def _diagnostics(self, draws: NDArray) -> tuple[Reals, Reals]:
        if self.drawn.independent:
            return np.full(draws.shape[-1], np.nan), np.full(draws.shape[-1], float(np.prod(draws.shape[:2])))
        from trueup.kernel.statistics.diagnostics import diagnose, diagnose_means

        return diagnose_means(draws) if self.draws.size > LARGE else diagnose(draws)

    def quantity(self, expression: str) -> Quantity:
        """Return draws of a sum of places or cells, named by their labels.

        Labels with other characters than letters are quoted: `"'01/001' + '01/003'"`.

        Raises
        ------
        SpecError
            If a label is unknown or the expression is not linear.
        """
        return Quantity(expression, self._combine(parse_sum(expression)))

    def ratio(self, numerator: str, denominator: str) -> Quantity:
        """Return draws of a ratio (or share) of two sums: NaN where the denominator is 0, see `Quantity.undefined`.

        Examples
        --------
        `posterior.ratio("a", "a + b")` is the share of `a`.
        """
        above, below = self.quantity(numerator), self.quantity(denominator)
        return Quantity(f"({numerator}) / ({denominator})", _divided(above.draws, below.draws))

    def probability(self, event: str) -> float:
        """Return the probability of a linear comparison, such as `'01/001' >= '01/003' + 1`.

        Raises
        ------
        SpecError
            If a label is unknown or the event is not one comparison with `==`, `<=` or `>=`.
        """
        row = parse_linear(event)
        left, bound = self._combine(row.coefficients), float(row.bound)
        holds = {"==": left == bound, "<=": left <= bound, ">=": left >= bound}[row.sense]
        return float(np.mean(holds))

    def rank(self, label: str, level: str) -> Quantity:
        """Return draws of a place's rank within its level: 1 is the largest; ties share the best rank."""
        margin = Margin(level, self.cells.coarsest.attributes)
        group = self._group(margin, label)
        table = self.sums(margin)
        return Quantity(f"rank of {label}", 1 + (table > table[..., [group]]).sum(axis=-1))

    def _group(self, margin: Margin, label: str) -> int:
        self.cells.tree.level(margin.level)
        if (found := self._places.get(label)) is None or found[0] != margin:
            raise SpecError(f"level '{margin.level}' has no place '{label}'", needed="a label of its summary")
        return found[1]

    def _combine(self, terms: Mapping[str, Fraction]) -> NDArray:
        """Draws `(chains, draws)` of a linear combination of labelled counts."""
        total: NDArray | float = 0.0
        for name, coefficient in terms.items():
            part = self._labelled(name)
            total = total + (int(coefficient) if coefficient.denominator == 1 else float(coefficient)) * part
        return np.asarray(total)

    def _labelled(self, name: str) -> NDArray:
        if name not in self._places:
            raise SpecError(
                f"no place or cell is called '{name}'",
                needed="a label such as " + ", ".join(f"'{label}'" for label in list(self._places)[:3]),
            )
        margin, group = self._places[name]
        if margin == self.cells.finest:
            return self.draws[..., group]
        return self.sums(margin)[..., group]

    @cached_property
    def _places(self) -> dict[str, tuple[Margin, int]]:
        """Every label: cells, places of all levels, groups of margins with exact marginals."""
        levels = (Margin(level, self.cells.coarsest.attributes) for level in self.cells.tree.levels)
        margins = (self.cells.finest, *self.drawn.marginals, *levels)
        return {self.cells.margin_label(m, g): (m, g) for m in margins for g in range(self.cells.size(m))}

    def ratio_summary(self, level: float | str | None = None) -> Columns:
        """Describe every ratio of the spec at every place: posterior beside noisy ratio and Fieller set.

        Returns
        -------
        Columns `place`, `quantity`, `noisy`, `fieller` (its type: interval, complement, whole line),
        `fieller_low`, `fieller_high`, `denominator_zero` (the probability that the ratio is undefined), and those of `summary`,
        given that it is defined.
        """
        parts = [
            self._ratio_columns(ratio, probability_of(self.level if level is None else level))
            for ratio in self.ratios
        ]
        if not parts:
            raise SpecError("the spec declares no quantity", remedy="add [[infer.quantity]] to it")
        return {name: np.concatenate([p[name] for p in parts]) for p in parts[:1] for name in p}

    def _ratio_columns(self, ratio: Ratio, level: float) -> Columns:
        above = self._weights(parse_sum(ratio.numerator))
        below = self._weights(parse_sum(ratio.denominator)) if ratio.denominator else np.zeros(len(above))
        whole = float(not ratio.denominator)
        values = self.draws.reshape(*self.draws.shape[:2], self.cells.shape[0], -1)
        draws = _divided(values @ above, values @ below + whole)
        places = self.cells.tree.sizes[-1]
        labels = [self.cells.tree.label(self.cells.tree.levels[-1], p) for p in range(places)]
        return {
            "place": np.array(labels),
            "quantity": np.full(places, ratio.name),
            **self._noisy_ratio(above, below, whole, level),
            "denominator_zero": np.isnan(draws).mean(axis=(0, 1)),
            **self._describe_defined(draws, level),
        }

    def _describe_defined(self, draws: NDArray, level: float) -> Columns:
        """Describe columns of draws `(chains, draws, k)` given that they are no NaN."""
        gaps = np.isnan(draws)
        columns = self.describe(np.where(gaps, 0.0, draws), level)
        for k in np.flatnonzero(gaps.any(axis=(0, 1))):
            known = [chain[~gap] for chain, gap in zip(draws[..., k], gaps[..., k])]
            shortest = min(map(len, known))
            own = (
                self.describe(np.array([chain[:shortest] for chain in known])[..., None], level)
                if shortest
                else {}
            )
            for name, column in columns.items():
                column[k] = own[name][0] if shortest else np.nan
        return columns

    def _weights(self, terms: Mapping[str, Fraction]) -> Reals:
        """Coefficients of a sum of attribute values, `(attribute combinations,)`."""
        from trueup.model.constraints import name_mask

        return np.sum([float(c) * name_mask(self.cells, name).ravel() for name, c in terms.items()], axis=0)

    def _noisy_ratio(self, above: Reals, below: Reals, whole: float, level: float) -> Columns:
        if self.noisy is None:
            return {}
        from scipy.special import ndtri

        from trueup.kernel.statistics.fieller import fieller

        values, variances = (v.reshape(self.cells.shape[0], -1) for v in self.noisy)
        num, den = values @ above, values @ below + whole
        spread = variances @ above**2, variances @ below**2
        kind, low, high = fieller(num, den, spread, float(ndtri(0.5 + level / 2)))
        with np.errstate(divide="ignore", invalid="ignore"):
            return {"noisy": num / den, "fieller": kind, "fieller_low": low, "fieller_high": high}

    def to_xarray(
        self, table: str | None = None, by: str | Sequence[str] = (), level: float | str | None = None
    ) -> Any:
        """Return an `xarray.Dataset`: all draws, with dims (chain, draw, cell), or the figures of a table that is named.

        Needs the extra `posterior`.
        """
        if table is not None:
            return super().to_xarray(table, by, level)
        xarray = load_extra("xarray", "posterior")

        names = np.array([self.cells.label(cell) for cell in range(self.cells.n)])
        data = {"count": (("chain", "draw", "cell"), self.draws)}
        coords = {
            "chain": np.arange(self.draws.shape[0]),
            "draw": np.arange(self.draws.shape[1]),
            "cell": names,
        }
        return xarray.Dataset(data, coords, self._facts())

    def to_arviz(self):
        """Return draws as ArviZ takes them (a DataTree or InferenceData); needs the extra `arviz`."""
        arviz = load_extra("arviz", "arviz")

        names = [self.cells.label(cell) for cell in range(self.cells.n)]
        labels: dict[str, Any] = {"coords": {"cell": names}, "dims": {"count": ["cell"]}}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": {"count": self.draws}}, **labels)
        return arviz.from_dict(posterior={"count": self.draws}, **labels)


def _divided(above: NDArray, below: NDArray) -> Reals:
    """Ratios, NaN where the denominator is 0."""
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)


def _short(given: Any) -> str:
    return f"one of {len(given)} values each" if isinstance(given, list | tuple) else str(given)


def equal_tails(draws: NDArray, level: float | str) -> tuple[NDArray, NDArray]:
    """Return the interval with at most `(1 - level) / 2` of the draws outside on each side.

    Parameters
    ----------
    draws
        `(draws, ...)`.
    level
        Probability in (0, 1).

    Examples
    --------
    >>> [float(end) for end in equal_tails(np.arange(1, 101), 0.9)]
    [5.0, 95.0]
    """
    level = probability_of(level)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0, method="inverted_cdf")
    return low, high


def quantile_at(count: int, probability: float) -> int:
    """Position of a quantile among so many sorted draws: the first that reaches the probability.

    Examples
    --------
    >>> quantile_at(100, 0.05), quantile_at(3, 0.5), quantile_at(1, 0.95)
    (4, 1, 0)
    """
    return min(max(int(np.ceil(count * probability - 1e-9)) - 1, 0), count - 1)


def _describe_exact(exact: Marginals, level: float) -> Columns:
    low, high = exact.quantile((1 - level) / 2), exact.quantile((1 + level) / 2)
    return {
        "mean": exact.mean,
        "sd": exact.sd,
        "median": exact.quantile(0.5),
        "low": low,
        "high": high,
        "mass": exact.mass(low, high),
        "mcse": np.zeros(len(low)),
        "ess": np.full(len(low), np.inf),
        "r_hat": np.full(len(low), np.nan),
    }
