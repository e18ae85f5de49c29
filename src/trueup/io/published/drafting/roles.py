"""Roles of a table's columns (places, attributes, values), judged by their names and contents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from trueup.io.published.drafting.names import name_of
from trueup.io.published.drafting.seen import (
    KEY,
    TOTAL,
    YEAR,
    SeenColumn,
    SeenTable,
    is_code,
    is_marked,
    is_number,
)
from trueup.io.published.perturbed.around import carried

_TIME = re.compile(
    r".*(year|time|period|date|jahr|month|quarter|anno|année|annee|año|(?<![^\W_])år|jaar|vuosi|trimestre|mois|monat|stichtag)(?![^\W_]).*|"
    r".*(year|time|period|date|jahr|month|quarter)|per[ií]odo",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(obs_?)?value|wert|valeur|valore?|waarde|observation", re.IGNORECASE)
_COUNTED = re.compile(r"(obs_?)?(count|number|numerator|n)", re.IGNORECASE)
_PERIOD = re.compile(
    rf"(Q|T|K)[1-4](\W{YEAR.pattern})?|{YEAR.pattern}\D.*|{YEAR.pattern}(\d\d){{,2}}|1?\d", re.ASCII
)
_COLUMN_PERIOD = re.compile(rf"{YEAR.pattern}([-–/ ]?([MQTK]?\d{{1,2}}|\d{{4}}))?")
_VARIANCE = re.compile(r".*(vari[aâ]n[czç]|\bvar\b|_var\b).*", re.IGNORECASE)
_MARKS = re.compile(r".*(flag|footnote|\bnotes?\b|remark|comment|symbol).*", re.IGNORECASE)
_NO_COUNTS = re.compile(
    r".*(%|percent|prozent|\bshare\b|\brates?\b|\bmoe\b|margin of error|standard error|\bse\b|\bcv\b|\bmedian|\bmean\b|\baverage|"
    r"densit|\bratio\b|durchschnitt|moyenne).*",
    re.IGNORECASE,
)


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
        elif _NO_COUNTS.fullmatch(column.name) and len(every) > 2 and any(map(is_number, held)):
            ignored.append(f"column '{column.name}' holds no counts, by its name, and is left out")
        elif _marks(column, at):
            ignored.append(f"column '{column.name}' marks values ({_marks_of(held)}), and is left out")
        elif _holds_values(column, at) and not _holds_codes(column, at, every):
            values.append(column)
        else:
            keys.append(column)
    if not values:
        return None
    keys, values, beside = _one_value(keys, values)
    ignored += beside
    keys, values = _with_numbered_keys(keys, values)
    filled = [key._replace(texts=carried(key.texts)) for key in keys]
    fill = _tell_apart(filled) > _tell_apart(keys) and _tell_apart(filled) == len(values[0].texts)
    keys = filled if fill else keys
    left: list[SeenColumn] = []
    for end in (0, -1):
        periods = [column.path[end] for column in values]
        if len(set(periods)) > 1 and all(map(_COLUMN_PERIOD.fullmatch, periods)):
            last = max(periods)
            ignored.append(
                f"columns of periods before {last} are left out: one spec describes one population; a copy of it "
                "with the columns of another period describes that one, and `trueup change` compares their posteriors"
            )
            left = [column for column, period in zip(values, periods) if period != last]
            values = [column for column in values if column not in left]
    places, attributes, more = sorted_keys(keys, len(values[0].texts))
    ignored += more
    return SeenTable(
        file,
        sheet,
        titles,
        places,
        attributes,
        values,
        variance,
        ignored,
        headless,
        left=tuple(left),
        fill=fill,
    )


def _tell_apart(keys: list[SeenColumn]) -> int:
    """Return how many rows some columns of keys tell apart."""
    return len(set(zip(*(key.texts for key in keys))))


def _marks_of(held: list[str]) -> str:
    most = Counter(held).most_common(4)
    return ", ".join(f"'{text}' {times:,} times" for text, times in most)


def _one_value(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
    """Keys and values of a long table whose column of values is named so: other numbers are codes of its keys, or of its rows."""
    counted = [column for column in values if _COUNTED.fullmatch(column.name)]
    named = counted or [column for column in values if _VALUE.fullmatch(column.name)]
    if counted and not any(_VALUE.fullmatch(column.name) for column in values):
        named = []
    rest = [column for column in values if column not in named]
    if len(named) != 1:
        coded = [c for c in rest if any(len(set(k.texts)) < len(k.texts) and _alike(k, c) for k in keys)]
        if len(coded) == len(values):
            return keys, values, []
        said = [f"column '{c.name}' numbers what another key says, and is left out" for c in coded]
        return keys, [c for c in values if c not in coded], said
    said = [f"column '{c.name}' stands beside '{named[0].name}', and is left out" for c in rest]
    return keys, named, said


def _alike(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if the values of two columns pair off."""
    pairs = set(zip(one.texts, other.texts))
    return len(pairs) == len(set(one.texts)) == len(set(other.texts)) > 1


def _numbers_rows(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True if a column has another value in every row, and others that cross tell rows apart without it."""
    rows = len(column.texts)
    if len(set(column.texts)) < rows or any(len(set(other.texts)) == rows for other in others):
        return False
    apart = len(set(zip(*(other.texts for other in others)))) == rows
    return apart and any(
        len(set(zip(a.texts, b.texts))) == len(set(a.texts)) * len(set(b.texts)) for a, b in _pairs(others)
    )


def _marks(column: SeenColumn, at: int) -> bool:
    """Return True for a column of flags or footnotes, by its name or because few rows have a letter or two there."""
    held = column.held
    sparse = 2 * len(held) <= len(column.texts) and all(len(t) < 3 and not t.isdigit() for t in held)
    return _MARKS.fullmatch(column.name) is not None or (at > 0 and sparse and not KEY.fullmatch(column.name))


def _with_numbered_keys(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn]]:
    """Take the first columns of whole numbers as keys if only then no two rows have the same keys."""
    for count in range(len(values)):
        numbered = values[:count]
        if not all(re.fullmatch(r"\d{1,12}", text) for column in numbered for text in column.held):
            break
        ways = [
            [column.texts for column in (*keys, *numbered)],
            [carried(c.texts) for c in (*keys, *numbered)],
        ]
        if any(len(set(zip(*way))) == len(values[0].texts) for way in ways):
            return [*keys, *numbered], values[count:]
    return keys, values


def _holds_values(column: SeenColumn, at: int) -> bool:
    held = column.held
    numbers = [text for text in held if is_number(text)]
    numbers += [text for text in held if (numbers or at > 0) and is_marked(text)]
    if len(numbers) < 0.5 * len(held) and not (numbers and all(is_number(t) or is_code(t) for t in held)):
        return False
    zeros = any(re.fullmatch(r"0\d+", text) for text in numbers)
    one_width = len({len(text) for text in held}) == 1 and len(set(held)) == len(held) > 1
    codes = KEY.fullmatch(column.name) is not None and not re.search(r"[.,]\d", " ".join(numbers))
    return not (
        zeros
        or codes
        or (at == 0 and one_width and len(held[0]) > 1)
        or (at == 0 and _TIME.fullmatch(column.name))
    )


def _holds_codes(column: SeenColumn, at: int, every: list[SeenColumn]) -> bool:
    """Return True for one of the first columns if its numbers are codes that begin with each other, or rise beside names."""
    codes = [text for text in column.held if not TOTAL.fullmatch(text)]
    if at > 2 or len(codes) < 3 or len(set(codes)) < len(codes) or not all(map(_CODED.fullmatch, codes)):
        return False
    beside = every[at + 1].held if at + 1 < len(every) else []
    named = len(set(beside)) > 0.8 * len(codes) and not any(map(is_number, beside))
    nested = sum(any(code[:end] in set(codes) for end in range(1, len(code))) for code in codes)
    shortest = min(map(len, codes))
    tops = sum(len(code) == shortest for code in codes)
    rising = all(one < other for one, other in pairwise(float(code) for code in codes if code.count(".") < 2))
    return ((named or at == 0) and nested >= len(codes) - tops > tops / 2) or (named and rising and at == 0)


_CODED = re.compile(r"\d{1,12}(\.\d{1,4})*")
_ATTRIBUTE = re.compile(
    r"(.*[\W_])?(sex|gender|ages?|race|ethnic(ity)?|status|education|type|groups?|categor(y|ies)|kind|citizen(ship)?|nationality|"
    r"tenure|income|geschlecht|alter|sex[eo]|sesso|kön|køn|kjønn|geslacht|gênero|edad|età|âge|leeftijd|alder|ålder|idade)([\W_].*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r".*(name|\bnom|nom_|label|libell|bezeichnung|denominazione|naam|navn|namn).*", re.IGNORECASE
)
_KIND_OF_PLACE = re.compile(r".*(level|type|kind|ebene|niveau|layer).*", re.IGNORECASE)


def sorted_keys(columns: list[SeenColumn], rows: int) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
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
    ids = [c for c in columns if len(columns) > 2 and _numbers_rows(c, [o for o in columns if o is not c])]
    ignored += labels + [f"column '{c.name}' numbers the rows, and is left out" for c in ids]
    columns = [c for c in columns if c not in ids]
    if not columns:
        return [], [], ignored
    likely = [c for c in columns if not _tells_attribute(c)] if rows > 1 else columns
    if (
        not likely
        and len(columns) == 1
        and re.search(r"sex|gender", columns[0].name, re.IGNORECASE)
        and len(columns[0].held) > 3
    ):
        likely = columns  # more values than it has: the name of another attribute stands above places
    if not likely and len(columns) == 1 and len(set(columns[0].texts)) < rows:
        likely = columns
    if not likely:
        return [], columns, ignored
    named = [c for c in likely if KEY.fullmatch(c.name)]
    finest = named[0] if named else max(likely, key=lambda c: len(set(c.held)))
    under = [c for c in likely if _determines(c, finest) and (c in named or len(set(finest.held)) > 1)]
    finest = max(under, key=lambda c: len(set(c.held)), default=finest)
    above = [c for c in likely if c is not finest and (_determines(finest, c) or _numbered_within(finest, c))]
    places = [*sorted(above, key=lambda c: len(set(c.held))), finest]
    return places, [c for c in columns if c not in places], ignored


def _tells_attribute(column: SeenColumn) -> bool:
    """Return True if a column is of an attribute, by its name or as ages or sexes that repeat."""
    values = [text for text in dict.fromkeys(column.held) if not TOTAL.fullmatch(text)]
    repeated = 1 < len(values) < len(column.held) and not all(map(str.isdigit, values))
    return _ATTRIBUTE.fullmatch(column.name) is not None or (repeated and name_of(values) in ("sex", "age"))


def _numbered_within(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if codes such as 001 begin anew in each place of another column, and places hold different sets of them."""
    if not all(text.isdigit() for text in (*fine.held, *coarse.held)) or not any(
        t[0] == "0" for t in fine.held
    ):
        return False
    pairs = {(a, b) for a, b in zip(fine.texts, coarse.texts) if a and b}
    return len(set(coarse.held)) < len(set(fine.held)) and len(pairs) < len(set(fine.held)) * len(
        set(coarse.held)
    )


def _kind_of_place(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True for a column that names the level of each row, as the row's keys or their lengths confirm."""
    filled = [[bool(t) and not TOTAL.fullmatch(t) for t in other.texts] for other in others]
    lengths = [list(map(len, other.texts)) for other in others if " " not in "".join(other.texts)]
    if not others or "" in column.texts or _ATTRIBUTE.fullmatch(column.name):
        return False
    ways = [
        list(zip(*filled)),
        list(zip(*[[bool(t) for t in other.texts] for other in others if "" in other.texts])),
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
        if one in kept and other in kept and _say_the_same(one, other, columns):
            label = max((one, other), key=_wordy)
            kept.remove(label)
            ignored.append(f"column '{label.name}' names what the other keys say, and is left out")
    return kept, ignored


def _say_the_same(one: SeenColumn, other: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True if the values of two columns pair off, or those of a code and its name do within each place above."""
    both = sum(bool(a and b) for a, b in zip(one.texts, other.texts))
    if both < 0.8 * max(len(one.held), len(other.held)):
        return False
    if _determines(one, other) and _determines(other, one):
        return True
    if (_LABEL.fullmatch(one.name) is None) == (_LABEL.fullmatch(other.name) is None):
        return False
    for above in (c for c in columns if c is not one and c is not other):
        ways = [
            set(zip(above.texts, *each)) for each in ((one.texts,), (other.texts,), (one.texts, other.texts))
        ]
        if len(set(map(len, ways))) == 1 and len(ways[0]) > len(set(above.texts)):
            return True
    return False


def _pairs(columns: list[SeenColumn]) -> Iterator[tuple[SeenColumn, SeenColumn]]:
    return ((a, b) for k, a in enumerate(columns) for b in columns[k + 1 :])


def _wordy(column: SeenColumn) -> tuple[float, float]:
    held = column.held
    blank = len(column.texts) - len(held)
    return (
        sum(not any(c.isdigit() for c in text) for text in held) / len(held),
        sum(map(len, held)) / len(held) - blank,
    )
