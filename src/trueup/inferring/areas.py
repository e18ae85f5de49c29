"""Areas off the hierarchy, such as school districts, with intervals: sums of draws over lists of the lowest places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.histogram.marginals import marginalise
from trueup.model.cells import Cells, Margin
from trueup.model.records.posterior import Posterior
from trueup.model.tables import probability_of
from trueup.planning.areas import AreaTable


def infer_areas(
    posterior: Posterior,
    mapping: Any,
    *,
    column: str = "area",
    by: Sequence[str] = (),
    level: float | str | None = None,
) -> dict[str, NDArray]:
    """Describe the counts of areas that are not in the hierarchy, with intervals.

    Parameters
    ----------
    posterior
        What `infer` returned: its draws are joint, so that their sums over any places are draws of these sums.
    mapping
        A table with a row for each place of each area: the column of areas, and the key columns of the last level; or an
        `AreaTable` that was read from one. Areas may overlap.
    column
        Its column of areas.
    by
        Attributes or recodes to keep; the others are summed out.
    level
        Probability of the intervals; by default the record's own.

    Returns
    -------
    Columns: the area, attributes, and those of `Posterior.summary` but its labels; a row for each of `k` areas and each of
    their cells.

    Raises
    ------
    DataError, SpecError
        If the mapping names no place of the last level or lists one twice in an area, or an attribute is unknown or would be
        summed out although its values overlap.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.cells import Cells
    >>> from trueup.model.records.drawn import Drawn
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "block"], [{}, {"block": ["a", "b", "c"]}]))
    >>> posterior = Posterior(cells, Drawn(np.array([[[3, 4, 9], [5, 4, 9]]]), True), {"method": "demo"}, "")
    >>> districts = pandas.DataFrame({"area": ["north", "north", "lake"], "block": ["a", "b", "b"]})
    >>> found = infer_areas(posterior, districts)
    >>> found["area"].tolist(), found["mean"].tolist()
    (['lake', 'north'], [4.0, 8.0])
    """
    cells = posterior.cells
    table = mapping if isinstance(mapping, AreaTable) else AreaTable.read(mapping, column, cells)
    margin = cells.margin(Margin(cells.tree.levels[-1], tuple(by)))
    refuse_overlapping(cells, margin)
    cells.refuse_unheld(margin)
    level = probability_of(posterior.level if level is None else level)
    chains, draws, _ = posterior.draws.shape
    counts = posterior.sums(margin) if cells.is_family else posterior.draws
    each = counts.reshape(chains, draws, cells.shape[0], -1)
    parts = []
    for area in range(len(table.names)):
        own = each[:, :, table.leaf[table.area == area]].sum(axis=2)
        if not cells.is_family:
            own = marginalise(own, cells.marginal(margin.attributes))
        parts.append(posterior.describe(own.reshape(chains, draws, -1), level))
    return {
        **labels_of_areas(cells, margin, table),
        **{k: np.concatenate([p[k] for p in parts]) for k in parts[0]},
    }


def labels_of_areas(cells: Cells, margin: Margin, table: AreaTable) -> dict[str, NDArray]:
    """Return area and attributes of every row."""
    kept = cells.kept(margin)
    grid = np.indices((len(table.names), *(r.size for r in kept))).reshape(1 + len(kept), -1)
    columns = {table.column: np.array(table.names)[grid[0]]}
    return columns | {r.name: np.array(r.values)[at] for r, at in zip(kept, grid[1:])}


def refuse_overlapping(cells: Cells, margin: Margin) -> None:
    """Refuse a margin of areas that sums out an attribute whose values overlap."""
    for attribute in cells.attributes:
        if not attribute.partition and attribute.name not in margin.attributes:
            raise SpecError(
                f"the values of '{attribute.name}' overlap, so that areas have no single count",
                remedy=f"keep them: by = ['{attribute.name}']",
            )
