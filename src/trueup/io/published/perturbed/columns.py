"""The columns of published tables that their entries name, as text, and the places that they list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.paths import is_workbook
from trueup.files.source import open_table
from trueup.files.table import Columns, select
from trueup.files.whole import is_missing
from trueup.files.workbook import open_workbook
from trueup.model.geography import is_whole, key_columns
from trueup.model.perturbed import PerturbedSpec, PublishedTable
from trueup.model.spec import Spec
from trueup.model.tree import Tree

Texts = NDArray[np.str_]


def read_columns(spec: PerturbedSpec, part: PublishedTable, source: Any) -> Columns:
    """The columns of a table that its entry names."""
    levels = spec.levels[: [level.name for level in spec.levels].index(part.level) + 1]
    names = [level.column for level in levels if level.column]
    names += [attribute_column(spec, name) for name in part.attributes]
    names += [part.count] if part.count else [cell.count for cell in part.cells]
    sheet = isinstance(source, str | Path) and is_workbook(Path(source))
    if not sheet and (part.sheet or part.skip):
        raise DataError(
            f"table '{part.name}' has a sheet, or rows to skip, and what is given for it is no workbook",
            needed="an xlsx file, or an entry without `sheet` and `skip`",
        )
    table = open_workbook(Path(source), part.sheet, part.skip) if sheet else open_table(source)
    rows = select(table, list(dict.fromkeys(names)))
    if not len(next(iter(rows.values()))):
        raise DataError(f"table '{part.name}' has no row", needed="a row for each place or cell")
    return rows


def attribute_column(spec: PerturbedSpec, name: str) -> str:
    return next((a.column or name for a in spec.attributes if a.name == name), name)


def tree_of_tables(spec: PerturbedSpec, columns: Sequence[Columns]) -> Tree:
    """The places that the tables of the last level list."""
    wanted = [level.column for level in spec.levels if level.column]
    finest = [rows for part, rows in zip(spec.published, columns) if part.level == spec.levels[-1].name]
    if not finest:
        raise DataError(
            f"no table is of the last level '{spec.levels[-1].name}', so its places are not known",
            remedy="drop the level, or give the list of its places: --geography FILE",
        )
    names = [level.name for level in spec.levels]
    if not wanted:
        return Tree.from_columns(names, [{}])
    text = [np.array([text_of(rows[name]) for name in dict.fromkeys(wanted)]) for rows in finest]
    places = np.unique(np.concatenate(text, axis=1), axis=1)
    if (places == "").any():
        name = list(dict.fromkeys(wanted))[int(np.argwhere(places == "")[0, 0])]
        raise DataError(f"column '{name}' has no value in some row", needed="the key of a place in every row")
    held = dict(zip(dict.fromkeys(wanted), places))
    return Tree.from_columns(
        names,
        [key_columns(level, held) for level in spec.levels],
        whole_code=[level.prefix is not None or is_whole(cast(Spec, spec), level) for level in spec.levels],
    )


def text_of(column: NDArray) -> Texts:
    """A column as text without spaces around; whole numbers of a workbook without a fraction."""
    if column.dtype.kind in "iu":
        return column.astype(str)
    held = column.tolist()
    return np.array(
        [
            ""
            if is_missing(v)
            else str(int(v))
            if isinstance(v, float) and v.is_integer()
            else str(v).strip()
            for v in held
        ],
        dtype=str,
    )
