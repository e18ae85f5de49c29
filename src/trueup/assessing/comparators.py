"""Other ways to protect tables, for comparison: perturbed tables, swapped records, and a given release.

None of them has a formal guarantee, and each is labelled so. A comparator makes every table anew from the true counts,
each table by itself, as it would be published; its parts need not add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.assessing.estimators import Bounds, ReplicateEstimates
from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.records.assessment import COMPARATOR, Assessed
from trueup.noise.perturbed import PERTURBATIONS, READ, Perturbation

IMPLIED = "implied"
"""Name of the intervals that a comparator's law alone implies, under a flat prior on each count."""
LABEL = "no formal guarantee"
_LAWS = tuple(name for name in PERTURBATIONS.names if name not in READ)


@dataclass(frozen=True, eq=False)
class PerturbedTables:
    """Tables whose counts are perturbed by a law p(y | x), by record keys or independently.

    The keys of the records of a finest cell add up, modulo one, to one uniform key, which is drawn; a cell of another
    table has the sum of the keys of the finest cells in it. Cells with the same records so have the same key.
    """

    law: Perturbation
    counts: NDArray[np.int64]
    level: float

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Return perturbed tables for each replicate, as many as there are rows of values."""
        made = [self.publish(cells, margins, rng) for _ in range(len(values))]
        tables = {margin: np.stack([one[margin] for one in made]) for margin in margins}
        intervals = {(IMPLIED, margin): self._intervals(shown) for margin, shown in tables.items()}
        return ReplicateEstimates({m: self.law.numbers(shown) for m, shown in tables.items()}, intervals)

    def publish(
        self, cells: Cells, margins: Sequence[Margin], rng: np.random.Generator
    ) -> dict[Margin, NDArray[np.int64]]:
        """Return the perturbed tables of a single replicate."""
        keys = rng.integers(0, 2**64, cells.n, dtype=np.uint64) * (self.counts > 0).astype(np.uint64)
        found = {}
        for margin in margins:
            true = cells.sum(self.counts, margin)
            if self.law.same_records:
                whole = np.zeros(len(true), np.uint64)  # sums modulo 2^64
                np.add.at(whole, cells.groups(cells.finest, margin), keys)
                found[margin] = self.law.publish(true, (whole >> np.uint64(11)) / 2.0**53)
            else:
                found[margin] = self.law.publish(true, rng.random(len(true)))
        return found

    def _intervals(self, shown: NDArray) -> Bounds:
        """Return an equal-tailed interval for the true count behind every published value."""
        values, back = np.unique(shown, return_inverse=True)
        ends = np.array([self._ends(int(value)) for value in values])
        return ends[back.reshape(shown.shape), 0], ends[back.reshape(shown.shape), 1]

    def _ends(self, value: int) -> tuple[int, int]:
        first, log = self.law.table(value)
        mass = np.cumsum(np.exp(log - log.max()))
        tails = (1 - self.level) / 2 * mass[-1], (1 + self.level) / 2 * mass[-1]
        low, high = np.searchsorted(mass, [tails[0] * (1 - 1e-12), tails[1] * (1 - 1e-12)])
        return first + int(low), first + int(high)


@dataclass(frozen=True, eq=False)
class Swapping:
    """Swapping of a share of the records between places that have the same parent.

    Places keep their totals; tables by attributes change.
    """

    rate: float
    counts: NDArray[np.int64]

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Return tables of swapped records for each replicate, as many as there are rows of values."""
        made = np.stack([self._swapped(cells, rng) for _ in range(len(values))])
        return ReplicateEstimates({margin: cells.sum(made, margin) for margin in margins}, {})

    def _swapped(self, cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the counts `(n,)` after chosen records' attributes are permuted within parent places."""
        chosen = rng.binomial(self.counts, self.rate)
        each = cells.n // cells.shape[0]
        records = np.repeat(np.arange(cells.n), chosen)
        place, kind = records // each, records % each
        last = len(cells.tree.levels) - 1
        parent = cells.tree.ancestors(last, last - 1)[place] if last else np.zeros_like(place)
        order = np.lexsort((rng.random(len(records)), parent))  # places ascend, and so do their parents
        swapped = self.counts - chosen
        np.add.at(swapped, place * each + kind[order], 1)
        return swapped


@dataclass(frozen=True, eq=False)
class GivenRelease:
    """Counts from a release made elsewhere, which are the same in every replicate."""

    released: NDArray[np.int64]

    @cached_property
    def whole(self) -> NDArray[np.int64]:
        """Return the finest counts of the release `(1, n)`."""
        return self.released[None]

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Return the tables of the release, repeated for every row of values."""
        tables = {m: np.repeat(cells.sum(self.whole, m), len(values), axis=0) for m in margins}
        return ReplicateEstimates(tables, {})


def named_entry(one: Any, what: str, needed: str) -> tuple[str, Mapping[str, Any]]:
    """Return a name and its parameters, which may be left out."""
    if isinstance(one, str):
        return one, {}
    if isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[1], Mapping):
        return str(one[0]), one[1]
    raise SpecError(f"a {type(one).__name__} is given as a {what}", needed=needed)


Comparator = PerturbedTables | Swapping | GivenRelease


def comparators(
    wanted: Sequence[Any], counts: NDArray[np.int64], released: NDArray[np.int64] | None, level: float
) -> list[tuple[Assessed, Comparator]]:
    """Return comparators, given their names and parameters or a release made elsewhere.

    Parameters
    ----------
    wanted
        Names or `(name, parameters)`: `cell-key`, `random-rounding`, `rounded`, `suppressed`, `swapping`.
    counts
        True counts `(n,)`.
    released
        Released counts `(n,)` of the same cells.
    level
        Probability of the intervals that a law implies.

    Raises
    ------
    SpecError
        If a name or a parameter is unknown or out of range.

    Examples
    --------
    >>> [(named, _)] = comparators([("random-rounding", {"base": 3})], np.zeros(2, np.int64), None, 0.9)
    >>> named.label, named.title
    ('random-rounding, base 3', 'Random rounding to a base (no formal guarantee)')
    """
    needed = "a name, or a name with its parameters"
    found = [_made(*named_entry(one, "comparator", needed), counts, level) for one in wanted]
    if released is not None:
        named = _comparator("published table", {}, "A released table that was given", nonnegative=False)
        found.append((named, GivenRelease(released)))
    return found


def _made(
    name: str, given: Mapping[str, Any], counts: NDArray[np.int64], level: float
) -> tuple[Assessed, Comparator]:
    if name == "swapping":
        rate = _rate(given)
        return _comparator(name, {"rate": rate}, "Records that change places at random"), Swapping(
            rate, counts
        )
    if name not in _LAWS:
        raise SpecError(
            f"comparator '{name}' is unknown", needed=f"one of: {', '.join((*_LAWS, 'swapping'))}"
        )
    try:
        law = PERTURBATIONS.named(name)(**given)
    except TypeError:
        known = fields(PERTURBATIONS.named(name))  # pyright: ignore[reportArgumentType]
        raise SpecError(
            f"comparator '{name}' is given the parameters {', '.join(given) or 'none'}",
            needed=", ".join(f.name + " (optional)" * (f.default is not MISSING) for f in known),
        ) from None
    return _comparator(name, given, law.title), PerturbedTables(law, counts, level)


def _rate(given: Mapping[str, Any]) -> float:
    try:
        rate = float(given.get("rate", "none"))
    except (TypeError, ValueError):
        rate = np.nan
    if set(given) != {"rate"} or not 0 < rate <= 1:
        raise SpecError(
            f"comparator 'swapping' is given {', '.join(f'{k} = {v!r}' for k, v in given.items()) or 'no rate'}",
            needed="one rate above 0 and at most 1, such as swapping:rate=0.05",
        )
    return rate


def _comparator(name: str, given: Mapping[str, Any], title: str, *, nonnegative: bool = True) -> Assessed:
    label = name + "".join(f", {key} {value}" for key, value in given.items())
    return Assessed(label, {"method": name, **given}, f"{title} ({LABEL})", COMPARATOR, nonnegative)
