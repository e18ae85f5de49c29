"""The projection of `kernel.nearest` where most cells can only be zero: small dense systems on the others.

Below a settled place nearly all cells are zero: of its own table, or of a child's coarser counts. With `u` the cells of
the children that are open, `H = Q_FF` the precision between a child's open cells, `R u = r` its coarser counts and
`E u` what it adds to the parent's cells,

    minimise  sum_c 1/2 u_c' H_c u_c - g_c' u_c   over   R_c u_c = r_c,  sum_c E_c u_c = x_p,  u >= 0,  g = (Q t)_F.

With `P_c` the inverse of H_c conditioned on R_c, and `l` the multipliers of `u >= 0`, again `u = u_0 + W l`, `W` being
`P - P E' (sum E P E')^- E P`; the same accelerated steps end sooner, since a conditional covariance is better
conditioned than the whole, and cost as much as the open cells squared instead of as all cells.

Entries of the precision come from its components: between cells k and l, on every axis the projection on contrasts or
the product of the two codes' weights in their atoms' means.

One file: it is one compiled projection, whose steps share the factors of a parent's dense systems.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.node_filter import product
from trueup.kernel.settling.nearest import Metric, flat, tolerance_for

MOST = 256  # open cells of a child up to which this pays
ROOM = 8_000_000  # entries of a parent's systems, all children together, that are held at once
RANK = 1e-10  # variances below this share of the largest count as none
BATCH = 8  # iterations between two checks of convergence


def entries(domain: Domain) -> tuple[np.ndarray, ...]:
    """What `_precision` needs of a domain: codes of the cells, weights and contrasts of the axes, the components."""
    k, size = len(domain.axes), max(domain.sizes)
    weight, contrast = np.zeros((k, size)), np.zeros((k, size, size))
    atom = np.zeros((k, size), np.int64)
    for i, axis in enumerate(domain.axes):
        for a, members in enumerate(axis.members):
            atom[i, members], weight[i, members] = a, members.size**-0.5
            contrast[i][np.ix_(members, members)] = np.eye(members.size) - 1.0 / members.size
    codes = np.ascontiguousarray(np.indices(domain.sizes).reshape(k, -1).T)
    kinds = np.array([c.contrast for c in domain.components], np.bool_).reshape(-1, k)
    atoms = np.array([a.atoms for a in domain.axes])
    return codes, weight, contrast, atom, atoms, kinds


@njit(cache=True)
def _precision(one, other, q, components, form):
    """Entry of the precision between two cells."""
    codes, weight, contrast, atom, atoms, kinds = form
    total = 0.0
    for c in range(components.shape[0]):
        factor, i, j = 1.0, 0, 0
        for axis in range(kinds.shape[1]):
            k, l_ = codes[one, axis], codes[other, axis]
            if kinds[c, axis]:
                factor *= contrast[axis, k, l_]
                if factor == 0.0:
                    break
            else:
                factor *= weight[axis, k] * weight[axis, l_]
                i = i * atoms[axis] + atom[axis, k]
                j = j * atoms[axis] + atom[axis, l_]
        if factor != 0.0:
            total += factor * q[components[c, 3] + i * components[c, 1] + j]
    return total


@njit(cache=True)
def _factor(a):
    """Cholesky factor U (upper, in place, and U' below) of a positive semidefinite matrix; tiny pivots are left out.

    Rows at a time, here and in `_solve`: sums along a row have a fixed order that no processor may take four at a time,
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
def _solve(factor, x):
    """Solve in place with a factor of `_factor`; left-out unknowns are zero."""
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


@njit(cache=True)
def _conditional(cells, gradient, q, families, counts, components, form):
    """A child's conditional covariance P (f, f) and mean given its coarser counts; False if its precision is singular."""
    f = cells.size
    precision = np.empty((f, f))
    for i in range(f):
        for j in range(i + 1):
            precision[i, j] = precision[j, i] = _precision(cells[i], cells[j], q, components, form)
    scale = np.trace(precision) / f
    for i in range(f):
        for j in range(f):
            if families[cells[i]] == families[cells[j]]:
                precision[i, j] += scale  # (R u - r)^2 is zero where it matters
    mean = np.empty(f)
    for i in range(f):
        mean[i] = gradient[cells[i]] + scale * counts[families[cells[i]]]
    _factor(precision)
    covariance = np.eye(f)
    for i in range(f):
        if precision[i, i] == 0.0:
            return False, covariance, mean
        _solve(precision, covariance[i])
    _solve(precision, mean)
    own = np.unique(families[cells])
    place = np.searchsorted(own, families[cells])
    through, inner = np.zeros((own.size, f)), np.zeros((own.size, own.size))
    gap = np.empty(own.size)
    for r in range(own.size):
        gap[r] = counts[own[r]]
    for i in range(f):
        gap[place[i]] -= mean[i]
        for j in range(f):
            through[place[i], j] += covariance[i, j]
    for r in range(own.size):
        for i in range(f):
            inner[r, place[i]] += through[r, i]
    _factor(inner)
    _solve(inner, gap)
    for i in range(f):
        for r in range(own.size):
            mean[i] += through[r, i] * gap[r]
    for i in range(f):
        price = through[:, i].copy()
        _solve(inner, price)
        for r in range(own.size):
            for j in range(f):
                covariance[i, j] -= price[r] * through[r, j]
    return True, covariance, mean


@njit(cache=True)
def _apply(covariance, x, f, result, sign):
    """Add a multiple of the product of a symmetric matrix (f, f), flat, and a vector, most of which may be zero."""
    for j in range(f):
        share = sign * x[j]
        if share != 0.0:
            row = covariance[j * f : (j + 1) * f]
            for i in range(f):
                result[i] += share * row[i]


@njit(cache=True)
def _change(multipliers, first, column, covariances, starts, factor, result, moved, price):
    """`W l` of one parent's children; an empty `factor` if they need not add up."""
    moved[:] = 0.0
    result[:] = 0.0
    for c in range(first.size - 1):
        f, own = first[c + 1] - first[c], slice(first[c], first[c + 1])
        _apply(covariances[starts[c] : starts[c + 1]], multipliers[own], f, result[own], 1.0)
        for i in range(first[c], first[c + 1]):
            moved[column[i]] += result[i]
    if factor.size == 0:
        return
    _solve(factor, moved)
    for i in range(column.size):
        price[i] = moved[column[i]]
    for c in range(first.size - 1):
        f, own = first[c + 1] - first[c], slice(first[c], first[c + 1])
        _apply(covariances[starts[c] : starts[c + 1]], price[own], f, result[own], -1.0)


@njit(cache=True)
def _project(held, gradient, q, families, counts, sums, tied, components, form, tolerance, limit, x):
    """One parent's children; returns the residual (infinite if a precision is singular) and the iterations."""
    children, n = held.shape
    first, starts = np.zeros(children + 1, np.int64), np.zeros(children + 1, np.int64)
    for c in range(children):
        f = n - held[c].sum()
        first[c + 1], starts[c + 1] = first[c] + f, starts[c] + f * f
    size = first[children]
    cell, column = np.empty(size, np.int64), np.empty(size, np.int64)
    covariances, base, step = np.empty(starts[children]), np.empty(size), np.empty(size)
    position = np.full(n, -1)
    columns = 0
    for c in range(children):
        cells = np.flatnonzero(~held[c])
        for i in range(cells.size):
            if position[cells[i]] < 0:
                position[cells[i]] = columns
                columns += 1
            cell[first[c] + i], column[first[c] + i] = cells[i], position[cells[i]]
        if cells.size == 0:
            continue
        good, covariance, mean = _conditional(
            cells, gradient[c], q[c % q.shape[0]], families, counts[c], components, form
        )
        if not good:
            return np.inf, 0
        covariances[starts[c] : starts[c + 1]] = covariance.ravel()
        base[first[c] : first[c + 1]] = mean
        largest = np.abs(covariance).sum(axis=1).max()
        step[first[c] : first[c + 1]] = 1.0 / largest if largest > 0.0 else 0.0
    factor, moved = np.zeros((0, 0)), np.zeros(columns)
    result, price = np.empty(size), np.empty(size)
    if tied:
        factor = np.zeros((columns, columns))
        for c in range(children):
            f = first[c + 1] - first[c]
            for i in range(f):
                for j in range(f):
                    factor[column[first[c] + i], column[first[c] + j]] += covariances[starts[c] + i * f + j]
        _factor(factor)
        for k in range(n):
            if position[k] >= 0:
                moved[position[k]] = sums[k]
        for i in range(size):
            moved[column[i]] -= base[i]
        _solve(factor, moved)
        for i in range(size):
            price[i] = moved[column[i]]
        for c in range(children):
            f, own = first[c + 1] - first[c], slice(first[c], first[c + 1])
            _apply(covariances[starts[c] : starts[c + 1]], price[own], f, base[own], 1.0)
    u, before = base.copy(), base.copy()
    multipliers, last = np.zeros(size), np.zeros(size)
    momentum, iteration, residual = 1.0, 0, 0.0
    for i in range(size):
        residual = max(residual, -u[i]) if u[i] == u[i] else np.inf
    while tolerance < residual < np.inf and iteration < limit:
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = (momentum - 1.0) / following
        uphill = 0.0
        for i in range(size):
            old, y = multipliers[i], u[i]
            point = y + ahead * (y - before[i])
            new = max(old + ahead * (old - last[i]) - step[i] * point, 0.0)
            uphill += point * (new - old)
            last[i], before[i], multipliers[i] = old, y, new
        momentum = 1.0 if uphill > 0.0 else following
        _change(multipliers, first, column, covariances, starts, factor, result, moved, price)
        for i in range(size):
            u[i] = base[i] + result[i]
        iteration += 1
        if iteration % BATCH == 0:
            residual = 0.0
            for i in range(size):
                scaled = multipliers[i] / step[i] if step[i] > 0.0 else 0.0
                residual = max(residual, abs(min(u[i], scaled))) if u[i] == u[i] else np.inf
    x[:] = 0.0
    for c in range(children):
        for i in range(first[c], first[c + 1]):
            x[c, cell[i]] = u[i]
    for k in range(n if tied else 0):  # what no step can mend: sums that the open cells do not reach
        total = sums[k]
        for c in range(children):
            total -= x[c, k]
        residual = max(residual, abs(total)) if total == total else np.inf
    return residual, iteration


@njit(cache=True)
def _project_all(
    held, gradient, q, families, counts, first, sums, tied, components, form, tolerance, limit, x
):
    residuals, iterations = np.zeros(first.size - 1), 0
    for p in range(first.size - 1):
        rows = slice(first[p], first[p + 1])
        own = q if q.shape[0] == 1 else q[rows]
        residuals[p], steps = _project(
            held[rows],
            gradient[rows],
            own,
            families,
            counts[rows],
            sums[p],
            tied,
            components,
            form,
            tolerance,
            limit,
            x[rows],
        )
        iterations = max(iterations, steps)
    return residuals, iterations


def precisions(variances: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Inverses (rows or 1, D, D) of components' covariances on their range; what is tiny beside the largest is none."""
    cutoff = RANK * max(float(np.abs(v).max(initial=0.0)) for v in variances)
    found = []
    for v in variances:
        values, vectors = np.linalg.eigh(v)
        inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > cutoff)
        found.append((vectors * inverse[:, None, :]) @ vectors.swapaxes(1, 2))
    return tuple(found)


def nearest_of_few(
    metric: Metric,
    tables: np.ndarray,
    held: np.ndarray,
    families: np.ndarray,
    counts: np.ndarray,
    sums: np.ndarray | None,
    tolerance: float,
    limit: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Nearest tables without negative cells, as `nearest_nonnegative` finds them.

    Parameters
    ----------
    metric, tables, tolerance : as there
    held : (rows, n) True where a cell can only be zero
    families, counts : (n,) the coarser cell of every cell, and (rows, families) the counts of these
    sums : (parents, n) the parents' tables, None if rows are free
    limit : most iterations

    Returns
    -------
    As there; a residual is infinite too where the open cells' precision is singular
    """
    q = precisions(metric.variances)
    domain, coefficients = metric.domain, metric.domain.forward(tables)
    for component, block in zip(domain.components, q, strict=True):
        part = component.view(coefficients)
        part[...] = product(block, part)
    x = np.empty(tables.shape)
    residuals, iterations = _project_all(
        held,
        domain.backward(coefficients),
        flat(q),
        families,
        counts.astype(float),
        np.append(metric.first, metric.rows),
        np.zeros((metric.first.size, 0)) if sums is None else sums,
        metric.tied,
        metric.components,
        entries(domain),
        tolerance_for(tables, tolerance),
        limit,
        x,
    )
    return x, residuals, iterations
