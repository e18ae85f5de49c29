"""Codes in published tables: nested codes of places, and codes that replace numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trueup.model.published_codes import UNKNOWN


def parents_by_codes(codes: Sequence[str]) -> list[str]:
    """Return, for each code, the longest other code that is a prefix of it; empty if there is none.

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
    """Return the codes of higher levels that are no prefix of any other code."""
    begun = {code[:length] for code in codes for length in lengths if len(code) > length}
    return [code for code in codes if len(code) in lengths and code not in begun]


def code_lengths(codes: Sequence[str]) -> list[int]:
    """Return the lengths of codes that are prefixes of most longer codes, without that of a single root."""
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
    """Return True if one code is a prefix of all other codes, as X is of X1 and X2.

    Examples
    --------
    >>> begins_all("X", ["X", "X1", "X2"]), begins_all("X1", ["X", "X1", "X2"])
    (True, False)
    """
    return all(other.startswith(code) for other in codes)


def are_levels(codes: Sequence[str]) -> bool:
    """Return True if the length of each code determines its level, for all codes except a single root.

    Examples
    --------
    >>> are_levels(["A1", "A2", "A11", "A12", "A21"]), are_levels(["A1", "A2", "A11", "A12", "A2101"])
    (True, False)
    """
    held = sorted(set(codes))
    lengths = [*code_lengths(held), max(map(len, held))]
    return len(lengths) > 1 and all(len(code) in lengths or begins_all(code, held) for code in held)


_NONE = re.compile(
    r"\W*(nil|zero|none|null|nul|aucune?|nenhum|cero|nessun[oa]?|ingen|geen|no (cases?|persons?|people|observations?)|"
    r"nichts vorhanden|genau null|not applicable|nicht zutreffend|sans objet|non applicable|no (procede|aplica(ble)?)|"
    r"n[ãa]o (se )?aplic(a|ável)|niet van toepassing|(ikke|ej|inte) (relevan?t|tillämplig\w*)|non applicabile|nie dotyczy)\b",
    re.IGNORECASE,
)
_BELOW = re.compile(
    r"(?:(?:fewer|less|smaller|lower|kleiner|weniger|niedriger|geringer|inférieure?s?|moins|menos|menores?|meno|minder|färre)"
    r"\s+(?:than|als|à|de|que|di|än)?\s*|(?:below|under|unter|sous)\s+|<\s*)(\d{1,4})\b(?!\s*%)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\b(\d{1,4})\s*(?:-|–|to|bis|à|and|und|et|a|or|oder|ou)\s*(\d{1,4})\b", re.IGNORECASE)
_SHOWN = r"(?:shown|replaced|displayed|marked|denoted|represented|indicated|suppressed)\s+(?:as|by|with)\s+(?:an?\s+)?[\"'“‘(\[]?"


def said_of(code: str, notes: str) -> str | None:
    """Return the note in a file that explains a code, or None if there is none.

    Examples
    --------
    >>> said_of("c", "Wards\\nc = confidential (fewer than 5)"), said_of("*", "Counts 1 to 7 are shown as *, others are rounded")
    ('confidential (fewer than 5)', 'Counts 1 to 7 are')
    >>> said_of(".", "Symbols: - nil; . not known"), said_of("x", "six of ten") is None
    ('not known', True)
    >>> said_of("c", "Pupils (c = confidential)\\nc: fewer than 10"), said_of("c", "Pupils (c = confidential)")
    ('fewer than 10', 'confidential')
    >>> said_of("c", "Counts are rounded to base 5. c = fewer than 3. End.")
    'fewer than 3'
    """
    if not code:
        return None
    blank, quote = r"[ \t]", "[\"'“”]?"
    shown = rf"(?:^|[\n;:,|(]|\d\s[-–]){blank}*{quote}{re.escape(code)}{quote}{blank}*"
    listed = shown + rf"(?:[=:–-]{blank}|[=:]|{blank})([^;|\n]{{2,80}})"
    ended = rf"\.\s{quote}{re.escape(code)}{quote}{blank}*[=:]{blank}*([^.;|\n]{{2,80}})"
    if every := [found[1].strip() for way in (listed, ended) for found in re.finditer(way, notes)]:
        told = next((text for text in every if meaning_of(text, zeros=True) != UNKNOWN), every[0])
        return told if "(" in told else told.rstrip(")")
    found = re.search(rf"([^.;\n]{{3,80}}?)\s+{_SHOWN}{re.escape(code)}(?!\w)", notes)
    return found[1].strip() if found else None


def meaning_of(text: str, *, zeros: bool) -> str:
    """Return the meaning of a code as a spec writes it, such as a range of counts.

    Examples
    --------
    >>> [meaning_of(text, zeros=True) for text in ("- nil", "fewer than 5", "1 to 7; rates below 20: u", "not available")]
    ['0', '1-4', '1-7', 'unknown']
    """
    if _NONE.match(text):
        return "0"
    below, between = _BELOW.search(text), _RANGE.search(text)
    if (
        between
        and int(between[1]) < int(between[2]) <= 100
        and not (below and below.start() < between.start())
    ):
        return f"{between[1]}-{between[2]}"
    if below and int(below[1]) > 1:
        return f"1-{int(below[1]) - 1}" if zeros else f"<{below[1]}"
    return UNKNOWN
