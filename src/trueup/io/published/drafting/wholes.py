"""Search for the value of a key column that represents the total, despite rounding and hidden counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trueup.io.published.drafting.agreement import UNKNOWN_NOISE, ends_of, noise_of
from trueup.io.published.drafting.keys import begins_all
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.io.published.drafting.sums import base_of, column_numbers
from trueup.model.toml import inline_table

_WHOLE = re.compile(
    r"(the )?(whole|entire) .*|(the )?(country|nation|kingdom|republic)( total)?|national.*|overall|grand total|everywhere|"
    r"(das )?(ganze )?(land|bund)|(le )?pays|(el )?país|(il )?paese|nazione|(het )?(hele )?land|(hele )?landet|riket|koko maa",
    re.IGNORECASE,
)
"""Names of the whole that are names of parts in some tables: numbers have to agree."""


class SummingValue(NamedTuple):
    """A value of a key column that is, or may be, the sum of the column's other values.

    Attributes
    ----------
    value
        The value.
    differs
        A number and the sum of the others that differ; empty if all numbers agree.
    taken
        True if it is taken for the total.
    """

    value: str
    differs: str = ""
    taken: bool = True


class _Compared(NamedTuple):
    """One number of a possible total, with the range of the sum of the numbers that it may contain."""

    key: tuple[str, ...]
    own: tuple[float, float]
    parts: list[tuple[float, float]]
    noise: float = 0.0

    @property
    def least(self) -> float:
        return sum(low for low, _ in self.parts)

    @property
    def off(self) -> float:
        """Return the distance of the number from the range of possible sums."""
        return max(self.least - self.own[1], self.own[0] - sum(high for _, high in self.parts), 0.0)

    @property
    def allowed(self) -> float:
        return (
            min(3 + 5 * len(self.parts) ** 0.5, 3 + 0.02 * self.own[0])
            + 4 * self.noise * len(self.parts) ** 0.5
        )

    @property
    def is_near(self) -> bool:
        return self.off <= self.allowed

    @property
    def is_known(self) -> bool:
        """Return True if hidden numbers leave the sum uncertain by at most a quarter of the number."""
        return (
            sum(high for _, high in self.parts) - self.least + self.own[1] - self.own[0]
            <= 3 + 0.25 * self.own[0]
        )

    @property
    def chance(self) -> float:
        """Return the approximate probability that an unrelated number is as close to the sum."""
        return min(
            (self.allowed + sum(high for _, high in self.parts) - self.least) / max(self.own[0], 1), 1.0
        )

    def is_rounded(self, base: int) -> bool:
        """Return True if random rounding explains the distance, within four standard deviations."""
        terms = len(self.parts) + 1
        return self.off <= min(terms * (base - 1), 2 * base * terms**0.5)


def summing_value(column: SeenColumn, table: SeenTable) -> SummingValue | None:
    """Return the value of a key column whose numbers are, or may be, sums of all other values' numbers."""
    values = list(dict.fromkeys(column.held))
    ends = dict.fromkeys((*(values[0], values[-1]), min(values), max(values))) if len(values) > 2 else ()
    ends = [*ends, *(value for value in values[1:-1] if _WHOLE.fullmatch(value) and value not in ends)]
    if len(values) == 3 and column in table.places:  # one of three places is near the sum of two by chance
        spaced = any(" " in value for value in values)
        if begun := [value for value in values if not spaced and begins_all(value, values)]:
            # Its code says so, too: one sum tells as much as it does among four values.
            return _summing(column, begun[0], table, 4)
        plain = [value for value in values if not value.strip("0-–") or _WHOLE.fullmatch(value)]
        ends = plain or [end for end in ends if _is_no_chance(column, end, table)]
    found = [each for end in ends if (each := _summing(column, end, table, len(values)))]
    return min(found, key=lambda each: (bool(each.differs), not each.taken), default=None)


def _is_no_chance(column: SeenColumn, value: str, table: SeenTable) -> bool:
    """Return True if a value's numbers equal sums of the others' more often than chance explains."""
    compared = list(_compared(column, value, table))
    known = [c for c in compared if c.is_known]
    return (
        len(known) > 2
        and all(c.is_near for c in compared)
        and float(np.prod([c.chance for c in known])) < 1e-3
    )


def whole_keys(table: SeenTable) -> dict[str, str]:
    """Return the keys of the row with the sums over all finest places, if no other place has these keys."""
    if len(table.places) == 1:
        return _whole_code(table, table.places[0])
    rows = list(zip(*([t * (not TOTAL.fullmatch(t)) for t in column.texts] for column in table.places)))
    ways = list(dict.fromkeys(way for way in rows if any(way)))
    times = [Counter(column) for column in zip(*ways)]
    alone = [way for way in ways if all(not key or seen[key] == 1 for key, seen in zip(way, times))]
    for way in alone:
        names = ["/".join(row) if row[-1] or row == way else "" for row in rows]
        every = SeenColumn("", ("",), names)
        found = summing_value(every, table._replace(places=[every]))
        if found is not None and found.taken and found.value == "/".join(way):
            return {column.name: key for column, key in zip(table.places, way) if key}
    return {}


def _whole_code(table: SeenTable, column: SeenColumn) -> dict[str, str]:
    """Return the first short code whose numbers are the sums over the longest codes."""
    codes, longest = set(column.held), max(map(len, column.held), default=0)
    first = next((code for code in column.texts if len(code) < longest), "")
    others = codes - {first}
    if not first or not all(any(map(str.isdigit, code)) and not code.startswith(first) for code in others):
        return {}
    every = column._replace(
        texts=[text if text == first or len(text) == longest else "" for text in column.texts]
    )
    found = summing_value(every, table._replace(places=[every]))
    return {column.name: first} if found is not None and found.taken and found.value == first else {}


def code_of_zeros(column: SeenColumn) -> str:
    """Return the code of zeros among codes of digits that are equally long, or an empty text if there is none."""
    zeros = next((text for text in column.held if not text.strip("0") and len(text) > 1), "")
    alike = "" not in column.texts and all(text.isdigit() and len(text) == len(zeros) for text in column.held)
    return zeros if alike else ""


def said_of_zeros(column: SeenColumn, table: SeenTable, *, listed: bool) -> list[str]:
    """Return a note on whether a code of zeros is taken for the total; none if another column names it so.

    Parameters
    ----------
    column
        The column of codes, with the code of the total in `blank`.
    table
        The table.
    listed
        True if the spec lists the column's values.
    """
    if zeros := code_of_zeros(column):
        also = ", and take it out of `values`" if listed else ""
        return [
            f"'{table.file}': '{zeros}' is not near the sum of the other values of '{column.name}' and is taken for one beside "
            f"them; if it is their whole, give its entry `total = {inline_table({column.name: zeros})}`{also}"
        ]
    named = [{text for text, own in zip(key.texts, column.texts) if not own} for key in table.keys]
    if not column.blank or column.blank.strip("0") or any(all(map(TOTAL.fullmatch, own)) for own in named):
        return []
    also = ", and write it in `values`" if listed else ""
    return [
        f"'{table.file}': '{column.blank}' is near the sum of the other values of '{column.name}' and is taken for their whole; "
        f"if it is one beside them, leave its `total` out{also}"
    ]


def is_sum(column: SeenColumn, value: str, table: SeenTable) -> bool:
    """Return True if a value's numbers are the sums of all others', or of those whose codes lie in no other's.

    They have to be as near as the law of the table allows, and nearer than they exceed the largest single part: of many noisy
    parts, the law allows much. True, too, where hidden numbers leave it open.
    """
    numbers = [x for shown in table.values for x in column_numbers(shown) if x is not None]
    noise = 0 if noise_of(table) or all(x >= 0 and x == int(x) for x in numbers) else UNKNOWN_NOISE
    base = base_of(numbers, table.titles.casefold()) or 1
    begun = {text: text.rstrip("0") for text in {*column.held}}
    every = {*begun.values()}
    tops = {
        text for text, begin in begun.items() if not any(begin[:end] in every for end in range(1, len(begin)))
    }
    top = column._replace(texts=[text * (text == value or text in tops) for text in column.texts])
    return any(_are_sums([*_compared(each, value, table)], noise, base) for each in (column, top))


def _are_sums(compared: Sequence[_Compared], noise: float, base: int) -> bool:
    """Return True if most numbers are near sums, and all together exceed the largest of their parts."""
    wide = [c.allowed + 4 * noise * len(c.parts) ** 0.5 for c in compared]
    near = sum(c.off <= most or c.is_rounded(base) for c, most in zip(compared, wide))
    above = sum(c.own[0] - max(low for low, _ in c.parts) for c in compared)
    return 5 * near >= 4 * len(compared) > 0 and sum(c.off for c in compared) <= above


def _summing(column: SeenColumn, value: str, table: SeenTable, values: int) -> SummingValue | None:
    every = list(_compared(column, value, table))
    compared = [c for c in every if c.is_known]
    total = sum(c.own[0] for c in every)
    enough = len(compared) >= (2 if values == 3 else 1) and all(len(c.parts) > 1 for c in every)
    if not enough or total < 30:
        return _by_what_is_shown(value, every) if values > 3 else None
    parts = [low for c in compared for low, _ in c.parts]
    base = base_of(parts, table.titles.casefold()) or 1
    rounded = all(c.is_rounded(base) for c in every) and sum(c.off for c in every) <= 0.05 * total
    if all(c.is_near for c in every) or rounded:
        noisy = any(c.noise for c in compared)
        told = (2 * len(compared) >= len(every) and not noisy) or np.prod([c.chance for c in compared]) < 0.1
        return SummingValue(value) if told else _by_what_is_shown(value, every)
    named = _WHOLE.fullmatch(value) is not None
    some = sum(c.is_near and c.own[0] >= 30 for c in compared)
    if not named and (not some or (values == 3 and 2 * some <= len(compared))):
        return None
    worst = max(compared, key=lambda c: c.off)
    differs = f"{', '.join(worst.key)}: {worst.own[0]:,g} beside a sum of {worst.least:,g}"
    chance = len(compared) * float(np.prod([c.chance for c in compared if c.is_near]))
    return SummingValue(value, differs, (named and some > 0) or (2 * some > len(compared) and chance < 1e-3))


def _by_what_is_shown(value: str, compared: Sequence[_Compared]) -> SummingValue | None:
    """Return a value that may be the total, judged by shown numbers alone where many are hidden."""
    shares = [(abs(c.own[0] - c.least) + 1) / max(c.own[0], 1) for c in compared]
    near = all(abs(c.own[0] - c.least) <= c.allowed for c in compared)
    if len(compared) > 1 and near and np.prod(shares) < 1e-4 / len(compared):  # what is hidden is little
        return SummingValue(value)
    above = all(c.own[0] + c.allowed >= c.least and (c.is_near or not c.is_known) for c in compared)
    little = 10 * sum(abs(c.own[0] - c.least) for c in compared) <= sum(c.own[0] for c in compared)
    if len(compared) > 1 and above and little and np.prod(shares) < 1e-4 / len(compared):
        return SummingValue(value, "hidden numbers leave it open")
    most = [max(low for low, _ in c.parts) for c in compared]
    above = [c.own[0] + c.allowed >= c.least and c.own[0] > top for c, top in zip(compared, most)]
    shown = sum(c.least for c in compared)
    if (
        len(compared) < 2
        or not all(above)
        or shown < max(30, 2 * sum(most), 0.6 * sum(c.own[0] for c in compared))
    ):
        return None
    return SummingValue(value, "hidden numbers leave it open")


def _compared(column: SeenColumn, value: str, table: SeenTable) -> Iterator[_Compared]:
    """Yield each number of a possible total with the numbers of the other values."""
    others = [key for key in (*table.places, *table.attributes) if key is not column]
    own: dict[tuple[str, ...], tuple[float, float]] = {}
    rest: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for shown in table.values:
        keys = zip(*(key.texts for key in others), [shown.name] * len(shown.texts))
        for key, text, ends in zip(keys, column.texts, ends_of(shown, table.titles)):
            if text == value:
                own[key] = tuple(a + b for a, b in zip(own.get(key, (0.0, 0.0)), ends))  # pyright: ignore
            elif text:
                rest.setdefault(key, []).append(ends)
    noise = {shown.name: noise_of(table, shown) for shown in table.values}
    yield from (
        _Compared(key, ends, rest[key], noise[key[-1]])
        for key, ends in own.items()
        if key in rest and ends[0] == ends[1]
    )
