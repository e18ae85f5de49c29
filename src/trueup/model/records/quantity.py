"""One quantity of a posterior: a count, a sum over an area, a ratio, a rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.digits import ThreeLines, to_figure
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import name_mask
from trueup.model.linear import parse_sum
from trueup.model.records.drawn import (
    Columns,
    Reals,
    ends_of_sorted,
    floors_of_draws,
    interval_of_draws,
    quantile_at,
)


@dataclass(frozen=True, eq=False, repr=False)
class Quantity(ThreeLines):
    """Draws of one quantity: a count, a sum over an area, a ratio, a rank.

    Means, intervals and probabilities are conditional on the quantity being defined, as a ratio is where its denominator is
    not 0; `undefined` says how probable the opposite is.

    Attributes
    ----------
    name
        The quantity in the user's words.
    draws
        `(chains, draws)` values, NaN where undefined.
    least
        A lower limit of the quantity, NaN if none is known.

    Examples
    --------
    >>> q = Quantity("a", np.add.outer(range(10), range(10)).reshape(1, 100))
    >>> q.mean, q.interval(0.9), q.probability(below=9)
    (9.0, (2.0, 16.0, 0.94), 0.45)
    >>> q
    Quantity: a
      mean 9, 90 % interval 2 to 16
      100 draws
    >>> share = Quantity("a / b", np.array([[0.5, np.nan, 0.5, 0.25]]))
    >>> share.undefined, round(share.mean, 4)
    (0.25, 0.4167)
    """

    name: str
    draws: NDArray
    least: float = np.nan

    def _lines(self) -> tuple[str, str, str]:
        low, high, _ = self.interval()
        undefined = f"; undefined in {100 * self.undefined:.3g} % of them" if self.undefined else ""
        return (
            f"Quantity: {self.name}",
            f"mean {to_figure(self.mean)}, 90 % interval {to_figure(low)} to {to_figure(high)}",
            f"{self.draws.size:,} draws{undefined}",
        )

    @property
    def undefined(self) -> float:
        """Return the share of draws in which the quantity has no value."""
        return float(np.mean(np.isnan(self.draws)))

    @cached_property
    def _known(self) -> NDArray:
        known = self.draws[~np.isnan(self.draws)]
        return known if known.size else np.full(1, np.nan)

    @property
    def mean(self) -> float:
        """Return the posterior mean."""
        return float(self._known.mean())

    @property
    def sd(self) -> float:
        """Return the posterior standard deviation."""
        return float(self._known.std())

    @property
    def median(self) -> float:
        """Return the posterior median."""
        return float(np.quantile(self._known, 0.5, method="inverted_cdf"))

    def interval(self, level: float | str = 0.9) -> tuple[float, float, float]:
        """Return the ends of an interval and the share of draws inside it; see `interval_of_draws`."""
        low, high = interval_of_draws(self._known, level, self.least)
        return float(low), float(high), self._share((self._known >= low) & (self._known <= high))

    def probability(self, *, below: float = np.inf, above: float = -np.inf) -> float:
        """Return the share of draws that lie strictly between the limits `above` and `below`."""
        return self._share((self._known < below) & (self._known > above))

    def _share(self, holds: NDArray[np.bool_]) -> float:
        return float("nan") if np.isnan(self._known).any() else float(np.mean(holds))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums of cells at every place: `(under18 + over18) / families`.

    Without a denominator it is the sum itself.
    """

    name: str
    numerator: str
    denominator: str = ""


def quotients(above: NDArray, below: NDArray) -> Reals:
    """Return ratios of two arrays, NaN where the denominator is 0."""
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)


def describe_draws(
    draws: NDArray, level: float, *, independent: bool, ranked: bool = True, least: ArrayLike = np.nan
) -> Columns:
    """Return figures of draws `(chains, draws, k)` of `k` quantities as columns: mean, sd, interval and diagnostics.

    Parameters
    ----------
    level
        Probability of the intervals.
    independent
        True if draws are independent; otherwise they are Markov chains, whose effective sizes are estimated.
    ranked
        True if effective sizes are estimated by ranks; else they are from means of batches, which takes less memory.
    least
        Lower limits `(k,)` of the quantities, NaN if none is known; see `ends_of_sorted`.

    Returns
    -------
    Columns `mean`, `sd`, `median`, `low`, `high`, `mass`, `mcse`, `ess`, `r_hat`; see `Posterior.summary`.

    Examples
    --------
    >>> found = describe_draws(np.arange(1, 101).reshape(1, 100, 1), 0.9, independent=True, least=0)
    >>> [float(found[name][0]) for name in ("mean", "low", "high", "mass")]
    [50.5, 5.0, 95.0, 0.91]
    >>> float(describe_draws(np.full((1, 9, 1), 10 / 17), 0.9, independent=True)["sd"][0])
    0.0
    """
    flat = np.sort(np.ascontiguousarray(draws.reshape(-1, draws.shape[-1]).T), axis=1, kind="stable")
    low, high = ends_of_sorted(flat.T, level, least)
    r_hat, ess = _diagnostics(draws, independent, ranked)
    same = flat[:, 0] == flat[:, -1]  # whose sums of fractions would differ by a rounding error
    sd = np.where(same, 0.0, flat.std(axis=1))
    return {
        "mean": np.where(same, flat[:, 0], flat.mean(axis=1)),
        "sd": sd,
        "median": flat[:, quantile_at(flat.shape[1], 0.5)],
        "low": low,
        "high": high,
        "mass": ((flat >= low[:, None]) & (flat <= high[:, None])).mean(axis=1),
        "mcse": sd / np.sqrt(ess),
        "ess": ess,
        "r_hat": r_hat,
    }


def _diagnostics(draws: NDArray, independent: bool, ranked: bool) -> tuple[Reals, Reals]:
    if independent:
        return np.full(draws.shape[-1], np.nan), np.full(draws.shape[-1], float(np.prod(draws.shape[:2])))
    from trueup.kernel.statistics.diagnostics import diagnose, diagnose_means

    return diagnose(draws) if ranked else diagnose_means(draws)


def described_where_defined(
    draws: NDArray, describe: Callable[[NDArray, Any], Columns], least: ArrayLike = np.nan
) -> Columns:
    """Return figures of draws `(chains, draws, k)` with lower limits `least` `(k,)`, each from the draws that are not NaN."""
    gaps, limits = np.isnan(draws), np.broadcast_to(least, draws.shape[-1:])
    columns = describe(np.where(gaps, 0.0, draws), limits)
    for k in np.flatnonzero(gaps.any(axis=(0, 1))):
        known = [chain[~gap] for chain, gap in zip(draws[..., k], gaps[..., k])]
        shortest = min(map(len, known))
        own = (
            describe(np.array([chain[:shortest] for chain in known])[..., None], limits[k])
            if shortest
            else {}
        )
        for name, column in columns.items():
            column[k] = own[name][0] if shortest else np.nan
    return columns


Weights = tuple[Reals, Reals, float]
"""Coefficients above and below, and what is added below."""


def ratio_weights(cells: Cells, ratio: Ratio) -> Weights:
    """Return the coefficients `(n,)` of a ratio's numerator and denominator, and the constant of the denominator."""
    above = _cell_coefficients(cells, parse_sum(ratio.numerator))
    below = (
        _cell_coefficients(cells, parse_sum(ratio.denominator)) if ratio.denominator else np.zeros(len(above))
    )
    return above, below, float(not ratio.denominator)


def _cell_coefficients(cells: Cells, terms: Mapping[str, Fraction]) -> Reals:
    return np.sum([float(c) * name_mask(cells, name).ravel() for name, c in terms.items()], axis=0)


def noisy_ratio(
    cells: Cells, noisy: tuple[Reals, Reals], weights: Weights, name: str, level: float
) -> Columns:
    """Return the ratio of noisy values and its Fieller set, as columns, for every place of a level.

    Parameters
    ----------
    noisy
        Each cell's noisy value and its variance, `(n,)`.
    """
    from scipy.special import ndtri

    from trueup.kernel.statistics import fieller

    if name != cells.tree.levels[-1]:
        places = cells.tree.sizes[cells.tree.level(name)]
        none = np.full(places, np.nan)
        return {"noisy": none, "fieller": np.full(places, ""), "fieller_low": none, "fieller_high": none}
    above, below, whole = weights
    values, variances = (v.reshape(cells.shape[0], -1) for v in noisy)
    num, den = values @ above, values @ below + whole
    spread = variances @ above**2, variances @ below**2
    kind, low, high = fieller(num, den, spread, float(ndtri(0.5 + level / 2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"noisy": num / den, "fieller": kind, "fieller_low": low, "fieller_high": high}


def least_counts(
    cells: Cells, margin: Margin, spec: Any, sums: Callable[[Margin], NDArray], floors: dict[Margin, NDArray]
) -> Reals:
    """Return a lower limit of each count `(groups,)` of a margin, NaN if the spec limits counts in ways not looked into.

    A count is at least 0, and at least the floors of its parts: of the finest cells, of the same table at lower levels, and of
    the full table at its own level.

    Parameters
    ----------
    spec
        The spec, or None.
    sums
        Returns draws `(chains, draws, groups)` of a margin's counts.
    floors
        The floors that were computed before, by margin; new ones are added.
    """
    least = np.zeros(cells.size(margin))
    if limits_counts(spec):
        return np.full(least.size, np.nan)
    for part in _finer_tables(cells, margin):
        if part not in floors:
            floors[part] = floors_of_draws(sums(part))
        if floors[part].any():
            own = np.bincount(cells.groups(part, margin), floors[part], least.size)
            least = np.maximum(least, own)
    return least


def limits_counts(spec: Any) -> bool:
    """Return True if a spec may limit counts from below: by bounds, or by published values that are not noisy numbers."""
    if spec is None:
        return False
    bounded = any(bound.lower is not None for bound in spec.constraints.bounds)
    return bounded or any(not part.rule.noisy or part.codes for part in getattr(spec, "published", ()))


def _finer_tables(cells: Cells, margin: Margin) -> Iterator[Margin]:
    """Yield finer tables of which a margin's counts are sums."""
    levels = cells.tree.levels
    below = [Margin(level, margin.attributes) for level in levels[levels.index(margin.level) + 1 :]]
    full = () if cells.is_family else (Margin(margin.level, cells.finest.attributes), *below)
    for part in dict.fromkeys((*cells.finest_tables, *full)):
        if part != margin and cells.contains(margin, part):
            yield part
