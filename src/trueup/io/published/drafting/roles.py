"""Roles of a table's columns (places, attributes, values), judged by their names and contents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trueup.io.published.perturbed.numbers import NUMBER_LIKE
from trueup.model.published_codes import read_interval

TOTAL = re.compile(
    r"_?t|tot\.?|totals?|total .*|.* total|all|all .*|both( sexes)?|persons|insgesamt|gesamt|summe|alle|ensemble|totale|totaal",
    re.IGNORECASE,
)
_MARK = re.compile(
    r"[^\w\s]{1,3}|\[\w{1,3}\]|\.\.?[A-Za-z]|[A-Za-z]|n/?a|n\.a\.|nan|null|conf\.?|suppressed|suppr\.?",
    re.IGNORECASE,
)
_KEY = re.compile(
    r".*(\bid\b|code|geo|fips|nuts|\bags\b|\blau\b|\bzip\b|postcode|\bplz\b|_cd\b|\bcd\b|area|region|district|county|municipality|"
    r"tract|block|ward|gemeinde|kreis|land|province|state|country|place|town|city|village|page|site|clinic|hospital|school)",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"(.*[\W_])?(sex|gender|ages?|race|ethnic(ity)?|status|education|type|groups?|categor(y|ies)|kind|citizen(ship)?|nationality|"
    r"tenure|income|geschlecht|alter)([\W_].*)?",
    re.IGNORECASE,
)
_TIME = re.compile(r".*(year|time|period|date|jahr|month|quarter)", re.IGNORECASE)
YEAR = re.compile(r"(18|19|20)\d\d")
_PERIOD = re.compile(rf"{YEAR.pattern}\D.*|{YEAR.pattern}(\d\d){{,2}}|1?\d", re.ASCII)
_VARIANCE = re.compile(r".*(vari[aâ]n[czç]|\bvar\b|_var\b).*", re.IGNORECASE)
_MARKS = re.compile(r".*(flag|footnote|\bnotes?\b|remark|comment|symbol).*", re.IGNORECASE)
_NO_COUNTS = re.compile(
    r".*(%|percent|prozent|\bshare\b|\brates?\b|\bmoe\b|margin of error|standard error|\bse\b|\bcv\b).*",
    re.IGNORECASE,
)
_KIND_OF_PLACE = re.compile(r".*(level|type|kind|ebene|niveau|layer).*", re.IGNORECASE)


class SeenColumn(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    name, path
        What the spec calls it, and the names of the header's rows above it.
    texts
        Its cells.
    point
        Whether a point is a decimal sign: the cells of its file are divided by commas.
    """

    name: str
    path: tuple[str, ...]
    texts: list[str]
    point: bool = False

    @property
    def held(self) -> list[str]:
        """Return its texts without blanks."""
        return [text for text in self.texts if text]


class SeenTable(NamedTuple):
    """The content of one file or sheet.

    Attributes
    ----------
    file, sheet
        Where it stands.
    titles
        Texts above and below it.
    places, attributes, values, variance
        Its columns, places from large to small.
    ignored
        Columns that say nothing more, and why.
    headless
        Whether it has no header.
    """

    file: str
    sheet: str | None
    titles: str
    places: list[SeenColumn]
    attributes: list[SeenColumn]
    values: list[SeenColumn]
    variance: SeenColumn | None
    ignored: list[str]
    headless: bool = False


def is_number(text: str) -> bool:
    """Return True if a text is meant as a number."""
    return (
        NUMBER_LIKE.fullmatch(text) is not None
        or re.fullmatch(r"-?\d+(\.\d+)?[eE][+-]?\d+", text) is not None
    )


def is_code(text: str) -> bool:
    """Return True if a text may stand in place of a number."""
    return read_interval(text) is not None or _MARK.fullmatch(text) is not None


def sorted_out(
    file: str, sheet: str | None, titles: str, every: list[SeenColumn], *, headless: bool
) -> SeenTable | None:
    ignored, keys, values, variance = [], [], [], None
    for at, column in enumerate(every):
        held = column.held
        if _TIME.fullmatch(column.name) and all(map(_PERIOD.fullmatch, held)):
            one = len(set(held)) == 1
            what = (
                f"says '{held[0]}' everywhere"
                if one
                else "has several periods, of which one spec describes one"
            )
            ignored.append(f"column '{column.name}' {what}, and is left out")
        elif _VARIANCE.fullmatch(column.name):
            variance = column
        elif _NO_COUNTS.fullmatch(column.name) and len(every) > 2 and all(map(is_number, held)):
            ignored.append(f"column '{column.name}' holds no counts, by its name, and is left out")
        elif _marks(column, at):
            ignored.append(f"column '{column.name}' marks values, and is left out")
        elif _holds_values(column, at):
            values.append(column)
        else:
            keys.append(column)
    if not values:
        return None
    keys, values = _with_numbered_keys(keys, values)
    if len(values) > 1 and all(YEAR.fullmatch(column.name) for column in values):
        ignored.append(
            f"columns of years before {values[-1].name} are left out: one spec describes one population"
        )
        values = values[-1:]
    places, attributes, more = _keys(keys, len(values[0].texts))
    return SeenTable(file, sheet, titles, places, attributes, values, variance, [*ignored, *more], headless)


def _marks(column: SeenColumn, at: int) -> bool:
    """Return True for a column of flags or footnotes, by its name or because few rows have a letter or two there."""
    held = column.held
    sparse = 2 * len(held) <= len(column.texts) and all(len(t) < 3 and not t.isdigit() for t in held)
    return _MARKS.fullmatch(column.name) is not None or (at > 0 and sparse)


def _with_numbered_keys(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn]]:
    """Take the first columns of whole numbers as keys if only then no two rows have the same keys."""
    for count in range(len(values)):
        numbered = values[:count]
        if not all(re.fullmatch(r"\d{1,12}", text) for column in numbered for text in column.held):
            break
        rows = list(zip(*(column.texts for column in (*keys, *numbered))))
        if rows and len(set(rows)) == len(rows):
            return [*keys, *numbered], values[count:]
    return keys, values


def _holds_values(column: SeenColumn, at: int) -> bool:
    held = column.held
    numbers = [text for text in held if is_number(text)]
    if len(numbers) < 0.5 * len(held) and not (numbers and all(is_number(t) or is_code(t) for t in held)):
        return False
    zeros = any(re.fullmatch(r"0\d+", text) for text in numbers)
    one_width = len({len(text) for text in held}) == 1 and len(set(held)) == len(held) > 1
    codes = _KEY.fullmatch(column.name) is not None and not re.search(r"[.,]\d", " ".join(numbers))
    return not (
        zeros
        or codes
        or (at == 0 and one_width and len(held[0]) > 1)
        or (at == 0 and _TIME.fullmatch(column.name))
    )


def _keys(columns: list[SeenColumn], rows: int) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
    """Return columns of places, from large to small, attributes, and notes on what is left out."""
    ignored = [
        f"column '{c.name}' says '{c.held[0]}' everywhere, and is left out"
        for c in columns
        if len(set(c.texts)) == 1 and rows > 1
    ]
    columns = [c for c in columns if len(set(c.texts)) > 1 or rows == 1]
    kinds = [c for c in columns if _kind_of_place(c, [o for o in columns if o is not c])]
    ignored += [
        f"column '{c.name}' says of which level a row is, as its keys do, and is left out" for c in kinds
    ]
    columns, labels = _without_labels([c for c in columns if c not in kinds])
    ignored += labels
    if not columns:
        return [], [], ignored
    likely = [c for c in columns if not _ATTRIBUTE.fullmatch(c.name)] if rows > 1 else columns
    if not likely and len(columns) == 1 and len(set(columns[0].texts)) < rows:
        likely = columns
    if not likely:
        return [], columns, ignored
    named = [c for c in likely if _KEY.fullmatch(c.name)]
    finest = named[0] if named else max(likely, key=lambda c: len(set(c.held)))
    finest = max((c for c in likely if _determines(c, finest)), key=lambda c: len(set(c.held)))
    above = [c for c in likely if c is not finest and _determines(finest, c)]
    places = [*sorted(above, key=lambda c: len(set(c.held))), finest]
    return places, [c for c in columns if c not in places], ignored


def _kind_of_place(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True for a column that names the level of each row, as the row's keys or their lengths confirm."""
    filled = [[bool(t) and not TOTAL.fullmatch(t) for t in other.texts] for other in others]
    lengths = [list(map(len, other.texts)) for other in others if " " not in "".join(other.texts)]
    if not others or "" in column.texts:
        return False
    ways = [
        list(zip(*filled)),
        *([list(zip(length)) for length in lengths] if _KIND_OF_PLACE.fullmatch(column.name) else []),
    ]
    return any(
        1 < len(set(way)) == len(set(column.texts)) == len(set(zip(way, column.texts))) < len(way)
        for way in ways
    )


def _determines(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if each value of a column goes with one value of another, blanks and totals aside."""
    pairs = {
        (a, b)
        for a, b in zip(fine.texts, coarse.texts)
        if a and b and not TOTAL.fullmatch(a) and not TOTAL.fullmatch(b)
    }
    return len(pairs) == len({a for a, _ in pairs}) and bool(pairs)


def _without_labels(columns: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Return columns with one of each equivalent pair, the one that reads as a code, and notes on the others."""
    kept, ignored = list(columns), []
    for one, other in _pairs(columns):
        both = sum(bool(a and b) for a, b in zip(one.texts, other.texts))
        often = both >= 0.8 * max(len(one.held), len(other.held))
        if one in kept and other in kept and often and _determines(one, other) and _determines(other, one):
            label = max((one, other), key=_wordy)
            kept.remove(label)
            ignored.append(f"column '{label.name}' names what the other keys say, and is left out")
    return kept, ignored


def _pairs(columns: list[SeenColumn]) -> Iterator[tuple[SeenColumn, SeenColumn]]:
    return ((a, b) for k, a in enumerate(columns) for b in columns[k + 1 :])


def _wordy(column: SeenColumn) -> tuple[float, float]:
    held = column.held
    blank = len(column.texts) - len(held)
    return (
        sum(not any(c.isdigit() for c in text) for text in held) / len(held),
        sum(map(len, held)) / len(held) - blank,
    )
