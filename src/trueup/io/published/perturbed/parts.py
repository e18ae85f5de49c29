"""Search for attribute values that are sums of other values, such as subtotals, by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_VALUES, MOST_CONTEXTS, MOST_STEPS = 60, 200, 1500
"""Values among which sums are looked for, numbers of each that are compared, and sets of parts that are tried for each."""
CHANCE = 1e-2
"""The chance at which some set of unrelated values is as near to a value as a set that is taken for its parts."""


class SummedValue(NamedTuple):
    """A value that is a sum of other values, with these values and whether chance is ruled out."""

    value: int
    parts: tuple[int, ...]
    sure: bool


def summed_values(
    ends: NDArray[np.float64], variance: float, named: Mapping[int, tuple[int, ...]] = MappingProxyType({})
) -> list[SummedValue]:
    r"""Return the attribute values whose numbers are sums of the numbers of other values.

    That parts sum to a value, up to their rounding, is compared with that they are unrelated counts of its size, whose
    difference has at least the variance of Poisson counts. The ratio of both likelihoods has to exceed the number of
    sets that were open, over `CHANCE`; a value is named as unsure where it exceeds that number alone.

    Parameters
    ----------
    ends
        `(values, contexts, 2)` the least and the most that each number may stand for.
    variance
        Variance of the perturbation of one number (counts squared).
    named
        The parts that names tell of some values: one set each, so that numbers have to confirm no other.

    Examples
    --------
    >>> a, b, c = [[31, 50, 12, 44, 9], [22, 19, 63, 70, 41], [77, 12, 30, 4, 58]]
    >>> table = np.array([a, b, np.add(a, b), c], float)
    >>> summed_values(np.stack([table, table], axis=2), 0.0)
    [SummedValue(value=2, parts=(0, 1), sure=True)]
    """
    size = len(ends)
    if not 2 < size <= MOST_VALUES:
        return []
    some = ends[:, np.argsort(-ends[..., 0].sum(axis=0), kind="stable")[:MOST_CONTEXTS]]
    found: dict[int, SummedValue] = {}
    tops = list(range(size))
    while more := {
        v: best for v in tops if v not in found and (best := _best(some, v, _runs(tops, v), variance, named))
    }:
        found |= {v: best for v, best in more.items() if best.sure}
        inner = {part for each in found.values() for part in each.parts}
        if len(tops) == len(tops := [v for v in tops if v not in inner]):
            break
    for value in (v for v in range(size) if v not in found):
        # A value that holds this one cannot be its part: the sets that are tried are those of smaller ones.
        smaller = [v for v in range(size) if v != value and (some[v, :, 0] <= some[value, :, 1]).mean() > 0.8]
        smaller.sort(key=lambda v: -some[v, :, 0].sum())
        best = _best(some, value, _sets_of_parts(some, value, smaller, variance), variance, named)
        found |= {value: best} if best else {}
    return [found[value] for value in sorted(found)]


def _best(
    ends: NDArray,
    value: int,
    sets: Iterable[tuple[int, ...]],
    variance: float,
    named: Mapping[int, tuple[int, ...]],
) -> SummedValue | None:
    """Return the set of parts that best explains a value as their sum, or None if chance does as well."""
    told = named.get(value, ())
    scored = [
        (
            _log_ratio(ends, value, parts, variance)
            - (0.0 if parts == told else _log_sets(value, parts, len(ends))),
            parts,
        )
        for parts in (told, *sets)
        if len(parts) > 1
    ]
    score, parts = max(scored, default=(0.0, ()))
    return SummedValue(value, tuple(sorted(parts)), bool(score > -np.log(CHANCE))) if score > 0 else None


def _runs(values: Sequence[int], value: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of possible parts of a value: runs of its neighbours, and all other values."""
    at = values.index(value)
    for beside in (values[at + 1 :], values[:at][::-1]):
        yield from (tuple(beside[:length]) for length in range(2, len(beside) + 1))
    if len(values) > 2:
        yield tuple(v for v in values if v != value)


def equal_runs(ends: NDArray[np.float64], variance: float) -> list[range]:
    """Return runs of neighbouring values with the same sum in every context; empty if there are none.

    Examples
    --------
    >>> men, young = np.array([[31, 50, 12, 44, 9, 63], [22, 19, 33, 70, 41, 5]], float)
    >>> table = np.array([men, 90 - men, young, 90 - young])
    >>> equal_runs(np.stack([table, table], axis=2), 0.0)
    [range(0, 2), range(2, 4)]
    """
    size, best = len(ends), (-np.log(CHANCE), [range(len(ends))])
    sums = np.concatenate([np.zeros_like(ends[:1]), np.cumsum(ends, axis=0)])
    for count in range(2, min(4, size // 2) + 1):
        targets = [sums[-1, :, 0] * k / count for k in range(count + 1)]
        cuts = [int(np.abs(sums[..., 0] - target).sum(axis=1).argmin()) for target in targets]
        runs = [range(a, b) for a, b in pairwise(cuts)]
        if min(map(len, runs)) < 2:
            continue
        groups = np.array([ends[a:b].sum(axis=0) for a, b in pairwise(cuts)])
        each = [_log_ratio(groups, k, [k + 1], variance * size / count) for k in range(count - 1)]
        score = min(each) - np.log(size)
        best = (score, runs) if score > best[0] else best
    return best[1] if len(best[1]) > 1 else []


def leaves_of(found: Sequence[SummedValue], value: int) -> set[int]:
    """Return the values that add up to a given value and are not sums themselves."""
    parts = {each.value: each.parts for each in found if each.sure}
    return set().union(*(leaves_of(found, part) for part in parts[value])) if value in parts else {value}


def _log_sets(value: int, parts: Sequence[int], size: int) -> float:
    """Return the logarithm of the number of sets of parts that are at most as complex as a given one."""
    if len(parts) == size - 1:
        return float(np.log(size))
    spanned = max(*parts, value) - min(*parts, value)
    return float(np.log(size) + (2 * np.log(size) if spanned == len(parts) else size * np.log(2)))


def _log_ratio(ends: NDArray, value: int, parts: Sequence[int], variance: float) -> float:
    """Return the log likelihood ratio of a value as the sum of some parts to a value unrelated to them."""
    own, sums = ends[value], ends[list(parts)].sum(axis=0)
    off = np.maximum(np.maximum(sums[:, 0] - own[:, 1], own[:, 0] - sums[:, 1]), 0.0)
    open_ = sums[:, 1] - sums[:, 0] + own[:, 1] - own[:, 0]
    by_chance = np.maximum(own[:, 0] + sums[:, 0], 0.0)
    shown = np.isfinite(open_)
    fitted = float((off[shown] ** 2).sum() / max(shown.sum(), 1))
    ratios = [
        _ratio(off, open_, by_chance, (len(parts) + 1) * each + 1 / 12)
        for each in {variance / 2, variance, max(variance, 2.0)}
    ]
    # Noise that nobody declares is no larger than a quarter of what parts unrelated counts, so that it explains no chance.
    if len(parts) == len(ends) - 1 and 4 * fitted * shown.sum() <= by_chance[shown].sum():
        ratios.append(_ratio(off, open_, by_chance, fitted + 1 / 12))
    return float(max(ratios))


def _ratio(off: NDArray, open_: NDArray, by_chance: NDArray, rounding: float) -> float:
    wide = by_chance + rounding
    spans = [
        np.maximum(open_ + 1, np.sqrt(2 * np.pi * each)) for each in (wide, np.full_like(wide, rounding))
    ]
    known = np.isfinite(open_)
    terms = np.log(spans[0][known] / spans[1][known]) - off[known] ** 2 * (1 / rounding - 1 / wide[known]) / 2
    return float(terms.sum())


def _sets_of_parts(
    ends: NDArray, value: int, smaller: Sequence[int], variance: float
) -> list[tuple[int, ...]]:
    """Return the sets of smaller values that sum to a value in most contexts, within rounding."""
    own, found, steps = ends[value], [], 0
    allowed = 4 * np.sqrt((len(smaller) + 1) * max(variance, 1 / 12)) + np.minimum(0.02 * own[:, 0], 4)
    rest = (
        np.cumsum([ends[other, :, 1] for other in reversed(smaller)], axis=0)[::-1]
        if smaller
        else np.empty(0)
    )
    stack: list[tuple[int, tuple[int, ...], NDArray]] = [(0, (), np.zeros_like(own))]
    while stack and steps < MOST_STEPS:
        at, parts, sums = stack.pop()
        steps += 1
        if (sums[:, 0] <= own[:, 1] + allowed).mean() < 0.9:
            continue
        if len(parts) > 1 and (sums[:, 1] >= own[:, 0] - allowed).mean() >= 0.9:
            found.append(parts)
        if at < len(smaller) and (sums[:, 1] + rest[at] >= own[:, 0] - allowed).mean() >= 0.9:
            stack += [(at + 1, parts, sums), (at + 1, (*parts, smaller[at]), sums + ends[smaller[at]])]
    return found
