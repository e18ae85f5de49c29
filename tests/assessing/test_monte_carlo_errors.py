"""Monte Carlo errors are what they say: figures of many seeds scatter by as much.

The statistic is the standard deviation of a figure over 300 seeds, over the root mean square of its stated errors. It
is within 30 % of 1 (its own standard error is below 6 %: five of them); errors that are stated half
as large again, or two thirds as large, must fall outside.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.assessing.worlds import block_spec, blocks
from trueup.assessing import assess

SEEDS = 300
LEAST, MOST = 0.7, 1.3
IN_TABLE = {
    ("bias", "tract"): {},
    ("rmse", "tract"): {},
    ("mean absolute error", "block"): {},
    ("variance", "block"): {},
    ("wrong side", "block"): {},
    ("wrong rank", "tract"): {},
    ("coverage", "block"): {},
    ("bias difference", "state"): {},
    ("mean squared error difference", "state"): {},
    ("dispersion of variance", "block"): {"by": "siblings", "unit": "between all"},
}


@pytest.fixture(scope="module")
def runs():
    table = blocks(np.random.default_rng(8), tracts=6, most=9)
    options = {"methods": ["tree-topdown", "multinomial-mode"], "thresholds": {"block": 20}}
    return [
        assess(block_spec(), table, replicates=100, seed=seed, public_truth=True, **options)
        for seed in range(SEEDS)
    ]


def ratio(values, errors):
    return np.std(values, axis=0) / np.sqrt(np.mean(np.square(errors), axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(("statistic", "level"), IN_TABLE)
def test_of_tables(runs, statistic, level):
    where = IN_TABLE[statistic, level]
    method = "multinomial-mode" if "difference" in statistic else "tree-topdown"
    values, errors = zip(*(run.figure(statistic, level, method=method, **where) for run in runs))
    found = ratio(values, errors)
    assert LEAST < found < MOST
    for wrong in (1.5, 1 / 1.5):
        assert not LEAST < found * wrong < MOST


@pytest.mark.slow
@pytest.mark.parametrize("statistic", ["bias", "variance", "rmse", "coverage", "quantile 0.5 of the error"])
def test_of_single_counts(runs, statistic):
    key = statistic, "least-squares" if statistic == "coverage" else ""
    place = "tree-topdown", runs[0].budgets[0].label, runs[0].levels[1]
    values, errors = (np.array([run.figures[place][key][part] for run in runs]) for part in (0, 1))
    found = ratio(values, errors).mean()  # over six tracts
    assert LEAST < found < MOST
    for wrong in (1.5, 1 / 1.5):
        assert not LEAST < found * wrong < MOST
