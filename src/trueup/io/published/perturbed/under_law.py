"""Published values of a margin under one noise law, with errors for texts that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.published.perturbed.margins import ShownMargin
from trueup.io.published.perturbed.numbers import (
    CONTINENTAL,
    ENGLISH,
    NUMBER_LIKE,
    Convention,
    Numbers,
    read_number,
)
from trueup.model.cells import Cells, Margin
from trueup.model.perturbed import PublishedTable
from trueup.model.published_codes import CodeMeaning
from trueup.model.published_rule import PublishingRule
from trueup.model.toml import inline_table
from trueup.noise.perturbed import ShownCounts

MOST_VARIANCES = 10_000
"""Different variances of the rows of a table."""


@dataclass(frozen=True, eq=False)
class ValuesUnderLaw:
    """Published values `(v,)` of some groups of a margin that have the same noise law."""

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
    """Group published values by the variance that is stated in their rows."""
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
    """Return values without those that repeat the noise of another value for the same records.

    Cells have the same records if the same finest cells make them up, but for structural zeros.
    """
    mark = np.random.default_rng(0).integers(0, 2**64, cells.n, dtype=np.uint64)
    mark[zero] = 0
    seen: dict[str, list[tuple[NDArray[np.uint64], ValuesUnderLaw]]] = {}
    result = []
    for v in found:
        key = f"{drawn_by(v.law)}" if v.part.key is None and v.law.same_records else v.part.key
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


def drawn_by(law: Any) -> Any:
    """Return the noise law of a publishing rule, without a step that hides counts before noise."""
    return law.law if isinstance(law, ShownCounts) else law


def _mark_sums(cells: Cells, mark: NDArray[np.uint64], margin: Margin) -> NDArray[np.uint64]:
    """Return a number for each group that identifies its cells, by adding up random numbers of the cells."""
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


def codes_with(part: PublishedTable, text: str, meaning: str) -> str:
    """Return the setting `codes` of an entry with one more code, as a spec writes it."""
    return f"codes = {inline_table(part.codes | {text: meaning})}"


def refuse_text(
    cells: Cells, part: PublishedTable, margins: Sequence[ShownMargin], text: str, *, reads: bool
) -> NoReturn:
    """Refuse a text in place of a value; the error says what to declare in the spec."""
    shown = next(shown for shown in margins if (shown.texts == text).any())
    label = cells.margin_label(shown.margin, int(shown.groups[(shown.texts == text).argmax()]))
    if NUMBER_LIKE.fullmatch(text):
        other = [by.decimal for by in (ENGLISH, CONTINENTAL) if _reads(text, by, whole=reads)]
        thousand = Numbers(ENGLISH, True, 1000).read(text) or Numbers(CONTINENTAL, True, 1000).read(text)
        raise DataError(
            f"table '{part.name}' has the number '{text[:30]}' for '{label}', which "
            + ("is not whole" if reads else "cannot be read"),
            needed="whole numbers, as under its law" if reads else "numbers written alike in all rows",
            remedy="correct the file"
            + (
                "; or, if its values are fractions, name the law that gives them: 'gaussian' or 'laplace'"
                + "; or, if they are thousands, write unit = 1000 in the entry and the law 'rounded'"
                * bool(thousand)
                if reads
                else ""
            )
            + "".join(
                f"; or, if all are written so, say it in the entry of '{part.name}': decimal = \"{sign}\""
                for sign in other
            ),
        )
    what = f"the text '{text[:30]}'" if text else "no value"
    else_ = (
        "" if text else "; or, if the last row is none of the table, give the number of such rows: below = 1"
    )
    raise DataError(
        f"table '{part.name}' has {what} for '{label}'",
        needed="a number, or a code that the entry declares",
        remedy=f"declare the code in the entry of '{part.name}': {codes_with(part, text[:60], 'unknown')}, or with its meaning "
        f'in place of "unknown": a value such as "0", a range of the true count such as "1-4", or of the published number '
        f'such as "published <5"{else_}',
    )


def _reads(text: str, by: Convention, *, whole: bool) -> bool:
    found = read_number(text, by)
    return found is not None and (not whole or found == found.to_integral_value())
