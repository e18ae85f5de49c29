"""Wang & Reiter (2021), Table 2: averages and variances of released counts in four scenarios."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.item import Found, Item, Setting
from papers.row import (
    ERRORS,
    Row,
    claim,
    compare,
    corrected,
    printed,
    rounding,
    share_error,
    shown,
    variance_error,
)
from papers.wang.scenarios import (
    POINTS,
    RUNS,
    Integers,
    Scenario,
    described_counts,
    mean_and_variance,
    reported,
    tabulated_counts,
)
from trueup.reconciling.multinomial_mode import MultinomialMode

PRINTED = {
    (1, "independent"): ("0.4 (0.7)", "60 (2.0)", "382 (2.0)", "736 (2.0)", "977 (2.0)", "21249 (1.8)"),
    (1, "summed"): ("0.4 (0.7)", "60 (2.0)", "382 (2.0)", "736 (2.0)", "977 (2.0)", "21249 (1.8)"),
    (2, "independent"): ("0.01 (0.0)", "60 (0.1)", "382 (0.1)", "736 (0.3)", "977 (0.5)", "21249 (191)"),
    (2, "summed"): ("0.01 (0.0)", "60 (0.0)", "382 (0.0)", "736 (0.0)", "977 (0.1)", "21249 (0.7)"),
    (3, "independent"): ("5 (71)", "60 (191)", "381 (187)", "735 (184)", "976 (193)", "21249 (0.0)"),
    (3, "summed"): ("5 (71)", "60 (191)", "381 (187)", "735 (184)", "976 (193)", "21249 (0.0)"),
    (4, "independent"): ("1.0 (1.1)", "2.0 (1.5)", "5.9 (1.8)", "11.0 (1.8)", "438 (19)", "863 (1.8)"),
    (4, "summed"): ("1.0 (1.1)", "2.0 (1.5)", "5.9 (1.8)", "11.0 (1.8)", "438 (19)", "863 (1.8)"),
}
"""Average (variance) of N_min, N_q1, N_med, N_q3, N_max and N, as printed."""

TIES = (
    "The paper's loop compares quotients in double precision, so rounding errors settle the ties that decide here who "
    "bears the total's noise; how they do depends on counts that the paper does not print."
)
OWN_NOISE = (
    "The printed 0.1 does not follow from the setting. The law of the summed parts is so much steeper than the total's "
    "that the released total is n* itself, and N_max keeps its own noise, whose variance 2 q / (1 - q)^2 at epsilon 5 "
    "is 0.014; the other parts, with the same noise, are printed as 0.0."
)
LISTED = (
    "With ties to the lowest index first, exactly, the smallest count comes out by its place in the list, which the "
    "paper does not print. Averages over places, or ties settled at random as here, give the printed figures."
)


def scenarios() -> dict[int, Scenario]:
    """The four scenarios: true counts, epsilon of the total, epsilon of each part."""
    described = described_counts()
    return {
        1: Scenario(described),
        2: Scenario(described, "1/10", "5"),
        3: Scenario(described, "5", "1/10"),
        4: Scenario(tabulated_counts()),
    }


class WangReiterTable2(Item):
    """Averages and variances of released counts, four scenarios and two approximations."""

    name: ClassVar[str] = "wangreiter-table-2"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Table 2 and section 3.3"
    shows: ClassVar[str] = (
        "10,000 releases of 50 counts by the multinomial mode, for each scenario and approximation: average and "
        "variance of six counts."
    )
    seconds: ClassVar[float] = 7.0

    def run(self, setting: Setting) -> Found:
        rng, runs = setting.rng(self), setting.runs(RUNS)
        rows = [row for number in scenarios() for row in of_scenario(number, runs, rng)]
        return Found(
            tuple(rows),
            notes=(
                "Counts of scenarios 1 to 3 are made as the paper describes them (it shows them in a figure only); "
                "those of scenario 4 are its Table 1. Ties are settled at random.",
            ),
        )


def of_scenario(number: int, runs: int, rng: np.random.Generator, ties: str = "shuffled") -> list[Row]:
    """Rows of one scenario; the same noisy counts go through both approximations, as in the paper."""
    scenario = scenarios()[number]
    noisy, rows = scenario.noisy(runs, rng), []
    for total in ("independent", "summed"):
        parts = scenario.released(MultinomialMode(total=total, ties=ties), noisy, rng)  # type: ignore[arg-type]
        columns = reported(parts, total=True)
        for (name, draws), figure in zip(columns.items(), PRINTED[number, total]):
            average, variance = mean_and_variance(f"Scenario {number}, {total}, {name}", draws, figure)
            if (number, total, name) == (2, "independent", "N_max"):
                variance = _by_tie_order(variance, *_listed(scenario, noisy, rng))
            if (number, total, name) == (2, "summed", "N_max"):
                variance = _own_noise(variance, scenario, draws)
            rows += [average, variance]
        if (number, total) == (4, "independent"):
            rows += [*_tail(columns["N_max"]), *_by_place(*_listed(scenario, noisy, rng))]
    return rows


def _listed(scenario: Scenario, noisy: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Released parts, in order, where the list in order, and reversed, settles the ties."""
    first = MultinomialMode(ties="first")
    reverse = np.c_[noisy[:, :1], noisy[:, :0:-1]]
    return scenario.released(first, noisy, rng), scenario.released(first, reverse, rng)[:, ::-1]


def _by_tie_order(row: Row, in_order: Integers, reversed_: Integers) -> Row:
    """Hold a variance to what it is when N_max comes last, and when it comes first, in every tie."""
    last, first = (float(parts[:, POINTS["N_max"]].var(ddof=1)) for parts in (in_order, reversed_))
    error = ERRORS * variance_error(last, len(in_order)) + rounding(row.paper)
    ours = f"{last:.2f} if listed last, {first:.2f} if first, {float(row.ours):.2f} at random"
    return claim(row.label, row.paper, ours, last - error <= printed(row.paper) <= first + error, TIES)


def _own_noise(row: Row, scenario: Scenario, draws: Integers) -> Row:
    law = scenario.laws[1]
    error = variance_error(law.variance, draws.size, law.fourth_moment / law.variance**2)
    return corrected(row.label, row.paper, float(row.ours), law.variance, OWN_NOISE, ours_error=error)


def _tail(largest: Integers) -> list[Row]:
    """What the paper says of the largest count's distribution in scenario 4."""
    high, low = float(np.mean(largest >= 450)), float(np.mean(largest < 430))
    ours, papers = (100 * share_error(0.02, runs) for runs in (largest.size, RUNS))
    rare = 0.005 + ERRORS * share_error(low, largest.size)
    return [
        compare(
            "Scenario 4, N_max: % of runs at 450 or more",
            "2",
            100 * high,
            ours_error=ours,
            paper_error=papers,
        ),
        claim("Scenario 4, N_max: % of runs below 430", "almost none", f"{100 * low:.2g}", low < rare),
    ]


def _by_place(in_order: Integers, reversed_: Integers) -> list[Row]:
    """The smallest count's average when it is listed first, or last, and ties go to the lowest index."""
    label = "Scenario 4, independent, N_min: average with ties to the lowest index, listed"
    averages = {"first": in_order[:, 0].mean(), "last": reversed_[:, 0].mean()}
    return [shown(f"{label} {place}", "1.0", float(mean), LISTED) for place, mean in averages.items()]
