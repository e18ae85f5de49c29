"""Moves of rates from exact draws of the posterior: what they lead to has the same law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp, norm

from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.kernel.table_walks.gibbs_steps import EVEN
from trueup.kernel.table_walks.rate_moves import move_rates
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import law_named

REPLICATES, MOVES = 1200, 8
FALSE_ALARM = 1e-6
EMPTY = 0.4


def thorough(*values):
    return pytest.param(*values, marks=pytest.mark.thorough)


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


LEVELS = ("all", "tract", "block")


def problem(noise, total):
    """Five places on two levels below the root, of three cells."""
    keys = {"tract": ["a", "a", "b", "b", "b"], "block": list("vwxyz")}
    tree = Tree.from_columns(list(LEVELS), [{}, {"tract": keys["tract"]}, {"block": keys["block"]}])
    cells = Cells(tree, (Attribute("sex", ("f", "m", "d")),))
    gaussian = law_named("gaussian")
    laws = {Margin("all"): law_named("exact")() if total else gaussian("36")}
    laws |= {Margin("tract", ("sex",)): gaussian(noise**2), Margin("block"): gaussian(4 * noise**2)}
    headers = tuple(Measured(str(margin), margin, law) for margin, law in laws.items())
    values = tuple(np.zeros(cells.size(margin)) for margin in laws)
    return ColumnProblem(Constraints(cells, tuple(laws)), headers, values)


def drawn(p, total, rng):
    """A state drawn from the prior, the root's total given by its measurement of 30, and values measured of it."""
    kappa = np.exp(np.log(8.0) + HYPERPRIOR.cell_spread * rng.normal(size=(3, 3)))
    a = np.array([1.0, 0.8, 0.5])
    parents, first, lived = p.places.parent, p.places.level_ptr[-2], np.zeros(5, bool)
    while not (lived[:2].any() and lived[2:].any()):
        lived = rng.random(5) > EMPTY
    shape = 1 / np.sqrt(3)
    theta = np.empty((3, 3))
    theta[0] = rng.gamma(shape, 1 / (3 * shape), 3)
    theta[1:] = rng.gamma(kappa[1] * theta[0] + EVEN, 1 / kappa[1], (2, 3))
    masses = norm.pdf(np.arange(120), 30, 6.0)
    whole = 30 if total else int(rng.choice(120, p=masses / masses.sum()))
    tracts = rng.multinomial(whole, rng.dirichlet([a[1], a[1]]))
    x, g = np.zeros((5, 3), np.int64), np.empty((5, 3))
    for tract in range(2):
        blocks = np.flatnonzero((parents[first:] == tract + 1) & lived)
        sizes = rng.multinomial(tracts[tract], rng.dirichlet(np.full(len(blocks), a[2])))
        for block, size in zip(blocks, sizes):
            x[block] = size
    for block in range(5):
        shape = kappa[2] * theta[parents[first + block]]
        log = np.log(rng.gamma(shape + 1, 1 / kappa[2])) + np.log(rng.random(3)) / np.maximum(shape, 1e-300)
        g[block] = np.exp(
            np.maximum(log, log.max() - 600).clip(-650)
        )  # shares of next to nothing are numbers
        x[block] = rng.multinomial(x[block, 0], g[block] / g[block].sum())
    state = p.state(x, 1.0, 1.0)
    state.a[:], state.common[:], state.kappa[:], state.theta[:] = a, 8.0, kappa, theta
    state.inhabited[:], state.rate[:] = lived, EMPTY
    state.size[:] = rng.gamma(x.sum(axis=1) + 1.0) / g.sum(axis=1)
    state.spare[:] = [rng.choice(3, p=one / one.sum()) for one in g]
    at = 0
    for header in p.headers:
        size = p.cells.size(header.margin)
        if header.margin.level == "all":
            state.gap[at] -= 30
        else:
            state.gap[at : at + size] = header.law.variance**0.5 * rng.normal(size=size)
        at += size
    return state


def numbers(p, state):
    """What is compared: totals, cells, compositions and concentrations."""
    return np.concatenate(
        [
            state.total[[0, 1, 3, 4, 5, 7]],
            state.x[0],
            state.x[2, :1],
            np.log(state.theta[:, 0] + 1e-12),
            np.log(state.theta[:2, 1] + 1e-12),
            np.log(state.kappa[1:, 0]),
            np.log(state.size[:1]),
            [state.inhabited.sum(), state.total[state.total > 0].min()],
            [np.square(state.x).sum(), np.square(state.total[1:3]).sum(), np.square(state.gap).sum()],
        ]
    )


def p_values(noise, total, rng, wrong=""):
    """p-values of each number before and after moves, of as many independent states each."""
    p = problem(noise, total)
    tables, found = p.tables, ([], [])
    if wrong == "noise":
        tables = tables._replace(curve=tables.curve / 2)
    for replicate in range(2 * REPLICATES):
        state = drawn(p, total, rng)
        if replicate % 2:
            state.a[:] *= 2 if wrong == "totals" else 1
            state.rate[:] = 0.6 if wrong == "uninhabited" else EMPTY
            moves = p.moves([state.x])._replace(scale=np.array([6.0, noise, 2 * noise]))
            for _ in range(MOVES):
                move_rates(rng, p.places, tables, moves, state, p.open, HYPERPRIOR, wrong != "concentrations")
                if wrong == "concentrations":
                    state.kappa[:] = 8.0
            kept = p.state(state.x.copy(), 1.0, 1.0)
            np.testing.assert_array_equal(kept.total, state.total)
            np.testing.assert_array_equal(kept.top, state.top)
        found[replicate % 2].append(numbers(p, state))
    before, after = (np.array(one) for one in found)
    return np.array([ks_2samp(x, y)[1] for x, y in zip(before.T, after.T)])


@pytest.mark.parametrize(
    ("noise", "total"),
    [
        pytest.param(15, False, marks=pytest.mark.slow),
        pytest.param(3, False, marks=pytest.mark.slow),
        pytest.param(15, True, marks=pytest.mark.slow),
    ],
)
def test_moves_keep_the_posterior(noise, total, rng):
    assert p_values(noise, total, rng).min() > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    ["totals", thorough("uninhabited"), *map(slow, ("noise", "concentrations"))],
)
def test_wrong_versions_are_told(wrong, rng):
    assert p_values(15 if wrong == "totals" else 3, False, rng, wrong).min() < FALSE_ALARM
