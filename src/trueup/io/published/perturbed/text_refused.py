"""Errors for texts in place of values that are neither numbers nor known codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

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
from trueup.model.cells import Cells
from trueup.model.perturbed import PublishedTable
from trueup.model.toml import inline_table


def codes_with(part: PublishedTable, text: str, meaning: str) -> str:
    """Return the `codes` setting of an entry with one more code, as a spec writes it."""
    return f"codes = {inline_table(part.codes | {text: meaning})}"


def refuse_text(
    cells: Cells, part: PublishedTable, margins: Sequence[ShownMargin], text: str, *, reads: bool
) -> NoReturn:
    """Refuse a text in place of a value; the error names the cell and what to declare in the spec."""
    shown = next(shown for shown in margins if (shown.texts == text).any())
    label = cells.margin_label(shown.margin, int(shown.groups[(shown.texts == text).argmax()]))
    if NUMBER_LIKE.fullmatch(text):
        other = [by.decimal for by in (ENGLISH, CONTINENTAL) if _reads(text, by, whole=reads)]
        thousand = Numbers(ENGLISH, True, 1000).read(text) or Numbers(CONTINENTAL, True, 1000).read(text)
        raise DataError(
            f"table '{part.name}' has the number '{text[:30]}' for '{label}', which "
            + ("is not whole" if reads else "cannot be read"),
            needed="whole numbers, as its law gives them" if reads else "numbers written in one way",
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
        needed="a number, or a code",
        remedy=f"declare the code in the entry of '{part.name}': {codes_with(part, text[:60], 'unknown')}, or with what it says "
        f'in the place of "unknown": a value such as "0", a range of the true count such as "1-4", or of the published number '
        f'such as "published <5"{else_}',
    )


def _reads(text: str, by: Convention, *, whole: bool) -> bool:
    found = read_number(text, by)
    return found is not None and (not whole or found == found.to_integral_value())
