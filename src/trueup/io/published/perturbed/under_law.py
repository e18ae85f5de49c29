"""Values of some groups of a margin under one noise law, and values with a variance for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.published.perturbed.numbers import Convention, read_number
from trueup.io.published.perturbed.text_refused import codes_with
from trueup.model.cells import Cells, Margin
from trueup.model.perturbed import PublishedTable
from trueup.model.published_codes import CodeMeaning
from trueup.model.published_rule import PublishingRule
from trueup.noise.perturbed import ShownCounts

MOST_VARIANCES = 10_000
"""Different variances of the rows of a table."""


@dataclass(frozen=True, eq=False)
class ValuesUnderLaw:
    """Values `(v,)` of some groups of a margin with one law."""

    part: PublishedTable
    margin: Margin
    law: Any
    groups: NDArray[np.int64]
    values: NDArray

    def among(self, keep: NDArray[np.bool_]) -> ValuesUnderLaw:
        return replace(self, groups=self.groups[keep], values=self.values[keep])


def covers_margin(cells: Cells, v: ValuesUnderLaw) -> bool:
    return len(v.groups) == cells.size(v.margin)


def by_variance(
    cells: Cells,
    v: ValuesUnderLaw,
    texts: NDArray,
    rule: PublishingRule,
    by: Convention,
    codes: Mapping[str, CodeMeaning],
) -> list[ValuesUnderLaw]:
    """Group values by the variance in each row; 0 means that the value is exact, and a missing one that it says nothing."""
    every, which = np.unique(texts, return_inverse=True)
    if len(every) > MOST_VARIANCES:
        raise DataError(
            f"table '{v.part.name}' has {len(every):,} different variances",
            needed=f"at most {MOST_VARIANCES:,}",
            remedy="give a table in which many counts share a variance",
        )
    result: dict[Fraction, NDArray[np.bool_]] = {}
    for k, text in enumerate(every.tolist()):
        here = which == k
        if text in codes and codes[text].of != "value":
            continue
        variance = _variance(f"{codes[text].low:g}" if text in codes else text, by, v.part.error)
        if variance is None:
            label = cells.margin_label(v.margin, int(v.groups[np.argmax(here)]))
            raise DataError(
                f"table '{v.part.name}' has the variance '{text[:30]}' for '{label}'",
                needed="a number above 0, or 0 where the value is exact",
                remedy="correct it in a copy of the file"
                if read_number(text, by) is not None
                else "declare what stands there in the entry: where the value is exact, "
                f"{codes_with(v.part, text[:60], '0')}; where its error is not known, {codes_with(v.part, text[:60], 'unknown')}",
            )
        variance *= v.part.unit**2
        result[variance] = result.get(variance, False) | here
    return [replace(v.among(here), law=rule.of_variance(variance)) for variance, here in result.items()]


ERRORS = {"standard error": Fraction(1), "margin 90": Fraction(1645, 1000), "margin 95": Fraction(196, 100)}
"""Standard errors in what stands in the place of a variance."""


def _variance(text: str, by: Convention, what: str) -> Fraction | None:
    found = read_number(text, by)
    if found is None or found < 0 or (found and not -30 <= found.adjusted() <= 30):
        return None
    return (Fraction(found) / ERRORS[what]) ** 2 if what in ERRORS else Fraction(found)


def counted_once(
    cells: Cells, zero: NDArray[np.bool_], found: Sequence[ValuesUnderLaw]
) -> list[ValuesUnderLaw]:
    """Keep one of several values that share their noise because they count the same records.

    Cells have the same records if the same finest cells make them up, but for structural zeros.
    """
    mark = np.random.default_rng(0).integers(0, 2**64, cells.n, dtype=np.uint64)
    mark[zero] = 0
    seen: dict[str, list[tuple[NDArray[np.uint64], ValuesUnderLaw]]] = {}
    result = []
    for v in found:
        key = f"{_drawn_by(v.law)}" if v.part.key is None and v.law.same_records else v.part.key
        if key is None or v.law.exact or not v.law.numeric:  # said twice, these say no more
            result.append(v)
            continue
        marks = _mark_sums(cells, mark, v.margin)[v.groups]
        new = np.ones(len(marks), bool)
        for others, earlier in seen.get(key, ()):
            where = dict(zip(others.tolist(), range(len(others))))
            at = np.array([where.get(each, -1) for each in marks.tolist()])
            same = at >= 0
            _refuse_different(cells, v, earlier, same, at)
            new &= ~same
        seen.setdefault(key, []).append((marks, v))
        if new.any():
            result.append(v.among(new))
    return result


def _drawn_by(law: Any) -> Any:
    """Return the noise law of a publishing rule, without the step that hides counts before noise."""
    return law.law if isinstance(law, ShownCounts) else law


def _mark_sums(cells: Cells, mark: NDArray[np.uint64], margin: Margin) -> NDArray[np.uint64]:
    """Return, for each group, the sum modulo 2^64 of random marks of the cells, which identifies the group."""
    total = np.zeros(cells.size(margin), np.uint64)
    np.add.at(total, cells.groups(cells.finest, margin), mark)
    return total


def _refuse_different(
    cells: Cells, v: ValuesUnderLaw, earlier: ValuesUnderLaw, same: NDArray[np.bool_], at: NDArray[np.int64]
) -> None:
    differ = np.flatnonzero(same & (v.values != earlier.values[at]))
    if differ.size:
        one, other = int(differ[0]), int(at[differ[0]])
        label = cells.margin_label(v.margin, int(v.groups[one]))
        named = cells.margin_label(earlier.margin, int(earlier.groups[other]))
        raise DataError(
            f"'{label}' is {v.values[one]} in table '{v.part.name}', but '{named}', which counts the same records under "
            f"the same key, is {earlier.values[other]} in table '{earlier.part.name}'",
            needed="the same value, because equal records under one key are perturbed equally",
            remedy="if the tables were perturbed separately, give each a key of its own",
        )
