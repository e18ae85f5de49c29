"""Small dense systems: a covariance or precision between cells, entry by entry, and its Cholesky factors.

Entries of a matrix between cells come from a domain's components: between cells k and l, on every axis the projection on
contrasts or the product of the two codes' weights in their atoms' means.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.histogram.anova import Domain

RANK = 1e-10  # pivots below this share of the largest count as none


def entries(domain: Domain) -> tuple[np.ndarray, ...]:
    """Return what `matrix_entry` needs of a domain: codes of the cells, weights and atoms of the axes, the components."""
    k, size = len(domain.axes), max(domain.sizes)
    weight, atom = np.zeros((k, size)), np.zeros((k, size), np.int64)
    for i, axis in enumerate(domain.axes):
        for a, members in enumerate(axis.members):
            atom[i, members], weight[i, members] = a, members.size**-0.5
    codes = np.ascontiguousarray(np.indices(domain.sizes).reshape(k, -1).T)
    kinds = np.array([c.contrast for c in domain.components], np.bool_).reshape(-1, k)
    atoms = np.array([a.atoms for a in domain.axes])
    return codes, weight, atom, atoms, kinds


@njit(cache=True)
def matrix_entry(one, other, q, components, form):
    """Return the entry between two cells of a matrix that has blocks q on its components."""
    codes, weight, atom, atoms, kinds = form
    total = 0.0
    for c in range(components.shape[0]):
        factor, i, j = 1.0, 0, 0
        for axis in range(kinds.shape[1]):
            k, l_ = codes[one, axis], codes[other, axis]
            both = weight[axis, k] * weight[axis, l_]
            if kinds[c, axis]:
                factor *= ((1.0 if k == l_ else 0.0) - both) if atom[axis, k] == atom[axis, l_] else 0.0
                if factor == 0.0:
                    break
            else:
                factor *= both
                i = i * atoms[axis] + atom[axis, k]
                j = j * atoms[axis] + atom[axis, l_]
        if factor != 0.0:
            total += factor * q[components[c, 3] + i * components[c, 1] + j]
    return total


@njit(cache=True)
def factorise(a):
    """Write the Cholesky factor U (upper, and U' below) of a positive semidefinite matrix in its place; tiny pivots are left out.

    Rows at a time, here and in `solve_factored`: sums along a row have a fixed order that no processor may take four at a time,
    multiples of a row may be added so.
    """
    n = a.shape[0]
    largest = 0.0
    for i in range(n):
        largest = max(largest, a[i, i])
    for j in range(n):
        if a[j, j] <= RANK * largest:
            for k in range(j, n):
                a[j, k] = 0.0
            continue
        root = np.sqrt(a[j, j])
        for k in range(j, n):
            a[j, k] /= root
        for i in range(j + 1, n):
            share = a[j, i]
            if share != 0.0:
                for k in range(i, n):
                    a[i, k] -= share * a[j, k]
    for i in range(n):
        for k in range(i):
            a[i, k] = a[k, i]


@njit(cache=True)
def solve_factored(factor, x):
    """Solve in place with a factor of `factorise`; left-out unknowns are zero."""
    n = x.size
    for i in range(n):
        x[i] = x[i] / factor[i, i] if factor[i, i] > 0.0 else 0.0
        share = x[i]
        if share != 0.0:
            for k in range(i + 1, n):
                x[k] -= share * factor[i, k]
    for i in range(n - 1, -1, -1):
        x[i] = x[i] / factor[i, i] if factor[i, i] > 0.0 else 0.0
        share = x[i]
        if share != 0.0:
            for k in range(i):
                x[k] -= share * factor[i, k]
