"""Lists of places in which a column names the parent of each place."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.io.published.perturbed.columns import text_of
from trueup.model.tree import Tree


class Pointers(NamedTuple):
    """The columns of a list of places that point from each to its parent, all places, and their depth."""

    id: str
    parent: str
    places: frozenset[str]
    depth: int


def pointers_of(source: str | Path) -> Pointers | None:
    """Find a column that names each row's place and one that names its parent; return None if there are none.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "areas.csv"
    >>> _ = file.write_text("area,in\\nuk,\\nengland,uk\\nkent,england\\n")
    >>> pointers_of(file)[::3]
    ('area', 3)
    """
    try:
        table = open_table(source)
        columns = {name: text_of(column).tolist() for name, column in table.select(table.columns()).items()}
    except DataError:  # no plain table
        return None
    for id_, places in columns.items():
        known = frozenset(places)
        if len(known) < max(len(places), 2):
            continue
        for parent, above in columns.items():
            if parent != id_ and set(above) - known == {""}:
                try:
                    return Pointers(id_, parent, known, len(Tree.from_parents(places, above).levels))
                except DataError:
                    continue
    return None
