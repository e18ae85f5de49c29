"""Relations between key columns: which ones identify rows, determine other columns, or label the codes in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trueup.io.published.drafting.codes import code_lengths
from trueup.io.published.drafting.seen import TOTAL, SeenColumn

_LABEL = re.compile(
    r".*(name|\bnom|nom_|label|libell|bezeichnung|denominazione|naam|navn|namn).*", re.IGNORECASE
)


def determines_key(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if each value of a column occurs with one value of another, apart from blanks and totals."""
    pairs = named_pairs(fine, coarse)
    return len(pairs) == len({a for a, _ in pairs}) and bool(pairs)


def named_pairs(fine: SeenColumn, coarse: SeenColumn) -> set[tuple[str, str]]:
    """Return the pairs of values of two columns that occur together in a row, without blanks and totals."""
    pairs = zip(fine.texts, coarse.texts)
    return {(a, b) for a, b in pairs if a and b and not TOTAL.fullmatch(a) and not TOTAL.fullmatch(b)}


def are_alike(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if the values of two columns correspond one to one."""
    pairs = set(zip(one.texts, other.texts))
    return len(pairs) == len(set(one.texts)) == len(set(other.texts)) > 1


def told_rows(keys: list[SeenColumn]) -> int:
    """Return the number of different rows that some key columns distinguish."""
    return len(set(zip(*(key.texts for key in keys))))


def pairs_of(columns: list[SeenColumn]) -> Iterator[tuple[SeenColumn, SeenColumn]]:
    """Return all pairs of two different columns."""
    return ((a, b) for k, a in enumerate(columns) for b in columns[k + 1 :])


def without_labels(columns: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Leave out columns equivalent to another one, keeping codes rather than names; return the others and notes."""
    kept, ignored = list(columns), []
    for one, other in pairs_of(columns):
        if one in kept and other in kept and (_say_the_same(one, other, columns) or _names_codes(one, other)):
            code, label = sorted((one, other), key=_wordy)
            more, less = (told_rows([c for c in kept if c is not each]) for each in (code, label))
            left = code if more > less else label
            kept.remove(left)
            why = (
                "is blank for some of the places that another names"
                if left is code
                else "names what the other keys say"
            )
            ignored.append(f"column '{left.name}' {why}, and is left out")
    return kept, ignored


def _say_the_same(one: SeenColumn, other: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True if the values of two columns correspond one to one, everywhere or within each larger place."""
    parts = [
        (a, b) for a, b in zip(one.texts, other.texts) if (a or not one.blank) and (b or not other.blank)
    ]
    filled = [sum(map(bool, texts)) for texts in zip(*parts)]
    both = [pair for pair in parts if all(pair)]
    blank, full = sorted((one, other), key=lambda c: len(c.held))
    numbered = all(any(map(str.isdigit, text)) for text in blank.held) and "" not in full.texts
    rest = {text for text, code in zip(full.texts, blank.texts) if not code}
    apart = numbered and not rest & {text for text, code in zip(full.texts, blank.texts) if code}
    if len(both) < (0.5 if apart else 0.8) * max(filled, default=0):
        return False
    if determines_key(one, other) and determines_key(other, one):
        return True
    fine, coarse = sorted((one, other), key=lambda c: -len(set(c.held)))
    few = 0.8 * len(set(fine.held)) > len(set(coarse.held))
    if not few and _wordy(coarse)[0] > 0.9 and _wordy(fine)[0] < 0.1 and determines_key(fine, coarse):
        return True  # the name of a place and of the one place within it
    if (_LABEL.fullmatch(one.name) is None) == (_LABEL.fullmatch(other.name) is None):
        return False
    for above in (c for c in columns if c is not one and c is not other):
        ways = [
            set(zip(above.texts, *each)) for each in ((one.texts,), (other.texts,), (one.texts, other.texts))
        ]
        if len(set(map(len, ways))) == 1 and len(ways[0]) > len(set(above.texts)):
            return True
    return False


def _names_codes(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if one column labels the codes in another column that holds all levels, without being a level itself."""
    label, code = sorted((one, other), key=lambda c: len(set(c.held)))
    lengths = code_lengths(sorted(set(code.held)))
    if not lengths or len(set(code.texts)) < len(code.texts) or len(set(label.held)) < 2:
        return False
    told = [True]  # whether a name tells the code above it, and that is told by the code below
    for length in (*lengths, max(map(len, code.held))):
        pairs = {(text[:length], name) for text, name in zip(code.texts, label.texts) if len(text) >= length}
        if told[-1] and len(pairs) == len({text for text, _ in pairs}):
            return False
        told.append(len(pairs) == len({name for _, name in pairs}))
    return True


def _wordy(column: SeenColumn) -> tuple[float, float]:
    held = column.held
    blank = len(column.texts) - len(held)
    return (
        sum(not any(c.isdigit() for c in text) for text in held) / len(held),
        sum(map(len, held)) / len(held) - blank,
    )
