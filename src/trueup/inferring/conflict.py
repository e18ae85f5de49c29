"""Contradictions between prior and measurements, found from posterior residuals of each measured margin.

Let `y = x + e` be the noisy counts of one query at one level and `r = y - E[x | everything]` their residuals, so `r =
E[e | everything]`: a mean of the noise. If the truth follows the prior, Jensen's inequality bounds every convex
function f of the residuals by the same function of the noise, `E f(r) <= E f(e)`; with `f = exp(t s)` for a convex
statistic s Markov's inequality gives

    P(s(r) >= c) <= min_t exp(-t c) E exp(t s(e)),

which is known, because the noise's law is. The statistics are the absolute value of the sum of all residuals, the sum
of their absolute values, and the largest one. All of this holds as well for the mean of any number of posterior draws
in the place of the exact one: each `y - draw` has the law of the noise. Where a bound is below `ALARM_PROBABILITY`, divided among
all statistics, the measurements are further from the posterior than they can be by chance if the truth follows the
prior: the two conflict. Under the prior that happens once in a thousand records at most. A prior that is improper has
no such truth; the same limits are applied to it.

Values that are shown because they are large have noise above zero on average. Those that a code hides count too: their noise has,
given the code and a draw of the true count, a known mean, and the means of a whole draw are those of noise that has the law.

**Parts and totals as published.** Let c = y - x be the change of each published value y of true count x, with mean m
over the values of a margin and mean square v at each of them. Were the changes of n parts and of their total
independent of each other and of where the values stand, their difference would have the mean square

    sum (v - m^2)  +  (v' - m'^2)  +  (n m - m')^2,

a prime for the total. The moments are those of the law given the true count, which the posterior's draws stand for: a rounding to
the nearest multiple leaves nothing to chance once the true count is known, and its change, over counts that are not, is what
it explains.

One file: both compare what was published with its law, by the same moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import law_of_hidden
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.records.drawn import Conflict, Drawn
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.noise.law import Law

Reals = NDArray[np.float64]
ALARM_PROBABILITY = 1e-3
"""Probability of an alarm where the truth follows the prior, at most, over all levels and statistics together."""
TABULATED_DEVIATIONS, POINTS = 60.0, 4000
"""Standard deviations up to which a law is tabulated, and about how many points."""
DRAWS = 200
"""Draws of the true counts over which the laws' variances are averaged."""


class Inconsistency(NamedTuple):
    """Differences between one published margin and the sums of a finer published margin.

    Attributes
    ----------
    total, parts
        The margins.
    compared
        Totals all of whose parts are published as numbers.
    left_out
        Totals of which some part is not shown.
    missed
        Share of them that the parts do not sum to.
    mean_square
        Mean squared difference (counts squared).
    by_law
        What the laws make of it, were all changes independent.
    """

    total: Margin
    parts: Margin
    compared: int
    left_out: int
    missed: float
    mean_square: float
    by_law: float

    @property
    def explained(self) -> float | None:
        """Return the share of the inconsistency that the laws explain, or None if nothing differs."""
        return self.by_law / self.mean_square if self.mean_square else None


def inconsistencies(measured: Measurements, posterior: Posterior) -> list[Inconsistency]:
    """Compare every published margin with the sums of every finer one.

    Parameters
    ----------
    measured
        Published tables.
    posterior
        Of their true counts, or of those in one place, whose margins are compared then.

    Examples
    --------
    See `docs/perturbed.md`.
    """
    if place := posterior.method.get("within"):
        from trueup.inferring.recast import within  # others look at the whole
        from trueup.model.constraints import Constraints

        measured = within(measured, Constraints(measured.cells, ()), place)[0]
    shown = _published_numbers(measured)
    return list(_sum_inconsistencies(measured.cells, shown, posterior))


class _Numbers(NamedTuple):
    """Published numbers `(groups,)` of a margin, NaN where none is published, and the law of each group."""

    values: NDArray[np.float64]
    laws: list[tuple[Any, NDArray[np.int64]]]


def _published_numbers(measured: Measurements) -> dict[Margin, _Numbers]:
    found: dict[Margin, _Numbers] = {}
    cells = measured.cells
    for header, values in zip(measured.headers, measured.values):
        margin = canonical(cells, header.margin)
        if margin.where or not header.law.numeric:
            continue
        held = found.setdefault(margin, _Numbers(np.full(cells.size(margin), np.nan), []))
        groups = np.arange(cells.size(margin)) if header.groups is None else header.groups
        new = np.isnan(held.values[groups])
        held.values[groups[new]] = values[new]
        held.laws.append((header.law, groups[new]))
    return found


def _sum_inconsistencies(
    cells: Cells, shown: dict[Margin, _Numbers], posterior: Posterior
) -> Iterator[Inconsistency]:
    draws = posterior.draws.reshape(-1, cells.n)[:DRAWS]
    moments = {margin: _change_moments(cells, margin, numbers, draws) for margin, numbers in shown.items()}
    for total, coarse in shown.items():
        for parts, fine in shown.items():
            if parts == total or not cells.contains(total, parts):
                continue
            group, size = cells.groups(parts, total), cells.size(total)
            differ = np.bincount(group, fine.values, size) - coarse.values
            use = np.isfinite(differ)
            if not use.any():
                continue
            one, other = moments[total], moments[parts]
            shift = np.bincount(group, minlength=size) * other.mean - one.mean
            spread = one.squares - one.mean**2 + np.bincount(group, other.squares - other.mean**2, size)
            published = np.isfinite(coarse.values)
            yield Inconsistency(
                total,
                parts,
                int(use.sum()),
                int((published & ~use).sum()),
                float((differ[use] != 0).mean()),
                float((differ[use] ** 2).mean()),
                float((spread + shift**2)[use].mean()),
            )


class _Change(NamedTuple):
    """Mean change of a margin's published values, and the mean squared change `(groups,)` of each value."""

    mean: float
    squares: NDArray[np.float64]


def _change_moments(cells: Cells, margin: Margin, numbers: _Numbers, draws: NDArray) -> _Change:
    """Return mean and squared changes that publication makes to a margin's counts, over posterior draws."""
    true = cells.sum(draws, margin)
    mean, squares = np.zeros(cells.size(margin)), np.zeros(cells.size(margin))
    for law, groups in numbers.laws:
        x = true[:, groups]
        away = np.zeros(x.shape) if law.additive else law.mean(x) - x
        mean[groups] = away.mean(axis=0)
        squares[groups] = (law.variance_at(x) + away**2).mean(axis=0)
    known = np.isfinite(numbers.values)
    return _Change(float(mean[known].mean()), squares)


def conflicts(measured: Measurements, drawn: Drawn) -> tuple[Conflict, ...] | None:
    """Return the noisy queries that the posterior contradicts, or None if no query is noisy.

    Parameters
    ----------
    measured
        The measured values with their laws.
    drawn
        The posterior made from it.
    """
    pairs = zip(measured.headers, measured.values)
    # Noise on a lattice has the law of one count given that no invariant changes: a bound of that law is none of it.
    # Perturbed values exclude what they contradict; `inconsistencies` says what their laws explain.
    checked = (pair for pair in pairs if pair[0].law.additive and not (pair[0].exact or pair[0].law.joint))
    noisy = [(header, np.asarray(values, float)) for header, values in checked]
    if not noisy:
        return None
    limit = np.log(ALARM_PROBABILITY / max(3 * len(noisy), 1))
    found = []
    for header, values in noisy:
        residuals = _residuals(measured, header, values, drawn)
        bound = min(log_bounds(header.law, residuals).values()) if len(residuals) else 0.0
        if bound < limit:
            spread = np.sqrt(np.mean(residuals**2) / header.law.variance)
            found.append(Conflict(str(header.margin), header.query, float(spread), float(bound)))
    return tuple(found)


def _residuals(measured: Measurements, header: Measured, values: Reals, drawn: Drawn) -> Reals:
    """Return the posterior mean noise of a query's values, also of values hidden for their size."""
    codes: list[tuple[Any, Any]] = [
        (other.groups, other.law)
        for other in measured.headers
        if (other.query, other.margin) == (header.query, header.margin) and law_of_hidden(other) == header.law
    ]
    if not codes:
        return values - _mean(measured, header, drawn)
    counts = measured.cells.sum(drawn.draws, canonical(measured.cells, header.margin))
    shown = counts if header.groups is None else counts[..., header.groups]
    hidden = [mean_noise(header.law, law.published, counts[..., at]) for at, law in codes]
    return np.concatenate([each.mean(axis=(0, 1)) for each in (values - shown, *hidden)])


def mean_noise(law: Law, ranges: Sequence[tuple[float, float]], counts: NDArray) -> Reals:
    """Return the mean noise on each count, given that the noisy value lies in one of the given ranges.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> mean_noise(law_named("discrete-laplace")("1"), ((-np.inf, 0),), np.array([0, 5])).round(3)
    array([-0.582, -5.582])
    """
    at, log = _tabulated(law)
    at, mass = np.concatenate([-at[:0:-1], at]), np.exp(np.concatenate([log[:0:-1], log]))
    below = np.concatenate([[0.0], np.cumsum(mass)]), np.concatenate([[0.0], np.cumsum(mass * at)])
    sums = np.zeros((2, *np.shape(counts)))
    for low, high in ranges:
        first, last = np.searchsorted(at, low - counts, "left"), np.searchsorted(at, high - counts, "right")
        sums += [each[np.maximum(last, first)] - each[first] for each in below]
    nearest = np.clip(0.0, min(low for low, _ in ranges) - counts, max(high for _, high in ranges) - counts)
    enough = sums[0] > 1e-12 * mass.sum()  # below, what is summed is lost in rounding
    return np.where(enough, sums[1] / np.where(enough, sums[0], 1.0), nearest)


def _mean(measured: Measurements, header: Measured, drawn: Drawn) -> Reals:
    """Return the posterior mean of each count that a query measured."""
    margin = canonical(measured.cells, header.margin)
    exact: Any = drawn.marginals.get(margin)
    counts = exact.mean if exact is not None else measured.cells.sum(drawn.draws.mean(axis=(0, 1)), margin)
    return counts if header.groups is None else counts[header.groups]


def log_bounds(law: Law, residuals: Reals) -> dict[str, float]:
    """Return, for each statistic, an upper bound on the log probability of residuals as large as these.

    Parameters
    ----------
    law
        Law of the noise on each count.
    residuals
        `(g,)` noisy values less posterior means (counts).

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> law = law_named("discrete-laplace")("1/10")
    >>> bounds = log_bounds(law, np.array([294.0]))
    >>> bool(bounds["largest"] < -20), log_bounds(law, np.array([3.0, -4.0]))["sum"]
    (True, 0.0)
    """
    tilts, signed, absolute = _moments(law)
    size, g = np.abs(residuals), len(residuals)
    return {
        "sum": _least(tilts, abs(float(residuals.sum())), g * signed + np.log(2.0)),
        "absolute": _least(tilts, float(size.sum()), g * absolute),
        "largest": _least(tilts, float(size.max()), absolute + np.log(g)),
    }


def _least(tilts: Reals, size: float, log_moment: Reals) -> float:
    return min(0.0, float((log_moment - tilts * size).min()))


@lru_cache(maxsize=16)
def _moments(law: Law) -> tuple[Reals, Reals, Reals]:
    """Return tilts t (per count), and upper bounds of `log E exp(t e)` and `log E exp(t |e|)` at each."""
    sd = float(np.sqrt(law.variance))
    at, log = _tabulated(law)
    step = at[1] - at[0] if len(at) > 1 else 1.0
    log = log + np.log(np.where(at == 0, step / 2, step))  # one half of a symmetric law: 0 counts for half
    falls = (log[-2] - log[-1]) / (at[-1] - at[-2]) if len(at) > 1 else np.inf
    # Of next to no noise, masses fall long before a deviation is reached.
    steepest = min(20 / sd, 0.95 * falls)
    tilts = np.geomspace(min(1e-3 / sd, 1e-3 * steepest), steepest, 200)
    total = np.logaddexp.reduce(log)
    up = _log_sum(log - total, at, tilts, falls, step)
    down = np.logaddexp.reduce(log[None] - total - tilts[:, None] * at, axis=1)
    return tilts, np.logaddexp(up, down) - np.log(2.0), up


def _tabulated(law: Law) -> tuple[Reals, Reals]:
    """Return noise values from 0 to `TABULATED_DEVIATIONS` standard deviations, and their log masses or densities."""
    sd = float(np.sqrt(law.variance))
    step = np.ceil(TABULATED_DEVIATIONS * sd / POINTS) if law.discrete else TABULATED_DEVIATIONS * sd / POINTS
    at = step * np.arange(np.ceil(TABULATED_DEVIATIONS * sd / step) + 2)
    log = law.logpmf(at)
    return at[np.isfinite(log)], log[np.isfinite(log)]


def _log_sum(log: Reals, at: Reals, tilts: Reals, falls: float, step: float) -> Reals:
    """Return logs of sums of masses times `exp(t x)` at tilts t; log-concavity bounds the tail beyond the table."""
    inner = log[None] + tilts[:, None] * at
    ratio = np.exp((tilts - falls) * step)
    return np.logaddexp(np.logaddexp.reduce(inner, axis=1), inner[:, -1] + np.log(ratio) - np.log1p(-ratio))
