"""Inputs of the hierarchical prior: public columns, two kinds of parts, and bounded totals.

A total is flat given bounds of places: see `trueup.kernel.table_walks.within_bounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.tree.whole import propagate
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import NestedTree, nest
from trueup.model.prior import Flat, Hierarchical
from trueup.model.tree import Tree

if TYPE_CHECKING:
    from trueup.kernel.table_walks.weights import Places
    from trueup.layouts.tree import TreeProblem

Reals = NDArray[np.float64]


MIN_PUBLIC_SHARE = 0.5
"""Least public share, in units of its column: a share of 0 would forbid people where the column counts none."""


class Kinds(NamedTuple):
    """Parameters of the second of two kinds of parts, as a function of the hyperparameters.

    Attributes
    ----------
    b, log_odds
        Its parameter, and the log of `q`.
    slopes
        (3, 2) derivatives of `log_odds` and of `log b` by the log of `a`, the logit of the share, and that of the ratio.
    """

    b: float
    log_odds: float
    slopes: Reals

    @classmethod
    def of(cls, log_a: float, share: float, ratio: float, mean: float) -> Kinds:
        """Return the parameters of the second kind of parts for which the mean of all parts is `mean`.

        With rho the share of the second kind, given by its logit, and `c = b / a` the ratio, given by its own,

            q = rho / (1 - rho) (1 + s)^(a - b),        s = mean / (a (1 - rho + rho c)).
        """
        a, (rho, c) = np.exp(log_a), 1 / (1 + np.exp([-share, -ratio]))
        weight = 1 - rho + rho * c
        s = mean / (a * weight)
        log, less = np.log1p(s), s / (1 + s)
        slopes = np.array(
            [
                [a * (1 - c) * (log - less), 1.0],
                [1 + a * (1 - c) ** 2 * less / weight * rho * (1 - rho), 0.0],
                [-a * c * (log + (1 - c) * rho * less / weight) * (1 - c), 1 - c],
            ]
        )
        return cls(float(a * c), float(share + a * (1 - c) * log), slopes)


def column_name(given: str | tuple[float, ...]) -> str:
    """Return words for an input of the prior in errors: the name of a column, or given numbers."""
    return f"column '{given}'" if isinstance(given, str) else "numbers that were given"


def public_column(given: str | tuple[float, ...], nested: NestedTree) -> Reals:
    """Return public numbers for the finest cells, as given or from a column of the list of places."""
    cells = nested.cells
    if not isinstance(given, str):
        if len(given) != cells.n:
            raise SpecError(
                f"the prior has {len(given)} values", needed=f"one value for each of {cells.n} cells"
            )
        return np.asarray(given, float)
    held = cells.tree.limits[-1] if cells.tree.limits else {}
    if given not in held:
        raise SpecError(
            f"the prior names the column '{given}', but the public list of places was read without it",
            needed="a list of places that is read with this spec and has that column",
        )
    missing = np.isnan(held[given]) if held[given].dtype.kind == "f" else held[given] < 0
    if missing.any():
        raise SpecError(
            f"the column '{given}', which the prior names, is empty for some places",
            needed="a number for every place",
        )
    return np.repeat(held[given].astype(float), cells.n // len(held[given]))


def public_shares(given: str | tuple[float, ...], nested: NestedTree) -> Reals:
    """Return the public shares of the finest cells, up to a common factor."""
    values = public_column(given, nested)
    if not np.isfinite(values).all() or (values < 0).any():
        raise SpecError(
            f"the shares in {column_name(given)}, which the prior names, include a "
            f"{'negative' if np.isfinite(values).all() else 'missing'} number",
            needed="numbers of 0 or more",
        )
    if not values.any():
        raise SpecError(
            f"the shares in {column_name(given)}, which the prior names, are all 0",
            needed="at least one number above 0",
        )
    return values


def standardised(values: Reals, given: str | tuple[float, ...]) -> Reals:
    """Return a covariate minus its mean, divided by its standard deviation."""
    spread = float(np.std(values))
    if not np.isfinite(values).all() or spread == 0:
        raise SpecError(
            f"the covariate in {column_name(given)} "
            f"{'is the same everywhere' if spread == 0 else 'is missing or infinite for some place'}",
            needed="finite numbers that vary between places",
            remedy="correct the column, or leave it out of the prior",
        )
    return (values - values.mean()) / spread


class PublicNumbers(NamedTuple):
    """Public numbers by which counts split: log shares `(nodes,)` and covariates `(nodes, p)`.

    Shares are known up to a constant for each parent. Of places whose splits are even, all are empty.
    """

    log_share: Reals
    covariates: Reals
    names: tuple[str, ...]

    def at(self, nodes: NDArray) -> PublicNumbers:
        """Return the public numbers for the given nodes."""
        if not len(self.log_share):
            return self
        return self._replace(log_share=self.log_share[nodes], covariates=self.covariates[nodes])

    def places(self, tree: Tree) -> Places:
        """Return a tree of places with these numbers, in the form that Markov chains take."""
        from trueup.kernel.table_walks.weights import Places  # trees solved exactly need no chains

        below, levels, parent = (
            each.astype(np.int64) for each in (tree.child_ptr, tree.level_ptr, tree.parents)
        )
        return Places(below, levels, parent, self.log_share, self.covariates)


EVEN_SPLITS = PublicNumbers(np.zeros(0), np.zeros((0, 0)), ())


def numbers_of_nodes(prior: Hierarchical, nested: NestedTree) -> PublicNumbers:
    """Return the public numbers for all nodes of a tree: sums of shares, and means of covariates."""
    n, leaves = int(nested.level_ptr[-1]), nested.nodes[-1]
    inner = np.flatnonzero(nested.child_ptr[1:] > nested.child_ptr[:-1])[::-1]
    log_share = np.broadcast_to(0.0, n)  # an array of one number, which takes no memory
    if prior.shares != "uniform":
        weight = np.ones(n)
        weight[leaves] = np.maximum(public_shares(prior.shares, nested), MIN_PUBLIC_SHARE)
        for v in inner:
            weight[v] = weight[nested.child_ptr[v] : nested.child_ptr[v + 1]].sum()
        log_share = np.log(weight)
    covariates = np.zeros((n, len(prior.covariates)))
    for k, given in enumerate(prior.covariates):
        covariates[leaves, k] = standardised(public_column(given, nested), given)
    for v in inner if prior.covariates else ():
        covariates[v] = covariates[nested.child_ptr[v] : nested.child_ptr[v + 1]].mean(axis=0)
    names = tuple(f"coefficient of {column_name(given)}" for given in prior.covariates)
    return PublicNumbers(log_share, covariates, names)


def numbers_of_places(prior: Hierarchical, tree: Tree) -> PublicNumbers:
    """Return the public numbers for splits of the totals of places."""
    if prior.even:
        return EVEN_SPLITS
    found = numbers_of_nodes(prior, nest(Cells(tree), tuple(map(Margin, tree.levels))))
    return found._replace(log_share=np.ascontiguousarray(found.log_share))


MOST_TOTALS = 1 << 20
"""Totals of a tree up to which their prior given bounds is a table."""
MAX_TOTAL_DEVIATIONS = 20.0
"""Standard deviations of noise above the measured total beyond which no total is possible."""


def total_given_bounds(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: Sequence[NDArray],
    concentrations: Sequence[float] = (),
    *,
    inhabited: bool = False,
    most: float = np.inf,
) -> tuple[Reals, Reals]:
    """Return totals, and the log prior of them that makes the total flat given bounds on places.

    Parameters
    ----------
    values
        The measured values, header by header.
    concentrations
        Concentrations of the totals, one for each level below the root, if they are given.
    inhabited
        True if the prior is that of trees, which has no uninhabited places.
    most
        Totals up to which it is worked out.
    """
    tree, none = constraints.cells.tree, (np.zeros(0), np.zeros(0))
    bounds = [b for b in constraints.bounds if not b.margin.attributes and not b.where]
    if not any(b.upper is not None or np.any(np.asarray(b.lower, float) > 0) for b in bounds):
        return none
    # Most trees have no such bounds, and need not import these kernels.
    from trueup.kernel.settling.split_draws import HYPERPRIOR
    from trueup.kernel.table_walks.within_bounds import log_within_bounds

    least, largest = _likely_totals(headers, values)
    low, high = np.zeros(tree.level_ptr[-1]), np.full(tree.level_ptr[-1], largest)
    for b in bounds:
        level = tree.level(b.margin.level)
        own = slice(tree.level_ptr[level], tree.level_ptr[level + 1])
        low[own] = np.maximum(low[own], 0.0 if b.lower is None else np.ceil(np.asarray(b.lower, float)))
        high[own] = np.minimum(high[own], np.inf if b.upper is None else np.floor(np.asarray(b.upper, float)))
    child_ptr = tree.child_ptr.astype(np.int64)
    if propagate(child_ptr, low, high) >= 0 or not low[0] < high[0] <= low[0] + most:
        return none
    ends = low.astype(np.int64), high.astype(np.int64)
    known = np.array(concentrations, float) if concentrations else None
    level_ptr = tree.level_ptr.astype(np.int64)
    lognormal = None if inhabited else (HYPERPRIOR.a, HYPERPRIOR.a_spread)
    at, log = log_within_bounds(level_ptr, child_ptr, *ends, known, lognormal, least)
    at, log = at[np.isfinite(log)], -log[np.isfinite(log)]
    return _to_the_ends(at, log, low[0], high[0]) if len(at) else none


def _to_the_ends(at: Reals, log: Reals, low: float, high: float) -> tuple[Reals, Reals]:
    """Return totals with their log prior, extended to the smallest and the largest possible total."""
    before, after = at[:1] > low, at[-1:] < high
    ends = np.full(before.sum(), low), np.full(after.sum(), high)
    return np.concatenate([ends[0], at, ends[1]]), np.concatenate([log[:1][before], log, log[-1:][after]])


def total_of_tree(problem: TreeProblem, prior: object, values: NDArray) -> tuple[int, Reals] | None:
    """Return the smallest total and the log prior that makes the total flat, or None if not needed."""
    levels = problem.nested.cells.tree.levels
    if not isinstance(prior, Hierarchical) or not isinstance(prior.total, Flat) or not prior.even:
        return None
    if not {Margin(level) for level in levels} <= set(problem.nested.margins):
        return None
    at, log = total_given_bounds(
        problem.constraints,
        problem.headers,
        problem.parts(values),
        prior.concentrations[: len(levels) - 1],
        inhabited=True,
        most=MOST_TOTALS,
    )
    if not len(at):
        return None
    every = np.arange(int(at[0]), int(at[-1]) + 1)
    return int(at[0]), np.interp(every, at, log)


def _likely_totals(headers: Sequence[Measured], values: Sequence[NDArray]) -> tuple[float, float]:
    """Return the smallest and the largest total that the measured values make plausible."""
    sums = np.array([float(np.sum(v)) for v in values])
    noise = MAX_TOTAL_DEVIATIONS * np.array(
        [0.0 if h.exact else (h.law.variance * len(v)) ** 0.5 for h, v in zip(headers, values, strict=True)]
    )
    return float((sums - noise).max()), max(float(np.rint((sums + noise).min())), MAX_TOTAL_DEVIATIONS)
