"""Proposals of the rows that are sums of other rows, by codes, indents, kinds, order or nearby columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from trueup.io.published.drafting.agreement import LEAST, RowNumbers
from trueup.io.published.drafting.keys import parents_by_codes
from trueup.io.published.drafting.seen import SeenColumn

_INDENT = re.compile(r"[\s.>·•–-]*")
MOST_KINDS = 8
"""Kinds of places that one table has."""
_ORDERS = {2: 3, 3: 13, 4: 75, 5: 541}
"""Orders of so many kinds, some of which may be of one level."""
MOST_ORDERED = 100_000
"""Orders of kinds, times rows, of which all are tried."""
_FORMS: tuple[Callable[[str], str], ...] = (
    lambda code: code,
    lambda code: re.sub(r"^\d*[^\W\d]+(?=\d)|^[^\W\d]+", "", code),
    lambda code: code.split(" ")[0] if any(map(str.isdigit, code.split(" ")[0])) else code,
)
"""Forms of a code that codes of places above may begin: all of it, without its first letters (0500000US), its first word."""
_ZEROS = re.compile(r"\w")
"""Signs of a code that are zeros in the codes of places above."""


def indent_of(text: str) -> str:
    """Return the blanks or marks before a name that indent it.

    Examples
    --------
    >>> [indent_of(text) for text in ("  Wales", ">> Bezirk", "......0001 Aeugst", "North")]
    ['  ', '>> ', '......', '']
    """
    found = _INDENT.match(text)
    return found[0] if found else ""


def depths_of(indents: Sequence[str]) -> list[int]:
    """Return the depths of names in an outline, from the indents before them."""
    kinds = list(dict.fromkeys(indents))
    blank = not any(indent.strip() for indent in kinds)
    return [len(indent) if blank else kinds.index(indent) for indent in indents]


def parents_of(depths: Sequence[int]) -> list[int]:
    """Return the parent of each row in an outline, given the depths of all rows; -1 for none.

    Examples
    --------
    >>> parents_of([0, 1, 2, 1])
    [-1, 0, 1, 0]
    """
    above: list[int] = []
    result = []
    for row, depth in enumerate(depths):
        while above and depths[above[-1]] >= depth:
            above.pop()
        result.append(above[-1] if above else -1)
        above.append(row)
    return result


def proposed(
    names: Sequence[str], beside: Sequence[SeenColumn], indents: Mapping[str, str]
) -> list[list[int]]:
    """Return proposals of the parent of every row, suggested by names and by neighbouring columns.

    Examples
    --------
    >>> proposed(["1", "1a", "1b", "2"], [], {})[0]
    [-1, 0, 0, -1]
    """
    rows = len(names)
    texts = [[*names], *(key.texts for key in beside)]
    unique = [each for each in texts if len(set(each)) == rows and "" not in each]
    ways = [by_codes(each, form) for each in unique for form in _FORMS]
    ways += [way for each in unique for way in _by_zeros(each)]
    for each in texts:
        marked = [indents.get(text, "") for text in each]
        ways += _by_depths(depths_of(marked)) if len(set(marked)) > 1 else ()
    for kinds in [each for key in beside for each in (key.texts, [*map(_shape, key.texts)])]:
        ways += _by_kinds(kinds)
    for each in unique:
        for kinds in dict.fromkeys(
            tuple(way) for way in (map(_shape, each), _words(each, 0), _words(each, -1))
        ):
            ways += _by_kinds(kinds)
    ways += [way for key in beside for each in unique if (way := _by_pointers(key.texts, each))]
    ways += [_by_groups(beside, rows, last=last) for last in (False, True)]
    return [list(way) for way in dict.fromkeys(map(tuple, ways)) if any(parent >= 0 for parent in way)]


def by_codes(codes: Sequence[str], form: Callable[[str], str] = _FORMS[0]) -> list[int]:
    """Return, for each row, the row whose code is the longest prefix of its code; -1 if there is none."""
    formed = [form(code) for code in codes]
    if len(set(formed)) < len(formed) or "" in formed:
        return [-1] * len(codes)
    rows = {code: row for row, code in enumerate(formed)}
    return [rows.get(parent, -1) for parent in parents_by_codes(formed)]


def _by_zeros(codes: Sequence[str]) -> Iterator[list[int]]:
    """Yield proposals of parents by codes that end in zeros, as 3100 contains 3104.

    A level ends behind a sign if codes that go on behind it have zeros there in a code above, two of three at least. Ways that
    leave one or two of these levels out are proposed, too: a code that ends in 0 by chance, as 20, is not above 21.
    """
    width = len(codes[0])
    if {*map(len, codes)} != {width} or not all(any(map(str.isdigit, code)) for code in codes):
        return
    rows = {code: row for row, code in enumerate(codes)}
    cut = [{code: code[:end] + _ZEROS.sub("0", code[end:]) for code in codes} for end in range(width)]
    ends = [end for end in range(1, width) if _ends_level(cut[end])]
    for left in ({one, other} for one in (0, *ends) for other in (0, *ends)):
        kept = [cut[end] for end in reversed(ends) if end not in left] + [cut[0]]
        yield [
            next((rows[c[code]] for c in kept if c[code] != code and c[code] in rows), -1) for code in codes
        ]


def _ends_level(above: Mapping[str, str]) -> bool:
    """Return True if most codes, shortened by the last characters, are codes as well."""
    begun = {short for code, short in above.items() if short != code}
    held = begun & {*above}
    return 3 * len(held) >= 2 * len(begun) > 0


def _shape(code: str) -> str:
    """Return the letters before the digits of a code, and the code's length; empty for words."""
    if not any(map(str.isdigit, code)) or " " in code:
        return ""
    return re.sub(r"\d.*", "", code) + str(len(code))


def _words(names: Sequence[str], at: int) -> list[str]:
    """Return the first or last word of each name if other names share it, else an empty text."""
    words = [name.split()[at] if " " in name else name[at] if not name.isascii() else "" for name in names]
    times = Counter(words)
    return [word if times[word] > 1 else "" for word in words]


def _by_kinds(kinds: Sequence[str]) -> Iterator[list[int]]:
    """Yield proposals of parents by kinds of rows, with rarer kinds above more frequent ones."""
    times = Counter(kinds)
    if not 1 < len(times) <= MOST_KINDS or len(times) == len(kinds):
        return
    ranked = sorted(times, key=lambda kind: times[kind])
    orders: Iterable[tuple[int, ...]] = [tuple(range(len(ranked)))]
    if _ORDERS.get(len(ranked), MOST_ORDERED) * len(kinds) < MOST_ORDERED:
        every = product(range(len(ranked)), repeat=len(ranked))
        orders = [order for order in every if set(order) == set(range(max(order) + 1)) and max(order)]
    for order in orders:
        depth = dict(zip(ranked, order))
        yield from _by_depths([depth[kind] for kind in kinds])


def _by_depths(depths: Sequence[int]) -> list[list[int]]:
    """Return two proposals of parents by depth: totals above their parts, and totals below them."""
    back = parents_of(depths[::-1])[::-1]
    return [parents_of(depths), [len(depths) - 1 - row if row >= 0 else -1 for row in back]]


def _by_pointers(above: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the row that a column names as the parent of each row; empty if most texts name no row."""
    rows = {name: row for row, name in enumerate(names)}
    found = [rows.get(text, -1) for text in above]
    found = [-1 if parent == row else parent for row, parent in enumerate(found)]
    return found if 2 * sum(parent >= 0 for parent in found) >= len(found) and not _is_circular(found) else []


def _is_circular(parents: Sequence[int]) -> bool:
    for row in range(len(parents)):
        steps = 0
        while row >= 0 and steps <= len(parents):
            row, steps = parents[row], steps + 1
        if row >= 0:
            return True
    return False


def _by_groups(beside: Sequence[SeenColumn], rows: int, *, last: bool) -> list[int]:
    """Return proposals of parents by a neighbouring column, whose groups have their total first or last."""
    parents = [-1] * rows
    for key in sorted(beside, key=lambda key: len(set(key.texts))):
        heads: dict[str, int] = {}
        for row, text in enumerate(key.texts):
            if last or text not in heads:
                heads[text] = row
        if 1 < len(heads) < rows:
            parents = [
                heads[text] if heads[text] != row and text else parent
                for (row, parent), text in zip(enumerate(parents), key.texts)
            ]
    return [-1] * rows if _is_circular(parents) else parents


def by_sums(numbers: RowNumbers) -> Iterator[list[int]]:
    """Yield proposals of parents in which the numbers of each total are sums of neighbouring rows.

    The rows that hold no sum have to lie in some that do, all of them. Ways are yielded in which a row with the numbers of
    the one beside it is its only part, too.
    """
    rows = range(len(numbers.ends))
    for order, alone in product((rows[::-1], rows), (False, True)):
        parents, tops = _heaped(numbers, order, alone=alone)
        if set(tops) <= set(parents.values()):
            yield [parents.get(row, -1) for row in rows]


def _heaped(
    numbers: RowNumbers, order: Iterable[int], *, alone: bool = False
) -> tuple[dict[int, int], list[int]]:
    """Return the parents of rows and the rows without a parent, if each total follows its parts.

    A part may be `alone` where it has the numbers of the row that holds it.
    """
    rows, base = numbers.ends, numbers.base
    parents: dict[int, int] = {}
    heap: list[int] = []
    for at in order:
        own, sums, parts = rows[at], np.zeros_like(rows[at]), 0
        for size, other in enumerate(reversed(heap), 1):
            sums = sums + rows[other]
            by_base = min((size + 1) * (base - 1), 2 * base * (size + 1) ** 0.5)
            off = by_base if base > 1 else np.clip(0.05 * own[:, 0], 1, 2 * size + 2)
            if (sums[:, 0] > own[:, 1] + off).any():
                break
            open_ = sums[:, 1] - sums[:, 0] + own[:, 1] - own[:, 0]
            told = (open_ <= 3 + 0.25 * own[:, 0]).any() and own[:, 0].sum() >= 10 * base
            same = alone and own[:, 0].sum() >= LEAST and (own == rows[other]).all()
            if (size > 1 or same) and told and (own[:, 0] <= sums[:, 1] + off).all():
                parts = size
        if parts:
            parents |= dict.fromkeys(heap[-parts:], at)
            del heap[-parts:]
        heap.append(at)
    return parents, heap
