"""What the texts of a published table say: counts under its law, or intervals; and what the law cannot give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.whole import MAX_COUNT
from trueup.io.published.perturbed.margins import ShownMargin
from trueup.model.cells import Cells, Margin
from trueup.model.perturbed import PublishedTable
from trueup.model.published_codes import read_interval
from trueup.noise.laws.exact import Exact
from trueup.noise.perturbed.interval import CountInterval


@dataclass(frozen=True, eq=False)
class ValuesUnderLaw:
    """Values `(v,)` of some groups of a margin under one law."""

    part: PublishedTable
    margin: Margin
    law: Any
    groups: NDArray[np.int64]
    values: NDArray[np.int64]

    def among(self, keep: NDArray[np.bool_]) -> ValuesUnderLaw:
        return replace(self, groups=self.groups[keep], values=self.values[keep])


def covers_margin(cells: Cells, v: ValuesUnderLaw) -> bool:
    return len(v.groups) == cells.size(v.margin)


def values_under_laws(cells: Cells, part: PublishedTable, shown: ShownMargin) -> list[ValuesUnderLaw]:
    """Values under the table's law, then one entry for each code that says an interval."""
    order = np.argsort(shown.groups, kind="stable")
    groups, texts = shown.groups[order], shown.texts[order]
    every, which = np.unique(texts, return_inverse=True)
    read = [
        _read(cells, part, shown.margin, text, groups, which == k) for k, text in enumerate(every.tolist())
    ]
    counts = np.array([one if isinstance(one, int) else -1 for one in read], dtype=np.int64)
    numbers = np.array([isinstance(one, int) for one in read])[which]
    law = part.settled_law
    result = (
        [ValuesUnderLaw(part, shown.margin, law, groups[numbers], counts[which[numbers]])]
        if numbers.any()
        else []
    )
    if result:
        _refuse_impossible(cells, result[0])
    intervals = dict.fromkeys(one for one in read if isinstance(one, CountInterval))
    for one in intervals:
        at = np.array([other == one for other in read])[which]
        exact = one.low == one.high
        value = np.full(int(at.sum()), one.centre)
        result.append(ValuesUnderLaw(part, shown.margin, Exact() if exact else one, groups[at], value))
    return result


def _read(
    cells: Cells,
    part: PublishedTable,
    margin: Margin,
    text: str,
    groups: NDArray[np.int64],
    at: NDArray[np.bool_],
) -> int | CountInterval | None:
    """What a text says: a count, an interval, or nothing (None)."""
    if text in part.codes:
        return part.meaning(text)
    whole = text.removeprefix("-")
    if whole.isascii() and whole.isdigit() and len(whole) < 25 and abs(int(text)) <= MAX_COUNT:
        return int(text)
    if (found := read_interval(text)) is not None:
        return found
    label = cells.margin_label(margin, int(groups[np.argmax(at)]))
    what = f"the text '{text[:30]}'" if text else "no value"
    raise DataError(
        f"table '{part.name}' has {what} for '{label}'",
        needed="a whole number without separators, or a code",
        remedy=f"declare what the code says: codes = {{ '{text[:30] or ''}' = '1-4' }}, or 'unknown'",
    )


def _refuse_impossible(cells: Cells, v: ValuesUnderLaw) -> None:
    """Refuse values that the law cannot give."""
    law = v.law
    if (bad := np.flatnonzero(~law.possible(v.values))).size:
        label = cells.margin_label(v.margin, int(v.groups[bad[0]]))
        told = ", ".join(f"{name} {value}" for name, value in law.parameters().items() if value != "None")
        raise DataError(
            f"table '{v.part.name}' has {v.values[bad[0]]} for '{label}', which law '{law.name}'"
            f"{f' ({told[:80]})' if told else ''} gives for no count",
            needed="values as they were published, under the law that made them",
            remedy="correct the law, or declare the value's meaning as a code",
        )
