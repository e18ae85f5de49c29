"""Attribute values that are sums of other values, of which a draft keeps the total alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.agreement import RowNumbers, ends_of, row_numbers
from trueup.io.published.drafting.keys import parents_by_codes
from trueup.io.published.drafting.names import joined_names, name_of, rest_of_names
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable, counted_names
from trueup.io.published.drafting.sums import way_to_keep
from trueup.io.published.perturbed.parts import SummedValue, equal_runs, leaves_of, summed_values
from trueup.model.toml import inline_table, value_text


class SummedGroups(NamedTuple):
    """Values of an attribute that are sums of other values.

    Attributes
    ----------
    whole
        The one that holds all others; empty if there is none.
    inner
        Values that are sums of others, each with these others.
    open
        Values that may be sums of others, by numbers that do not decide it.
    larger
        The value that is never below the other one, and the other one, if there are two; otherwise empty.
    """

    whole: str = ""
    inner: dict[str, list[str]] = {}
    open: dict[str, list[str]] = {}
    larger: tuple[str, ...] = ()


def without_subtotals(table: SeenTable, undecided: list[str]) -> SeenTable:
    """Return a table without attribute values that are sums of others, and with its total marked."""
    for at in range(len(table.attributes)):
        column = table.attributes[at]  # of the rows that are left
        values = list(dict.fromkeys(column.held))
        found = _summed(values, _numbers_by_value(table, column, values))
        texts = [text for text in dict.fromkeys(column.texts) if text not in found.inner]
        rest = [text for text in texts if text not in found.open]
        shown = f"only = {inline_table({**table.only, column.name: rest})}"
        remedy = f"take it out of `values`, and write {shown} in its entry"
        said = said_of_sums(found, remedy, f" of '{column.name}'")
        if "" not in column.texts:
            over = f"add {value_text(column.name)} = WHOLE to `total` in its entry (without one, write total = {{ ... }} of it)"
            said += said_of_larger(found, over)
        undecided += [f"'{table.file}': {text}" for text in said]
        if found.inner:
            undecided += [f"'{table.file}': {said}" for said in way_to_keep(table, column, found.inner)]
            kept = [text not in found.inner for text in column.texts]
            only = {**table.only, column.name: texts}
            table = table.of_rows(kept)._replace(only=only)
        table = table._replace(wholes={**table.wholes, column.name: found.whole})
    return table


def apart_by_sums(table: SeenTable) -> list[SeenTable]:
    """Split a table in which one column contains the values of several attributes, found by equal sums."""
    for column in table.attributes:
        values = [value for value in dict.fromkeys(column.held) if not TOTAL.fullmatch(value)]
        numbers = _numbers_by_value(table, column, values)
        runs = equal_runs(numbers.ends, (numbers.base**2 - 1) / 6 + numbers.noise**2)
        groups = [[values[k] for k in run] for run in runs]
        if groups:
            names = "; ".join(", ".join(group) for group in groups)
            said = f"values of '{column.name}' have the same sums in {len(groups)} runs, and are of as many attributes: {names}"
            groups[0] += [text for text in dict.fromkeys(column.texts) if text not in values]
            return [
                table.of_rows([text in group for text in column.texts])._replace(
                    only={**table.only, column.name: group}, ignored=[*table.ignored, said]
                )
                for group in groups
            ]
    return [table]


def said_of_sums(
    found: SummedGroups, remedy: str = "leave its columns out of `cell`, and out of `values`", where: str = ""
) -> list[str]:
    """Return notes on attribute values that are, or may be, sums of other values."""
    said = [
        f"'{value}'{where} is the sum of {_shown(parts)}, and is left out"
        for value, parts in found.inner.items()
    ]
    return said + [
        f"'{value}'{where} may be the sum of {_shown(parts)}, and is taken for one beside them; if it is their sum, all is "
        f"counted twice: {remedy}"
        for value, parts in found.open.items()
    ]


def said_of_larger(found: SummedGroups, remedy: str) -> list[str]:
    """Return a note on two attribute values of which the larger may contain the other."""
    if not found.larger:
        return []
    whole, part = found.larger
    remedy = remedy.replace("WHOLE", value_text(whole))
    return [
        f"'{whole}' is nowhere below '{part}', and is taken for one beside it; if it holds it, all is counted twice: in `values` "
        f'write "other" for {value_text(whole)}, {remedy}, and write unlisted = "unknown" there'
    ]


def _shown(parts: Sequence[str]) -> str:
    return counted_names([f"'{part}'" for part in parts], 5)


def summed_columns(columns: Sequence[SeenColumn], names: Sequence[str], table: SeenTable) -> SummedGroups:
    """Return which columns of values are sums of other columns in every row."""
    numbers = row_numbers(table, columns)
    values = list(dict.fromkeys(names))
    ends = numbers.ends.transpose(1, 0, 2)
    each = [np.concatenate([ends[k] for k, name in enumerate(names) if name == value]) for value in values]
    if len({*map(len, each)}) > 1:
        return SummedGroups()
    return _summed(values, numbers._replace(ends=np.stack(each)))


def columns_apart(columns: Sequence[SeenColumn], table: SeenTable) -> list[list[SeenColumn]]:
    """Return the columns of each attribute, which are runs of columns with equal sums in all rows."""
    numbers = row_numbers(table, columns)
    runs = equal_runs(numbers.ends.transpose(1, 0, 2), (numbers.base**2 - 1) / 6 + numbers.noise**2)
    return [[columns[k] for k in run] for run in runs] or [[*columns]]


def _summed(values: Sequence[str], numbers: RowNumbers) -> SummedGroups:
    variance = (numbers.base**2 - 1) / 6 + numbers.noise**2
    above = parents_by_codes(values)
    coded = {
        k: tuple(j for j, parent in enumerate(above) if parent == value) for k, value in enumerate(values)
    }
    every = summed_values(numbers.ends, variance, coded)
    sure = [each for each in every if each.sure]
    if not _wholes(sure, len(values)) and _wholes(every, len(values)):
        every = sure = [each._replace(sure=True) for each in every]  # with which alone there is a whole
    parts = {each.value: [values[k] for k in each.parts] for each in every}
    totals = numbers.ends[..., 0].sum(axis=1)
    wholes = _wholes(sure, len(values))
    named = [k for k, value in enumerate(values) if TOTAL.fullmatch(value)]
    named = named if len(named) < len(values) else []  # "Total employed" beside "Total unemployed"
    named = named or _joining(values, numbers.ends)
    first = max(wholes or named, key=lambda k: (k in named, totals[k]), default=None)
    inner = {
        values[k]: parts.get(k, ["others"])
        for k in sorted({each.value for each in sure} | {*named})
        if k != first
    }
    unsure = {
        values[each.value]: parts[each.value] for each in every if not each.sure and each.value not in named
    }
    larger = () if named else _larger(values, numbers.ends)
    return SummedGroups("" if first is None else values[first], inner, unsure, larger)


MANY_CONTEXTS = 12
"""Places and values in which one of two unrelated values is above the other by a chance of one in two thousand."""


def _larger(values: Sequence[str], ends: NDArray[np.float64]) -> tuple[str, ...]:
    """Return the larger and the smaller of two values if one is never below the other; else empty."""
    if len(values) != 2 or name_of(values) == "sex":
        return ()
    known = (ends[..., 0] == ends[..., 1]).all(axis=0)
    off = ends[0, known, 0] - ends[1, known, 0]
    if known.sum() < MANY_CONTEXTS or (off > 0).any() == (off < 0).any():
        return ()
    return tuple(values) if (off > 0).any() else (values[1], values[0])


def _joining(values: Sequence[str], ends: NDArray[np.float64]) -> list[int]:
    """Return the value whose name joins those of the other values, if it may be their sum."""
    for k, value in enumerate(values):
        rest = [j for j in range(len(values)) if j != k]
        others = {values[j].casefold() for j in rest}
        alone = len(rest) == 1 and rest_of_names(value, values[rest[0]]) != ""
        if not alone and (len(others) < 2 or others != {name.casefold() for name in joined_names(value)}):
            continue
        own, sums = ends[k], ends[rest].sum(axis=0)
        known = own[:, 0] == own[:, 1]
        above = (
            (own[:, 1] >= sums[:, 0]).mean() if alone else own[known, 0].sum() >= 0.9 * sums[known, 0].sum()
        )
        if len(own) > 1 and above >= 0.9:
            return [k]
    return []


def _wholes(found: Sequence[SummedValue], size: int) -> list[int]:
    """Return the values that are the sum of all finest values."""
    every = [each._replace(sure=True) for each in found]
    leaves = set(range(size)) - {each.value for each in every}
    return [each.value for each in every if leaves_of(every, each.value) >= leaves]


def _numbers_by_value(table: SeenTable, column: SeenColumn, values: Sequence[str]) -> RowNumbers:
    """Return the numbers in the rows of each value of a column, ordered by the other keys."""
    others = [key.texts for key in (*table.places, *table.attributes) if key is not column]
    keys = list(zip(*others)) if others else [()] * len(column.texts)
    contexts = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    ends: NDArray[np.float64] = np.zeros((len(values), len(contexts) * len(table.values), 2))
    ends[..., 1] = np.inf
    at = {value: k for k, value in enumerate(values)}
    for c, shown in enumerate(table.values):
        for key, text, pair in zip(keys, column.texts, ends_of(shown, table.titles)):
            if text in at:
                ends[at[text], contexts[key] + c * len(contexts)] = pair
    return row_numbers(table, table.values)._replace(ends=ends)
