"""The rule for ties in scenario 4 of Wang & Reiter (2021); `python -m papers` runs the tables themselves."""

from __future__ import annotations

from papers.wang.scenarios import Scenario, tabulated_counts
from trueup.reconciling.multinomial import MultinomialMode


def test_the_tie_rule_favours_by_position(rng):
    """A true count of 1 comes out lower when it is listed first than when it is listed last."""
    averages = []
    for counts, place in ((tabulated_counts(), 0), (tabulated_counts()[::-1], -1)):
        scenario = Scenario(counts)
        averages.append(scenario.released(MultinomialMode(), scenario.noisy(2000, rng), rng)[:, place].mean())
    assert averages[1] - averages[0] > 0.25
