"""Nearest nonnegative two-way tables with given row and column sums and per-cell variances.

    minimise  sum (y - x)^2 / v   over   sum_j y_cj = r_c (or rows free),  sum_c y_cj = k_j,  y >= 0

By the dual `y = max(0, x + v (p_c + q_j))`: every column, then every row is solved exactly (a convex piecewise linear
equation, by Newton's method from the right) in turn, which soon finds the cells that are positive; semismooth Newton
steps on all multipliers, whose system is eliminated to the columns or the rows, finish.

Small dense systems, here and in `posterior_mean`, are a covariance or precision between cells, entry by entry, and its Cholesky
factors. Entries of a matrix between cells come from a domain's components: between cells k and l, on every axis the projection
on contrasts or the product of the two codes' weights in their atoms' means.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import add_line, copy_line, copy_table, njit, row_sums
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.settling.transport import grouped

RANK = 1e-10  # pivots below this share of the largest count as none


def entries(domain: Domain) -> tuple[np.ndarray, ...]:
    """Return codes, weights, atoms and components of a domain, from which `matrix_entry` computes."""
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
    """Return one entry of a matrix over cells that is block diagonal in the components of a domain."""
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
    """Overwrite a positive semidefinite matrix by its Cholesky factor U, leaving out tiny pivots.

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
    """Solve a linear system in place with a factor from `factorise`."""
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


PRECISE = 1e-9  # counts; more where the sums are so large that double precision leaves more
LINE_SWEEPS = 4  # over lines, before each Newton step
MAX_NEWTON_STEPS = 1000  # few tables need more than ten; the sweeps alone would do, slowly


@njit(cache=True)
def _line(x, v, others, target):
    """Return the multiplier u of one row or column at which its sum equals the target."""
    near, at = np.inf, -1
    for i in range(x.size):
        if v[i] > 0.0 and -x[i] / v[i] - others[i] < near:
            near, at = -x[i] / v[i] - others[i], i
    if at < 0:
        return 0.0
    if target <= 0.0:
        return near
    u = near + target / v[at]  # to the right of the root
    for _ in range(200):
        total, slope = -target, 0.0
        for i in range(x.size):
            value = x[i] + v[i] * (others[i] + u)
            if v[i] > 0.0 and value > 0.0:
                total += value
                slope += v[i]
        if total <= 1e-13 * target or slope == 0.0:
            break
        u -= total / slope
    return u


@njit(cache=True)
def _dual_table(x, v, p, q, y):
    """Compute the table `y` at given multipliers, and return its row and column sums."""
    rows, columns = np.zeros(p.size), np.zeros(q.size)
    for i in range(p.size):
        for j in range(q.size):
            y[i, j] = max(0.0, x[i, j] + v[i, j] * (p[i] + q[j])) if v[i, j] > 0.0 else 0.0
            rows[i] += y[i, j]
            columns[j] += y[i, j]
    return rows, columns


@njit(cache=True)
def _newton(v, y, row_gap, column_gap):
    """Return a semismooth Newton step of the row and column multipliers."""
    if row_gap.size < column_gap.size:
        turned = np.ascontiguousarray(v.T), np.ascontiguousarray(y.T)
        columns, rows = _eliminated(*turned, column_gap, row_gap)
        return rows, columns
    return _eliminated(v, y, row_gap, column_gap)


@njit(cache=True)
def _eliminated(v, y, row_gap, column_gap):
    weight = np.zeros(v.shape)
    for i in range(v.shape[0]):
        for j in range(v.shape[1]):
            if y[i, j] > 0.0:
                weight[i, j] = v[i, j]
    diagonal = row_sums(weight)
    inner = np.zeros((column_gap.size, column_gap.size))
    right = column_gap.copy()
    for i in range(row_gap.size):
        for j in range(right.size):
            inner[j, j] += weight[i, j]
        if diagonal[i] > 0.0:
            for j in range(right.size):
                f = weight[i, j] / diagonal[i]
                if f > 0.0:
                    right[j] -= f * row_gap[i]
                    for k in range(right.size):
                        inner[j, k] -= f * weight[i, k]
    factorise(inner)
    solve_factored(inner, right)
    change = np.zeros(row_gap.size)
    for i in range(row_gap.size):
        if diagonal[i] > 0.0:
            change[i] = (row_gap[i] - weight[i] @ right) / diagonal[i]
    return change, right


@njit(cache=True)
def _largest_gap(sums, asked):
    """Replace sums by their differences from those wanted, and return the largest absolute difference."""
    largest = 0.0
    for i in range(sums.size):
        sums[i] = asked[i] - sums[i]
        if abs(sums[i]) > largest or sums[i] != sums[i]:
            largest = abs(sums[i])
    return largest


@njit(cache=True, inline="always")
def _block(x, v, row_sums, column_sums, y):
    """Compute the nonnegative table `y` nearest to x with given sums; return the largest error of a sum."""
    p, q = np.zeros(x.shape[0]), np.zeros(x.shape[1])
    free = row_sums.size == 0
    total, best = 0.0, np.inf
    for j in range(q.size):
        total += column_sums[j]
    tolerance = max(PRECISE, 1e-14 * total)
    for _step in range(MAX_NEWTON_STEPS):
        for _ in range(1 if free else LINE_SWEEPS):
            for j in range(q.size):
                q[j] = _line(x[:, j], v[:, j], p, column_sums[j])
            if not free:
                for i in range(p.size):
                    p[i] = _line(x[i], v[i], q, row_sums[i])
        rows, columns = _dual_table(x, v, p, q, y)
        best = _largest_gap(columns, column_sums)
        if not free:
            best = max(best, _largest_gap(rows, row_sums))
        if free or best <= tolerance:
            break
        dp, dq = _newton(v, y, rows, columns)
        add_line(dp, p)
        add_line(dq, q)
        z = np.empty(y.shape)
        rows, columns = _dual_table(x, v, dp, dq, z)
        gap = max(_largest_gap(columns, column_sums), _largest_gap(rows, row_sums))
        if gap < best:
            p, q, best = dp, dq, gap
            copy_table(y, z)
        if best <= tolerance:
            break
    return best


@njit(cache=True)
def _blocks(x, v, first, family, families, row_sums, column_sums, y):
    gaps = np.zeros(first.size - 1)
    free = row_sums.shape[0] == 0
    order, ends = grouped(family, families)
    for b in range(first.size - 1):
        for g in range(families):
            members = order[ends[g] : ends[g + 1]]
            rows = slice(first[b], first[b + 1])
            own = np.empty((first[b + 1] - first[b], members.size))
            weights, out = np.empty(own.shape), np.empty(own.shape)
            for i in range(own.shape[0]):
                for j in range(members.size):
                    own[i, j], weights[i, j] = x[first[b] + i, members[j]], v[first[b] + i, members[j]]
            sums = np.zeros(0) if free else row_sums[rows, g].copy()
            gap = _block(own, weights, sums, column_sums[b][members], out)
            gaps[b] = max(gaps[b], gap) if gap == gap else np.inf
            for j in range(members.size):
                copy_line(y[rows, members[j]], out[:, j])
    return gaps


def nearest_two_way(
    x: np.ndarray,
    variances: np.ndarray,
    first: np.ndarray,
    column_sums: np.ndarray,
    row_sums: np.ndarray | None = None,
    family: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nonnegative tables nearest to blocks of rows, with sums given for each block.

    Parameters
    ----------
    x, variances : (rows, n) arrays; cells of variance 0 are held at zero
    first : (blocks + 1,) where each block's rows start
    column_sums : (blocks, n)
    row_sums : (rows, families), or None if rows are free
    family : (n,) family of every column; all one family by default

    Returns
    -------
    (rows, n) array, and every block's largest gap of a sum (counts): above 1e-6 if no table has these sums

    Examples
    --------
    >>> x, v = np.array([[5.0, 1.0], [1.0, -2.0]]), np.ones((2, 2))
    >>> nearest_two_way(x, v, np.array([0, 2]), np.array([[6.0, 0.0]]), np.array([[4.0], [2.0]]))[0]
    array([[4., 0.],
           [2., 0.]])
    """
    family = np.zeros(x.shape[1], np.int64) if family is None else family.astype(np.int64)
    y = np.zeros(x.shape)
    gaps = _blocks(
        np.ascontiguousarray(x, dtype=float),
        np.ascontiguousarray(variances, dtype=float),
        first.astype(np.int64),
        family,
        int(family.max()) + 1,
        np.zeros((0, 0)) if row_sums is None else np.asarray(row_sums, float),
        np.asarray(column_sums, float),
        y,
    )
    return y, gaps
