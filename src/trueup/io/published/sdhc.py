"""Reader and writer of files in the layout of the 2020 Census S-DHC tables.

Measurements are one pipe-separated row per count:

    REGION_ID|REGION_TYPE|ITERATION_CODE|PH5_NUM_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE

Tables of ratios come as two files, numerators and denominators. A spec names a data cell as the
`count` of a `[[table.cell]]`: `NUM_2`, `DENOM_1`, or `CELL_3` where the file has neither.

Where a spec has a level by REGION_TYPE, every row is a place of its last level. Else its levels are nested region types
(`state`, then `county`): those by REGION_ID are named as their rows' REGION_TYPE, codes above are prefixes, and a row measures
its own level.

One file: reading, writing and estimates address a data cell in one way.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.digits import rational
from trueup.errors import DataError, SpecError
from trueup.files import Columns, select
from trueup.files.source import open_table
from trueup.files.values import MAX_COUNT
from trueup.model.build import build_cells
from trueup.model.cells import Cells, Margin
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.noise import law_of_variance
from trueup.noise.law import Law

_CELL = re.compile(r"(PH\d+)_(?:(NUM|DENOM)_)?DATA_CELL")
_FIXED = ["REGION_ID", "REGION_TYPE", "COUNT", "NOISE_DISTRIBUTION", "VARIANCE"]
_NAMES = {
    "Discrete Gaussian": "discrete-gaussian",
    "Two-Sided Geometric": "discrete-laplace",
    "Gaussian": "gaussian",
    "Laplace": "laplace",
}
"""Laws of a stated variance by the files' names: those that were published, and the continuous ones of studies of them."""

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
    """Read noisy measurements from files in the layout of the 2020 Census S-DHC tables.

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
    >>> import tempfile
    >>> from trueup.model.spec import load_spec
    >>> rows = '''REGION_ID|REGION_TYPE|ITERATION_CODE|PH4_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE
    ... 01|STATE|A|2|-3|Discrete Gaussian|144
    ... 01|STATE|A|3|50|Discrete Gaussian|144
    ... '''
    >>> file = Path(tempfile.mkdtemp()) / "ph4.csv"
    >>> _ = file.write_text(rows)
    >>> read_sdhc(load_spec("examples/sdhc/ph4.toml"), [file]).flat.tolist()
    [-3, 50]
    """
    parts = [_read_part(spec, source) for source in sources]
    keys = list(dict.fromkeys(level.column for level in spec.levels if level.column))
    rows = {name: np.concatenate([part[name] for part in parts]) for name in [*keys, "cell", *_FIXED[1:]]}
    last = spec.levels[-1].name
    by_level = _by_level(spec, rows)
    cells = build_cells(spec, _tree(spec, by_level[last]))
    headers, values = [], []
    for level, own in by_level.items():
        at = _positions(spec, cells, own, level)
        for law, chosen in _laws(own):
            order = np.argsort(at[chosen], kind="stable")
            headers.append(
                Measured("published", Margin(level, cells.finest.attributes), law, at[chosen][order])
            )
            values.append(_numbers(own["COUNT"][chosen][order], law))
    return Measurements(cells, tuple(headers), tuple(values), PUBLISHED, spec=spec)


def _by_level(spec: Spec, rows: Columns) -> dict[str, Columns]:
    """Return the rows that measure each level, from coarse to fine."""
    last = spec.levels[-1].name
    if any(level.column == "REGION_TYPE" for level in spec.levels):
        return {last: rows}
    names = [level.name for level in spec.levels if level.column == "REGION_ID"]
    types = np.array([str(name).lower() for name in rows["REGION_TYPE"]])
    if unknown := sorted(set(types.tolist()) - set(names)):
        raise DataError(
            f"REGION_TYPE '{unknown[0].upper()}' is not a level of the spec",
            needed=f"one of: {', '.join(n.upper() for n in names)}",
        )
    if last not in types:
        raise DataError(
            f"the last level of the spec is '{last.upper()}', but no row has this REGION_TYPE",
            needed="rows of the last level, or a spec without that level",
            remedy=f"leave the level '{last.upper()}' out of the spec, or give the file with its rows",
        )
    return {
        name: {key: column[types == name] for key, column in rows.items()} for name in names if name in types
    }


def _read_part(spec: Spec, source) -> Columns:
    """Return the columns of one file, with its data cells named as in the spec."""
    table = open_table(source)
    named = [match for column in table.columns() if (match := _CELL.fullmatch(column))]
    if len(named) != 1:
        raise DataError(
            f"{table.name} has {len(named)} columns of data cells",
            needed="one such column, such as PH5_NUM_DATA_CELL",
        )
    keys = list(dict.fromkeys(level.column for level in spec.levels if level.column))
    rows = select(table, list(dict.fromkeys([*keys, *_FIXED, named[0].group()])))
    prefix = named[0].group(2) or "CELL"
    rows["cell"] = np.array([f"{prefix}_{code}" for code in rows[named[0].group()]])
    wanted = {cell.count for cell in spec.table.cells}
    known = np.isin(rows["cell"], list(wanted))
    return {name: column[known] for name, column in rows.items()}


def _tree(spec: Spec, rows: Columns) -> Tree:
    """Return the tree of places on the levels of the spec."""
    keys = _keys(spec, rows, spec.levels[-1].name)
    names = [next(iter(key), None) for key in keys]
    places = np.unique(np.column_stack([key[name] for key, name in zip(keys, names) if name]), axis=0)
    at = dict(zip([name for name in names if name], places.T))
    return Tree.from_columns(
        [level.name for level in spec.levels], [{name: at[name]} if name else {} for name in names]
    )


def _keys(spec: Spec, rows: Columns, last: str) -> list[dict[str, NDArray]]:
    """Return the key columns of each level from the top to that of the rows."""
    found: list[dict[str, NDArray]] = []
    for level in spec.levels[: [level.name for level in spec.levels].index(last) + 1]:
        codes = rows[level.column].astype(str) if level.column else np.zeros(0, str)
        if level.prefix is not None:
            found.append({level.name: codes.astype(f"U{level.prefix}")})
        else:
            found.append({level.column: codes} if level.column else {})
    return found


def _positions(spec: Spec, cells: Cells, rows: Columns, level: str) -> NDArray[np.int64]:
    """Return the position of every row in its level's table, and refuse missing or repeated cells."""
    keys = _keys(spec, rows, level)
    own = cells.tree.keys[cells.tree.level(level)]
    index = {key: place for place, key in enumerate(zip(*(column.tolist() for column in own.values())))}
    combination = {cell.count: _combination(cells, cell.where) for cell in spec.table.cells}
    margin = Margin(level, cells.finest.attributes)
    per_place = cells.n // cells.shape[0]
    named = list(zip(*(key[name].tolist() for key in keys for name in key)))
    if lost := [key for key in named if key not in index]:
        raise DataError(
            f"the {level} '{'/'.join(lost[0])}' has no place below it", needed="rows of the last level for it"
        )
    at = np.array([index[key] for key in named]) * per_place
    at += np.array([combination[cell] for cell in rows["cell"]])
    times = np.bincount(at, minlength=cells.size(margin))
    if (wrong := np.flatnonzero(times != 1)).size:
        what = "is missing" if times[wrong[0]] == 0 else "is listed more than once"
        raise DataError(
            f"the count of '{cells.margin_label(margin, int(wrong[0]))}' {what}",
            needed="one row for each data cell of each place",
        )
    return at


def _combination(cells: Cells, where: Mapping[str, str]) -> int:
    values = [a.values.index(where[a.name]) for a in cells.attributes]
    return int(np.ravel_multi_index(values, cells.shape[1:])) if values else 0


def _laws(rows: Columns) -> list[tuple[Law, NDArray[np.int64]]]:
    """Return every noise law in a file, with the positions of the rows under it."""
    pairs = [
        (str(name), str(variance)) for name, variance in zip(rows["NOISE_DISTRIBUTION"], rows["VARIANCE"])
    ]
    return [
        (_law_of_variance(*pair), np.flatnonzero([p == pair for p in pairs])) for pair in dict.fromkeys(pairs)
    ]


def _law_of_variance(name: str, variance: str) -> Law:
    """Return the noise law that has the variance stated in a file."""
    if name not in _NAMES:
        raise DataError(f"NOISE_DISTRIBUTION '{name[:30]}' is unknown", needed=f"one of: {', '.join(_NAMES)}")
    return law_of_variance(_NAMES[name], stated_variance(variance, "a noisy count has the VARIANCE"))


def stated_variance(text: str, whose: str) -> Fraction:
    """Read the variance that a file states for a noisy count.

    Examples
    --------
    >>> stated_variance("144.0", "a noisy count has the VARIANCE")
    Fraction(144, 1)
    """
    with suppress(SpecError):
        if Fraction(1, 10**30) <= (value := rational(text.strip())) <= 10**30:
            return value
    raise DataError(f"{whose} '{text[:30]}'", needed="a number above 0, from 1e-30 to 1e30")


def _numbers(column: NDArray, law: Law) -> NDArray:
    """Return the noisy counts in a file, as integers if their noise law is discrete."""
    read = int if law.discrete else float
    try:
        found = [read(str(value)) for value in column]
    except ValueError:
        raise DataError(
            "column 'COUNT' holds something that is not a whole number", needed="whole numbers"
        ) from None
    if not all(abs(value) <= MAX_COUNT for value in found):
        raise DataError("column 'COUNT' holds a number beyond 2^62", needed="numbers from -2^62 to 2^62")
    return np.array(found)


def _places(cells: Cells, level: str) -> list[list[str]]:
    """Return the key columns of every place of a level, in the order in which they are published."""
    own = {name: column.astype(str) for name, column in cells.tree.keys[cells.tree.level(level)].items()}
    places = cells.tree.sizes[cells.tree.level(level)]
    region = [own.get("REGION_ID", own.get(level, np.full(places, "")))]
    region.append(own.get("REGION_TYPE", np.full(places, level.upper())))
    region += [own["ITERATION_CODE"]] if "ITERATION_CODE" in cells.tree.keys[-1] else []
    return np.column_stack(region).tolist()


def _write_rows(path: Path, head: Sequence[str], rows: Sequence[Sequence]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="|", lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def write_estimates(path: Path, posterior: Posterior, spec: Spec, measurements: Measurements) -> None:
    """Write posterior estimates of every measured data cell and of every ratio in the spec.

    Columns of counts: GEOID, REGION_TYPE, ITERATION_CODE, DATA_CELL, COUNT_NOISY, VARIANCE, MOE_NOISY,
    PRED, PRED_LO, PRED_HI. Where the spec asks for ratios, `path` gets a sibling `*_ratios` with
    RATIO_NOISY, RATIO_PRED, RATIO_PRED_LO, RATIO_PRED_HI; ratios of noisy counts stand at the last level alone. MOE is
    1.645 standard deviations.
    """
    cells, lines = posterior.cells, []
    codes = {_combination(cells, cell.where): cell.count for cell in reversed(spec.table.cells)}
    per_place = cells.n // cells.shape[0]
    for header, values in zip(measurements.headers, measurements.values):
        margin, counts = header.margin, posterior.summary(header.margin)
        places = _places(cells, margin.level)
        groups = np.arange(cells.size(margin)) if header.groups is None else header.groups
        noise = [float(header.law.variance), 1.645 * sqrt(header.law.variance)]
        found = [counts[name][groups].astype(float).tolist() for name in ("mean", "low", "high")]
        for cell, value, *figures in zip(groups.tolist(), values.tolist(), *found):
            place, code = places[cell // per_place], codes[cell % per_place]
            lines.append([*_geoid(place), code, value, *noise, *figures])
    head = ["GEOID", "REGION_TYPE", "ITERATION_CODE", "DATA_CELL"]
    names = [*head, "COUNT_NOISY", "VARIANCE", "MOE_NOISY", "PRED", "PRED_LO", "PRED_HI"]
    _write_rows(path, names, lines)
    names = [*head, "RATIO_NOISY", "RATIO_PRED", "RATIO_PRED_LO", "RATIO_PRED_HI"]
    measured = {header.margin.level for header in measurements.headers}
    _write_rows(path.with_stem(f"{path.stem}_ratios"), names, _ratio_lines(posterior, measured))


def _ratio_lines(posterior: Posterior, levels: set[str]) -> list[list]:
    """Return the rows to write for the ratios at every place of the measured levels."""
    ratios, lines, row = posterior.ratio_summary(), [], 0
    found = [ratios[name].astype(float).tolist() for name in ("noisy", "mean", "low", "high")]
    places = {level: _places(posterior.cells, level) for level in levels}
    while row < len(ratios["mean"]):
        level, tree = str(ratios["level"][row]), posterior.cells.tree
        for k, place in enumerate(places.get(level, []), start=row):
            lines.append([*_geoid(place), ratios["quantity"][k], *(column[k] for column in found)])
        row += tree.sizes[tree.level(level)]
    return lines


def _geoid(key: Sequence[str]) -> list[str]:
    """Return the GEOID, region type and iteration code that identify a place."""
    return [*key, "*"][:3]
