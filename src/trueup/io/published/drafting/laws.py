"""Noise laws of published tables, suggested by their values and titles or by a list of probabilities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from trueup.io.published.drafting.agreement import UNKNOWN_NOISE
from trueup.io.published.drafting.deviations import ListBeside
from trueup.io.published.drafting.keys import DraftedTable
from trueup.io.published.drafting.seen import SeenColumn, SeenTable, is_number
from trueup.io.published.drafting.sums import base_of, column_numbers
from trueup.io.published.perturbed.grid import Row
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, Convention, read_number, without_mark
from trueup.model.toml import inline_table

_THOUSANDS = re.compile(
    r"\b(in|en|em|i|w|×|x) (thousands?|1[., ]?000|tausend|milliers?|migliaia|milhares|tusen(tal)?|duizend(tallen)?|tys\.|"
    r"tysiącach|тыс\.|тысячах)|\((thousands?|tsd\.?|tys\.|тыс\.)\)|\bthousands$|['’]000\b|\b(1000|000)-?(s|tal)\b|千人|"
    r"\ben miles\b|\btsd\.",
    re.IGNORECASE | re.MULTILINE,
)
_TOLD = "read what the publisher says of it"
RARE = 1000
"""A law of rounding is drafted if exact values would all be multiples of its base once in so many tables."""


def _numbers(entry: DraftedTable, columns: Iterable[SeenColumn]) -> list[float]:
    """Return all numbers in columns of a table, in units of one person or other unit."""
    unit = unit_of(entry.seen)
    return [round(x * unit, 6) for column in columns for x in column_numbers(column) if x is not None]


def unit_of(seen: SeenTable) -> int:
    """Return the number of persons or other units that a 1 in a table represents."""
    names = (name for column in seen.values for name in (column.name, *column.path))
    return 1000 if _THOUSANDS.search("\n".join((seen.titles, *names))) else 1


def _kept_and_seen(entry: DraftedTable) -> tuple[list[float], list[float]]:
    """Return the numbers of a table, and these with those of other periods, to which the same law applies."""
    kept = _numbers(entry, entry.seen.values)
    return kept, kept + _numbers(entry, (*entry.seen.left, *entry.seen.left_rows))


def rounding_base(entry: DraftedTable) -> int | None:
    """Return the base of which all values of a table are multiples, or None if there is noise or no base."""
    kept, every = _kept_and_seen(entry)
    noisy = (
        entry.seen.variance is not None or bool(entry.seen.errors) or any(x < 0 or x != int(x) for x in every)
    )
    said = entry.seen.titles.casefold()
    return None if noisy else base_of(kept, said, RARE) or base_of(every, said, RARE)


def suggested_law(entry: DraftedTable, told: set[int], undecided: list[str]) -> str:
    """Return the noise law suggested by a table's values, by its titles or by other tables of known law."""
    seen = entry.seen
    found, every = _kept_and_seen(entry)
    said = seen.titles.casefold()
    where = f"'{seen.file}'"
    if entry.law is not None:
        return entry.law
    if any(x != int(x) for x in every) and not seen.errors:
        return _noise(entry, "gaussian", undecided)
    if seen.errors:
        return '{ name = "gaussian" }'
    if seen.variance is not None or any(x < 0 for x in every):
        return _noise(entry, "discrete-gaussian", undecided)
    if re.search(r"cell.?key|perturb|random(ly)? adjust", said) and not base_of(found, said, RARE):
        undecided.append(
            f"{where}: the law is a cell key's, by its titles; its largest change and variance are not known"
        )
        return '{ name = "cell-key", maximum = 2, change_variance = "1" }'
    beside = [base for base in told if found and all(x % base == 0 for x in found)]
    base = rounding_base(entry) or max(beside, default=None)
    if base is None and (small := _small_base(entry, found)):
        undecided.append(
            f"{where}: no value is from 1 to {small - 1}, and many are just above: counts below {small} are taken to be "
            f"rounded at random to 0 or {small}, and others to be exact; {_TOLD}"
        )
        return f'{{ name = "random-rounding", base = {small}, below = {small} }}'
    if base is None:
        few = base_of(every, said)
        shown = f", as so few values may be multiples of {few} by chance" if few else ""
        undecided.append(f"{where}: the law is taken as exact{shown}; {_TOLD}")
        return '{ name = "exact" }'
    if re.search(r"random(ly)?[ -]?(round|to)", said) or (base in (3,) and "nearest" not in said):
        if not re.search(r"random", said):
            undecided.append(
                f"{where}: values are multiples of {base}; whether rounded at random or to the nearest, {_TOLD}"
            )
        return f'{{ name = "random-rounding", base = {base} }}'
    if "nearest" not in said:
        undecided.append(
            f"{where}: values are multiples of {base}; whether rounded to the nearest or at random, {_TOLD}"
        )
    return f'{{ name = "rounded", base = {base}, ties = "either" }}'


def _small_base(entry: DraftedTable, found: Sequence[float]) -> int | None:
    """Return the base to which only small counts are rounded, or None if there is none."""
    base = min((x for x in found if x > 0), default=0)
    if base not in (3, 5, 10):
        return None
    coded = any(text and not is_number(without_mark(text)) for c in entry.seen.values for text in c.texts)
    blank = any("" in column.texts for column in entry.seen.values)
    above = [x for x in found if base < x <= 2 * base]
    often = found.count(base) >= max(3, len(above) / base)
    return int(base) if 0 in found and not coded and not blank and often and len(above) > 11 else None


def _noise(entry: DraftedTable, name: str, undecided: list[str]) -> str:
    if entry.seen.variance is not None:
        undecided.append(f"'{entry.seen.file}': the law of its noise, '{name}' or another, {_TOLD}")
        return f'{{ name = "{name}" }}'
    undecided.append(
        f"'{entry.seen.file}': its values carry noise; sigma2 is not known, and {UNKNOWN_NOISE**2} stands in its place"
    )
    return f'{{ name = "{name}", sigma2 = "{UNKNOWN_NOISE**2}" }}'


SLACK = 1e-3
"""Largest difference from 1 of the sum of the printed probabilities of a count."""
_COUNT = re.compile(r"[≥>=]*\s*(\d{1,3})\b.*")
_CHANGE = re.compile(r"[+−-]?\s?\d{1,3}")
Rows = dict[int, dict[int, float]]
"""The probability of each change of each count."""


def listed_transitions(
    lists: Sequence[ListBeside], seen: Sequence[SeenTable]
) -> tuple[list[SeenTable], str | None, list[str]]:
    """Return the tables without a list of transition probabilities, the noise law in the list, and notes."""
    for name, rows, beside in lists:
        others = [table for table in beside if any(table is other for other in seen)]
        for found in (*_long(rows), *_wide(rows)):
            counts = sorted(found)
            if counts not in ([*range(len(counts))], [*range(1, len(counts) + 1)]) or len(counts) < 2:
                continue
            table = [_rounded_probabilities(found.get(x, {0: 1.0})) for x in range(counts[-1] + 1)]
            shown = ", ".join(inline_table({str(change): p for change, p in row.items()}) for row in table)
            said = (
                f"'{name}' is taken for transition probabilities, which sum to 1 for each count: the law of all tables is a cell "
                f"key's, in which the last row, of {counts[-1]}, holds for larger counts, too"
            )
            return others, f'{{ name = "cell-key", transitions = [{shown}] }}', [said]
    return [*seen], None, []


def _rounded_probabilities(row: dict[int, float]) -> dict[int, float]:
    """Return rounded probabilities, with the largest changed so that they sum to 1."""
    most = max(row, key=lambda change: row[change])
    rest = sum(p for change, p in row.items() if change != most)
    return {change: row[change] if change != most else round(1 - rest, 10) for change in sorted(row)}


def _long(rows: Sequence[Row]) -> Iterator[Rows]:
    """Yield transition probabilities from rows of a count, a published count or change, and a probability."""
    body = [row for row in rows if sum(map(bool, row)) > 2 and any(map(_CHANGE.fullmatch, row))]
    columns = [*zip(*body)] if len({*map(len, body)}) == 1 and len(body) > 2 else []
    counts = {k: [_count(text) for text in texts] for k, texts in enumerate(columns)}
    changes = {k: [_change(text) for text in texts] for k, texts in enumerate(columns)}
    for by in (ENGLISH, CONTINENTAL):
        shares = {k: [_probability(text, by) for text in texts] for k, texts in enumerate(columns)}
        for i, v, p in product(
            *([k for k, read in way.items() if None not in read] for way in (counts, changes, shares))
        ):
            if len({i, v, p}) == 3:
                yield from _transitions([*zip(counts[i], changes[v], shares[p])])


def _wide(rows: Sequence[Row]) -> Iterator[Rows]:
    """Yield transition probabilities from a table with a row for each count and a column for each change."""
    for at, head in enumerate(rows[:10]):
        changes = [_change(cell) for cell in head[1:]]
        while changes and changes[-1] is None:
            changes.pop()
        if len(changes) < 2 or None in changes:
            continue
        for by in (ENGLISH, CONTINENTAL):
            body = [(_count(row[0]), row[1 : len(changes) + 1]) for row in rows[at + 1 :] if any(row)]
            cells = [
                (x, change, _probability(cell or "0", by))
                for x, row in body
                for change, cell in zip(changes, row)
            ]
            if cells and all(None not in cell for cell in cells):
                yield from _transitions([cell for cell in cells if cell[2]])
        return


def _transitions(cells: Sequence[tuple[int | None, int | None, float | None]]) -> Iterator[Rows]:
    """Yield transition probabilities by count if those of each count sum to 1 and no result is negative."""
    falls = any(change is not None and change < 0 for _, change, _ in cells)
    found: Rows = {}
    for x, change, p in cells:
        if x is None or change is None or p is None:
            return
        own = found.setdefault(x, {})
        change -= 0 if falls else x  # a published count
        if change in own or (p and x + change < 0):
            return
        own[change] = p
    if all(abs(sum(row.values()) - 1) < SLACK for row in found.values()) and any(
        len(row) > 1 for row in found.values()
    ):
        yield found


def _count(text: str) -> int | None:
    found = _COUNT.fullmatch(text)
    return int(found[1]) if found and "." not in text and "," not in text else None


def _change(text: str) -> int | None:
    return int(text.replace("−", "-").replace(" ", "")) if _CHANGE.fullmatch(text) else None


def _probability(text: str, by: Convention) -> float | None:
    number = read_number(text, by)
    return float(number) if number is not None and 0 <= number <= 1 else None
