"""Tables of transition probabilities in files, as R's ptable writes them."""

from __future__ import annotations

import csv
from pathlib import Path

from trueup.errors import SpecError
from trueup.noise.perturbed import MAX_PARAMETER
from trueup.noise.perturbed.cell_key import LARGEST_CHANGE

_NEEDED = "a CSV file beside the spec, with a row for each count i and value j"


def read_transitions(path: Path) -> list[dict[int, float]]:
    """Read a table of transition probabilities with columns `i` (count), `j` (published) and `p`, as R's ptable writes it.

    The last count's row holds for all larger ones.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        delimiter = max(",;\t", key=(lines or [""])[0].count)
        rows = list(csv.DictReader(lines, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        cause = getattr(error, "strerror", None) or "it is no CSV in UTF-8"
        raise SpecError(f"cannot read the transitions from '{path}': {cause}", needed=_NEEDED) from None
    if not rows or not {"i", "j", "p"} <= set(rows[0]):
        raise SpecError(f"'{path.name}' lacks the columns i, j and p", needed=_NEEDED)
    try:
        entries = [(int(row["i"]), int(row["j"]), float(str(row["p"]).replace(",", "."))) for row in rows]
    except (TypeError, ValueError):
        raise SpecError(
            f"'{path.name}' holds something other than numbers", needed="whole i and j, and p"
        ) from None
    if wide := [(i, j) for i, j, _ in entries if not 0 <= i <= MAX_PARAMETER or abs(j - i) > LARGEST_CHANGE]:
        raise SpecError(
            f"'{path.name}' lists i = {wide[0][0]}, j = {wide[0][1]}",
            needed=f"counts i from 0 to {MAX_PARAMETER:,}, and values j within {LARGEST_CHANGE} of them",
        )
    table: list[dict[int, float]] = [{} for _ in range(max(i for i, _, _ in entries) + 1)]
    for i, j, p in entries:
        if j - i in table[i]:
            raise SpecError(f"'{path.name}' lists i = {i}, j = {j} twice", needed="each once")
        table[i][j - i] = p
    table[0] = table[0] or {0: 1.0}
    if lost := [i for i, row in enumerate(table) if not row]:
        raise SpecError(
            f"'{path.name}' has no row for the count {lost[0]}", needed="every count up to the last"
        )
    return table
