"""Codes of places that begin with the code of the parent place."""

from __future__ import annotations

from collections.abc import Sequence


def parents_by_codes(codes: Sequence[str]) -> list[str]:
    """Return, for each code, the longest other code with which it begins; empty if there is none.

    Examples
    --------
    >>> parents_by_codes(["A", "A.1", "A.1.10", "A.2", "B"])
    ['', 'A', 'A.1', 'A', '']
    """
    held = set(codes)
    return [
        next((code[:end] for end in range(len(code) - 1, 0, -1) if code[:end] in held), "") for code in codes
    ]


def without_parts(codes: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Return the codes with which no other code begins, although they are shorter than those of the last level."""
    begun = {code[:length] for code in codes for length in lengths if len(code) > length}
    return [code for code in codes if len(code) in lengths and code not in begun]


def code_lengths(codes: Sequence[str]) -> list[int]:
    """Return the lengths of codes that are prefixes of most longer codes, except the length of a single root code."""
    if all(code.isdecimal() for code in codes) and len(codes) == 1 + max(map(int, codes)) - min(
        map(int, codes)
    ):
        return []  # counted through: 1 is not above 10
    held, found = set(codes), []
    for length in sorted({len(code) for code in codes})[:-1]:
        own = {code for code in codes if len(code) == length}
        begun = {code[:length] for code in codes if len(code) > length}
        if begun <= held and 2 * len(begun) >= len(own) and (len(own) > 1 or found):
            found.append(length)
    return [] if any(" " in code for code in codes) else found


def begins_all(code: str, codes: Sequence[str]) -> bool:
    """Return True if all other codes begin with this one, as X1 and X2 begin with X.

    Examples
    --------
    >>> begins_all("X", ["X", "X1", "X2"]), begins_all("X1", ["X", "X1", "X2"])
    (True, False)
    """
    return all(other.startswith(code) for other in codes)


def are_levels(codes: Sequence[str]) -> bool:
    """Return True if the length of each code identifies a level, for all codes but a single root.

    Examples
    --------
    >>> are_levels(["A1", "A2", "A11", "A12", "A21"]), are_levels(["A1", "A2", "A11", "A12", "A2101"])
    (True, False)
    """
    held = sorted(set(codes))
    lengths = [*code_lengths(held), max(map(len, held))]
    return len(lengths) > 1 and all(len(code) in lengths or begins_all(code, held) for code in held)
