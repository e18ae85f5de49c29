"""Roles of a table's columns (places, attributes, values), and the rows that one spec describes.

One file: which rows a spec describes depends on the roles of columns, and these on the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from trueup.io.published.drafting.agreement import summing
from trueup.io.published.drafting.columns_by_role import (
    Roles,
    SomeRows,
    by_role,
    last_period,
    one_value,
    restricted_to_rows,
    some_rows,
    with_only,
)
from trueup.io.published.drafting.crossing import sorted_keys
from trueup.io.published.drafting.kinds import BESIDE, without_flags, without_status
from trueup.io.published.drafting.names import OF_WHICH
from trueup.io.published.drafting.numbered import (
    counts_rows,
    holds_shares,
    with_numbered_keys,
    without_formal,
    without_numbers_of_rows,
)
from trueup.io.published.drafting.pairs import determines_key, distinct_keys
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.io.published.drafting.sums import column_numbers
from trueup.io.published.drafting.wholes import code_of_zeros, is_sum
from trueup.io.published.perturbed.around import carried
from trueup.io.published.perturbed.columns import without_word_of_sum
from trueup.io.published.perturbed.notes import carried_keys


def sorted_out(bare: SeenTable, every: list[SeenColumn]) -> SeenTable | None:
    """Return a table with the given columns, each in its role, or None if no column contains values.

    A table that has shares alone has no values, and `left` holds its shares.
    """
    if counts_rows(every):
        table = sorted_out(bare, every[1:])
        said = every[0].left_out("numbers the rows")
        return table and table._replace(ignored=[said, *table.ignored])
    roles = by_role(every)
    if not roles.values:
        shares = tuple(column for column in every[1:] if holds_shares(column))
        return bare._replace(left=shares, ignored=roles.ignored) if shares else None
    roles = _without_numbering(every, roles)
    rows = len(roles.values[0].texts)
    whole = _filled([*roles.keys, *roles.periods], rows)[: len(roles.keys)]
    if some := some_rows(whole or roles.keys, roles.periods, roles.values):
        return _of_some_rows(bare, every, some, dict(zip(map(id, roles.keys), whole)))
    return _of_all_rows(bare, roles)


def _without_numbering(every: list[SeenColumn], roles: Roles) -> Roles:
    """Return keys and values without columns that number the rows or mark values, and notes."""
    keys, values, ignored = one_value(roles.keys, roles.values)
    coded = [c for c in roles.values if c not in values and c not in keys]
    values, formal = without_formal([*keys, *coded], values)
    ignored += [c.left_out("numbers kinds of rows, as their keys tell them") for c in formal]
    values, status = without_status(values)
    keys, values = with_numbered_keys(keys, roles.periods, values)
    values, numbered = without_numbers_of_rows(keys, values)
    ignored += status
    ignored += [c.left_out("numbers the rows or their places") for c in numbered]
    keys, flags = without_flags(every, keys, values)
    ignored = [*roles.ignored, *ignored, *flags]
    return roles._replace(keys=keys, values=values, coded=[*coded, *formal, *numbered], ignored=ignored)


def _of_some_rows(
    bare: SeenTable, every: list[SeenColumn], some: SomeRows, whole: Mapping[int, SeenColumn]
) -> SeenTable | None:
    """Return a table restricted to the rows that a spec describes, with notes on the others."""
    rest = [
        each._replace(texts=whole.get(id(each), each).texts)
        for each in every
        if each is not some.column or len(some.wanted) > 1
    ]
    kept = [text in some.wanted for text in some.column.texts]
    table = sorted_out(bare, restricted_to_rows(rest, kept))
    if table and some.are_of_period and not table.only:
        names = {column.name for column in table.values}
        left = restricted_to_rows([each for each in every if each.name in names], [not own for own in kept])
        table = table._replace(left_rows=tuple(left))
    return table and with_only(table, some, filled=bool(whole))


def _of_all_rows(bare: SeenTable, roles: Roles) -> SeenTable:
    """Return the table of all rows, with its keys sorted into places and attributes."""
    rows = len(roles.values[0].texts)
    ignored = [*roles.ignored]
    for period in roles.periods:
        alike = len(set(period.held)) == 1
        ignored.append(
            period.left_out(f"says '{period.held[0]}' everywhere" if alike else "tells no rows apart")
        )
    filled = _filled(roles.keys, rows)
    blank = [key.name for key in roles.keys if "" in key.texts or key is roles.keys[0]]
    outline = blank if filled and _is_outline(roles.keys) else []
    counts = bare._replace(
        values=roles.values, variance=roles.variance, errors=roles.errors, error=roles.kind
    )
    keys, said = _with_totals(filled or roles.keys, counts)
    values, left, more = last_period(roles.values)
    values, beside = _without_wholes(values, bare.titles)
    table = sorted_keys(bare, keys, rows, outline)
    table = table._replace(
        values=values,
        variance=roles.variance,
        ignored=[*ignored, *said, *more, *beside, *table.ignored],
        left=tuple(left),
        fill=bool(filled),
        keys=(*keys, *roles.coded),
    )
    return _with_errors(table, roles) if all(c.name in roles.errors for c in values) else table


def _with_totals(keys: list[SeenColumn], counts: SeenTable) -> tuple[list[SeenColumn], list[str]]:
    """Return the keys with blanks in place of words and codes for totals, and notes."""
    keys = _parted(keys[0]) if len(keys) == 1 else keys
    keys, said = _with_named_totals([_without_sums(key) for key in keys])
    return [_of_zeros(key, counts._replace(attributes=keys)) for key in keys], said


def _without_wholes(values: list[SeenColumn], titles: str) -> tuple[list[SeenColumn], list[str]]:
    """Return the value columns without those that, by their names, contain others, and notes."""
    beside = [c for c in values if BESIDE.fullmatch(c.name)] if len(values) > 1 else []
    if len(beside) == len(values) or summing(values, titles) in beside:
        return values, []
    said = [c.left_out("is what others are counted among, by its name") for c in beside]
    return [c for c in values if c not in beside], said


def _with_errors(table: SeenTable, roles: Roles) -> SeenTable:
    """Return a table with the columns of errors that belong to its values."""
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
    """Split a column in which the same attribute values follow each place into two columns."""
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
    """Return keys in which blanks take the key above, or an empty list unless this identifies all rows."""
    carried_on = carried_keys([key.texts for key in keys])
    filled = [key._replace(texts=texts) for key, texts in zip(keys, carried_on)]
    asked = distinct_keys(filled) > distinct_keys(keys) or _is_outline(keys)
    return filled if asked and distinct_keys(filled) == rows else []


def _is_outline(keys: list[SeenColumn]) -> bool:
    """Return True if key columns form an outline, in which each row has a key in one column."""
    rows = list(zip(*(key.texts for key in keys if "" in key.texts)))
    if not rows or any(sum(map(bool, row)) != 1 for row in rows):
        return False
    depths = [next(k for k, text in enumerate(row) if text) for row in rows]
    return depths[0] == 0 and any(after < before for before, after in pairwise(depths))


def _without_sums(column: SeenColumn) -> SeenColumn:
    """Return a column without words that mark a total, so that "East Total" becomes "East"."""
    return column._replace(texts=without_word_of_sum(np.array(column.texts, object), ()).tolist())


def _of_zeros(column: SeenColumn, counts: SeenTable) -> SeenColumn:
    """Return a column of codes in which a code of zeros is blank if its numbers are the sums of the others'."""
    zeros = code_of_zeros(column)
    # A column that goes with this one, as that of names does, leaves no other value to sum.
    crossed = [
        key
        for key in counts.attributes
        if key is not column and not determines_key(column, key) and not determines_key(key, column)
    ]
    ways = [crossed, *([key] for key in crossed if len(crossed) > 1)]  # one may say of which level a row is
    if not zeros or not any(is_sum(column, zeros, counts._replace(attributes=way)) for way in ways):
        return column
    return column._replace(texts=[text * (text != zeros) for text in column.texts], blank=zeros)


def _with_named_totals(keys: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Return the key columns with blanks for codes that another column names as the total, and notes."""
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
    said = [key.left_out("says which rows are totals") for key in left]
    return [key for key, old in zip(found, keys) if all(old is not each for each in left)], said
