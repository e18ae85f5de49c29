"""Agreement of published numbers with sums of others, allowing for noise, rounding and hidden values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.keys import meaning_of, said_of
from trueup.io.published.drafting.seen import SeenColumn, SeenTable
from trueup.io.published.drafting.sums import base_of, column_numbers
from trueup.io.published.perturbed.under_law import ERRORS
from trueup.model.published_codes import plain_meaning, read_meaning

LEAST = 30
"""The counts that a place needs, in all columns together, for its sums to tell anything."""


UNKNOWN_NOISE = 10
"""The standard deviation that is drafted for noise of which a table tells none."""


class RowNumbers(NamedTuple):
    """Ranges of the numbers in a table's rows, with the table's rounding base and noise.

    Attributes
    ----------
    ends
        `(rows, columns, 2)` the least and the most that each cell may stand for.
    base
        Rounding base: numbers are multiples of it; 1 for none.
    noise
        The standard deviation of their noise, where the table tells it.
    is_noisy
        True if numbers with fractions show that there is noise of unknown size.
    """

    ends: NDArray[np.float64]
    base: int = 1
    noise: float = 0.0
    is_noisy: bool = False


class SumAgreement(NamedTuple):
    """The agreement of the numbers in one row with the sums of other rows.

    Attributes
    ----------
    told, near
        Numbers that hidden ones do not leave open, and how many of these are near the sum.
    off, total
        Sum of the deviations of the known numbers, and sum of these numbers (counts).
    """

    told: int
    near: int
    off: float
    total: float

    @property
    def is_told(self) -> bool:
        """Return True if enough large numbers are known to judge the agreement with sums."""
        return self.told > 0 and self.total >= LEAST

    @property
    def holds(self) -> bool:
        """Return True if most known numbers agree with the sums, or if the total deviation is small."""
        return self.is_told and (
            5 * self.near >= 4 * self.told or (self.told > 2 and 12 * self.off <= self.total)
        )


def row_numbers(table: SeenTable, columns: Sequence[SeenColumn]) -> RowNumbers:
    """Return the numbers in some columns of a table, with the table's rounding base and noise."""
    ends = np.array([list(ends_of(column, table.titles)) for column in columns]).transpose(1, 0, 2)
    known = ends[ends[..., 0] == ends[..., 1]][:, 0].tolist()
    base = base_of(known, table.titles.casefold()) or 1
    noise = noise_of(table)
    return RowNumbers(ends, base, noise, not noise and any(x != int(x) for x in known))


def noise_of(table: SeenTable, column: SeenColumn | None = None) -> float:
    """Return the largest standard deviation in a table's columns of errors, or 0 if it has no such column."""
    errors = [table.errors[column.name]] if column and column.name in table.errors else table.errors.values()
    columns = [*errors] or ([table.variance] if table.variance else [])
    most = max((x for each in columns for x in column_numbers(each) if x), default=0.0)
    return most / float(ERRORS[table.error]) if table.error in ERRORS else most**0.5


def agreement_with_sums(
    numbers: RowNumbers, whole: int, parts: Sequence[int], *, loose: bool = False
) -> SumAgreement:
    """Return how well the numbers of a row agree with the sums of other rows.

    Examples
    --------
    >>> ends = np.repeat([[[40.0], [9.0]], [[15.0], [4.0]], [[26.0], [5.0]]], 2, axis=2)
    >>> agreement_with_sums(RowNumbers(ends), 0, [1, 2])
    SumAgreement(told=2, near=2, off=1.0, total=49.0)
    """
    own, sums, terms = numbers.ends[whole], numbers.ends[list(parts)].sum(axis=0), len(parts) + 1
    off = np.maximum(np.maximum(sums[:, 0] - own[:, 1], own[:, 0] - sums[:, 1]), 0.0)
    most, share = 5 * terms**0.5, 0.02 * np.abs(own[:, 0])
    allowed = 3 + (most + share if loose else np.minimum(most, share)) + 4 * numbers.noise * terms**0.5
    if numbers.base > 1:
        allowed = np.maximum(allowed, min(terms * (numbers.base - 1), 2 * numbers.base * terms**0.5))
    known = own[:, 0] == own[:, 1]
    told = known & ((sums[:, 1] - sums[:, 0] <= 3 + 0.25 * np.abs(own[:, 0])) | (off > allowed))
    return SumAgreement(
        int(told.sum()),
        int((told & (off <= allowed)).sum()),
        float(off[told].sum()),
        float(np.abs(own[told, 0]).sum()),
    )


def agreeing(numbers: RowNumbers, parents: Sequence[int]) -> tuple[int, int, int, float]:
    """Return how many rows are sums of their parts, are not, or may be, and the relative deviation.

    Parameters
    ----------
    numbers
        Numbers of all rows.
    parents
        Row of which each row is a part; -1 for none.
    """
    parts: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        parts.setdefault(parent, []).append(row)
    loose = numbers.is_noisy
    found = [agreement_with_sums(numbers, at, rows, loose=loose) for at, rows in parts.items() if at >= 0]
    told = [each for each in found if each.is_told]
    held = sum(each.holds for each in told)
    off = sum(each.off for each in told) / max(sum(each.total for each in told), 1.0)
    return held, len(told) - held, len(found) - len(told), off


def summing(columns: Sequence[SeenColumn], titles: str) -> SeenColumn | None:
    """Return the first or last column if it is the sum of the other columns, else None."""
    for total in (columns[0], columns[-1]) if len(columns) > 2 else ():
        rest = [column for column in columns if column is not total]
        groups = summed_groups(rest, total, titles)
        if len(groups) > 1 or _add_up(rest, total, titles):
            return total
    return None


def summed_groups(columns: list[SeenColumn], total: SeenColumn, titles: str) -> list[list[SeenColumn]]:
    """Return the runs of neighbouring columns that each sum to the total, or else one run of all columns."""
    groups, run = [], []
    for column in columns if not _add_up(columns, total, titles) else ():
        run.append(column)
        if len(run) > 1 and _add_up(run, total, titles):
            groups.append(run)
            run = []
    return [columns] if run or not groups else groups


def are_of_one_whole(groups: Sequence[Sequence[SeenColumn]], total: SeenColumn | None, titles: str) -> bool:
    """Return True if groups of columns are values of one attribute, rather than of an attribute each."""
    if total is not None:
        return _add_up([column for group in groups for column in group], total, titles)
    ends = [np.array([list(ends_of(column, titles)) for column in group]) for group in groups]
    first = ends[0].sum(axis=0)
    found = [
        agreement_with_sums(RowNumbers(np.array([first, *own])), 0, range(1, len(own) + 1), loose=True)
        for own in ends[1:]
    ]
    return all(each.is_told and 5 * each.near < each.told and 10 * each.off > each.total for each in found)


def _add_up(parts: Sequence[SeenColumn], total: SeenColumn, titles: str) -> bool:
    ends = np.array([list(ends_of(column, titles)) for column in (total, *parts)])
    found = agreement_with_sums(RowNumbers(ends), 0, range(1, len(ends)), loose=True)
    near = found.total > 0 and 5 * found.near >= 4 * found.told > 0
    return (
        near and 4 * found.off <= found.total
    )  # small parts are near a sum by chance, in all rows together not


def ends_of(column: SeenColumn, titles: str) -> Iterator[tuple[float, float]]:
    """Yield the smallest and the largest number that each cell of a column may represent."""
    said: dict[str, tuple[float, float]] = {}
    for text, x in zip(column.texts, column_numbers(column)):
        if x is None and text not in said:
            meaning = read_meaning(meaning_of(said_of(text, titles) or text, zeros=False))
            meaning = plain_meaning(text, noisy=False) or meaning
            told = meaning is not None and meaning.of in ("count", "value")
            said[text] = (max(meaning.low, 0.0), meaning.high) if meaning and told else (0.0, np.inf)
        yield said[text] if x is None else (x, x)
