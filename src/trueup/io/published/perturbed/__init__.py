"""Tables as other agencies publish them: places by cells, long or wide, with codes in the place of some values.

Each table is read into values under its law, its codes into intervals. What several tables show with the same
perturbation is one measurement: cells with the same records, under one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from trueup.errors import DataError
from trueup.io.published.perturbed.columns import read_columns, tree_of_tables
from trueup.io.published.perturbed.margins import shown_margins
from trueup.io.published.perturbed.once import counted_once
from trueup.io.published.perturbed.values import ValuesUnderLaw, covers_margin, values_under_laws
from trueup.model.build import build_cells, build_constraints
from trueup.model.geography import read_tree
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.perturbed import PerturbedSpec, PublishedTable, load_perturbed
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec


def read_perturbed(
    spec: PerturbedSpec | str | Path, tables: Sequence[Any], geography: Any = None
) -> Measurements:
    """Read published tables of one population, with the laws that a spec gives them.

    Parameters
    ----------
    spec
        The spec of the tables, or its path.
    tables
        Their files (CSV, Parquet, xlsx) or dataframes: each by the file's name that its entry gives, else in the order
        of the entries.
    geography
        The list of places; by default those that the tables of the last level list.

    Returns
    -------
    Measurements
        One header for each table, margin and law, and one for each code that says an interval. They claim no
        guarantee, and know the spec.

    Raises
    ------
    SpecError
        If the spec is at fault.
    DataError
        If a table is missing, lists a cell twice or not at all, holds text that is no count and no declared code, a
        value that its law cannot give, or another value than a table with the same perturbation. Messages quote what
        was published.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.perturbed import parse_perturbed
    >>> spec = parse_perturbed('''
    ... format = 1
    ... title = "Two districts"
    ... table = { name = "demo", counts = "person" }
    ... level = [{ name = "all" }, { name = "district", column = "district" }]
    ... [[published]]
    ... name = "districts"
    ... level = "district"
    ... count = "persons"
    ... law = { name = "random-rounding", base = 3 }
    ... codes = { "*" = "1-4" }
    ... ''')
    >>> read = read_perturbed(spec, [pandas.DataFrame({"district": ["a", "b"], "persons": ["6", "*"]})])
    >>> [(header.law, values.tolist()) for header, values in zip(read.headers, read.values)]
    [(RandomRounding(base=3), [6]), (CountInterval(low=1, high=4), [2])]
    """
    known = spec if isinstance(spec, PerturbedSpec) else load_perturbed(spec)
    sources = _matched(known, tables)
    as_spec = cast(Spec, known)
    columns = [read_columns(known, part, source) for part, source in sources]
    tree = read_tree(as_spec, geography) if geography is not None else tree_of_tables(known, columns)
    cells = build_cells(as_spec, tree)
    found: list[ValuesUnderLaw] = []
    for (part, _), rows in zip(sources, columns):
        for shown in shown_margins(known, cells, part, rows):
            found += values_under_laws(cells, part, shown)
    once = counted_once(cells, build_constraints(as_spec, cells).zero_cells, found)
    headers = tuple(
        Measured(v.part.name, v.margin, v.law, None if covers_margin(cells, v) else v.groups) for v in once
    )
    values = tuple(v.values for v in once)
    return Measurements(cells, headers, values, NO_GUARANTEE, spec=as_spec)


def _matched(spec: PerturbedSpec, tables: Sequence[Any]) -> list[tuple[PublishedTable, Any]]:
    """Each entry with its file: by name where the entry gives one, else in order."""
    left, pairs = list(tables), []
    for part in spec.published:
        if part.file is None:
            continue
        at = [i for i, t in enumerate(left) if isinstance(t, str | Path) and Path(t).name == part.file]
        if len(at) != 1:
            raise DataError(
                f"table '{part.name}' is in the file '{part.file}', which is given {len(at)} times",
                needed="each file once",
                remedy=f"add --table .../{part.file}" if not at else "leave one out",
            )
        pairs.append((part, left.pop(at[0])))
    rest = [part for part in spec.published if part.file is None]
    if len(rest) != len(left):
        raise DataError(
            f"{len(tables)} table{'s are' if len(tables) != 1 else ' is'} given",
            needed=f"{len(spec.published)}: {', '.join(part.name for part in spec.published)}",
            remedy="give each by --table FILE, in the order of the spec",
        )
    every = {part.name: source for part, source in (*pairs, *zip(rest, left))}
    return [(part, every[part.name]) for part in spec.published]
