"""Counts drawn from posteriors of noisy ones, where the total was drawn given the noisy parts' sum n*.

Wang's Algorithm 1 (2020, section 3.1.1) draws each weight a_s from the posterior of its count given
the noisy one, and a summed or unmeasured total from a posterior that depends on `n* = sum n_s`. So
noisy counts do not sum out part by part: a part has a true count N, a noisy one n and a weight a,

    p(n - N) p(a - n) / P(noise <= n),

and the total a likelihood G(N, n*) of both sums. The tilt t is on the sum that G binds closer. A second
tilt, the lean, is on their difference sum N - n* and chosen once: cutting draws at zero moves the
sums apart, and G holds them together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.released.tables import Tables, Total, prior_mass

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


def tabulate_redrawn(
    pmfs: list[Reals], kind: Integers, tilt: Reals, prior: Reals | None, largest: int, lean: Reals
) -> Tables:
    """Tabulate tilted masses of parts whose noisy counts stay variables.

    Parameters
    ----------
    pmfs, kind, tilt, prior, largest
        As in `trueup.kernel.released.tables.tabulate`.
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
    """Return the likelihood of both sums given a total drawn given n*.

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
    """Sum over true counts N >= 0 of `p(n - N) e^{lean (N - n)}` times the prior, n = -w, ..., size - 1 - w."""
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
    """Sum over noisy counts of tilted masses for weights 0..size - 1, relative to `e^{tilt a}`."""
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
