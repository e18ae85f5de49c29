"""Tables as other agencies publish them: places by cells, long or wide, with codes in the place of some values.

Each table is read into values under its law, its codes into intervals. What several tables show with the same
perturbation is one measurement: cells with the same records, under one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.source import Columns, open_table, select
from trueup.files.whole import MAX_COUNT, is_missing
from trueup.io.published.workbook import open_workbook
from trueup.model.build import build_cells, build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.geography import is_whole, key_columns, read_tree
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.perturbed import PerturbedSpec, PublishedTable, load_perturbed, read_interval
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.noise.laws.exact import Exact
from trueup.noise.perturbed import CountInterval, Perturbation

Texts = NDArray[np.str_]


class ShownMargin(NamedTuple):
    """The groups of one margin that a table shows, and the texts that stand there.

    Attributes
    ----------
    margin
        The margin.
    groups
        `(v,)` which of its groups.
    texts
        `(v,)` what is published of them.
    """

    margin: Margin
    groups: NDArray[np.int64]
    texts: Texts


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
    columns = [_columns(known, part, source) for part, source in sources]
    tree = read_tree(as_spec, geography) if geography is not None else _tree(known, columns)
    cells = build_cells(as_spec, tree)
    found: list[_Values] = []
    for (part, _), rows in zip(sources, columns):
        for shown in _shown(known, cells, part, rows):
            found += _values(cells, part, shown)
    once = _once(cells, build_constraints(as_spec, cells).zero_cells, found)
    headers = tuple(
        Measured(v.part.name, v.margin, v.law, None if _whole(cells, v) else v.groups) for v in once
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
            f"{len(tables)} tables are given",
            needed=f"{len(spec.published)}: {', '.join(part.name for part in spec.published)}",
        )
    every = {part.name: source for part, source in (*pairs, *zip(rest, left))}
    return [(part, every[part.name]) for part in spec.published]


def _columns(spec: PerturbedSpec, part: PublishedTable, source: Any) -> Columns:
    """The columns of a table that its entry names."""
    levels = spec.levels[: [level.name for level in spec.levels].index(part.level) + 1]
    names = [level.column for level in levels if level.column]
    names += [_attribute_column(spec, name) for name in part.attributes]
    names += [part.count] if part.count else [cell.count for cell in part.cells]
    sheet = isinstance(source, str | Path) and Path(source).suffix.lower() in (".xlsx", ".xlsm")
    table = open_workbook(Path(source), part.sheet, part.skip) if sheet else open_table(source)
    rows = select(table, list(dict.fromkeys(names)))
    if not len(next(iter(rows.values()))):
        raise DataError(f"table '{part.name}' has no row", needed="a row for each place or cell")
    return rows


def _attribute_column(spec: PerturbedSpec, name: str) -> str:
    return next((a.column or name for a in spec.attributes if a.name == name), name)


def _tree(spec: PerturbedSpec, columns: Sequence[Columns]) -> Tree:
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
    text = [np.array([_text(rows[name]) for name in dict.fromkeys(wanted)]) for rows in finest]
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


def _text(column: NDArray) -> Texts:
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


def _shown(spec: PerturbedSpec, cells: Cells, part: PublishedTable, rows: Columns) -> Iterator[ShownMargin]:
    """The margins of a table, each group at most once."""
    place = _places(spec, cells, part, rows)
    if part.cells:
        for attributes in spec.margins_of(part):
            yield _complete(cells, part, _of_columns(cells, part, rows, place, attributes))
        return
    texts = _text(rows[part.count or ""])
    named = [_text(rows[_attribute_column(spec, name)]) for name in part.attributes]
    totals = [column == part.total for column in named] if part.total else []
    some = np.logical_or.reduce(totals) if totals else np.zeros(len(texts), bool)
    every = np.logical_and.reduce(totals) if totals else some
    if (mixed := np.flatnonzero(some & ~every)).size:
        raise DataError(
            f"row {mixed[0] + 1} of table '{part.name}' sums over some of its attributes",
            needed=f"'{part.total}' for all of them, or for none; other margins are tables of their own",
        )
    margin = canonical(cells, Margin(part.level, part.attributes))
    groups = place[~some]
    for name, column in sorted(
        zip(part.attributes, named), key=lambda pair: margin.attributes.index(pair[0])
    ):
        groups = groups * len(_values_of(cells, name)) + _value_index(cells, part, name, column, ~some)
    yield _complete(cells, part, ShownMargin(margin, groups, texts[~some]))
    if some.any():
        yield _complete(
            cells, part, ShownMargin(canonical(cells, Margin(part.level)), place[some], texts[some])
        )


def _of_columns(
    cells: Cells, part: PublishedTable, rows: Columns, place: NDArray[np.int64], attributes: tuple[str, ...]
) -> ShownMargin:
    """One margin of a wide table."""
    margin = canonical(cells, Margin(part.level, attributes))
    each = cells.size(margin) // cells.tree.sizes[cells.tree.level(part.level)]
    groups, texts = [], []
    for cell in (cell for cell in part.cells if set(cell.where) == set(attributes)):
        within = 0
        for recode in cells.kept(margin):
            within = within * recode.size + recode.values.index(cell.where[recode.name])
        groups.append(place * each + within)
        texts.append(_text(rows[cell.count]))
    return ShownMargin(margin, np.concatenate(groups), np.concatenate(texts))


def _places(spec: PerturbedSpec, cells: Cells, part: PublishedTable, rows: Columns) -> NDArray[np.int64]:
    """The place of every row."""
    at = cells.tree.level(part.level)
    keys = cells.tree.keys[at]
    if not keys:
        return np.zeros(len(next(iter(rows.values()))), np.int64)
    levels = {level.name if level.prefix else level.column: level for level in spec.levels}
    text = {name: _text(column) for name, column in rows.items()}
    given = [key_columns(levels[name], text)[name].tolist() for name in keys]
    known = {key: i for i, key in enumerate(zip(*(column.tolist() for column in keys.values())))}
    found = np.array([known.get(key, -1) for key in zip(*given)], dtype=np.int64)
    if (lost := np.flatnonzero(found < 0)).size:
        shown = "/".join(column[lost[0]] for column in given)
        raise DataError(
            f"row {lost[0] + 1} of table '{part.name}' names the place '{shown}', which level '{part.level}' has not",
            needed="places that the tables of the last level, or the geography, list",
        )
    return found


def _values_of(cells: Cells, name: str) -> tuple[str, ...]:
    return next(view.values for a in cells.attributes for view in a.views if view.name == name)


def _value_index(
    cells: Cells, part: PublishedTable, name: str, column: Texts, rows: NDArray[np.bool_]
) -> NDArray[np.int64]:
    known = {value: i for i, value in enumerate(_values_of(cells, name))}
    found = np.array([known.get(value, -1) for value in column.tolist()], dtype=np.int64)
    if (lost := np.flatnonzero((found < 0) & rows)).size:
        raise DataError(
            f"row {lost[0] + 1} of table '{part.name}' has '{column[lost[0]]}' for '{name}'",
            needed=f"one of: {', '.join(known)}" + (f", or '{part.total}'" if part.total else ""),
        )
    return found[rows]


def _complete(cells: Cells, part: PublishedTable, shown: ShownMargin) -> ShownMargin:
    """Refuse a group that is listed twice, and one that is not listed unless the entry says what that means."""
    times = np.bincount(shown.groups, minlength=cells.size(shown.margin))
    if (twice := np.flatnonzero(times > 1)).size:
        label = cells.margin_label(shown.margin, int(twice[0]))
        raise DataError(
            f"table '{part.name}' lists '{label}' {times[twice[0]]} times", needed="each cell once"
        )
    lost = np.flatnonzero(times == 0)
    if not lost.size or part.unlisted == "unknown":
        return shown
    if part.unlisted == "zero":
        zeros = np.full(len(lost), "0")
        return ShownMargin(shown.margin, np.append(shown.groups, lost), np.append(shown.texts, zeros))
    raise DataError(
        f"table '{part.name}' lacks '{cells.margin_label(shown.margin, int(lost[0]))}'"
        + (f" and {lost.size - 1} more" if lost.size > 1 else ""),
        needed="a row for each place and value of its margin",
        remedy="say what a cell without a row means: unlisted = 'zero' or 'unknown'",
    )


@dataclass(frozen=True, eq=False)
class _Values:
    """Values `(v,)` of some groups of a margin under one law."""

    part: PublishedTable
    margin: Margin
    law: Any
    groups: NDArray[np.int64]
    values: NDArray[np.int64]

    def among(self, keep: NDArray[np.bool_]) -> _Values:
        return replace(self, groups=self.groups[keep], values=self.values[keep])


def _whole(cells: Cells, v: _Values) -> bool:
    return len(v.groups) == cells.size(v.margin)


def _values(cells: Cells, part: PublishedTable, shown: ShownMargin) -> list[_Values]:
    """Values under the table's law, then one entry for each code that says an interval."""
    order = np.argsort(shown.groups, kind="stable")
    groups, texts = shown.groups[order], shown.texts[order]
    every, which = np.unique(texts, return_inverse=True)
    read = [
        _read(cells, part, shown.margin, text, groups, which == k) for k, text in enumerate(every.tolist())
    ]
    counts = np.array([one if isinstance(one, int) else -1 for one in read], dtype=np.int64)
    numbers = np.array([isinstance(one, int) for one in read])[which]
    law = part.settled_law
    result = (
        [_Values(part, shown.margin, law, groups[numbers], counts[which[numbers]])] if numbers.any() else []
    )
    if result:
        _refuse_impossible(cells, result[0])
    intervals = dict.fromkeys(one for one in read if isinstance(one, CountInterval))
    for one in intervals:
        at = np.array([other == one for other in read])[which]
        exact = one.low == one.high
        value = np.full(int(at.sum()), one.centre)
        result.append(_Values(part, shown.margin, Exact() if exact else one, groups[at], value))
    return result


def _read(
    cells: Cells,
    part: PublishedTable,
    margin: Margin,
    text: str,
    groups: NDArray[np.int64],
    at: NDArray[np.bool_],
) -> int | CountInterval | None:
    """What a text says: a count, an interval, or nothing (None)."""
    if text in part.codes:
        return part.meaning(text)
    whole = text.removeprefix("-")
    if whole.isascii() and whole.isdigit() and len(whole) < 25 and abs(int(text)) <= MAX_COUNT:
        return int(text)
    if (found := read_interval(text)) is not None:
        return found
    label = cells.margin_label(margin, int(groups[np.argmax(at)]))
    what = f"the text '{text[:30]}'" if text else "no value"
    raise DataError(
        f"table '{part.name}' has {what} for '{label}'",
        needed="a whole number without separators, or a code",
        remedy=f"declare what the code says: codes = {{ '{text[:30] or ''}' = '1-4' }}, or 'unknown'",
    )


def _refuse_impossible(cells: Cells, v: _Values) -> None:
    """Refuse values that the law cannot give."""
    law = v.law
    if isinstance(law, Perturbation):
        bad = np.flatnonzero(~law.possible(v.values))
    else:
        bad = np.flatnonzero(v.values < 0) if isinstance(law, Exact) else np.zeros(0, np.int64)
    if bad.size:
        label = cells.margin_label(v.margin, int(v.groups[bad[0]]))
        told = ", ".join(f"{name} {value}" for name, value in law.parameters().items() if value != "None")
        raise DataError(
            f"table '{v.part.name}' has {v.values[bad[0]]} for '{label}', which law '{law.name}'"
            f"{f' ({told[:80]})' if told else ''} gives for no count",
            needed="values as they were published, under the law that made them",
            remedy="correct the law, or declare the value's meaning as a code",
        )


def _once(cells: Cells, zero: NDArray[np.bool_], found: Sequence[_Values]) -> list[_Values]:
    """Count a cell once that several tables, or margins, show with the same perturbation.

    Cells have the same records if the same finest cells make them up, but for structural zeros.
    """
    mark = np.random.default_rng(0).integers(0, 2**64, cells.n, dtype=np.uint64)
    mark[zero] = 0
    seen: dict[str, list[tuple[NDArray[np.uint64], _Values]]] = {}
    result = []
    for v in found:
        key = (
            v.part.key
            if v.part.key is not None
            else f"{v.law}"
            if getattr(v.law, "same_records", False)
            else None
        )
        if key is None or not isinstance(v.law, Perturbation) or isinstance(v.law, CountInterval):
            result.append(v)
            continue
        marks = _sums(cells, mark, v.margin)[v.groups]
        new = np.ones(len(marks), bool)
        for others, earlier in seen.get(key, ()):
            where = dict(zip(others.tolist(), range(len(others))))
            at = np.array([where.get(each, -1) for each in marks.tolist()])
            same = at >= 0
            _refuse_different(cells, v, earlier, same, at)
            new &= ~same
        seen.setdefault(key, []).append((marks, v))
        if new.any():
            result.append(v.among(new))
    return result


def _sums(cells: Cells, mark: NDArray[np.uint64], margin: Margin) -> NDArray[np.uint64]:
    """Sums modulo 2^64 of the marks of each group's cells."""
    total = np.zeros(cells.size(margin), np.uint64)
    np.add.at(total, cells.groups(cells.finest, margin), mark)
    return total


def _refuse_different(
    cells: Cells, v: _Values, earlier: _Values, same: NDArray[np.bool_], at: NDArray[np.int64]
) -> None:
    differ = np.flatnonzero(same & (v.values != earlier.values[at]))
    if differ.size:
        one, other = int(differ[0]), int(at[differ[0]])
        label = cells.margin_label(v.margin, int(v.groups[one]))
        named = cells.margin_label(earlier.margin, int(earlier.groups[other]))
        raise DataError(
            f"'{label}' is {v.values[one]} in table '{v.part.name}', and '{named}', which has the same records, "
            f"{earlier.values[other]} in table '{earlier.part.name}', under one key",
            needed="equal values where the perturbation is the same",
            remedy="give the tables keys of their own if they were perturbed apart",
        )
