"""Lists of transition probabilities from true to published counts, in files of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from trueup.io.published.drafting.deviations import ListBeside
from trueup.io.published.drafting.seen import SeenTable
from trueup.io.published.perturbed.grid import Row
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, Convention, read_number
from trueup.model.toml import inline_table

SLACK = 1e-3
"""Largest difference from 1 of the sum of the printed probabilities of a count."""
_COUNT = re.compile(r"[≥>=]*\s*(\d{1,3})\b.*")
_CHANGE = re.compile(r"[+−-]?\s?\d{1,3}")
Rows = dict[int, dict[int, float]]
"""The probability of each change of each count."""


def listed_transitions(
    lists: Sequence[ListBeside], seen: Sequence[SeenTable]
) -> tuple[list[SeenTable], str | None, list[str]]:
    """Take a list of transition probabilities out of the tables; return the other tables, the law that it gives, and notes."""
    for name, rows, beside in lists:
        others = [table for table in beside if any(table is other for other in seen)]
        for found in (*_long(rows), *_wide(rows)):
            counts = sorted(found)
            if counts not in ([*range(len(counts))], [*range(1, len(counts) + 1)]) or len(counts) < 2:
                continue
            table = [_whole(found.get(x, {0: 1.0})) for x in range(counts[-1] + 1)]
            shown = ", ".join(inline_table({str(change): p for change, p in row.items()}) for row in table)
            said = (
                f"'{name}' is taken for transition probabilities, which sum to 1 for each count: the law of all tables is a cell "
                f"key's, in which the last row, of {counts[-1]}, holds for larger counts, too"
            )
            return others, f'{{ name = "cell-key", transitions = [{shown}] }}', [said]
    return [*seen], None, []


def _whole(row: dict[int, float]) -> dict[int, float]:
    """Return a count's rounded probabilities with the largest changed so that they sum to 1."""
    most = max(row, key=lambda change: row[change])
    rest = sum(p for change, p in row.items() if change != most)
    return {change: row[change] if change != most else round(1 - rest, 10) for change in sorted(row)}


def _long(rows: Sequence[Row]) -> Iterator[Rows]:
    """Yield transitions from rows that each hold a count, a change or a published count, and a probability."""
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
    """Yield transitions from rows of a count and probabilities, with changes or published counts in the header."""
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
    """Yield the transitions in some cells if the probabilities of each count sum to 1 and no count becomes negative."""
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
