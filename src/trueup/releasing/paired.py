"""Places and values of two releases, paired: by their names, by a crosswalk of places, by dates equally many years apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from trueup.errors import DataError, SpecError, did_you_mean
from trueup.files import require
from trueup.files.source import open_table
from trueup.files.values import as_text, without_blanks
from trueup.model.cells import Cells, Margin

BEFORE, AFTER = "before", "after"
"""Columns of a crosswalk."""


def years_between(old: Cells, new: Cells, margin: Margin) -> str:
    """Refuse a table whose attributes have other values in the earlier release; say which dates are compared if those have."""
    said = []
    for kept, known in zip(new.kept(margin), old.kept(old.margin(margin))):
        years = _shift(known.values, kept.values) if kept.name == known.name else None
        if years is None:
            raise SpecError(
                f"'{kept.name}' has other values in the two releases",
                needed="the same ones, months or years of dates of which all lie equally many years apart, or a recode with the "
                "same groups in both",
            )
        if years:
            of = "1 year" if years == 1 else f"{years} years"
            said.append(f"Each '{kept.name}' is compared with the one {of} before.")
    return " ".join(said)


_DATE = re.compile(r"(\d{4})(-\d{2})?", re.ASCII)


def _shift(before: Sequence[str], after: Sequence[str]) -> int | None:
    """Return how many years later all dates among the values are: 0 if values are the same, None if they cannot be paired.

    Examples
    --------
    >>> _shift(["2025-01", "2025-02", "unknown"], ["2026-01", "2026-02", "unknown"])
    1
    >>> _shift(["2024", "2025"], ["2025", "2026"]) is None  # the same year is in both
    True
    """
    if list(before) == list(after):
        return 0
    dates = [text for text in before if _DATE.fullmatch(text)]
    first = next((b for a, b in zip(before, after) if a in dates), "")
    if not _DATE.fullmatch(first) or {*dates} & {*after}:
        return None
    years = int(first[:4]) - int(dates[0][:4])
    moved = [f"{int(text[:4]) + years:04}{text[4:]}" if text in dates else text for text in before]
    return years if years > 0 and moved == list(after) else None


Groups = tuple[NDArray[np.int64], NDArray[np.int64]]
"""For every place of the first and of the second record the group in which it is compared."""


def place_groups(old: Cells, new: Cells, level: str, crosswalk: Any) -> Groups:
    """Join places that share units, by their keys and a crosswalk, into groups that both records hold."""
    names = [cells.tree.labels(level) for cells in (old, new)]
    at = [{name: i for i, name in enumerate(held)} for held in names]
    known = [_last_parts(cells, level) | held for cells, held in zip((old, new), at)]
    pairs = [] if crosswalk is None else _pairs(crosswalk, known, level)
    listed = [set(side) for side in zip(*pairs)] or [set(), set()]
    pairs += [
        (at[0][name], at[1][name])
        for name in names[0]
        if name in at[1] and at[0][name] not in listed[0] and at[1][name] not in listed[1]
    ]
    left, right = (
        (np.array(side, np.int64) for side in zip(*pairs)) if pairs else (np.zeros(0, np.int64),) * 2
    )
    for which, held, found in zip(("first", "second"), names, (left, right)):
        if (lost := np.setdiff1d(np.arange(len(held)), found)).size:
            raise DataError(
                f"place '{held[lost[0]]}' of level '{level}' is in the {which} release alone ({lost.size:,} such places)",
                remedy="say in a crosswalk (columns 'before' and 'after') which places hold its units",
            )
    n = len(names[0])
    links = coo_array((np.ones(left.size), (left, right + n)), shape=(n + len(names[1]),) * 2)
    part = connected_components(links, directed=False)[1]
    _, order = np.unique(part[n:], return_index=True)
    rank = np.empty(order.size, np.int64)  # groups in the order of the second record's places
    rank[np.argsort(order)] = np.arange(order.size)
    return rank[part[:n]], rank[part[n:]]


def _last_parts(cells: Cells, level: str) -> dict[str, int]:
    """Return the places of a level by the last part of their keys, if that distinguishes them."""
    tree, at = cells.tree, cells.tree.level(level)
    last = list(tree.keys[at].values())[-1].tolist() if tree.keys and tree.keys[at] else []
    return {str(part): place for place, part in enumerate(last)} if len(set(last)) == len(last) else {}


def _pairs(crosswalk: Any, at: list[dict[str, int]], level: str) -> list[tuple[int, int]]:
    source = open_table(crosswalk)
    require(source, [BEFORE, AFTER])
    rows = source.select([BEFORE, AFTER])
    sides = [without_blanks(as_text(np.asarray(rows[name]))).tolist() for name in (BEFORE, AFTER)]
    for column, side, known in zip((BEFORE, AFTER), sides, at):
        if (wrong := next((text for text in side if text not in known), None)) is not None:
            guess = did_you_mean(wrong, known)
            raise DataError(
                f"column '{column}' of {source.name} names '{wrong}', which is no place of level '{level}'"
                + (f"; {guess}" if guess else ""),
                needed=f"keys such as '{next(iter(known))}'",
            )
    return [(at[0][one], at[1][two]) for one, two in zip(*sides)]
