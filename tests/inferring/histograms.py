"""Small histograms on a hierarchy: records, all tables listed with their posterior masses, and chains on them."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import roots_genlaguerre

from tests.inferring.problems import noisy
from tests.reference.histograms_listed import beta_rule, log_cells, log_prior, log_totals, tables
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.kernel.table_walks.gibbs_steps import MEAN, STRENGTH
from trueup.layouts.columns import ColumnProblem
from trueup.layouts.prior_inputs import EVEN_SPLITS
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.tree import Tree
from trueup.noise import law_named

GAUSSIAN, LAPLACE = law_named("discrete-gaussian"), law_named("discrete-laplace")
FALSE_ALARM = 5.5
"""Standard errors; 200 comparisons of a chain that is right exceed it with probability below 1e-5."""


def places(middles):
    """Root and leaves, with places between where their numbers of leaves are given."""
    sex = (Attribute("sex", ("f", "m")),)
    if not middles:
        return Cells(Tree.from_columns(["all", "block"], [{}, {"block": ["a", "b"]}]), sex)
    middle = [f"m{i}" for i, size in enumerate(middles) for _ in range(size)]
    block = [f"b{i}" for i in range(len(middle))]
    return Cells(Tree.from_columns(["all", "tract", "block"], [{}, {"tract": middle}, {"block": block}]), sex)


def record(cells, truth, rng, exact=()):
    """Total and detailed counts of every level, some of them exact."""
    laws = {}
    for level in cells.tree.levels:
        laws[Margin(level)] = GAUSSIAN("4")
        laws[Margin(level, ("sex",))] = LAPLACE("1/2")
    laws |= {margin: law_named("exact")() for margin in exact}
    return noisy(cells, truth, laws, rng)


def listed(cells, measured, middles, a, kappa, most, rate=0.0):
    """All tables and their posterior masses."""
    x = tables(cells.n, most)
    return x, normalised(
        log_noise(cells, measured, x) + log_prior(x.reshape(len(x), -1, 2), middles, a, kappa, rate)
    )


def log_noise(cells, measured, x):
    """Log masses of the noise at tables."""
    log = np.zeros(len(x))
    for header, values in zip(measured.headers, measured.values):
        gap = cells.sum(x, header.margin) - values
        log += (
            np.where(gap == 0, 0.0, -np.inf).sum(axis=1)
            if header.exact
            else header.law.logpmf(gap).sum(axis=1)
        )
    return log


def normalised(log):
    """Masses from their logs up to a constant."""
    mass = np.exp(log - log.max())
    return mass / mass.sum()


def walked(cells, measured, rng, given, exact, public=EVEN_SPLITS):
    """One chain where it starts."""
    constraints = Constraints(cells, tuple(h.margin for h in measured.headers if not h.exact), tuple(exact))
    problem = ColumnProblem(constraints, measured.headers, measured.values, public=public)
    return HistogramWalk.of(problem, [rng], given)


def chain(cells, measured, draws, rng, given=None, exact=(), public=EVEN_SPLITS):
    """Draws `(draws, n)` of one long chain."""
    walk = walked(cells, measured, rng, given, exact, public)
    walk.run(1, 200, lambda done, of: None)
    return walk.run(draws, 1, lambda done, of: None)[0]


def largest_z(cells, draws, x, mass, indicators=True):
    """Largest distance of means of counts of all sums of cells, and of their indicators, in batch standard errors."""
    worst = 0.0
    for level in cells.tree.levels:
        for attributes in ((), ("sex",)):
            margin = Margin(level, attributes)
            ours, theirs = cells.sum(draws, margin), cells.sum(x, margin)
            for k in range(theirs.shape[1]):
                for count in (None, *(np.unique(theirs[:, k]) if indicators else (0,))):
                    f = ours[:, k].astype(float) if count is None else (ours[:, k] == count).astype(float)
                    g = theirs[:, k].astype(float) if count is None else (theirs[:, k] == count).astype(float)
                    truth = float(mass @ g)
                    if count is not None and not 0.005 < truth < 0.995:
                        continue
                    means = f[: len(f) // 50 * 50].reshape(50, -1).mean(axis=1)
                    worst = max(worst, abs(means.mean() - truth) / max(means.std(ddof=1) / 50**0.5, 1e-12))
    return worst


def mixed(cells, measured, most):
    """All tables of two places and their posterior masses, a, each column's concentration and the rate integrated over."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    middle, half = (
        (HYPERPRIOR.kappa_spread**2 + HYPERPRIOR.cell_spread**2 / 2) ** 0.5,
        HYPERPRIOR.cell_spread / 2**0.5,
    )
    x = tables(cells.n, most)
    by_place, inside = x.reshape(len(x), -1, 2), 0.0
    sums, where = np.unique(by_place.sum(axis=2), axis=0, return_inverse=True)
    totals = np.zeros(len(sums))
    for u, (rate, share) in product(range(7), rates()):
        a = HYPERPRIOR.a * np.exp(HYPERPRIOR.a_spread * nodes[u])
        totals += weights[u] * share * np.exp(log_totals(sums, (), (a,), rate))
    for v, w in product(range(7), repeat=2):
        kappa = HYPERPRIOR.kappa * np.exp(middle * nodes[v] + half * nodes[w] * np.array([1.0, -1.0]))
        inside = inside + weights[v] * weights[w] * np.exp(log_cells(by_place, (), (tuple(kappa),)))
    log = np.log(totals)[where.ravel()] + np.log(inside)
    return x, normalised(log_noise(cells, measured, x) + log)


def rates():
    """Nodes and weights of a rate of uninhabited places: beta around a mean and with a strength that have laws of their own.

    The root of a mean of beta law (1/2, 1) is uniform.
    """
    assert MEAN == (0.5, 1.0)
    roots, shares = np.polynomial.legendre.leggauss(6)
    strengths, masses = roots_genlaguerre(6, STRENGTH[0] - 1.0)
    for (root, share), (strength, mass) in product(zip(roots, shares), zip(strengths, masses)):
        mean, strength = ((1 + root) / 2) ** 2, strength / STRENGTH[1]
        nodes, weights = beta_rule(mean * strength, (1 - mean) * strength, 6)
        yield from zip(nodes, share * mass * weights)
