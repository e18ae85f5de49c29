"""Coverage in the scenarios of Wang and Reiter (2021): exact posteriors beside a naive margin."""

from __future__ import annotations

import numpy as np
import pytest
from tests.infer.calibration import coverage_z
from tests.infer.problems import laplace_tree, noisy, star, tree_constraints

from trueup.infer import infer
from trueup.infer.tree_exact import TreeExact
from trueup.kernel.multinomial import multinomial_mode

INSTANCES = {1: 7, 2: 5, 3: 3, 4: 6, 5: 3, 6: 2, 7: 2, 8: 4, 9: 4, 10: 1, 11: 1, 12: 1, 13: 1, 14: 2, 16: 1,
             18: 2, 27: 2, 36: 1, 53: 1, 435: 1}  # fmt: skip
SCENARIO_4 = np.repeat(list(INSTANCES), list(INSTANCES.values()))
"""Table 1 of the paper; it adds up to 863."""

SCENARIO_1 = np.concatenate(
    [[0, 0, 0, 1, 2, 3], [15, 25, 35, 45, 55], np.linspace(62, 998, 39).round().astype(int)]
)
"""As section 3.3 describes it: the paper shows the counts in a figure only."""


def intervals(truth, replicates, rng, prior="flat"):
    """Whether the 90 % interval of each part covers, and its mass."""
    cells = star(len(truth))
    laws, constraints = laplace_tree(cells, "1"), tree_constraints(cells)
    covered, mass, naive = [], [], []
    for _ in range(replicates):
        measured = noisy(cells, truth, laws, rng)
        table = infer(constraints, measured, TreeExact(prior=prior), draws=1).summary(level=0.9)
        covered.append((table["low"] <= truth) & (truth <= table["high"]))
        mass.append(table["mass"])
        total = max(int(measured.values[0][0]), 0)
        released = multinomial_mode(np.maximum(measured.values[1], 0), total)
        naive.append(np.abs(released - truth) <= 2)
    return np.array(covered), np.array(mass), np.array(naive)


def test_scenario_4_has_the_paper_s_total():
    assert (SCENARIO_4.sum(), len(SCENARIO_4), SCENARIO_1.size) == (863, 50, 50)


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


def test_a_naive_margin_undercovers_the_largest_count_of_scenario_4(rng):
    """Released counts +- 2 hold .93 of the noise, and about .65 of the truths; the posterior keeps its word."""
    covered, mass, naive = intervals(SCENARIO_4, 400, rng)
    assert 0.52 < naive[:, -1].mean() < 0.78
    assert covered[:, -1].mean() > 0.84
    assert coverage_z(covered[:, -1], mass[:, -1]) > -4.9
