"""Measurements written in the layout of the 2020 Census noisy-measurement files; see `trueup.io.published.nmf`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.database import connect
from trueup.io.published.nmf import TOTAL
from trueup.model.cells import Cells, Margin
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec


def write_nmf(
    root: str | Path, spec: Spec, measurements: Measurements, product: str = "US_Person_PL_PROD"
) -> None:
    """Write measurements in the published layout, places partitioned by the first three characters.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.io.published.nmf import read_nmf
    >>> from trueup.io.published.sdhc import PUBLISHED
    >>> from trueup.model.problem import public_cells
    >>> from trueup.model.header import Measured
    >>> from trueup.model.spec import parse_spec
    >>> from trueup.noise import DiscreteGaussian
    >>> spec = parse_spec('''
    ... format = 2
    ... title = "Two counties"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "replace" }
    ... level = [{ name = "US" }, { name = "State", column = "geocode", prefix = 3 }, { name = "County", column = "geocode" }]
    ... attribute = [{ name = "sex", values = ["f", "m"] }]
    ... query = [{ name = "by sex", attributes = ["sex"], levels = ["State", "County"], rho = 1 }]
    ... ''')
    >>> import pandas
    >>> cells = public_cells(spec, pandas.DataFrame({"geocode": ["044001", "044003"], "sex": "f", "n": 0}))
    >>> law = DiscreteGaussian("9/4")
    >>> headers = (Measured("by sex", Margin("State", ("sex",)), law), Measured("by sex", Margin("County", ("sex",)), law))
    >>> noisy = Measurements(cells, headers, (np.array([7, -1]), np.array([4, 0, 3, 1])), PUBLISHED)
    >>> root = tempfile.mkdtemp()
    >>> write_nmf(root, spec, noisy)
    >>> [v.tolist() for v in read_nmf(spec, root).values]
    [[7, -1], [4, 0, 3, 1]]
    """
    tables: dict[tuple[str, str, str], list[tuple]] = {}
    cells = measurements.cells
    if conditional := next((h for h in measurements.headers if h.margin.where), None):
        raise SpecError(
            f"'{conditional.margin}' counts the units alone that meet a condition, which a noisy measurement file cannot say",
            needed="invariants without `where`",
        )
    for header, values in zip(measurements.headers, measurements.values):
        kind, ending, sign = ("Constraint", "con", "=") if header.exact else ("DPQuery", "dpq", None)
        groups = np.arange(cells.size(header.margin)) if header.groups is None else header.groups
        given = (float(header.law.variance), sign)
        for code, row in _places(cells, header.margin, groups, values):
            name = f"{_name(cells, header.margin) or TOTAL}_{ending}"
            tables.setdefault((header.margin.level, kind, code[:3]), []).append((code, name, *row, *given))
    for bound in measurements.bounds:
        for limits, ending, sign in ((bound.lower, "lb", ">="), (bound.upper, "ub", "<=")):
            for code, row in _limits(cells, bound.margin, limits):
                name = "_".join(part for part in (_name(cells, bound.margin), TOTAL, ending, "con") if part)
                key = (bound.margin.level, "Constraint", code[:3])
                tables.setdefault(key, []).append((code, name, *row, 0.0, sign))
    for (level, kind, state), rows in tables.items():
        folder = Path(root) / product / f"{level}.parquet" / kind / f"State={state}"
        folder.mkdir(parents=True, exist_ok=True)
        _write_part(folder / "part-0.parquet", rows)


def _places(
    cells: Cells, margin: Margin, groups: NDArray[np.int64], values: NDArray
) -> Iterator[tuple[str, tuple[list[int], list[int]]]]:
    """Spine code, shape and values of a margin at every place."""
    level = cells.tree.level(margin.level)
    each = cells.size(margin) // cells.tree.sizes[level]
    shape = [r.size for r in cells.recodes(margin.attributes)] or [1]
    for k in range(0, len(groups), each):
        yield _code(cells, level, int(groups[k]) // each), (shape, values[k : k + each].tolist())


def _limits(cells: Cells, margin: Margin, limits) -> Iterator[tuple[str, tuple[list[int], list[int]]]]:
    """The same for limits, at the places that have some."""
    if limits is None:
        return
    every = np.broadcast_to(np.asarray(limits, float), cells.size(margin))
    for code, (shape, values) in _places(cells, margin, np.arange(len(every)), every):
        if np.isfinite(values).all():
            yield code, (shape, [int(value) for value in values])


def _code(cells: Cells, level: int, place: int) -> str:
    if level == 0:
        return "0"
    [column] = cells.tree.keys[level].values()
    return str(column[place])


def _name(cells: Cells, margin: Margin) -> str:
    return " * ".join(r.name for r in cells.kept(margin))


def _write_part(path: Path, rows: Sequence[tuple]) -> None:
    with connect(folders=[path.parent]) as connection:
        connection.execute(
            "CREATE TABLE part (geocode VARCHAR, query_name VARCHAR, query_shape INTEGER[], value BIGINT[], "
            "variance DOUBLE, sign VARCHAR)"
        )
        connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", list(rows))
        connection.table("part").write_parquet(str(path))
