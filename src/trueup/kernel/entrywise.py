"""Copies and sums entry by entry. NumPy's compile for a second each in kernels, most of it for the texts of their errors."""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit


@njit(cache=True)
def copy_line(out, values):
    """Set `out` (n,) to the values (n,)."""
    for i in range(out.size):
        out[i] = values[i]


@njit(cache=True)
def add_line(out, values):
    """Add values (n,) to `out` (n,)."""
    for i in range(out.size):
        out[i] += values[i]


@njit(cache=True)
def copy_table(out, values):
    """Set `out` (rows, columns) to the values of that shape."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = values[i, j]


@njit(cache=True)
def row_sums(x):
    """Return the sums (rows,) of a table's rows."""
    sums = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[i] += x[i, j]
    return sums
