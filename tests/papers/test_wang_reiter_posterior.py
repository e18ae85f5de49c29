"""Coverage in the scenarios of Wang and Reiter (2021): exact posteriors beside a naive margin."""

from __future__ import annotations

import numpy as np
import pytest

from papers.wang.scenarios import described_counts, tabulated_counts
from tests.inferring.calibration import coverage_z
from tests.inferring.problems import laplace_tree, noisy, star, tree_constraints
from trueup.inferring import infer
from trueup.inferring.tree_exact import TreeExact
from trueup.kernel.multinomial.mode import multinomial_mode

pytestmark = pytest.mark.thorough

SCENARIO_1, SCENARIO_4 = described_counts(), tabulated_counts()


def intervals(truth, replicates, rng, prior="flat"):
    """Whether the 90 % interval of each part covers, and its mass."""
    cells = star(len(truth))
    laws, constraints = laplace_tree(cells, "1"), tree_constraints(cells)
    covered, mass, naive = [], [], []
    for _ in range(replicates):
        measured = noisy(cells, truth, laws, rng)
        table = infer(measured, TreeExact(prior=prior), spec=constraints, draws=1).summary(level=0.9)
        covered.append((table["low"] <= truth) & (truth <= table["high"]))
        mass.append(table["mass"])
        total = max(int(measured.values[0][0]), 0)
        released = multinomial_mode(np.maximum(measured.values[1], 0), total)
        naive.append(np.abs(released - truth) <= 2)
    return np.array(covered), np.array(mass), np.array(naive)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "parts"), [(SCENARIO_1, slice(11, None)), (SCENARIO_4, slice(-3, None))], ids=["1", "4"]
)
def test_intervals_of_large_counts_cover_as_often_as_their_mass_says(truth, parts, rng):
    """Far from zero a flat prior is translation invariant, so coverage is frequentist too."""
    covered, mass, _ = intervals(truth, 400, rng)
    # intervals of one replicate share the total, so replicates are the independent units
    excess = (covered[:, parts] - mass[:, parts]).mean(axis=1)
    z = excess.mean() / (excess.std(ddof=1) / np.sqrt(len(excess)))
    assert z > -4.9
    assert covered[:, parts].mean() > 0.9


@pytest.mark.slow
def test_a_naive_margin_undercovers_the_largest_count_of_scenario_4(rng):
    """Released counts +- 2 hold .93 of the noise, and about .65 of the truths; the posterior keeps its word."""
    covered, mass, naive = intervals(SCENARIO_4, 400, rng)
    assert 0.52 < naive[:, -1].mean() < 0.78
    assert covered[:, -1].mean() > 0.84
    assert coverage_z(covered[:, -1], mass[:, -1]) > -4.9
