"""Made-up places of one region: a tree of places with relative populations and codes.

Codes of places by level: how wide each is, and how many children fit.
Every column of a spec that names places holds digits. Levels that take prefixes of one column share it (2 digits of state,
3 of county, ...); any other level has a column of its own, which numbers the children of each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.geography import is_whole
from trueup.model.spec import Spec

TYPICAL = {"county": 2588, "tract": 96, "block group": 34}
"""Blocks to a place of these levels in the census of 2020."""
EMPTY_SHARE = 0.35
"""Share of the places of the last level in which nobody lives."""
SPREAD_TOP, SPREAD, SPREAD_LAST, SPREAD_CHILDREN = 1.2, 0.35, 1.0, 0.3
"""Standard deviations of the logarithm of sizes: right below a region, further down, last level; and of fan-outs."""


@dataclass(frozen=True)
class PlaceBranch:
    """The places of a region: the parent of each place, and relative populations.

    Attributes
    ----------
    parents
        For every level below the region, the parent of every place within the level above.
    weights
        `(places,)` of the last level: relative population, zero where nobody lives.
    """

    parents: tuple[NDArray[np.int64], ...]
    weights: NDArray[np.float64]


def level_sizes(names: Sequence[str], leaves: int, most: Sequence[int]) -> list[int]:
    """Return the number of places on each level below a region.

    Known levels have as many as in the census of 2020, others lie between in geometric steps; where
    codes allow few children there are more parents.

    Parameters
    ----------
    names
        The levels below the region.
    leaves
        Places of the last of them.
    most
        For each level, how many children of one parent its codes tell apart.

    Examples
    --------
    >>> level_sizes(["county", "tract", "block group", "block"], 150_000, [999, 999_999, 9, 999])
    [58, 1562, 4412, 150000]
    """
    if not names:
        return []
    sizes = [1] + [round(leaves / TYPICAL[n]) if n in TYPICAL else 0 for n in names[:-1]] + [leaves]
    for at in range(1, len(sizes) - 1):
        if not sizes[at]:
            step = next(i for i, size in enumerate(sizes[at:]) if size) + 1
            sizes[at] = round(sizes[at - 1] * (sizes[at - 1 + step] / sizes[at - 1]) ** (1 / step))
        sizes[at] = min(leaves, max(sizes[at - 1], sizes[at]))
    for at in range(len(sizes) - 1, 1, -1):
        sizes[at - 1] = max(sizes[at - 1], -(-sizes[at] // max(1, most[at - 1] * 3 // 4)))
    if sizes[1] > most[0]:
        raise SpecError(
            f"a region would have {sizes[1]:,} places of level '{names[0]}', but their codes can only distinguish "
            f"{most[0]:,}",
            remedy=f"ask for fewer places, or lengthen the prefix of '{names[0]}'",
        )
    return sizes[1:]


def grow(sizes: Sequence[int], most: Sequence[int], rng: np.random.Generator) -> PlaceBranch:
    """Draw the tree of places of a region, in which populous places have more children."""
    weights, parents = np.ones(1), []
    for at, (size, limit) in enumerate(zip(sizes, most)):
        last = at == len(sizes) - 1
        children = _children(size, weights * rng.lognormal(0, SPREAD_CHILDREN, weights.size), limit, rng)
        parent = np.repeat(np.arange(weights.size), children)
        spread = SPREAD_LAST if last else SPREAD_TOP if at == 0 else SPREAD
        weights = (weights / children)[parent] * rng.lognormal(0, spread, size)
        parents.append(parent)
    return PlaceBranch(tuple(parents), some_empty(weights, rng) if sizes else weights)


def _children(total: int, weights: NDArray, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of children of each parent, at least one and at most `most`."""
    counts = 1 + rng.multinomial(total - weights.size, weights / weights.sum())
    while (excess := int(np.maximum(counts - most, 0).sum())) > 0:
        counts = np.minimum(counts, most)
        open_ = weights * (counts < most)
        counts = counts + rng.multinomial(excess, open_ / open_.sum())
    return counts


def some_empty(weights: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return relative populations in which a share of the places is set to zero, but never all."""
    lived_in = rng.random(weights.size) >= EMPTY_SHARE
    lived_in[rng.integers(weights.size)] = True
    return weights * lived_in


def place_numbers(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of every place among its siblings, counted from 1.

    Examples
    --------
    >>> place_numbers(np.array([0, 0, 1, 1, 1]))
    array([1, 2, 1, 2, 3])
    """
    first = np.searchsorted(parent, parent)
    return np.arange(parent.size) - first + 1


def leaf_codes(
    branch: PlaceBranch, layout: Sequence[Digits], code: int, before: Sequence[int]
) -> dict[str, NDArray[np.int64]]:
    """Return the codes of the places of the last level, as an array of integers for each column.

    Parameters
    ----------
    branch
        The region.
    layout
        Digits of every level below the root; if there is one more than in the branch, the first is the region's.
    code
        The region's own.
    before
        For every level of the layout, how many places the regions before this one have.
    """
    leaves = branch.weights.size
    own = [np.full(leaves, code)] if len(layout) > len(branch.parents) else []
    ancestor, below = np.arange(leaves), []
    for parent, digits, offset in zip(branch.parents[::-1], layout[::-1], before[::-1]):
        number = np.arange(parent.size) + 1 + offset if digits.unique else place_numbers(parent)
        below.append(number[ancestor])
        ancestor = parent[ancestor]
    codes: dict[str, NDArray[np.int64]] = {}
    for digits, number in zip(layout, [*own, *below[::-1]]):
        above = codes[digits.column] * 10**digits.width if digits.start else 0
        codes[digits.column] = above + number
    return codes


_MOST_DIGITS = 18  # of a 64-bit integer


@dataclass(frozen=True)
class Digits:
    """The digits of place codes that number the places of one level.

    Attributes
    ----------
    column
        The column in which its digits stand.
    start, width
        Number of digits before them, and number of these digits.
    unique
        True if its number is one for the whole country instead of one below its parent: where the column begins with
        this level although others are above it, or tells the place of a row by `place`.
    label
        The column of readable names, or None.
    """

    column: str
    start: int
    width: int
    unique: bool
    label: str | None

    @property
    def most(self) -> int:
        """Return the largest number of places that the digits can tell apart."""
        return 10**self.width - 1

    @property
    def end(self) -> int:
        """Return the number of digits of a code from its start down to this level."""
        return self.start + self.width


def region_level(spec: Spec) -> int:
    """Return the position of the level of regions: `state` if it is below the root, else the root."""
    return int(len(spec.levels) > 1 and spec.levels[1].name.casefold() == "state")


def synth_layout(spec: Spec, sizes: list[int], region_digits: int) -> list[Digits]:
    """Return the ranges of digits in place codes for every level below the root.

    Parameters
    ----------
    spec
        Levels with their columns and prefixes, or with parent pointers.
    sizes
        Places of every level, root first; free codes are made wide enough for uneven numbers of children.
    region_digits
        Digits of the regions' own codes.
    """
    found: list[Digits] = []
    for at, level in enumerate(spec.levels[1:], 1):
        column = spec.parents.id if spec.parents is not None else level.column
        assert column is not None
        shared = spec.parents is not None or level.prefix is not None or is_whole(spec, level)
        start = max([d.end for d in found if d.column == column and shared], default=0)
        alone = column in (spec.table.place or ())  # rows tell their place without the levels above
        unique = (shared or alone) and not start and at > 1
        children = sizes[at] // (1 if unique else sizes[at - 1])
        roomy = max(3, len(str(8 * children)))  # for a place with many more children than average
        free = region_digits if at == region_level(spec) else roomy
        width = level.prefix - start if level.prefix is not None else free
        digits = Digits(column, start, width, unique, level.label)
        if width < 1:
            raise SpecError(
                f"the prefix of level '{level.name}' in '{column}' is not longer than that of the level above it",
                needed="a longer prefix at each lower level",
                remedy=f"lengthen the prefix of '{level.name}', or shorten that of the level above it",
            )
        if digits.end > _MOST_DIGITS:
            raise SpecError(
                f"the codes of level '{level.name}' in '{column}' take {digits.end} digits",
                needed=f"at most {_MOST_DIGITS} digits",
                remedy="shorten the prefixes, or make fewer places",
            )
        found.append(digits)
    return found
