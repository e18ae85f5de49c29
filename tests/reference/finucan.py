"""Finucan's algorithm, literally, in exact fractions (Wang & Reiter 2021, section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor


def finucan(weights: Sequence[int], trials: int, *, add_lowest=True, remove_lowest=True) -> list[int]:
    """Return the mode that the loop ends with; ties go to the lowest index unless told otherwise."""
    weights = [int(w) for w in weights]
    cells, total = range(len(weights)), sum(weights)
    if trials == 0:
        return [0 for _ in cells]
    p = [Fraction(w, total) for w in weights]
    c = trials + Fraction(len(weights), 2)
    k = [floor(c * p[i]) for i in cells]
    f = [c * p[i] - k[i] for i in cells]
    while sum(k) < trials:
        q = [(1 - f[i]) / (k[i] + 1) for i in cells]
        a = min(cells, key=lambda i: (q[i], i if add_lowest else -i))
        k[a], f[a] = k[a] + 1, f[a] - 1
    while sum(k) > trials:
        held = [i for i in cells if k[i] > 0]
        a = min(held, key=lambda i: (f[i] / k[i], i if remove_lowest else -i))
        k[a], f[a] = k[a] - 1, f[a] + 1
    return k


def is_mode(weights: Sequence[int], counts: Sequence[int]) -> bool:
    """Return whether no further trial is dearer than one already placed, in fractions."""
    further = [Fraction(int(w), int(k) + 1) for w, k in zip(weights, counts)]
    placed = [Fraction(int(w), int(k)) for w, k in zip(weights, counts) if k > 0]
    return min(counts) >= 0 and (not placed or max(further) <= min(placed))


def greedy(weights: Sequence[int], trials: int, least: Sequence[int]) -> list[int]:
    """Return a mode given lower bounds, one trial at a time."""
    k = [int(x) for x in least]
    for _ in range(trials - sum(k)):
        k[max(range(len(k)), key=lambda i: Fraction(int(weights[i]), k[i] + 1))] += 1
    return k
