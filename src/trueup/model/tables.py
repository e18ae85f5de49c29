"""Tables of a margin's counts: keys of places, readable names, attribute values and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError, load_extra
from trueup.files.source import as_frame
from trueup.model.cells import Cells, Margin
from trueup.model.tree import Tree

Figures = Mapping[str, NDArray]
"""Columns of one number for each group of a margin, by what they are; masked where there is none."""


def margin_asked(cells: Cells, table: Margin | str, by: str | Sequence[str] = ()) -> Margin:
    """Return the margin that a table's name, with further attributes, denotes.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> str(margin_asked(Cells(tree, (Attribute("sex", ("f", "m")),)), "area", by="sex"))
    'area x sex'
    """
    margin = cells.margin(table)
    added = (by,) if isinstance(by, str) else tuple(by)
    if twice := next((name for name in added if name in margin.attributes), None):
        raise SpecError(f"'{twice}' is named twice", needed=f"each attribute once; '{margin}' already has it")
    names = tuple(r.name for r in cells.recodes((*margin.attributes, *added)) if r.name)
    return replace(margin, attributes=names)


def table_of(
    cells: Cells,
    margin: Margin,
    figures: Figures,
    *,
    wide: str | None = None,
    figure: str | None = None,
    backend: str | None = None,
    known: str | None = None,
) -> Any:
    """Return the figures of a margin as a dataframe: one row per group, or, if wide, one column per attribute value.

    Parameters
    ----------
    figures
        `(groups,)` each.
    wide, figure
        The attribute whose values become columns, and the figure that these hold; by default the first.
    backend, known
        The library of the dataframe; see `trueup.files.source.as_frame`.

    Raises
    ------
    TrueupError
        If the margin is not by that attribute, the figure is unknown, or no such library is installed.
    """
    if wide is None:
        return as_frame(named_columns(cells, margin) | dict(figures), backend, known=known)
    wanted = figure or next(iter(figures))
    if wanted not in figures:
        raise SpecError(f"there is no figure '{wanted}'", needed=f"one of {', '.join(figures)}")
    return as_frame(one_column_a_value(cells, margin, figures[wanted], wide), backend, known=known)


def dataset_of(cells: Cells, margin: Margin, figures: Figures, attributes: Mapping[str, str]) -> Any:
    """Return the figures of a margin as an `xarray.Dataset`, with a dimension for places and one for each attribute."""
    xarray = load_extra("xarray", "posterior")
    tree, level = cells.tree, cells.tree.level(margin.level)
    kept, shape = cells.kept(margin), cells.margin_shape(margin)
    dims = (margin.level, *(recode.name for recode in kept))
    coordinates: dict[str, Any] = {
        margin.level: tree.labels(margin.level),
        **{recode.name: list(recode.values) for recode in kept},
    }
    for name, column in (place_keys(tree, level) | readable_names(tree, level)).items():
        coordinates.setdefault(f"{name} key" if name == margin.level else name, (margin.level, column))
    held = {name: (dims, _filled(column).reshape(shape)) for name, column in figures.items()}
    return xarray.Dataset(held, coordinates, dict(attributes))


def _filled(figure: NDArray) -> NDArray:
    return np.ma.asarray(figure, float).filled(np.nan) if np.ma.is_masked(figure) else np.asarray(figure)


def margin_columns(cells: Cells, margin: Margin) -> dict[str, NDArray]:
    """Return the key and attribute columns of every group of a margin.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> columns = margin_columns(Cells(tree, (Attribute("sex", ("f", "m")),)), Margin("area", ("sex",)))
    >>> {name: column.tolist() for name, column in columns.items()}
    {'area': ['a', 'a', 'b', 'b'], 'sex': ['f', 'm', 'f', 'm']}
    """
    keys = place_keys(cells.tree, cells.tree.level(margin.level))
    return _of_places(cells, margin, keys) | _attributes(cells, margin)


def named_columns(cells: Cells, margin: Margin) -> dict[str, NDArray]:
    """Return the key and attribute columns of every group, with readable names of places after the keys.

    Examples
    --------
    >>> {name: column.tolist() for name, column in named_columns(Cells(Tree.from_columns(["all"], [{}])), Margin("all")).items()}
    {'all': ['all']}
    """
    tree, level = cells.tree, cells.tree.level(margin.level)
    keyed = bool(tree.keys and tree.keys[level]) or tree.sizes[level] > 1
    keys = place_keys(tree, level) if keyed else {margin.level: np.array([margin.level])}
    names = readable_names(tree, level)
    return _of_places(cells, margin, keys | names) | _attributes(cells, margin)


def place_keys(tree: Tree, level: int, places: NDArray | None = None) -> dict[str, NDArray]:
    """Return the key columns of some places of a level, as in published tables."""
    if tree.keys and tree.keys[level]:
        keys = tree.keys[level]
        return keys if places is None else {name: column[places] for name, column in keys.items()}
    every = np.arange(tree.sizes[level]) if places is None else places
    return {tree.levels[level]: every.astype(str)}


def readable_names(tree: Tree, level: int, places: NDArray | None = None) -> dict[str, NDArray]:
    """Return columns `LEVEL name` with the readable names of some places of a level and of the places above."""
    places = np.arange(tree.sizes[level]) if places is None else places
    return {
        f"{tree.levels[at]} name": column[np.searchsorted(tree.starts(at, level), places, "right") - 1]
        for at, column in enumerate(tree.names[: level + 1])
        if column is not None
    }


def position_of(cells: Cells, margin: Margin, attribute: str) -> int:
    """Return the position of an attribute among those of a margin.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> cells = Cells(tree, (Attribute("age", ("young", "old")), Attribute("sex", ("f", "m"))))
    >>> position_of(cells, Margin("area", ("age", "sex")), "sex")
    1
    """
    cells.recodes((attribute,))
    kept = [recode.name for recode in cells.kept(margin)]
    if attribute not in kept:
        raise SpecError(
            f"the table '{margin}' is not by '{attribute}'",
            needed=f"one of: {', '.join(kept)}" if kept else f"the table '{margin} x {attribute}'",
        )
    return kept.index(attribute)


def one_column_a_value(cells: Cells, margin: Margin, figure: NDArray, attribute: str) -> dict[str, NDArray]:
    """Return a margin's figures `(groups,)` as columns, one for each value of an attribute.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    >>> cells, margin = Cells(tree, (Attribute("sex", ("f", "m")),)), Margin("area", ("sex",))
    >>> {name: column.tolist() for name, column in one_column_a_value(cells, margin, np.arange(4), "sex").items()}
    {'area': ['a', 'b'], 'f': [0, 2], 'm': [1, 3]}
    """
    kept, at = cells.kept(margin), position_of(cells, margin, attribute)
    rows = Margin(margin.level, tuple(r.name for r in kept if r.name != attribute))
    columns = named_columns(cells, rows)
    if clash := next((value for value in kept[at].values if value in columns), None):
        raise SpecError(
            f"the attribute '{attribute}' has the value '{clash}', which is also the name of a key column",
            needed="another name of the column or of the value; or the long table, without `wide`",
        )
    laid = np.ma.reshape(figure, cells.margin_shape(margin))
    laid = np.moveaxis(laid, at + 1, -1).reshape(-1, kept[at].size)
    return columns | {value: laid[:, i] for i, value in enumerate(kept[at].values)}


def _of_places(cells: Cells, margin: Margin, columns: Figures) -> dict[str, NDArray]:
    """Repeat each place's keys and names for all attribute values of the margin."""
    _, *sizes = cells.margin_shape(margin)
    per_place = int(np.prod(sizes, dtype=np.int64))
    if per_place == 1:
        return dict(columns)
    return {name: np.repeat(column.astype(object), per_place) for name, column in columns.items()}


def _attributes(cells: Cells, margin: Margin) -> dict[str, NDArray]:
    places, *sizes = cells.margin_shape(margin)
    grid = np.indices(sizes).reshape(len(sizes), -1) if sizes else []
    return {
        recode.name: np.tile(np.array(recode.values, dtype=object)[index], places)
        for recode, index in zip(cells.kept(margin), grid)
    }


def probability_of(level: float | str) -> float:
    """Read the probability of an interval, given as a number or as text such as `90%`.

    Examples
    --------
    >>> probability_of("90%"), probability_of("0.9"), probability_of(0.5)
    (0.9, 0.9, 0.5)
    """
    try:
        text = str(level).strip()
        number = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(level)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < 1:
        shown = level if isinstance(level, str | int | float) else f"a {type(level).__name__}"
        raise SpecError(
            f"the interval level {shown} is not a probability", needed="a level such as 0.9 or '90%'"
        )
    return number
