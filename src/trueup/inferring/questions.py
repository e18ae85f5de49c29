"""Answers to questions, counts of other areas, and estimates that keep published zeros, from a posterior.

Answers and areas are sums of draws, without new ones.

*Zeros.* The posterior mean has the least squared error that can be expected, given what is published, and is above zero where
a small count may have been published as zero. Users who want such cells to stay empty pay for it in the small counts among
them. What these cells' means sum to is then missing in every total. Here it is given to the other cells of the same place, of
its parent where it has none, and so on up, in proportion to their variances: so totals keep their posterior means.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.io.bundle.kept_posterior import open_posterior
from trueup.kernel.histogram import marginalise
from trueup.model.cells import Cells, Margin
from trueup.model.nested import nesting
from trueup.model.records.answer import PosteriorAnswer
from trueup.model.records.asked import ask_draws
from trueup.model.records.drawn import floors_of_draws
from trueup.model.records.places_asked import AreaTable, Names
from trueup.model.records.posterior import Posterior
from trueup.model.tables import probability_of


def ask(
    posterior: Posterior | str | Path,
    question: str,
    *,
    areas: Any = None,
    column: str = "area",
    level: float | str | None = None,
) -> PosteriorAnswer:
    """Answer a question about the true counts from the draws of a posterior.

    Parameters
    ----------
    posterior
        A posterior, or the folder of one that was kept.
    question
        Names of counts with `+ - * /`, numbers, `rank(...)`, and at most one comparison. A name is a place, alone or with values
        of attributes: `'county=001'`, `'001'`, `'county=001, sex=f'`. The name of a level asks about each of its places:
        `county`, `'county, sex=f' / 'county'`.
    areas, column
        A table of areas of one's own with a row for each place, and its column of areas, which the question names as a level is:
        `'district=north'`.
    level
        Probability of the intervals; by default the posterior's own.

    Raises
    ------
    SpecError
        If the question does not parse, or names what the draws do not hold: it names the nearest, and the draws needed.
    DataError
        If the areas name no places of the last level.
    BundleError
        If the folder holds no posterior, or an altered one.

    Examples
    --------
    >>> import pandas, trueup
    >>> from trueup.demo import AREAS
    >>> noisy = trueup.measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> posterior = trueup.infer(noisy)
    >>> ask(posterior, "'area=b' > 'area=a'").probability
    1.0
    >>> ask(posterior, "area / all").table().columns.tolist()[:3]
    ['area', 'mean', 'sd']
    """
    held = posterior if isinstance(posterior, Posterior) else open_posterior(posterior)
    own = None if areas is None else AreaTable.read(areas, column, held.cells)
    asked = ask_draws(question, Names(held.cells, own), held.draws)
    return PosteriorAnswer(question, asked, held, held.level if level is None else probability_of(level))


def infer_areas(
    posterior: Posterior,
    mapping: Any,
    *,
    column: str = "area",
    by: Sequence[str] = (),
    level: float | str | None = None,
) -> dict[str, NDArray]:
    """Return counts of areas that are not in the hierarchy, with posterior intervals.

    Parameters
    ----------
    posterior
        Result of `infer`. Its draws are joint, so their sums over any places are draws of these sums.
    mapping
        A table with a row for each place of each area: the column of areas, and the key columns of the last level; or an
        `AreaTable` that was read from one. Areas may overlap.
    column
        Its column of areas.
    by
        Attributes or recodes to keep; the others are summed out. An `AreaTable` knows its own.
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
    table = mapping if isinstance(mapping, AreaTable) else AreaTable.read(mapping, column, cells, by)
    margin = cells.margin(Margin(cells.tree.levels[-1], table.by))
    refuse_overlapping(cells, margin)
    cells.refuse_unheld(margin)
    level = probability_of(posterior.level if level is None else level)
    chains, draws, _ = posterior.draws.shape
    counts = posterior.sums(margin) if cells.is_family else posterior.draws
    each = counts.reshape(chains, draws, cells.shape[0], -1)
    parts = []
    for area in range(len(table.names)):
        inside = each[:, :, table.leaf[table.area == area]]
        floors = floors_of_draws(inside.reshape(chains, draws, -1)).reshape(1, 1, *inside.shape[2:])
        own, least = inside.sum(axis=2), floors.sum(axis=2)
        if not cells.is_family:
            own, least = (marginalise(each, cells.marginal(margin.attributes)) for each in (own, least))
        parts.append(posterior.describe(own.reshape(chains, draws, -1), level, least.ravel()))
    return {
        **labels_of_areas(cells, margin, table),
        **{k: np.concatenate([p[k] for p in parts]) for k in parts[0]},
    }


def labels_of_areas(cells: Cells, margin: Margin, table: AreaTable) -> dict[str, NDArray]:
    """Return the area and attribute columns that label the rows of a table of areas."""
    kept = cells.kept(margin)
    grid = np.indices((len(table.names), *(r.size for r in kept))).reshape(1 + len(kept), -1)
    columns = {table.column: np.array(table.names)[grid[0]]}
    return columns | {r.name: np.array(r.values)[at] for r, at in zip(kept, grid[1:])}


def refuse_overlapping(cells: Cells, margin: Margin) -> None:
    """Refuse a margin of areas that sums over an attribute whose values overlap."""
    for attribute in cells.attributes:
        if not attribute.partition and attribute.name not in margin.attributes:
            raise SpecError(
                f"the values of '{attribute.name}' overlap, so a sum over them counts some units twice",
                remedy=f"keep the attribute: by = ['{attribute.name}']",
            )


Reals = NDArray[np.float64]


def keep_zeros(posterior: Posterior) -> Reals:
    """Return estimates `(n,)` of the finest counts, with published zeros and posterior mean totals kept.

    A total keeps its mean unless all below it is published as zero, or all that is not is known exactly.

    Parameters
    ----------
    posterior
        Posterior of tables that were perturbed by a law under which true zeros are published as zero.

    Examples
    --------
    See `docs/perturbed.md`.
    """
    if posterior.noisy is None:
        raise DataError(
            "the posterior holds no published values of the finest cells",
            needed="the posterior as `infer` returned it, not one that was read from disk",
        )
    cells, zero = posterior.cells, posterior.noisy[0] == 0
    margins = nesting(cells, posterior.drawn.marginals or map(Margin, cells.tree.levels))
    means, variances = zip(*(_moments(posterior, margin) for margin in margins))
    may, room = [~zero], [np.where(zero, 0.0, variances[0])]
    groups = [cells.groups(fine, coarse) for fine, coarse in pairwise(margins)]
    for group, coarse in zip(groups, means[1:]):
        may.append(np.bincount(group, may[-1], len(coarse)) > 0)
        room.append(np.bincount(group, room[-1], len(coarse)))
    found = np.where(may[-1], means[-1], 0.0)
    for level in range(len(groups) - 1, -1, -1):
        group, own = groups[level], np.where(may[level], means[level], 0.0)
        missing = found - np.bincount(group, own, len(found))
        each = np.divide(missing, room[level + 1], out=np.zeros_like(missing), where=room[level + 1] > 0)
        found = own + room[level] * each[group]
    return found


def _moments(posterior: Posterior, margin: Margin) -> tuple[Reals, Reals]:
    """Return posterior means and variances of a margin's counts."""
    if (exact := posterior.drawn.marginals.get(margin)) is not None:
        return exact.mean, exact.sd**2
    drawn = posterior.sums(margin).reshape(-1, posterior.cells.size(margin))
    return drawn.mean(axis=0), drawn.var(axis=0)
