"""Tables with crossing sums, measured, and their posteriors by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np

from tests.inferring.problems import draw
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.header import Measured
from trueup.model.prior import read_prior
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise import law_named

EXACT = law_named("exact")()


LAWS = {
    "discrete-laplace": law_named("discrete-laplace")("1/2"),
    "discrete-gaussian": law_named("discrete-gaussian")("6"),
    "truncated-geometric": law_named("truncated-geometric")("1/2", 9),
    "laplace": law_named("laplace")("2"),
    "gaussian": law_named("gaussian")("6"),
    "lattice-laplace": law_named("lattice-laplace")("1/2"),
    "lattice-gaussian": law_named("lattice-gaussian")("6"),
}


PRIORS = {
    "poisson": {"name": "poisson", "mean": 3},
    "negative-binomial": {"name": "negative-binomial", "mean": 4, "size": 2},
    "bounded": {"name": "bounded", "upper": 4},
    "masses": {"name": "masses", "masses": [0.5, 0.2, 0.2, 0.1]},
    "flat-total uniform": {"name": "flat-total", "upper": 20},
    "flat-total multinomial": {"name": "flat-total", "upper": 20, "split": "multinomial"},
}


def table(*sizes, places=1):
    """A table of one place or more by attributes of the given sizes."""
    names = [f"p{k:03d}" for k in range(places)]
    attributes = tuple(
        Attribute(f"a{i}", tuple(f"a{i}v{j}" for j in range(size))) for i, size in enumerate(sizes)
    )
    levels = (["all", "place"], [{}, {"place": names}]) if places > 1 else (["all"], [{}])
    return Cells(Tree.from_columns(*levels), attributes)


def measured(cells, counts, laws, rng, invariants=()):
    """Noisy margins, and exact ones."""
    headers = [Measured("q", margin, law) for margin, law in laws.items()]
    headers += [Measured("invariant", margin, EXACT) for margin in invariants]
    values = [cells.sum(counts, h.margin) + draw(h.law, cells.size(h.margin), rng) for h in headers]
    return Measurements(cells, tuple(headers), tuple(values), PUBLISHED, simulation=True)


def crossing(cells, law):
    """The table itself and both of its margins."""
    level = cells.tree.levels[-1]
    return dict.fromkeys((cells.finest, Margin(level, ("a0",)), Margin(level, ("a1",)), Margin(level)), law)


def brute_force(constraints, record, prior, top, holds=lambda x: True):
    """All tables of counts up to `top` that satisfy everything, with their masses: laws and priors as they are."""
    cells = constraints.cells
    every = np.array(list(product(range(top + 1), repeat=cells.n)))
    prior, log = read_prior(prior), np.zeros(len(every))
    if prior.name == "flat-total":
        total = every.sum(axis=1)
        log += np.where(total <= prior.upper, prior.log_total(total, cells.n), -np.inf)
        if prior.split == "multinomial":
            log += sum(prior.log_part(every[:, i], share) for i, share in enumerate(prior.shares(cells.n)))
    else:
        log += prior.logpmf(every).sum(axis=1)
    for header, values in zip(record.headers, record.values):
        sums = cells.sum(every, header.margin)
        with np.errstate(divide="ignore"):
            log += (
                np.log((sums == values).all(axis=1))
                if header.exact
                else header.law.logpmf(values - sums).sum(1)
            )
    good = np.isfinite(log) & holds(every.T)
    masses = np.exp(log[good] - log[good].max())
    return every[good], masses / masses.sum()
