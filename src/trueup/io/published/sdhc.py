"""Noisy measurements in the layout of the 2020 Census S-DHC tables, and estimates as its users know them.

Measurements are one pipe-separated row per count:

    REGION_ID|REGION_TYPE|ITERATION_CODE|PH5_NUM_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE

Tables of ratios come as two files, numerators and denominators. A spec names a data cell as the
`count` of a `[[table.cell]]`: `NUM_2`, `DENOM_1`, or `CELL_3` where the file has neither.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import log, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.files.table import Columns, select
from trueup.model.build import build_cells
from trueup.model.cells import Cells
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.noise.law import Law
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.discrete_laplace import DiscreteLaplace

_CELL = re.compile(r"(PH\d+)_(?:(NUM|DENOM)_)?DATA_CELL")
_FIXED = ["REGION_ID", "REGION_TYPE", "COUNT", "NOISE_DISTRIBUTION", "VARIANCE"]
_NAMES = {DiscreteGaussian: "Discrete Gaussian", DiscreteLaplace: "Two-Sided Geometric"}

PUBLISHED = Guarantee(
    kind="dp",
    unit="as stated by the producer",
    neighbours="as stated by the producer",
    currency="rho",
    amount=Fraction(0),
    delta=Fraction(0),
    charges=(),
    sentences=(
        "Measured and published by another producer, whose statement of privacy holds; reading costs nothing.",
    ),
)
"""The guarantee of measurements that somebody else published."""


def read_sdhc(spec: Spec, sources: Sequence) -> Measurements:
    """Read published noisy measurements.

    Parameters
    ----------
    spec
        Its levels name the key columns, its `[[table.cell]]` the data cells.
    sources
        One file, or two (numerators, denominators): paths or dataframes. Extra columns and the
        order of rows and columns do not matter.

    Raises
    ------
    DataError
        If a column, a cell of some place, or a variance is missing, or a law is unknown.

    Examples
    --------
    See `write_sdhc`.
    """
    parts = [_read_part(spec, source) for source in sources]
    keys = [level.column for level in spec.levels if level.column]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in [*keys, "cell", *_FIXED[2:]]}
    cells = build_cells(spec, _tree(spec, rows))
    at = _positions(spec, cells, rows, keys)
    values = _whole(rows["COUNT"], "COUNT")
    headers, parts_of = [], []
    for law, chosen in _laws(rows):
        order = np.argsort(at[chosen], kind="stable")
        headers.append(Measured("published", cells.finest, law, at[chosen][order]))
        parts_of.append(values[chosen][order])
    return Measurements(cells, tuple(headers), tuple(parts_of), PUBLISHED, spec=spec)


def _read_part(spec: Spec, source) -> Columns:
    """Columns of one file, with its data cells named as the spec names them."""
    table = open_table(source)
    named = [match for column in table.columns() if (match := _CELL.fullmatch(column))]
    if len(named) != 1:
        raise DataError(
            f"{table.name} has {len(named)} columns of data cells", needed="one, such as PH5_NUM_DATA_CELL"
        )
    keys = [level.column for level in spec.levels if level.column]
    rows = select(table, [*keys, *_FIXED, named[0].group()])
    prefix = named[0].group(2) or "CELL"
    rows["cell"] = np.array([f"{prefix}_{code}" for code in rows[named[0].group()]])
    wanted = {cell.count for cell in spec.table.cells}
    known = np.isin(rows["cell"], list(wanted))
    return {name: column[known] for name, column in rows.items()}


def _tree(spec: Spec, rows: Columns) -> Tree:
    """Every place once, as the levels of the spec nest them."""
    columns = [level.column for level in spec.levels]
    keys = [name for name in columns if name]
    places = np.unique(np.column_stack([rows[name].astype(str) for name in keys]), axis=0)
    at = {name: places[:, k] for k, name in enumerate(keys)}
    return Tree.from_columns(
        [level.name for level in spec.levels], [{c: at[c]} if c else {} for c in columns]
    )


def _positions(spec: Spec, cells: Cells, rows: Columns, keys: Sequence[str]) -> NDArray[np.int64]:
    """Position among the finest cells of every row; each cell exactly once."""
    last = cells.tree.keys[-1]
    index = {key: place for place, key in enumerate(zip(*(last[k].tolist() for k in keys)))}
    combination = {cell.count: _combination(cells, cell.where) for cell in spec.table.cells}
    per_place = cells.n // cells.shape[0]
    place = np.array([index[tuple(map(str, key))] for key in zip(*(rows[k] for k in keys))])
    at = place * per_place + np.array([combination[cell] for cell in rows["cell"]])
    times = np.bincount(at, minlength=cells.n)
    if (wrong := np.flatnonzero(times != 1)).size:
        what = "is missing" if times[wrong[0]] == 0 else "is listed more than once"
        raise DataError(
            f"the count of '{cells.label(int(wrong[0]))}' {what}", needed="each data cell of each place once"
        )
    return at


def _combination(cells: Cells, where: Mapping[str, str]) -> int:
    values = [a.values.index(where[a.name]) for a in cells.attributes]
    return int(np.ravel_multi_index(values, cells.shape[1:])) if values else 0


def _laws(rows: Columns) -> list[tuple[Law, NDArray[np.int64]]]:
    """Every law in the file with its rows."""
    pairs = [
        (str(name), str(variance)) for name, variance in zip(rows["NOISE_DISTRIBUTION"], rows["VARIANCE"])
    ]
    return [(_law(*pair), np.flatnonzero([p == pair for p in pairs])) for pair in dict.fromkeys(pairs)]


def _law(name: str, variance: str) -> Law:
    """Make a law of a stated variance."""
    try:
        value = Fraction(variance)
    except ValueError:
        value = Fraction(0)
    if value <= 0:
        raise DataError(f"a noisy count has the VARIANCE '{variance}'", needed="a number above 0")
    if name == _NAMES[DiscreteGaussian]:
        return DiscreteGaussian(value)
    if name == _NAMES[DiscreteLaplace]:
        return DiscreteLaplace(_epsilon(value))
    raise DataError(f"NOISE_DISTRIBUTION '{name}' is unknown", needed=f"one of: {', '.join(_NAMES.values())}")


def _epsilon(variance: Fraction) -> Fraction:
    """Solve `2 q / (1 - q)^2 = variance` for epsilon = -log q, to the digits the file gives."""
    v = float(variance)
    return Fraction(-log((v + 1 - sqrt(2 * v + 1)) / v)).limit_denominator(10**9)


def _whole(column: NDArray, name: str) -> NDArray[np.int64]:
    try:
        return np.array([int(str(value)) for value in column], dtype=np.int64)
    except ValueError:
        raise DataError(f"column '{name}' holds something else than whole numbers") from None


def write_sdhc(folder: Path, table: str, spec: Spec, measurements: Measurements) -> list[Path]:
    """Write measurements in the published layout; return the files.

    Parameters
    ----------
    folder
        Where to write `ph5_num.csv` and `ph5_denom.csv`, or `ph4.csv`.
    table
        `PH1` to `PH8`.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.model.spec import load_spec
    >>> rows = '''REGION_ID|REGION_TYPE|ITERATION_CODE|PH4_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE
    ... 01|STATE|A|2|-3|Discrete Gaussian|144
    ... 01|STATE|A|3|50|Discrete Gaussian|144
    ... '''
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "ph4.csv").write_text(rows)
    >>> spec = load_spec("examples/sdhc/ph4.toml")
    >>> again = folder / "again"
    >>> again.mkdir()
    >>> [file] = write_sdhc(again, "PH4", spec, read_sdhc(spec, [folder / "ph4.csv"]))
    >>> file.read_text() == rows
    True
    """
    cells = measurements.cells
    rows: dict[str, list[list]] = {}
    for header, values in zip(measurements.headers, measurements.values):
        groups = np.arange(cells.n) if header.groups is None else header.groups
        for cell, value in zip(groups, values):
            prefix, code, key = _address(spec, cells, int(cell))
            rows.setdefault(prefix, []).append(
                [*key, code, int(value), _NAMES[type(header.law)], _variance(header.law)]
            )
    files = []
    for prefix, lines in sorted(rows.items(), reverse=True):
        middle = "" if prefix == "CELL" else f"_{prefix}"
        files.append(folder / f"{table.lower()}{middle.lower()}.csv")
        head = ["REGION_ID", "REGION_TYPE", *(["ITERATION_CODE"] if _iterated(cells) else [])]
        _write_rows(files[-1], [*head, f"{table}{middle}_DATA_CELL", *_FIXED[2:]], sorted(lines, key=_by_key))
    return files


def _by_key(line: list) -> tuple:
    return (*map(str, line[:-4]), int(line[-4]))


def _iterated(cells: Cells) -> bool:
    return "ITERATION_CODE" in cells.tree.keys[-1]


def _address(spec: Spec, cells: Cells, cell: int) -> tuple[str, str, list[str]]:
    """Prefix and code of a cell's data cell, and its key columns in the published order."""
    per_place = cells.n // cells.shape[0]
    place, within = divmod(cell, per_place)
    count = next(c.count for c in spec.table.cells if _combination(cells, c.where) == within)
    prefix, code = count.split("_")
    keys = cells.tree.keys[-1]
    wanted = ["REGION_ID", "REGION_TYPE", *(["ITERATION_CODE"] if _iterated(cells) else [])]
    return prefix, code, [str(keys[name][place]) for name in wanted]


def _variance(law) -> str:
    if isinstance(law, DiscreteGaussian):
        return str(law.sigma2) if law.sigma2.denominator == 1 else repr(float(law.sigma2))
    return f"{law.variance:.10g}"


def _write_rows(path: Path, head: Sequence[str], rows: Sequence[Sequence]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="|", lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def write_estimates(path: Path, posterior: Posterior, spec: Spec) -> None:
    """Write posterior estimates of every data cell and every quantity of the spec.

    Columns of counts: GEOID, REGION_TYPE, ITERATION_CODE, DATA_CELL, COUNT_NOISY, VARIANCE, MOE_NOISY,
    PRED, PRED_LO, PRED_HI. Where the spec asks for ratios, `path` gets a sibling `*_ratios` with
    RATIO_NOISY, RATIO_PRED, RATIO_PRED_LO, RATIO_PRED_HI. MOE is 1.645 standard deviations.
    """
    cells = posterior.cells
    assert posterior.noisy is not None, "estimates are written for specs with quantities"
    values, variances = posterior.noisy
    counts = posterior.summary()
    lines = []
    for cell in range(cells.n):
        prefix, code, key = _address(spec, cells, cell)
        noisy = [int(values[cell]), float(variances[cell]), 1.645 * sqrt(variances[cell])]
        lines.append(
            [
                *_geoid(key),
                f"{prefix}_{code}",
                *noisy,
                *(float(counts[c][cell]) for c in ("mean", "low", "high")),
            ]
        )
    head = ["GEOID", "REGION_TYPE", "ITERATION_CODE", "DATA_CELL"]
    _write_rows(path, [*head, "COUNT_NOISY", "VARIANCE", "MOE_NOISY", "PRED", "PRED_LO", "PRED_HI"], lines)
    ratios, per_place = posterior.ratio_summary(), cells.n // cells.shape[0]
    lines = [
        [*_geoid(_address(spec, cells, row % cells.shape[0] * per_place)[2]), ratios["quantity"][row]]
        + [float(ratios[c][row]) for c in ("noisy", "mean", "low", "high")]
        for row in range(len(ratios["mean"]))
    ]
    names = [*head, "RATIO_NOISY", "RATIO_PRED", "RATIO_PRED_LO", "RATIO_PRED_HI"]
    _write_rows(path.with_stem(f"{path.stem}_ratios"), names, lines)


def _geoid(key: Sequence[str]) -> list[str]:
    """GEOID, region type and iteration code; tables without iterations get `*`."""
    return [*key, "*"][:3]
