"""Reader of tables that other agencies published, in which codes may replace values.

Each table is read into values under its law, its codes into intervals. What several tables show with the same
perturbation is one measurement: cells with the same records, under one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from trueup.errors import DataError
from trueup.io.published.perturbed.agreeing import totals_added
from trueup.io.published.perturbed.columns import read_columns
from trueup.io.published.perturbed.margins import ShownMargin, shown_margins
from trueup.io.published.perturbed.places import TableRows, rows_by_level, tree_of_rows
from trueup.io.published.perturbed.under_law import counted_once, covers_margin
from trueup.io.published.perturbed.values import values_under_laws
from trueup.io.published.perturbed.wholes import wholes_among_parts
from trueup.model.build import build_cells, build_constraints
from trueup.model.cells import Cells
from trueup.model.geography import read_tree
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import VANISHING_VARIANCE, Measured
from trueup.model.perturbed import PerturbedSpec, PublishedTable, load_perturbed
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec


def read_perturbed(
    spec: PerturbedSpec | str | Path, tables: Sequence[Any], geography: Any = None
) -> Measurements:
    """Read published tables of one population as measurements, with the noise laws that a spec states.

    Parameters
    ----------
    spec
        The spec of the tables, or its path.
    tables
        Their files (CSV, Parquet, xlsx, ods) or dataframes: each by the file's name that its entry gives, else in the order
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
    [(ShownCounts(law=RandomRounding(base=3, below=None), hidden=((1.0, 4.0),)), [6]), (CountInterval(low=1, high=4), [2])]
    """
    known = spec if isinstance(spec, PerturbedSpec) else load_perturbed(spec)
    known = known.shown_alone()
    sources = _matched(known, tables)
    as_spec = cast(Spec, known)
    listed = read_tree(as_spec, geography) if geography is not None else None
    rows = [
        _rows_of(known, part, source, [other for other, _ in sources], listed) for part, source in sources
    ]
    tree = listed or tree_of_rows(known, rows)
    cells = build_cells(as_spec, tree)
    shown = [list(shown_margins(known, cells, table)) for table in rows]
    read = [values_under_laws(cells, table.part, margins) for table, margins in zip(rows, shown)]
    found = [v for values, _ in read for v in values]
    levels = known.showing([[(each.margin.level, each.attributes) for each in margins] for margins in shown])
    levels.note(text for _, noted in read for text in noted)
    as_spec = cast(Spec, levels)
    once = counted_once(cells, build_constraints(as_spec, cells).zero_cells, found)
    if faint := [
        v for v in once if v.law.additive and not v.law.exact and v.law.variance < VANISHING_VARIANCE
    ]:
        raise DataError(
            f"the law of table '{faint[0].part.name}' has so little noise that it never changes a count",
            needed="a law with noise that changes counts, or the law 'exact'",
            remedy='if the values are exact, write law = { name = "exact" }',
        )
    headers = tuple(
        Measured(v.part.name, v.margin, v.law, None if covers_margin(cells, v) else v.groups) for v in once
    )
    values = tuple(v.values for v in once)
    measured = Measurements(cells, headers, values, NO_GUARANTEE, spec=as_spec)
    levels.note(wholes_among_parts(measured, _order_of_places(cells, shown)))
    levels.note(totals_added(measured))
    return measured


def _rows_of(
    spec: PerturbedSpec, part: PublishedTable, source: Any, every: Sequence[PublishedTable], tree: Any
) -> TableRows:
    """Return the rows of a file that one entry of the spec describes."""
    order = [level.name for level in spec.levels]
    same = [each for each in every if each is part or (each.level != part.level and each.reads_rows_of(part))]
    finest = max(same, key=lambda other: order.index(other.level))
    rows = rows_by_level(spec, finest, read_columns(spec, finest, source), tree)
    if len(same) == 1:
        return rows
    others = [order.index(other.level) for other in same if other is not part]
    own = rows.level == order.index(part.level)
    found = rows.among(own if part is not finest else ~np.isin(rows.level, others))._replace(part=part)
    if not len(found.level):
        raise DataError(
            f"'{part.file}' has no rows of level '{part.level}', which table '{part.name}' reads, although it has rows "
            f"of '{finest.name}'",
            needed="entries only for levels that have rows in the file",
            remedy=f"leave '{part.name}' out of the spec",
        )
    return found


def _order_of_places(cells: Cells, shown: Sequence[Sequence[ShownMargin]]) -> dict[str, list[int]]:
    """Return the order of places on each level, as in a table that lists all of them."""
    found: dict[str, list[int]] = {}
    for each in (margin for margins in shown for margin in margins):
        per_place = cells.size(each.margin) // cells.tree.sizes[cells.tree.levels.index(each.margin.level)]
        places = list(dict.fromkeys((each.groups // per_place).tolist()))
        if len(places) * per_place == cells.size(each.margin):
            found.setdefault(each.margin.level, places)
    return found


def _matched(spec: PerturbedSpec, tables: Sequence[Any]) -> list[tuple[PublishedTable, Any]]:
    """Return the file of each entry, matched by name if the entry gives one and otherwise by order."""
    named = {Path(t).name: t for t in tables if isinstance(t, str | Path)}
    used, pairs = set(), {}
    for part in (part for part in spec.published if part.file is not None):
        times = sum(isinstance(t, str | Path) and Path(t).name == part.file for t in tables)
        if times != 1:
            raise DataError(
                f"table '{part.name}' is in the file '{part.file}', which is {f'given {times} times' if times else 'not given'}",
                needed="each file once",
                remedy="leave one out" if times else f"add --table with the path of '{part.file}'",
            )
        used.add(part.file)
        pairs[part.name] = named[str(part.file)]
    rest = [part for part in spec.published if part.file is None]
    left = [t for t in tables if not isinstance(t, str | Path) or Path(t).name not in used]
    if len(rest) != len(left):
        first = next((Path(t).name for t in tables if isinstance(t, str | Path)), "table.csv")
        raise DataError(
            f"{len(tables)} table{'s are' if len(tables) != 1 else ' is'} given",
            needed=f"a file for each of {len(spec.published)} tables: {', '.join(part.name for part in spec.published)}",
            remedy="give each by --table FILE, in the order of the spec; where several entries read one file, give it once and "
            f'name it in each of them: file = "{first}"',
        )
    pairs |= {part.name: source for part, source in zip(rest, left)}
    return [(part, pairs[part.name]) for part in spec.published]
