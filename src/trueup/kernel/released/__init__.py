"""Likelihoods of true counts behind released counts.

Here: tables of tilted masses of one part, and of the total, behind released counts.

*Redrawn:* counts drawn from posteriors of noisy ones, where the total was drawn given the noisy parts' sum n*.
Wang's Algorithm 1 (2020, section 3.1.1) draws each weight a_s from the posterior of its count given
the noisy one, and a summed or unmeasured total from a posterior that depends on `n* = sum n_s`. So
noisy counts do not sum out part by part: a part has a true count N, a noisy one n and a weight a,

    p(n - N) p(a - n) / P(noise <= n),

and the total a likelihood G(N, n*) of both sums. The tilt t is on the sum that G binds closer. A second
tilt, the lean, is on their difference sum N - n* and chosen once: cutting draws at zero moves the
sums apart, and G holds them together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_TILTS = 32  # on either side of none


class Tables(NamedTuple):
    """Tilted masses of one part, for each tilt and each kind of part (a law and a prior).

    Attributes
    ----------
    tilt, step
        (tilts,) per count, and its exponential.
    near
        (tilts, kinds, 2 w + 1) mass of `N - a` for a positive noisy count a.
    zero
        (tilts, kinds, w + 1) mass of N for a noisy count of zero or less.
    small
        (kinds, E, C) mass of N = 0..C - 1, without the tilt, for a noisy count of 1..E; E = 0 where
        `near` holds for these as well.
    total
        (tilts, kinds, A) sums of these over N >= 0; constant from the last entry on if the prior is flat.
    prior
        (kinds, P) prior masses; an empty axis for flat.
    kind
        (n,) kind of each part.
    noise, middle, lean
        Where noisy counts n stay in play beside a (`trueup.kernel.released`): (kinds, 2 w + 1) masses of
        noise; (tilts, kinds, H) of n = -w, ..., over the mass of draws from its posterior; (tilts,) the tilt on
        N - n. Else empty.
    """

    tilt: Reals
    step: Reals
    near: Reals
    zero: Reals
    small: Reals
    total: Reals
    prior: Reals
    kind: Integers
    noise: Reals = np.zeros((1, 0))
    middle: Reals = np.zeros((1, 1, 0))
    lean: Reals = np.zeros(0)


class Total(NamedTuple):
    """The likelihood of the true total given the released one.

    `log[i]` is the log likelihood (plus log prior) at `low, low + 1, ...`: row 0 where n = m, rows
    1 and 2 where n is at least, at most m. `radius` is K, or -1 where the total ignores n*.
    `ceiling` is log M for each tilt. Where the total was drawn given n*, `joint[N - low, n* - low_sum]` stands
    for all rows (one row if it is the same for every N).
    """

    log: Reals
    low: int
    radius: int
    ceiling: Reals
    joint: Reals = np.zeros((1, 0))
    low_sum: int = 0


def released_tilts(spread: float, slowest: float) -> Reals:
    """Return the tilts to tabulate, given the total's standard deviation `spread` and the slowest decay of a law's tail."""
    largest = min(0.5 * slowest, 8.0 / spread)
    return np.linspace(-largest, largest, 2 * _TILTS + 1)


def tabulate(
    pmfs: list[Reals],
    kind: Integers,
    tilt: Reals,
    prior: Reals | None,
    largest: int,
    on_sum: bool,
    edge: list[Reals] | None = None,
) -> Tables:
    """Return the tilted masses of parts at given tilts.

    Parameters
    ----------
    pmfs
        For each kind of part the masses of its noise at 0, 1, ..., w (symmetric).
    kind
        (n,) kind of each part.
    tilt
        (tilts,) per count.
    prior
        `(kinds, P)` prior masses of each kind of part at 0, 1, ...; None for flat.
    largest
        Largest noisy count that is asked for (counts).
    on_sum
        Put the tilt on the noisy counts instead of the true ones.
    edge
        For each kind the masses `(E + 1, C)` of N = 0..C - 1 for noisy counts 0..E, where these are
        not the noise's own; the same shape for all kinds.
    """
    width = max(len(p) for p in pmfs) - 1
    padded = np.array([np.pad(p, (0, width + 1 - len(p))) for p in pmfs])
    both = np.concatenate([padded[:, :0:-1], padded], axis=1)
    j = np.arange(-width, width + 1)
    tail = np.cumsum(padded[:, ::-1], axis=1)[:, ::-1]
    n = np.arange(width + 1)
    if on_sum:
        near = np.broadcast_to(both, (tilt.size, *both.shape)).copy()
        zero = np.array([[_tilted_tail(p, t) for p in padded] for t in tilt])
    else:
        tail = tail if edge is None else np.array([e[0, : width + 1] for e in edge])
        near = both * np.exp(np.multiply.outer(tilt, j))[:, None, :]
        zero = tail * np.exp(np.multiply.outer(tilt, n))[:, None, :]
    masses = np.zeros((len(pmfs), 0)) if prior is None else prior
    small = np.zeros((len(pmfs), 0, 0)) if edge is None else np.array([e[1:] for e in edge])
    size = max(width, small.shape[1]) + 1 if prior is None else largest + 1
    total = _sums(tilt, near, zero, small, masses, size)
    return Tables(tilt, np.exp(tilt), near, zero, small, total, masses, kind)


def _tilted_tail(pmf: Reals, tilt: float) -> Reals:
    """Return the tilted mass of all noisy counts n <= 0, for each true count N = 0..w."""
    out, running = np.empty_like(pmf), 0.0
    for count in range(pmf.size - 1, -1, -1):
        running = pmf[count] + np.exp(-tilt) * running
        out[count] = running
    return out


@njit(cache=True)
def _sums(tilt, near, zero, small, prior, size):
    """Return the tilted masses of noisy counts `0..size - 1`, summed over true counts with prior weights."""
    tilts, kinds, width = zero.shape
    width -= 1
    out = np.zeros((tilts, kinds, size))
    for t in range(tilts):
        for g in range(kinds):
            for n in range(width + 1):
                out[t, g, 0] += zero[t, g, n] * prior_mass(prior, g, n)
            for a in range(1, min(small.shape[1], size - 1) + 1):
                for n in range(small.shape[2]):
                    mass = small[g, a - 1, n] * np.exp(tilt[t] * (n - a))
                    out[t, g, a] += mass * prior_mass(prior, g, n)
            for a in range(small.shape[1] + 1, size):
                for j in range(max(-a, -width), width + 1):
                    out[t, g, a] += near[t, g, j + width] * prior_mass(prior, g, a + j)
    return out


@njit(cache=True, inline="always")
def prior_mass(prior, kind, count):
    """Return the prior mass of a count, which is 1 everywhere for a flat prior."""
    if prior.shape[1] == 0:
        return 1.0
    return prior[kind, count] if count < prior.shape[1] else 0.0


@njit(cache=True)
def mass_between(tables, t, kind, low, high):
    """Return the sum of tilted masses over noisy counts low..high, relative to `e^{tilt low}`."""
    mass, step, factor = 0.0, tables.step[t], 1.0
    for a in range(low, high + 1):
        mass += noisy_mass(tables, t, kind, a) * factor
        factor *= step
    return mass


@njit(cache=True, inline="always")
def noisy_mass(tables, t, kind, a):
    """Return the tilted mass of a noisy count, relative to `e^{tilt a}`."""
    size = tables.total.shape[2]
    if a < size:
        return tables.total[t, kind, a]
    return tables.total[t, kind, size - 1] if tables.prior.shape[1] == 0 else 0.0


@njit(cache=True)
def log_total(total, true_sum, noisy_sum, m):
    """Return the log likelihood of the published total given both sums."""
    if total.joint.size > 0:
        return _log_joint(total, true_sum - total.low, noisy_sum - total.low_sum)
    row = 0
    if total.radius >= 0:
        if abs(noisy_sum - m) > total.radius:
            return -np.inf
        if total.radius == 0:
            row = 3
        elif noisy_sum == m - total.radius:
            row = 1
        elif noisy_sum == m + total.radius:
            row = 2
    at = true_sum - total.low
    return total.log[row, at] if 0 <= at < total.log.shape[1] else -np.inf


@njit(cache=True)
def _log_joint(total, i, j):
    """Return the log likelihood of the true and the noisy sum, or minus infinity beyond the table."""
    rows, columns = total.joint.shape
    i = 0 if rows == 1 else i
    return total.joint[i, j] if 0 <= i < rows and 0 <= j < columns else -np.inf


def tabulate_redrawn(
    pmfs: list[Reals], kind: Integers, tilt: Reals, prior: Reals | None, largest: int, lean: Reals
) -> Tables:
    """Tabulate tilted masses of parts whose noisy counts remain variables.

    Parameters
    ----------
    pmfs, kind, tilt, prior, largest
        The same as in `trueup.kernel.released.tabulate`.
    lean
        (tilts,) tilt on the difference of true and noisy counts that goes with each tilt on noisy ones.
    """
    width = max(len(p) for p in pmfs) - 1
    padded = np.array([np.pad(p, (0, width + 1 - len(p))) for p in pmfs])
    noise = np.concatenate([padded[:, :0:-1], padded], axis=1)
    masses = np.zeros((len(pmfs), 0)) if prior is None else prior
    noisy = np.arange(-width, (width if prior is None else largest + width) + 1)
    at_most = np.cumsum(noise, axis=1)[:, np.minimum(noisy + width, 2 * width)]
    middle = np.array([_middle(noise, masses, noisy.size, each) for each in lean])
    np.divide(middle, at_most, out=middle, where=at_most > 0)  # where a narrower law ends, both are 0
    size = 2 * width + 1 if prior is None else largest + 1
    total = _noisy_sums(noise, middle, tilt, size)
    none = np.zeros((1, 1, 1))
    return Tables(tilt, np.exp(tilt), none, none, none, total, masses, kind, noise, middle, lean)


def redrawn_total(
    log: Reals, low: int, low_sum: int, m: int, tilt: Reals, lean: float, on_noisy: bool
) -> Total:
    """Return the likelihood of the true and the noisy sum of a total that was drawn given `n*`.

    Parameters
    ----------
    log
        `(N, n*)` log likelihood from `low` and `low_sum` on; one row where it is the same for all N.
    m
        The released total (counts).
    tilt, lean
        The tilt on n* if `on_noisy`, else on the true total, and the one on their difference.
    """
    true, noisy = low + np.arange(len(log)), low_sum + np.arange(log.shape[1])
    if lean:
        log = log - lean * (true[:, None] - noisy)
    moved = noisy if on_noisy else true
    highest = log.max(axis=0 if on_noisy else 1)
    ceiling = np.array([(highest - t * (moved - m)).max() for t in tilt])
    return Total(np.zeros((1, 0)), low, 0 if on_noisy else -1, ceiling, log, low_sum)


@njit(cache=True)
def _middle(noise, prior, size, lean):
    """Return the tilted masses `(kinds, size)` of noisy counts from `-w` on, summed over true counts."""
    kinds, width = noise.shape[0], noise.shape[1] // 2
    out = np.zeros((kinds, size))
    for g in range(kinds):
        for i in range(size):
            n = i - width
            for j in range(max(-n, -width), width + 1):
                out[g, i] += noise[g, j + width] * np.exp(lean * j) * prior_mass(prior, g, n + j)
    return out


@njit(cache=True)
def _noisy_sums(noise, middle, tilt, size):
    """Return, for weights `0..size - 1`, tilted masses summed over noisy counts, relative to `e^{tilt a}`."""
    kinds, width = noise.shape[0], noise.shape[1] // 2
    out = np.zeros((tilt.size, kinds, size))
    last = middle.shape[2] - 1
    for t in range(tilt.size):
        factor = np.exp(tilt[t] * np.arange(-width, width + 1))
        for g in range(kinds):
            for a in range(size):
                for j in range(2 * width + 1):
                    out[t, g, a] += noise[g, j] * factor[j] * middle[t, g, min(a + j, last)]
    return out
