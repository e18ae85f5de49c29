"""The record of `infer`: the posterior of the true counts given all published values.

One file: everything that can be asked of one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError, load_extra
from trueup.kernel.histogram import marginalise
from trueup.model.cells import Cells, Margin
from trueup.model.linear import parse_linear, parse_sum
from trueup.model.records.drawn import Columns, Conflict, Drawn, Reals, floors_of_draws
from trueup.model.records.quantity import (
    Quantity,
    Ratio,
    describe_draws,
    described_where_defined,
    least_counts,
    limits_counts,
    noisy_ratio,
    quotients,
    ratio_weights,
)
from trueup.model.records.tabled import Area, Labels, Tabled, area_name, listed_places, places_of_area
from trueup.model.spec import Spec
from trueup.model.statements import limited_sentence
from trueup.model.tables import named_columns, probability_of

DRAWS_DESCRIBED_AT_ONCE = 1 << 21
"""Draws of counts that are described at a time."""
RANKED_COUNTS = 1 << 25
"""Draws of counts in all, above which Monte Carlo errors come from means of batches, without ranks."""


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Tabled):
    """The posterior of the true counts: draws of all `n` cells, and exact marginals where they exist.

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
        The measured queries that the posterior contradicts; None where no noisy value with a law of its own is
        known (releases, noise on a lattice), so that this was not checked.
    frame
        The library of dataframes in which its tables are made; None for the first that is installed.
    spec
        The spec of what it was made from, where that is known.
    counted
        For a posterior that was kept, a sentence on what its counts leave out, from its spec.

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
    counted: str = ""

    def _lines(self) -> tuple[str, str, str]:
        chains, draws, cells = self.draws.shape
        several = f" in each of {chains} chains" if chains > 1 else ""
        title = self.spec.title if self.spec else f"of the record {self.source[:12] or 'not named'}"
        return (
            f"Posterior: {title}",
            f"{draws:,} {self.drawn.kind}{several}, of {cells:,} cells, by the method '{self.method.get('method')}'",
            f"under {self.prior}; intervals at {100 * self.level:.3g} %",
        )

    @property
    def shows_counts(self) -> bool:
        """Return True, because all draws are in memory."""
        return True

    @property
    def draws(self) -> NDArray:
        """Return draws `(chains, draws, n)` of the finest cells' counts."""
        return self.drawn.draws

    @property
    def prior(self) -> str:
        """Return words that name the prior and its parameters."""
        given = self.method.get("prior")
        if given is None:
            return "a flat prior on all counts that the rules allow"
        return f"the prior '{dict(given)['name']}'{_parameters(given)}"

    @property
    def promise(self) -> str:
        """Return a sentence that states the probability of the intervals, the counts they cover, and the conditions."""
        return " ".join(filter(None, (self._promised, self.counted or limited_sentence(self.spec))))

    @property
    def _promised(self) -> str:
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
        under = (
            f"Under {self.prior}{known}, the interval of a count holds the true count with the probability stated beside it, "
            f"at least {100 * self.level:.3g} %.{checked}"
        )
        instead = self.drawn.stats.get("prior_instead")
        return " ".join([*([instead] if instead else []), under, *self._of_the_prior])

    @property
    def _of_the_prior(self) -> list[str]:
        """Return sentences with known objections to the prior, or with facts on its estimated parameters."""
        known = self.drawn.stats.get("prior", {})
        if "doubt" in self.drawn.stats:
            return [self.drawn.stats["doubt"]]
        if dict(self.method.get("prior") or {}).get("name") == "estimated":
            return ["The prior was estimated from the published values, and is taken as known."]
        if "estimates" not in known:
            return []
        held = (
            "The prior's parameters were estimated from the noisy values; those whose uncertainty would widen intervals by "
            "less than a hundredth are taken as known."
        )
        return [held, *known["doubts"]]

    def sums(self, margin: Margin | str) -> NDArray:
        """Return draws `(chains, draws, groups)` of a margin's counts."""
        return self.cells.sum(self.draws, self.cells.margin(margin))

    def _facts(self) -> Mapping[str, Any]:
        flat = {k: v for k, v in self.drawn.stats.items() if isinstance(v, int | float | str)}
        return {"method": str(self.method["method"]), "source": self.source, **flat}

    def figures(self, margin: Margin | str, level: float | str | None = None) -> Columns:
        """Return the columns of `summary` except the labels."""
        return {name: column for name, column in self.summary(margin, level).items() if name != "label"}

    def area(self, places: Area) -> Quantity:
        """Return draws of the total count of an area, which is given as places by level.

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
        times = places_of_area(self.cells, places)
        if self.cells.is_family:
            own = [self._counted(f"{level}={place}", self.draws) for level, place in listed_places(places)]
            return Quantity(area_name(places), np.sum(own, axis=0), 0.0)
        draws = self.draws.reshape(*self.draws.shape[:2], len(times), -1)[:, :, times]
        least = float(floors_of_draws(draws.sum(axis=3)).sum())
        return Quantity(area_name(places), draws.sum(axis=(2, 3)), self._unless_limited(least))

    def summary(
        self, margin: Margin | str | None = None, level: float | str | None = None, rows: int | None = None
    ) -> Columns:
        """Return statistics of every count of a margin (by default the finest), or of its first `rows` counts, as columns.

        Returns
        -------
        Columns `label`, `mean`, `sd`, `median`, `low`, `high`, `mass` (the probability of the
        interval itself, at least the level because counts are whole), `mcse` (Monte Carlo standard
        error of the mean; 0 where masses are exact), `ess`, `r_hat` (NaN: independent draws).
        """
        margin = self.cells.margin(margin or self.cells.finest_tables[-1])
        level = probability_of(self.level if level is None else level)
        size = self.cells.size(margin) if rows is None else min(rows, self.cells.size(margin))
        labels = np.array(list(islice(self.cells.margin_labels(margin), size)))
        if (exact := self.drawn.marginals.get(margin)) is not None:
            return {"label": labels, **{k: v[:size] for k, v in exact.describe(level).items()}}
        pieces, done = [], 0
        least = least_counts(self.cells, margin, self.spec, self.sums, self._floors)
        for draws in self._in_pieces(margin):
            some = draws[:, :, : max(size - done, 1)]
            pieces.append(self.describe(some, level, least[done : done + some.shape[2]]))
            done += draws.shape[2]
            if done >= size:
                break
        return {"label": labels, **{k: np.concatenate([p[k] for p in pieces])[:size] for k in pieces[0]}}

    def _in_pieces(self, margin: Margin) -> Iterator[NDArray]:
        """Yield draws of a margin's counts in blocks, to limit memory."""
        cells, (chains, draws, n) = self.cells, self.draws.shape
        places = max(1, DRAWS_DESCRIBED_AT_ONCE // max(chains * draws * (n // cells.shape[0]), 1))
        if (
            cells.is_family
            or margin.where
            or margin.level != cells.tree.levels[-1]
            or places >= cells.shape[0]
        ):
            yield self.sums(margin)
            return
        table = self.draws.reshape(chains, draws, cells.shape[0], -1)
        for i in range(0, cells.shape[0], places):
            own = marginalise(table[:, :, i : i + places], cells.marginal(margin.attributes))
            yield own.reshape(chains, draws, -1)

    def describe(self, draws: NDArray, level: float, least: ArrayLike = np.nan) -> Columns:
        """Return the columns of `summary` except the labels, for draws `(chains, draws, k)` of any quantities.

        `least` is a lower limit of each, NaN if none is known; it is not used if the spec limits counts from below.
        """
        ranked, least = self.draws.size <= RANKED_COUNTS, self._unless_limited(least)
        return describe_draws(draws, level, independent=self.drawn.independent, ranked=ranked, least=least)

    def _unless_limited(self, least: Any) -> Any:
        """Return a lower limit, or NaN if the spec limits counts from below: how far is not looked into."""
        return np.nan if limits_counts(self.spec) else least

    @cached_property
    def _floors(self) -> dict[Margin, NDArray]:
        return {}

    def quantity(self, expression: str) -> Quantity:
        """Return draws of a linear sum of counts, which the expression names by their labels.

        Labels with other characters than letters are quoted: `"'01/001' + '01/003'"`. Places may be named by their level, too:
        `"'county=01/001'"`.

        Raises
        ------
        SpecError
            If a label is unknown or the expression is not linear.
        """
        terms = parse_sum(expression)
        return Quantity(expression, self._combine(terms, self.draws), self._least(terms))

    def ratio(self, numerator: str, denominator: str) -> Quantity:
        """Return draws of the ratio (or share) of two sums; NaN where the denominator is 0, see `Quantity.undefined`.

        Examples
        --------
        `posterior.ratio("a", "a + b")` is the share of `a`.
        """
        above, below = self.quantity(numerator), self.quantity(denominator)
        least = above.least if above.least == 0 else np.nan
        return Quantity(f"({numerator}) / ({denominator})", quotients(above.draws, below.draws), least)

    def probability(self, event: str) -> float:
        """Return the probability of a linear comparison, such as `'01/001' >= '01/003' + 1`.

        Raises
        ------
        SpecError
            If a label is unknown or the event is not one comparison with `==`, `<=` or `>=`.
        """
        row = parse_linear(event)
        left, bound = self._combine(row.coefficients, self.draws), float(row.bound)
        holds = {"==": left == bound, "<=": left <= bound, ">=": left >= bound}[row.sense]
        return float(np.mean(holds))

    def rank(self, label: str, level: str) -> Quantity:
        """Return draws of a place's rank within its level: 1 is the largest; ties share the best rank.

        The place is named as in `quantity`: `"01/003"`, `"'01/003'"` or `"'county=01/003'"`, with attribute values or without.

        Raises
        ------
        SpecError
            If the level is not declared, or has no such place.
        """
        from trueup.model.records.places_asked import Names

        self.cells.tree.level(level)  # refuses one that is not declared
        quoted = label[:1] in {"'", '"'} and label[-1:] == label[:1]
        named = [*parse_sum(label)] if quoted else [label]
        name = named[0] if len(named) == 1 else label
        count = Names(self.cells).find(name if name.startswith(f"{level}=") else f"{level}={name}")
        return Quantity(f"rank of {label}", count.ranks(self.cells, self.draws), 1.0)

    @cached_property
    def _labels(self) -> Labels:
        return Labels.of(self.cells, self.drawn.marginals)

    def _least(self, terms: Mapping[str, Fraction]) -> float:
        """Return the lower limit of a sum of counts, NaN if a count is subtracted or the spec limits counts from below."""
        if min(terms.values(), default=0) < 0:
            return np.nan
        return self._unless_limited(
            float(self._combine(terms, floors_of_draws(self.draws)[None, None]).sum())
        )

    def _combine(self, terms: Mapping[str, Fraction], draws: NDArray) -> NDArray:
        """Return a linear combination of labelled counts `(chains, draws)`, from draws `(chains, draws, n)` of the cells."""
        total: NDArray | float = 0.0
        for name, coefficient in terms.items():
            part = self._counted(name, draws)
            total = total + (int(coefficient) if coefficient.denominator == 1 else float(coefficient)) * part
        return np.asarray(total)

    def _counted(self, name: str, draws: NDArray) -> NDArray:
        """Return draws `(chains, draws)` of one count, given its label or a name as in questions."""
        if name not in self._labels.found:
            from trueup.model.records.places_asked import Names

            count = Names(self.cells).find(name)
            if not count.single:
                raise SpecError(
                    f"'{name}' stands for every place of a level",
                    needed="one place; `trueup.ask` answers for every place",
                )
            return count.draws(self.cells, draws)[..., 0]
        margin, group = self._labels.found[name]
        whole = self.cells.finest_tables == (margin,)  # whose draws need no summing
        return (draws if whole else self.cells.sum(draws, margin))[..., group]

    def ratio_summary(self, level: float | str | None = None, rows: int | None = None) -> Columns:
        """Return figures of every declared ratio at every reported place: the posterior, the noisy ratio and its Fieller set.

        Returns
        -------
        Columns `place`, `level`, `quantity`, `noisy`, `fieller` (its type: interval, complement, whole line),
        `fieller_low`, `fieller_high`, `denominator_zero` (the probability that the ratio is undefined), and those of `summary`,
        given that it is defined.
        """
        if not self.ratios:
            raise SpecError("the spec declares no quantity", remedy="add [[infer.quantity]] to it")
        probability = probability_of(self.level if level is None else level)
        tables = self._tables_of_levels()
        parts, done = [], 0
        for ratio, (name, values) in product(self.ratios, tables.items()):
            first = values if rows is None else values[:, :, : max(rows - done, 1)]
            parts.append(self._ratios_at(name, first, ratio, probability))
            if rows is not None and (done := done + values.shape[2]) >= rows:
                break
        return {column: np.concatenate([part[column] for part in parts])[:rows] for column in parts[0]}

    def _tables_of_levels(self) -> dict[str, NDArray]:
        """Return draws `(chains, draws, places, k)` of the `k` cells of a place on each reported level, the finest first."""
        tree, shape = self.cells.tree, self.draws.shape[:2]
        reported = {margin.level for margin in self.drawn.tables} | {tree.levels[-1]}
        names = [name for name in reversed(tree.levels) if name in reported]
        sums = {name: self.sums(Margin(name, self.cells.finest.attributes)) for name in names}
        return {name: held.reshape(*shape, tree.sizes[tree.level(name)], -1) for name, held in sums.items()}

    def _ratios_at(self, name: str, values: NDArray, ratio: Ratio, level: float) -> Columns:
        weights = above, below, whole = ratio_weights(self.cells, ratio)
        draws, places = quotients(values @ above, values @ below + whole), values.shape[2]
        least = np.nan if (above < 0).any() or floors_of_draws(values @ above).any() else 0.0
        return {
            "place": np.array(self.cells.tree.labels(name)),
            "level": np.full(places, name),
            "quantity": np.full(places, ratio.name),
            **(noisy_ratio(self.cells, self.noisy, weights, name, level) if self.noisy else {}),
            "denominator_zero": np.isnan(draws).mean(axis=(0, 1)),
            **described_where_defined(draws, lambda known, least: self.describe(known, level, least), least),
        }

    def to_xarray(
        self, table: str | None = None, by: str | Sequence[str] = (), level: float | str | None = None
    ) -> Any:
        """Return an `xarray.Dataset` of all draws, with dims (chain, draw, cell), or of the figures of a named table.

        Keys of places, their names and values of attributes are coordinates of the cells. Draws of a family have a variable for
        each table, `count by county x sex`, with dims (chain, draw, places, attributes).

        Needs the extra `posterior`.
        """
        if table is not None:
            return super().to_xarray(table, by, level)
        xarray = load_extra("xarray", "posterior")
        if self.cells.is_family:
            return self._tables_of_draws(xarray)
        names = np.array([self.cells.label(cell) for cell in range(self.cells.n)])
        data = {"count": (("chain", "draw", "cell"), self.draws)}
        coords: dict[str, Any] = {
            "chain": np.arange(self.draws.shape[0]),
            "draw": np.arange(self.draws.shape[1]),
            "cell": names,
        }
        columns = named_columns(self.cells, self.cells.finest)
        coords |= {
            name if name not in (*coords, "count") else f"{name} key": ("cell", c)
            for name, c in columns.items()
        }
        return xarray.Dataset(data, coords, self._facts())

    def _tables_of_draws(self, xarray: Any) -> Any:
        cells, tables, coords = self.cells, {}, {}
        for margin in cells.finest_tables:
            kept, shape = cells.kept(margin), (*self.draws.shape[:2], *cells.margin_shape(margin))
            dims = ("chain", "draw", margin.level, *(recode.name for recode in kept))
            tables[f"count by {margin}"] = (dims, self.sums(margin).reshape(shape))
            coords |= {margin.level: cells.tree.labels(margin.level)}
            coords |= {recode.name: list(recode.values) for recode in kept}
        return xarray.Dataset(tables, coords, self._facts())

    def to_arviz(self):
        """Return draws as ArviZ takes them (a DataTree or InferenceData); requires the extra `arviz`."""
        arviz = load_extra("arviz", "arviz")

        names = [self.cells.label(cell) for cell in range(self.cells.n)]
        labels: dict[str, Any] = {"coords": {"cell": names}, "dims": {"count": ["cell"]}}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": {"count": self.draws}}, **labels)
        return arviz.from_dict(posterior={"count": self.draws}, **labels)


def _parameters(prior: Mapping[str, Any]) -> str:
    """Return the parameters of a prior as text in brackets; empty if there are none."""
    more = [f"{k} = {_short(v)}" for k, v in prior.items() if k != "name" and v not in ((), [], None)]
    return f" ({', '.join(more)})" if more else ""


def _short(given: Any) -> str:
    if isinstance(given, Mapping):
        return f"{given.get('name', '')}{_parameters(given)}"
    if not isinstance(given, list | tuple):
        return str(given)
    named = all(isinstance(x, str) for x in given)
    return " and ".join(given) if named else f"one of {len(given)} values each"
