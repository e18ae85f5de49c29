"""Fixed margins of a table as linear equalities."""

from __future__ import annotations

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.linear.polyhedron import Polyhedron


def margins_polyhedron(shape: tuple[int, ...], margins, sums, *, nonnegative: bool = True) -> Polyhedron:
    """Return fixed margins of a table, cells in row-major order, as equalities margin by margin.

    Examples
    --------
    >>> margins_polyhedron((2, 2), [(0,)], [np.array([1.0, 2.0])]).equal.toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    cells = np.indices(shape).reshape(len(shape), -1)
    n = cells.shape[1]
    blocks = [scipy.sparse.csr_array((0, n))]
    for margin, b in zip(margins, sums, strict=True):
        row = np.ravel_multi_index(cells[list(margin)], np.shape(b)) if margin else np.zeros(n, int)
        blocks.append(scipy.sparse.csr_array((np.ones(n), (row, np.arange(n))), shape=(np.size(b), n)))
    right = np.concatenate([np.ravel(np.asarray(b, float)) for b in sums]) if len(sums) else np.zeros(0)
    return Polyhedron.of(n, scipy.sparse.vstack(blocks, format="csr"), right, nonnegative=nonnegative)
