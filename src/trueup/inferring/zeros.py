"""Estimates that leave published zeros at zero.

The posterior mean has the least squared error that can be expected, given what is published, and is above zero where a small
count may have been published as zero. Users who want such cells to stay empty pay for it in the small counts among them. What
these cells' means sum to is then missing in every total. Here it is given to the other cells of the same place, of its parent
where it has none, and so on up, in proportion to their variances: so totals keep their posterior means.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.model.cells import Margin
from trueup.model.nested import nesting
from trueup.model.records.posterior import Posterior

Reals = NDArray[np.float64]


def keep_zeros(posterior: Posterior) -> Reals:
    """Return estimates `(n,)` of the finest cells: zero where zero is published, with the posterior means of totals.

    A total keeps its mean unless all below it is published as zero, or all that is not is known exactly.

    Parameters
    ----------
    posterior
        Of tables that somebody perturbed by a law under which true zeros are published as zero.

    Examples
    --------
    See `docs/perturbed.md`.
    """
    if posterior.noisy is None:
        raise DataError(
            "the posterior holds no published values of the finest cells",
            needed="the posterior that `infer` returned",
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
