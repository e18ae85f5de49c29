"""Printing of tables, JSON and sentences by commands."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any


def say_repeated(key: Any) -> None:
    """Print that nothing was drawn, if a release was committed under a key before."""
    if key:
        print(
            f"Nothing was read, drawn or charged: this is the release that was committed under the key '{key}'. Corrected data "
            "are declared (`trueup budget data`) and released under another key."
        )


def print_json(value: Any) -> None:
    """Print a record as JSON; exact fractions become text, and non-finite numbers null."""
    print(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    """Return a value with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


LINE_CHARACTERS = 400
"""Characters of a line off a terminal, where nothing need be folded."""


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table, folding it between words only if the terminal is narrow."""
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    title, rows = shown(title), [[shown(cell) for cell in row] for row in rows]
    # Words are never cut: an exact amount in two pieces would be read as another one.
    words = [
        max(map(len, " ".join(column).split()), default=0) for column in zip(columns, *rows, strict=True)
    ]
    whole = (Column(name, overflow="fold", min_width=word) for name, word in zip(columns, words, strict=True))
    drawn = Table(*whole, title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        drawn.add_row(*row)
    # Names are text, never markup or emoji: '[/x]' is a name like any other.
    console = Console(width=None if sys.stdout.isatty() else LINE_CHARACTERS, markup=False, emoji=False)
    console.print(drawn)


def shown(text: str) -> str:
    """Return text with escaped control characters, which could move a terminal's cursor or change its colours."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown_lines(text: str) -> str:
    """Return the same for a text of several lines."""
    return "\n".join(map(shown, text.split("\n")))
