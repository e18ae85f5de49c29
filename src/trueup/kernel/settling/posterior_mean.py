"""Posterior means of the tables of a parent's children under Dirichlet-multinomial splits.

Given the parent's table X, its children's totals T_c are split by a Dirichlet-multinomial law with concentration `a`, and
each child's cells given its total spread around the parent's composition `p = X / sum X`, cell i with a concentration
`kappa_i` of its own: some groups are segregated, others are not. Cells of which the parent has none are zero,
which the children's estimates `t` of covariance V are conditioned on.

1. *Totals.* Given T the cells have mean `T p` and covariance `diag d - d d' / sum d` with
   `d_i = T p_i (T + kappa_i) / (1 + kappa_i)`; taken near the total last found, generalised least squares gives T an
   estimate and its variance. With the split's factor the law of T is
   `Gamma(T + a) / T!  N(T; estimate, variance)  exp(l T)` on 0, 1, ..., one multiplier `l` making the means add up.
2. *Cells.* Given its total a child's cells are negative binomial with shape `kappa_i p_i` and mean `T p_i`, T at its
   posterior mean. Each cell's factor is replaced by a normal one (a `site`) with the moments of its law beside the others
   (expectation propagation, Minka 2001), where a change of one site changes the child's covariance S by rank one.
   Multipliers of the cells make the means add up to the parent: an exponential tilt in place of the sum's own law. Its
   Newton step is `(sum S)^-1 (X - sum m)`, which keeps sums in the metric of the posterior's covariances.
3. *Children that stand out.* A gap that the multipliers close is chance, which falls on every child by its variance, or
   the prior's own error, which scaled prior means would mend: these hardly move a child that is r times the mean of its
   siblings', say by `w = 1 / (1 + r)`. If the error's multiplier has standard deviation `drift`, its part of the gap is
   `f = (drift sum w v)^2 / ((drift sum w v)^2 + sum v)`, v the totals' variances, and a child takes `1 - f (1 - w)` of
   each multiplier. Its cells, each drawn towards zero by its own law, move by `r^2 / (r^2 + far^2)` of what their sum
   misses of the total found in 1, which nothing draws so. A count far above its siblings then stays near its estimate, as
   limited translation keeps it (Efron and Morris 1972).

A normal site for the total in place of 1 was tried: where noise is wider than counts, it has more than one fixed point.

The concentrations are estimated from the same noisy values, parent by parent, so that the settled children of a parent
depend on nothing else: by Fisher's identity the derivatives of the log evidence are means of differences of digammas,

    d / d a       = sum_c E[psi(T_c + a) - psi(a)] - C (psi(X_+ + C a) - psi(C a)),
    d / d kappa_i = sum_c p_i (E[psi(x_ci + kappa_i p_i) - psi(kappa_i p_i)] + log(kappa_i / (kappa_i + T_c)))
                          - (E x_ci - T_c p_i) / (kappa_i + T_c),

and Newton steps between two passes bring each to zero, under lognormal hyperpriors: that of the kappa_i is around a
median of the parent's own, which is estimated with them.

One file: totals, cells and concentrations are updated in turn within each pass, on the same arrays of one parent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trueup.kernel.compiled import add_line, copy_line, copy_table, njit, row_sums
from trueup.kernel.histogram.anova import product
from trueup.kernel.messages import digamma
from trueup.kernel.settling.nearest import Metric, flat
from trueup.kernel.settling.split_draws import HYPERPRIOR, Hyperprior
from trueup.kernel.settling.two_way import entries, factorise, matrix_entry, solve_factored

PASSES = 8  # over all sites
MAX_OPEN_CELLS = 320  # open cells of a parent up to which that is done
MAX_COVARIANCE_ENTRIES = (
    20_000_000  # entries of a parent's children's covariances up to which these are worked with
)
EXACT = 1e-8  # variance of what is known, as a share of the largest
PARENTS_A_CALL = 16  # parents that are worked on in one compiled call, so that an interruption is heard soon
TOTALS = 8  # Newton's steps for the multiplier of the totals
MIN_CHILD_TOTAL = 0.02  # total of a child that its cells' laws are taken at, at least
MIN_TOTAL_VARIANCE = 1e-3  # least variance of a total's estimate (counts squared): its law's ratios stay floating-point numbers
MIN_VARIANCE_SHARE = 1e-5  # variance of a law beside that of the normal law in it: larger ratios are rounding
SUMMED_DEVIATIONS = 7.0  # standard deviations on either side over which a law is summed
MOST_STEPS = 600  # of a sum; no window takes more where all is finite
TOTAL_POWERS_OF_FOUR = 8  # powers of four above and below the mean total at which totals are estimated
MAX_COUNTS_SUMMED_SINGLY = (
    64.0  # counts up to which a law is summed one by one; above that in steps of an eighth of its spread
)
MAX_MULTIPLIER_STEP = 1.0  # step of a multiplier, and of the log of a concentration


@njit(cache=True, error_model="numpy")
def _mode(mean, variance, alpha, beta):
    """Return the approximate mode and spread of `Gamma(x + alpha) / Gamma(x + beta) N(x; mean, variance)`."""
    x = top = max(mean, 0.0) + max(0.0, variance * math.log(alpha / beta))
    curvature = 1.0 / variance
    for _ in range(10):
        curvature = max(1.0 / variance + 1.0 / (x + beta) - 1.0 / (x + alpha), 0.2 / variance)
        step = ((mean - x) / variance + math.log((x + alpha) / (x + beta))) / curvature
        x = min(max(x + step, 0.0), top)
        if abs(step) * curvature * variance < 0.1 * math.sqrt(variance):
            break
    return x, 1.0 / math.sqrt(curvature)


@njit(cache=True, error_model="numpy")
def _trigammas(x, b):
    """Return the sum `sum_{j < x} 1 / (b + j)^2`, by the Euler-Maclaurin formula from term 64 on."""
    total, j = 0.0, 0.0
    while j < min(x, 64.0):
        total += 1.0 / ((b + j) * (b + j))
        j += 1.0
    if x > j:
        total += 1.0 / (b + j - 0.5) - 1.0 / (b + x - 0.5)
    return total


@njit(cache=True, error_model="numpy")
def ratio_moments(mean, variance, alpha, beta):
    """Return mean and variance of the law `Gamma(x + alpha) / Gamma(x + beta) N(x; mean, variance)` on 0, 1, 2, ...

    And the means of `psi(x + alpha) - psi(alpha)` and of minus its derivative by alpha. From 64 up the sum runs in steps
    of an eighth of the law's spread.

    Examples
    --------
    >>> mean, variance, _ = ratio_moments(0.0, 1.0, 1.0, 1.0)  # a normal law on 0, 1, 2, ...
    >>> round(mean, 3), round(variance, 3)
    (0.52, 0.444)
    """
    mode, spread = _mode(mean, variance, alpha, beta)
    x = float(math.floor(max(mode - SUMMED_DEVIATIONS * spread, 0.0)))
    last = math.ceil(mode + SUMMED_DEVIATIONS * spread) + 2.0
    first = x
    rise = digamma(x + alpha) - digamma(alpha) if x > 0.0 else 0.0
    fall = _trigammas(x, alpha)
    stride = max(1.0, math.floor(spread / 8.0))
    p, top, total, one, two = 1.0, 1.0, 1.0, 0.0, 0.0
    mean_rise, mean_fall = rise, fall
    for _ in range(MOST_STEPS):
        if not x < last:
            break
        if x < MAX_COUNTS_SUMMED_SINGLY or stride == 1.0:
            h, weight = 1.0, 1.0
            log = math.log((x + alpha) / (x + beta))
            rise += 1.0 / (x + alpha)
            fall += 1.0 / ((x + alpha) * (x + alpha))
        else:
            h, weight = stride, stride
            middle = x + 0.5 * h - 0.5
            log = h * math.log((middle + alpha) / (middle + beta))
            rise += math.log((x + h + alpha - 0.5) / (x + alpha - 0.5))
            fall += h / ((x + alpha) * (x + h + alpha))
        ratio = math.exp(log + h * (mean - x - 0.5 * h) / variance)
        p *= ratio
        x += h
        if x == MAX_COUNTS_SUMMED_SINGLY and stride > 1.0:  # half a step before it, half a long one after
            weight = 0.5 + 0.5 * stride
        k, mass = x - first, p * weight
        total += mass
        one += mass * k
        two += mass * k * k
        mean_rise += mass * rise
        mean_fall += mass * fall
        top = max(top, p)
        if p > 1e200:
            scale = 1e-200
            p, top, total, one, two = p * scale, top * scale, total * scale, one * scale, two * scale
            mean_rise, mean_fall = mean_rise * scale, mean_fall * scale
        if p < 1e-11 * top and ratio < 1.0:
            break
    average = one / total
    spread2 = max(two / total - average * average, MIN_VARIANCE_SHARE * variance)
    return first + average, spread2, (mean_rise / total, mean_fall / total)


@njit(cache=True, error_model="numpy")
def _include(s, m, column, variance, tau, nu, at):
    """Update a child's covariance and mean for a changed precision and shift of one cell's site."""
    k = 1.0 / (1.0 + tau * variance)
    shift = k * (nu - tau * at)
    for i in range(m.size):
        m[i] += shift * column[i]
        factor = k * tau * column[i]
        row = s[i]
        for j in range(m.size):
            row[j] -= factor * column[j]


@njit(cache=True, error_model="numpy")
def _site(variance, mean, tau, nu, alpha):
    """Return a site's new precision and shift, and posterior means of the derivatives of its factor."""
    free = 1.0 / variance - tau
    if free <= 0.0:
        return tau, nu, (0.0, 0.0)
    around = (mean / variance - nu) / free
    m, v, rises = ratio_moments(around, 1.0 / free, alpha, 1.0)
    new = max(1.0 / v - free, 0.0)
    return new, m * (free + new) - around * free, rises


@njit(cache=True, error_model="numpy")
def _invert(q):
    """Invert a positive definite matrix in place by sweeping its diagonal."""
    n = q.shape[0]
    for k in range(n):
        d = q[k, k]
        column = q[k].copy()
        for i in range(n):
            if i != k:
                f = column[i] / d
                row = q[i]
                for j in range(n):
                    row[j] -= f * column[j]
                row[k] = f
        for j in range(n):
            q[k, j] = column[j] / d
        q[k, k] = -1.0 / d
    for i in range(n):
        for j in range(n):
            q[i, j] = -q[i, j]


@njit(cache=True, error_model="numpy")
def _covariance(cells, q, components, form):
    """Return the covariance of the open cells, given that all other cells are zero."""
    f = cells.size
    out = np.empty((f, f))
    for i in range(f):
        for j in range(i + 1):
            out[i, j] = out[j, i] = matrix_entry(cells[i], cells[j], q, components, form)
    _invert(out)
    return out


@njit(cache=True, error_model="numpy")
def _begin(base, pull, tau, nu, s, m):
    """Compute a child's covariance `s` and mean `m` from its estimates and the sites of its cells."""
    n = m.size
    copy_table(s, base)
    copy_line(m, base @ pull)
    for i in range(n):
        if tau[i] != 0.0 or nu[i] != 0.0:
            _include(s, m, s[i].copy(), s[i, i], tau[i], nu[i], m[i])


@njit(cache=True, error_model="numpy")
def _propagate(s, m, tau, nu, shares, size, kappa, evidence):
    """Update each cell's site of a child once, and add the derivatives of the log evidence."""
    for i in range(m.size):
        if s[i, i] <= 1e-9:
            continue
        k, p = kappa[i], shares[i]
        new, shift, rises = _site(s[i, i], m[i], tau[i], nu[i], k * p)
        excess = m[i] - size * p
        evidence[0, i] += p * (rises[0] + math.log(k / (k + size))) - excess / (k + size)
        evidence[1, i] += p * p * rises[1] - p * size / (k * (k + size)) - excess / (k + size) ** 2
        _include(s, m, s[i].copy(), s[i, i], new - tau[i], shift - nu[i], m[i])
        tau[i], nu[i] = new, shift


@njit(cache=True, error_model="numpy")
def total_weights(base, shares, spread):
    """Return weights (cells,) and precision of the best linear estimate of a child's total from its cells.

    With `W = (base + diag d)^-1` the inverse of y's covariance is `W + W d d'W / s`, `s = sum d - d'W d`. That difference of
    numbers as large as the total's square is `d'W base 1`, which no cancellation spoils.
    """
    inverse = base.copy()
    for i in range(shares.size):
        inverse[i, i] += spread[i]
    _invert(inverse)
    along = inverse @ spread
    own = max(along @ row_sums(base), MIN_TOTAL_VARIANCE)
    weights = inverse @ shares + along * ((along @ shares) / own)
    precision = max(weights @ shares, 1e-9)
    return weights / precision, precision


@njit(cache=True, error_model="numpy")
def _totals(estimates, precisions, sum_, a, multiplier, weights, means, variances, evidence):
    """Compute posterior means and variances of the children's totals; return the multiplier."""
    for _ in range(TOTALS):
        evidence[:2] = 0.0
        for c in range(means.size):
            v = 1.0 / precisions[c]
            means[c], variances[c], rises = ratio_moments(
                estimates[c] + v * weights[c] * multiplier, v, a, 1.0
            )
            evidence[0] += rises[0]
            evidence[1] += rises[1]
        step = (sum_ - means.sum()) / (weights @ variances)
        multiplier += min(max(step, -MAX_MULTIPLIER_STEP), MAX_MULTIPLIER_STEP)
        if abs(step) < 1e-6:
            break
    return multiplier


@njit(cache=True, error_model="numpy")
def _raised(value, slope, fall, median, spread):
    """Return a concentration after one Newton step in its log."""
    held = 1.0 / (spread * spread)
    up = value * slope - (math.log(value) - math.log(median)) * held
    bend = value * value * fall - value * slope + held
    step = up / bend if bend > 0.0 else math.copysign(MAX_MULTIPLIER_STEP, up)
    return value * math.exp(min(max(step, -MAX_MULTIPLIER_STEP), MAX_MULTIPLIER_STEP))


@njit(cache=True, error_model="numpy")
def _estimate(bases, gradient, shares, there, sizes, kappa, estimates, precisions):
    """Compute generalised least-squares estimates of children's totals from estimates of their cells."""
    weights, precision = (
        np.empty((2 * TOTAL_POWERS_OF_FOUR + 1, shares.size)),
        np.zeros(2 * TOTAL_POWERS_OF_FOUR + 1),
    )
    for c in range(estimates.size):
        base = bases[c % len(bases)]
        k = round(math.log(max(sizes[c], MIN_CHILD_TOTAL) / there) / math.log(4.0))
        k = min(max(k, -TOTAL_POWERS_OF_FOUR), TOTAL_POWERS_OF_FOUR)  # below zero: from the end
        if precision[k] == 0.0 or len(bases) > 1:
            size = there * 4.0**k
            found = total_weights(base, shares, size * shares * (size + kappa) / (1.0 + kappa))
            copy_line(weights[k], found[0])
            precision[k] = found[1]
        estimates[c], precisions[c] = (base @ weights[k]) @ gradient[c], precision[k]


@njit(cache=True, error_model="numpy")
def _bounded(x, most):
    for i in range(x.size):
        x[i] = min(max(x[i], -most), most)


@njit(cache=True, error_model="numpy")
def _stand_out(sizes, variances, total, drift, times, weights):
    """Compute each child's total relative to its siblings, and the child's share of the multipliers."""
    moved = 0.0
    for c in range(sizes.size):
        times[c] = sizes[c] * (sizes.size - 1) / max(total - sizes[c], 1.0)
        moved += drift * variances[c] / (1.0 + times[c])
    error = moved * moved / (moved * moved + variances.sum())
    for c in range(sizes.size):
        weights[c] = 1.0 - error * times[c] / (1.0 + times[c])


@njit(cache=True, error_model="numpy")
def _hold(s, m, size, times, far):
    """Move a child's cells towards the sum `size`, in proportion to their covariances with the sum."""
    along = row_sums(s)
    whole = along.sum()
    if whole > 0.0:
        m += along * ((size - m.sum()) / whole * times**2 / (times**2 + far**2))


@njit(cache=True, error_model="numpy")
def _learn(a, children, total, evidence, hyper):
    """Return the concentration of the totals after one Newton step from posterior means."""
    parts = children * a
    slope = evidence[0] - children * (digamma(total + parts) - digamma(parts))
    fall = evidence[1] - children * children * _trigammas(total, parts)
    return _raised(a, slope, fall, hyper.a, hyper.a_spread)


@njit(cache=True, error_model="numpy")
def _learn_cells(kappa, common, slopes, hyper):
    """Update the concentration of each cell by one step, and return their median.

    One Newton step in all logs, `d_i = log kappa_i - log common` normal: with slope g_i and curvature h_i by log kappa_i
    and w = 1 / spread^2, the best d_i given the median's step leave it a slope of `(g_i + h_i d_i) w / (h_i + w)` and a
    curvature of `h_i w / (h_i + w)`.
    """
    w, held = 1.0 / hyper.cell_spread**2, 1.0 / hyper.kappa_spread**2
    apart = np.log(kappa / common)
    g = kappa * slopes[0]
    h = np.maximum(kappa * (kappa * slopes[1] - slopes[0]), 0.0)
    up = held * math.log(hyper.kappa / common) + ((g + h * apart) * w / (h + w)).sum()
    move = up / (held + (h * w / (h + w)).sum())
    move = min(max(move, -MAX_MULTIPLIER_STEP), MAX_MULTIPLIER_STEP)
    steps = (g + w * (move - apart)) / (h + w)
    _bounded(steps, MAX_MULTIPLIER_STEP)
    kappa *= np.exp(steps)
    return common * math.exp(move)


@njit(cache=True, error_model="numpy")
def _subtract_child(mean, weight, s, left, metric):
    """Subtract a child's means from the parent's remaining sums, and add the child's covariance."""
    for i in range(left.size):
        left[i] -= mean[i]
        for j in range(left.size):
            metric[i, j] += weight * s[i, j]


@njit(cache=True, error_model="numpy")
def _share_left(s, weights, left, means, variances):
    """Divide what remains of the parent's cells among the children, and write the cells' variances."""
    for c in range(means.shape[0]):
        moved = s[c] @ left
        for i in range(left.size):
            means[c, i] += weights[c] * moved[i]
            variances[c, i] = s[c, i, i]


@njit(cache=True, error_model="numpy")
def _move_sites(sizes, kappa, before, nu, leans):
    """Shift every cell's site by the change of tilt that the cell's new concentration causes."""
    for c in range(nu.shape[0]):
        size = max(sizes[c], MIN_CHILD_TOTAL)
        for i in range(nu.shape[1]):
            offset = math.log((size + kappa[i]) / (size + before[i]))
            nu[c, i] += offset
            leans[c, i] -= offset


@njit(cache=True, error_model="numpy", inline="always")
def _parent(cells, sums, gradient, q, components, form, hyper, means, variances, spreads):
    """Compute posterior means and variances of the cells of a parent's children; return concentrations."""
    children, n = gradient.shape
    if children == 1:
        copy_line(means[0], sums)
        variances[0], spreads[0] = 1.0, 1.0
        return 1.0 * hyper.a, 1.0 * hyper.kappa
    total, shares = 0.0, np.empty(n)
    for i in range(n):
        total += sums[i]
    for i in range(n):
        shares[i] = sums[i] / total
    bases = np.empty((q.shape[0], n, n))
    for c in range(len(bases)):
        copy_table(bases[c], _covariance(cells, q[c], components, form))
    s, tau, nu = np.empty((children, n, n)), np.zeros((children, n)), np.zeros((children, n))
    left, metric, lean, fall = np.empty(n), np.empty((n, n)), np.empty(n), np.empty(n)
    a, kappa, evidence, slopes = hyper.a, np.full(n, hyper.kappa), np.zeros(2), np.empty((2, n))
    estimates, precisions = np.empty(children), np.empty(children)
    sizes, times, weights = np.full(children, total / children), np.empty(children), np.ones(children)
    leans, tilt = np.zeros((children, n)), 0.0
    common = 1.0 * hyper.kappa
    for step in range(PASSES + 1):
        _estimate(bases, gradient, shares, total / children, sizes, kappa, estimates, precisions)
        tilt = _totals(estimates, precisions, total, a, tilt, weights, sizes, spreads, evidence)
        for c in range(children):
            if not 0.0 <= sizes[c] < np.inf:
                means[:] = np.nan
                return a, common
        _stand_out(sizes, spreads, total, hyper.drift, times, weights)
        slopes[:] = 0.0
        copy_line(left, sums)
        metric[:] = 0.0
        for c in range(children):
            size = max(sizes[c], MIN_CHILD_TOTAL)
            for i in range(n):
                lean[i] = math.log(size / (size + kappa[i]))
                fall[i] = lean[i] - leans[c, i]
                leans[c, i] = lean[i]
            if step == 0:
                for i in range(n):
                    nu[c, i] = -lean[i]
                add_line(lean, gradient[c])
                _begin(bases[c % len(bases)], lean, tau[c], nu[c], s[c], means[c])
            else:
                add_line(means[c], s[c] @ fall)
            _propagate(s[c], means[c], tau[c], nu[c], shares, size, kappa, slopes)
            if step == PASSES:
                _hold(s[c], means[c], sizes[c], times[c], hyper.far)
            _subtract_child(means[c], weights[c], s[c], left, metric)
        factorise(metric)
        solve_factored(metric, left)
        if step < PASSES:
            _bounded(left, MAX_MULTIPLIER_STEP)
        _share_left(s, weights, left, means, variances)
        if 1 <= step < PASSES:
            before = kappa.copy()
            a = _learn(a, children, total, evidence, hyper)
            common = _learn_cells(kappa, common, slopes, hyper)
            _move_sites(sizes, kappa, before, nu, leans)
    return a, common


@njit(cache=True)
def _finite(m, v):
    total = 0.0
    for c in range(m.shape[0]):
        for i in range(m.shape[1]):
            total += m[c, i] + v[c, i]
    return abs(total) < np.inf


class _Means(NamedTuple):
    """Posterior means and variances of cells (rows, n), and concentrations (parents, 2)."""

    means: np.ndarray
    variances: np.ndarray
    spreads: np.ndarray
    found: np.ndarray


@njit(cache=True, error_model="numpy")
def _parents(sums, open_, gradient, q, components, form, first, hyper, out):
    """Write the posterior means of the children of every parent to `out`."""
    means, variances, spreads, found = out
    for p in range(first.size - 1):
        cells, row, children = np.flatnonzero(open_[p]), first[p], first[p + 1] - first[p]
        if cells.size == 0:
            found[p, 0], found[p, 1] = hyper.a, hyper.kappa
            continue
        if cells.size > MAX_OPEN_CELLS or children * cells.size * cells.size > MAX_COVARIANCE_ENTRIES:
            continue
        table, total = np.empty((children, cells.size)), np.empty(cells.size)
        for i in range(cells.size):
            total[i] = sums[p, cells[i]]
            for c in range(children):
                table[c, i] = gradient[row + c, cells[i]]
        m, v, spread = np.empty(table.shape), np.empty(table.shape), np.empty(children)
        own = q if q.shape[0] == 1 else q[first[p] : first[p + 1]]
        learnt = _parent(cells, total, table, own, components, form, hyper, m, v, spread)
        found[p, 0], found[p, 1] = learnt
        if not _finite(m, v):
            found[p] = np.nan
            continue
        for c in range(children):
            spreads[row + c] = spread[c]
            for i in range(cells.size):
                means[row + c, cells[i]] = m[c, i]
                variances[row + c, cells[i]] = v[c, i]


def posterior_means(
    metric: Metric, tables: np.ndarray, sums: np.ndarray, hyper: Hyperprior = HYPERPRIOR
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the posterior means of the tables of every parent's children.

    Parameters
    ----------
    metric : covariances of the children, and which children share a parent
    tables : (rows, n) the children's estimates
    sums : (parents, n) the parents' tables; where they are zero so are the children
    hyper : hyperprior of the concentrations

    Returns
    -------
    (rows, n) means and variances; every parent's concentrations (parents, 2), a and the median kappa: NaN, and no means, for
    parents with more than 320 open cells; (rows,) variances of the totals, before they are held to their sum as the cells' are

    Examples
    --------
    >>> from trueup.kernel.histogram.anova import Domain
    >>> from trueup.kernel.histogram import identity
    >>> metric = Metric(Domain.of([(identity(2),)]), (np.full((1, 1, 1), 4.0),) * 2, np.array([0]), 3)
    >>> tables = np.array([[9.0, 0.0], [1.0, 1.0], [-2.0, 1.0]])
    >>> posterior_means(metric, tables, np.array([[8.0, 0.0]]))[0].round(1) + 0.0
    array([[7.6, 0. ],
           [0.3, 0. ],
           [0.1, 0. ]])
    """
    q, largest = [], max(float(np.abs(v).max(initial=0.0)) for v in metric.variances)
    coefficients = metric.domain.forward(tables)
    for component, v in zip(metric.domain.components, metric.variances, strict=True):
        block = np.linalg.inv(v + EXACT * largest * np.eye(v.shape[-1]))
        part = component.view(coefficients)
        part[...] = product(block, part)
        q.append(block)
    means, variances, spreads = np.zeros(tables.shape), np.zeros(tables.shape), np.zeros(len(tables))
    found = np.full((metric.first.size, 2), np.nan)
    gradient, form = metric.domain.backward(coefficients), entries(metric.domain)
    sums, blocks, first = np.asarray(sums, float), flat(q), np.append(metric.first, metric.rows)
    for i in range(0, metric.first.size, PARENTS_A_CALL):
        some = slice(i, i + PARENTS_A_CALL)
        _parents(
            sums[some],
            sums[some] > 0,
            gradient,
            blocks,
            metric.components,
            form,
            first[i : i + PARENTS_A_CALL + 1],
            hyper,
            _Means(means, variances, spreads, found[some]),
        )
    return means, variances, found, spreads
