"""Roles of a table's columns (places, attributes, values), and the rows and columns that one spec describes.

One file: which rows a spec describes depends on the roles of columns, and these on the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import compress, pairwise
from typing import NamedTuple

import numpy as np

from trueup.io.published.drafting.agreement import summing
from trueup.io.published.drafting.crossing import sorted_keys
from trueup.io.published.drafting.kept_sums import way_to_keep
from trueup.io.published.drafting.kinds import (
    BESIDE,
    DATED,
    NO_COUNTS,
    VARIANCE,
    error_of,
    holds_ages,
    holds_codes,
    holds_no_counts,
    holds_values,
    is_period,
    marks_values,
    stands_among_values,
    stands_before_names,
    without_flags,
    without_status,
)
from trueup.io.published.drafting.names import OF_WHICH, ages_within, overlapping
from trueup.io.published.drafting.numbered import (
    counts_rows,
    crossing_keys,
    with_numbered_keys,
    without_formal,
    without_numbers_of_rows,
)
from trueup.io.published.drafting.pairs import are_alike, determines_key, told_rows
from trueup.io.published.drafting.seen import TOTAL, YEAR, SeenColumn, SeenTable, is_code, is_number
from trueup.io.published.drafting.sums import column_numbers
from trueup.io.published.perturbed.around import carried
from trueup.io.published.perturbed.columns import without_word_of_sum
from trueup.io.published.perturbed.notes import carried_keys

_VALUE = re.compile(r"(obs_?)?value|wert|valeur|valore?|waarde|observation", re.IGNORECASE)
_COUNTED = re.compile(r"(obs_?)?(count|number|numerator|n)", re.IGNORECASE)


def sorted_out(
    file: str, sheet: str | None, titles: str, every: list[SeenColumn], *, headless: bool
) -> SeenTable | None:
    """Return a table with its columns sorted by role; None if no column holds values."""
    if counts_rows(every):
        table = sorted_out(file, sheet, titles, every[1:], headless=headless)
        said = f"column '{every[0].name}' numbers the rows, and is left out"
        return table and table._replace(ignored=[said, *table.ignored])
    roles = _by_role(every)
    keys, values, periods, ignored = roles.keys, roles.values, roles.periods, roles.ignored
    if not values:
        return None
    numbers = values
    keys, values, beside = _one_value(keys, values)
    coded = [c for c in numbers if c not in values and c not in keys]
    values, formal = without_formal([*keys, *coded], values)
    beside += [
        f"column '{c.name}' numbers kinds of rows, as their keys tell them, and is left out" for c in formal
    ]
    coded += formal
    ignored += beside
    values, status = without_status(values)
    ignored += status
    keys, values = with_numbered_keys(keys, periods, values)
    values, numbered = without_numbers_of_rows(keys, values)
    coded += numbered
    ignored += [f"column '{c.name}' numbers the rows or their places, and is left out" for c in numbered]
    keys, flags = without_flags(every, keys, values)
    ignored += flags
    whole = _filled([*keys, *periods], len(values[0].texts))[: len(keys)]
    if some := _some_rows(whole or keys, periods, values):
        column, wanted, why = some
        above = {id(key): full for key, full in zip(keys, whole)}
        rest = [
            each._replace(texts=above.get(id(each), each).texts)
            for each in every
            if each is not column or len(wanted) > 1
        ]
        rest = _rows_of(rest, [text in wanted for text in column.texts])
        table = sorted_out(file, sheet, titles, rest, headless=headless)
        return table and _of_some_rows(table, column, wanted, why, filled=bool(whole))
    for column in periods:
        what = f"says '{column.held[0]}' everywhere" if len(set(column.held)) == 1 else "tells no rows apart"
        ignored.append(f"column '{column.name}' {what}, and is left out")
    filled = _filled(keys, len(values[0].texts))
    outline = (
        [key.name for key in keys if "" in key.texts or key is keys[0]]
        if filled and _is_outline(keys)
        else []
    )
    fill, keys = bool(filled), filled or keys
    keys = _parted(keys[0]) if len(keys) == 1 else keys
    values, left, more = _last_period(values)
    keys = [_of_zeros(key._replace(texts=_summed(key.texts))) for key in keys]
    keys, said = _with_named_totals(keys)
    ignored += said
    beside = [c for c in values if BESIDE.fullmatch(c.name)] if len(values) > 1 else []
    if len(beside) < len(values) and summing(values, titles) not in beside:
        values = [c for c in values if c not in beside]
        more += [
            f"column '{c.name}' is what others are counted among, by its name, and is left out"
            for c in beside
        ]
    found = sorted_keys(keys, len(values[0].texts), outline)
    ignored += more + found.ignored
    table = SeenTable(
        file, sheet, titles, found.places, found.attributes, values, roles.variance, ignored, headless
    )
    if all(column.name in roles.errors for column in values):
        table = _with_errors(table, roles)
    return table._replace(
        left=tuple(left), fill=fill, labels=found.labels, kinds=found.kinds, keys=(*keys, *coded)
    )


class _Roles(NamedTuple):
    """Columns of a table by role, with the column of errors and the kind of error for each column of values."""

    keys: list[SeenColumn]
    values: list[SeenColumn]
    periods: list[SeenColumn]
    variance: SeenColumn | None
    errors: dict[str, SeenColumn]
    kind: str
    ignored: list[str]


def _by_role(every: list[SeenColumn]) -> _Roles:
    """Sort columns into roles by their names and texts."""
    keys, values, periods, ignored = [], [], [], []
    errors: dict[str, SeenColumn] = {}
    variance, kind = None, "variance"
    crossed = crossing_keys(every)
    codes = {t for at, c in enumerate(every) if holds_values(c, at) for t in c.held if not is_number(t)}
    for at, column in enumerate(every):
        held = column.held
        if is_period(column, every):
            periods.append(column)
        elif any(column is key for key in crossed) or holds_ages(column):
            keys.append(column)
        elif VARIANCE.fullmatch(column.name):
            variance = column
        elif at and _ANNOTATION.match(column.name):
            ignored.append(f"column '{column.name}' annotates another, by its name, and is left out")
        elif (
            (error := error_of(column))
            and values
            and (before := _not_annotations(every[:at]))
            and before[-1] is values[-1]
        ):
            errors[values[-1].name], kind = column, error
        elif not values and _is_constant(every, at):
            keys.append(column)
        elif len(every) > 2 and holds_no_counts(column):
            ignored.append(f"column '{column.name}' holds no counts, by its name or signs, and is left out")
        elif marks_values(column, at):
            ignored.append(f"column '{column.name}' marks values ({_marks_of(held)}), and is left out")
        elif _holds_marks(column, every[at - 1 : at + 2], values) or (
            (
                holds_values(column, at)
                or (values and _holds_some(column, codes))
                or stands_among_values(every, at)
                or stands_before_names(every, at)
            )
            and not holds_codes(column, at, every)
        ):
            values.append(column)
        else:
            keys.append(column)
    return _Roles(keys, values, periods, variance, errors, kind, ignored)


def _holds_some(column: SeenColumn, codes: set[str]) -> bool:
    """Return True if a column has numbers, and else only codes that stand for numbers in other columns."""
    shown = [text for text in column.held if is_number(text)]
    return 0 < len(shown) < len(column.held) and all(
        text in codes for text in column.held if not is_number(text)
    )


_ANNOTATION = re.compile(r"annotation of ", re.IGNORECASE)


def _not_annotations(columns: list[SeenColumn]) -> list[SeenColumn]:
    return [column for column in columns if not _ANNOTATION.match(column.name)]


def _is_constant(every: list[SeenColumn], at: int) -> bool:
    """Return True if a column repeats one number in all rows, before words and other numbers, as for a larger place."""
    numbers = [len(set(c.texts)) > 1 for c in every[at + 1 :] if all(map(is_number, c.held))]
    words = [c for c in every[at + 1 :] if not any(map(is_number, c.held))]
    return len(set(every[at].texts)) == 1 < len(every[at].texts) - 1 and any(numbers) and bool(words)


def _rows_of(columns: list[SeenColumn], kept: list[bool]) -> list[SeenColumn]:
    """Return columns restricted to some rows, without those that are empty there."""
    some = [each._replace(texts=list(compress(each.texts, kept))) for each in columns]
    return [each for each in some if each.held]


def _of_some_rows(
    table: SeenTable, column: SeenColumn, wanted: list[str], why: str, *, filled: bool
) -> SeenTable:
    """Restrict a table to the rows that the spec describes, with notes on why and on how to keep the others."""
    inner = ages_within([v for v in column.held if v not in wanted], list(dict.fromkeys(column.held)))
    ways = way_to_keep(table, column, inner) if all(inner.values()) else []
    only = {column.name: wanted[0] if len(wanted) == 1 else wanted}
    return table._replace(
        ignored=[why, *ways, *table.ignored], only={**only, **table.only}, fill=table.fill or filled
    )


def _with_errors(table: SeenTable, roles: _Roles) -> SeenTable:
    """Add the columns of errors beside a table's values."""
    said = "a law of normal noise is taken"
    said += "; whether margins are of 90 % is not told" if "margin" in roles.kind else ""
    numbers = [x for column in table.values for x in column_numbers(column) if x is not None]
    if all(x >= 0 and x == int(x) for x in numbers):
        said += "; if noisy numbers were rounded, and negative ones published as 0, write law = "
        said += '[{ name = "gaussian" }, { name = "rounded", base = 1 }, { name = "nonnegative" }]'
    first = roles.errors[table.values[0].name]
    return table._replace(
        ignored=[
            *table.ignored,
            f"column '{first.name}' holds the {roles.kind} of the values beside it: {said}",
        ],
        errors=roles.errors,
        error=roles.kind,
        variance=first if len(table.values) == 1 else None,
    )


def _parted(column: SeenColumn) -> list[SeenColumn]:
    """Split a column in which each place is followed by the same attribute values into two columns."""
    times = Counter(column.texts)
    values = {text for text, often in times.items() if often > 1}
    places = len(times) - len(values)
    below = carried(["" if text in values else text for text in column.texts])
    told = len(set(zip(below, column.texts))) == len(column.texts) and "" not in below
    one = len(values) == 1 and all(OF_WHICH.match(value.casefold()) for value in values)
    if (
        not (one or len(values) > 1)
        or places < 2
        or not told
        or min(times[value] for value in values) < 0.8 * places
    ):
        return [column]
    return [
        column._replace(texts=below),
        column._replace(texts=[text * (text in values) for text in column.texts]),
    ]


def _filled(keys: list[SeenColumn], rows: int) -> list[SeenColumn]:
    """Fill blanks in keys with the key above if all rows are then identified; otherwise return an empty list."""
    carried_on = carried_keys([key.texts for key in keys])
    filled = [key._replace(texts=texts) for key, texts in zip(keys, carried_on)]
    asked = told_rows(filled) > told_rows(keys) or _is_outline(keys)
    return filled if asked and told_rows(filled) == rows else []


def _is_outline(keys: list[SeenColumn]) -> bool:
    """Return True if each row has one key among the columns with blanks, so that keys form an outline."""
    rows = list(zip(*(key.texts for key in keys if "" in key.texts)))
    if not rows or any(sum(map(bool, row)) != 1 for row in rows):
        return False
    depths = [next(k for k, text in enumerate(row) if text) for row in rows]
    return depths[0] == 0 and any(after < before for before, after in pairwise(depths))


def _summed(texts: list[str]) -> list[str]:
    """Return keys without words that mark a total: "East Total" becomes "East"."""
    return without_word_of_sum(np.array(texts, object), ()).tolist()


def _of_zeros(column: SeenColumn) -> SeenColumn:
    """Return a column of codes in which the code of zeros, which stands for the total, is blank."""
    zeros = next((text for text in column.held if not text.strip("0") and len(text) > 1), "")
    if (
        not zeros
        or "" in column.texts
        or not all(text.isdigit() and len(text) == len(zeros) for text in column.held)
    ):
        return column
    return column._replace(texts=["" if text == zeros else text for text in column.texts], blank=zeros)


def _with_named_totals(keys: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Blank the code of a column that another column names as the total; leave out the other one if it says nothing else."""
    found, left = list(keys), []
    for at, column in enumerate(keys):
        if "" in column.texts or any(map(TOTAL.fullmatch, column.held)):
            continue
        above = [key for key in keys if key is not column and determines_key(column, key)]
        for key in above:
            pairs = {*zip(column.texts, key.texts)}
            named = [code for code, label in pairs if TOTAL.fullmatch(label)]
            if len(named) == 1 and len(pairs) == len(set(column.texts)) > 2:
                texts = [text * (text != named[0]) for text in column.texts]
                found[at] = column._replace(texts=texts, blank=named[0])
                left += [key] if len(set(key.texts)) == 2 else []
    said = [f"column '{key.name}' says which rows are totals, and is left out" for key in left]
    return [key for key, old in zip(found, keys) if all(old is not each for each in left)], said


def _some_rows(
    keys: list[SeenColumn], periods: list[SeenColumn], values: list[SeenColumn]
) -> tuple[SeenColumn, list[str], str] | None:
    """Return a column of periods or measures, the values of it that the spec describes, and the reason."""
    several = [column for column in periods if len(set(column.texts)) > 1]
    apart = told_rows(keys)
    for column in several if told_rows([*keys, *several]) > apart else ():
        said = list(dict.fromkeys(column.held))
        last = max(said) if all(YEAR.match(text) for text in said) else said[-1]
        why = f"rows in which '{column.name}' does not say '{last}' are left out: one spec describes one population"
        return column, [last], why
    for column in keys:
        said = dict.fromkeys(column.held)
        ages = [text for text in said if not TOTAL.fullmatch(text)]
        if len(said) < len(column.held) and (twice := overlapping(ages)):
            why = f"rows of ages that hold others or lie in them ({', '.join(twice)}) are left out"
            return column, [text for text in dict.fromkeys(column.texts) if text not in twice], why
        shares = (
            _with_fractions(column, values)
            if len(said) <= 20 and len(said) < len(column.held)
            else set[str]()
        )
        counts = [text for text in said if not NO_COUNTS.fullmatch(text) and text not in shares]
        if 0 < len(counts) < len(said) <= 20 and len(said) < len(column.held):
            shown = ", ".join(f"'{text}'" for text in said if text not in counts)
            why = f"rows in which '{column.name}' says {shown} hold no counts, and are left out"
            return column, counts, why
    return None


def _with_fractions(column: SeenColumn, values: list[SeenColumn]) -> set[str]:
    """Return the values of a column in rows with fractions, if no other values have fractions."""
    if len(values) != 1 or any(map(TOTAL.fullmatch, column.held)):
        return set()
    numbers = column_numbers(values[0])
    if any(x is not None and x != int(x) and not 0 <= x <= 100 for x in numbers):
        return set()  # noise
    broken, shown = Counter[str](), Counter[str]()
    for said, x in zip(column.texts, numbers):
        shown[said] += x is not None
        broken[said] += x is not None and x != int(x)
    found = {said for said, times in broken.items() if 2 * times > shown[said]}
    return found if not any(times for said, times in broken.items() if said not in found) else set()


def _last_period(values: list[SeenColumn]) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
    """Split columns of values by period: return those of the last period, those of earlier ones, and notes."""
    left: list[SeenColumn] = []
    said = []
    stems = [YEAR.sub("", column.name) for column in values]
    for stem in [stem for stem in dict.fromkeys(stems) if stems.count(stem) > 1 and stem]:
        dated = sorted((c for c, own in zip(values, stems) if own == stem), key=lambda c: c.name)
        left += dated[:-1]
    if left:
        shown = ", ".join(column.name for column in left[:3]) + f" and {len(left) - 3} more" * (len(left) > 3)
        said.append(f"columns of earlier years are left out ({shown}): one spec describes one population")
        values = [_undated(column) for column in values if column not in left]
    for end in (0, -1):
        periods = [column.path[end] for column in values]
        if len(set(periods)) > 1 and all(map(DATED.fullmatch, periods)):
            last = max(periods) if all(map(YEAR.match, periods)) else periods[-1]
            said.append(
                f"columns of other periods than {last} are left out: one spec describes one population; a copy of it "
                "with the columns of another period describes that one, and `trueup change` compares their posteriors"
            )
            left += [column for column, period in zip(values, periods) if period != last]
            values = [column for column in values if column not in left]
    return values, left, said


def _undated(column: SeenColumn) -> SeenColumn:
    """Return a column of the last year with the year removed from its name."""
    name = YEAR.sub("", column.path[-1]).strip(" _-–/,.()")
    return column._replace(path=(*column.path[:-1], name or column.path[-1]))


def _marks_of(held: list[str]) -> str:
    most = Counter(held).most_common(4)
    return ", ".join(f"'{text}' {times:,} times" for text, times in most)


def _one_value(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
    """Return keys and values of a long table in which one column's name shows that it holds the values."""
    counted = [column for column in values if _COUNTED.fullmatch(column.name)]
    named = counted or [column for column in values if _VALUE.fullmatch(column.name)]
    if counted and not any(_VALUE.fullmatch(column.name) for column in values):
        named = []
    rest = [column for column in values if column not in named]
    if len(named) != 1:
        coded = [c for c in rest if any(len(set(k.texts)) < len(k.texts) and are_alike(k, c) for k in keys)]
        if len(coded) == len(values):
            return keys, values, []
        said = [f"column '{c.name}' numbers what another key says, and is left out" for c in coded]
        return keys, [c for c in values if c not in coded], said
    found = list(keys)
    for column in rest if told_rows(keys) < len(named[0].texts) else ():
        found += [column] if told_rows([*found, column]) > told_rows(found) else []
    said = [
        f"column '{c.name}' numbers what another key says, and is left out"
        if any(are_alike(key, c) for key in keys)
        else f"column '{c.name}' stands beside '{named[0].name}', and is left out"
        for c in rest
        if c not in found
    ]
    return found, named, said


def _holds_marks(column: SeenColumn, beside: list[SeenColumn], values: list[SeenColumn]) -> bool:
    """Return True if a column between two columns of values has only codes such as `-`."""
    marks = "" not in column.texts and all(
        is_code(text) and not any(map(str.isalnum, text)) for text in column.texts
    )
    return marks and len(beside) == 3 and beside[0] in values and any(map(is_number, beside[2].held))
