"""Limits on what is read from untrusted files: names by a grammar, bounded numbers and depth, and no links.

A bundle is public, and may come back from somebody who made it to be read here. So nothing in it is used as a path, as a
number or as a structure before it was found to be one of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

from trueup.errors import BundleError

LARGEST_TEXT = 64_000_000
"""Bytes of a manifest or a spec: that of a nation with all its tables has less than one million."""
_DEEPEST, _DIGITS = 50, 1000
_PART = re.compile(r"[\w-][\w. -]{0,250}")
_PATTERN = re.compile(r"[\w-][\w. *-]{0,250}")
_AMOUNT = re.compile(r"\d{1,1000}(\.\d{1,1000})?([eE][+-]?\d{1,4})?(/\d{1,1000})?", re.ASCII)


def read_text(path: Path) -> str:
    """Read a text of bounded size from a file that is not a link.

    Raises
    ------
    OSError, ValueError
        If it is missing, a link, too large, or not text in UTF-8.
    """
    if path.is_symlink() or path.stat().st_size > LARGEST_TEXT:
        raise ValueError
    return path.read_text(encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON of bounded size, depth and length of numbers; raise OSError or ValueError otherwise."""
    try:
        held = json.loads(read_text(path), parse_int=_read_integer)
        _refuse_deep(held)
    except RecursionError:
        raise ValueError from None
    return held


def _read_integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError
    return int(text)


def _refuse_deep(held: Any, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise ValueError
    parts = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
    for part in parts:
        _refuse_deep(part, depth + 1)


def amount(text: Any) -> Fraction:
    """Read an exact amount, zero or more, of bounded length; raise ValueError otherwise.

    Examples
    --------
    >>> amount("1/2"), amount(0)
    (Fraction(1, 2), Fraction(0, 1))
    >>> amount("1e999999999")
    Traceback (most recent call last):
    ValueError: no amount
    """
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text < 10**_DIGITS:
        return Fraction(text)
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        raise ValueError("no amount")
    above, _, below = text.partition("/")
    if below and not int(below):
        raise ValueError("no amount")
    return Fraction(above) / int(below or 1)


def refuse_names(names: Iterable[Any], *, pattern: bool = False) -> None:
    """Refuse names unlike those of files in a bundle: up to three parts, none hidden, none that leads elsewhere.

    Examples
    --------
    >>> refuse_names(["measurements/part-0.parquet", "spec.toml"])
    >>> refuse_names(["measurements/../../profile"])
    Traceback (most recent call last):
    ValueError: no name of a file of a bundle
    """
    grammar = _PATTERN if pattern else _PART
    for name in names:
        parts = name.split("/") if isinstance(name, str) and len(name) < 1000 else []
        if not 1 <= len(parts) <= 3 or not all(grammar.fullmatch(part) for part in parts):
            raise ValueError("no name of a file of a bundle")


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse links among the named files of a folder and the folders that contain them."""
    held = {folder / name for name in names}
    held |= {folder / parent for name in names for parent in PurePosixPath(name).parents}
    for path in sorted(held):
        if path.is_symlink():
            raise BundleError(
                f"'{path}' is a link", needed="the files themselves", remedy="restore the bundle"
            )
