"""Wang & Reiter (2021), Table 2: averages and variances of released counts in four scenarios."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.item import Found, Item, Setting
from papers.row import ERRORS, Row, claim, compare, corrected, rounding, share_error, shown, variance_error
from papers.wang.scenarios import (
    POINTS,
    RUNS,
    Integers,
    Scenario,
    described_counts,
    geometric_variance,
    mean_and_variance,
    noise_of_parts,
    reported,
    tabulated_counts,
)
from papers.wangreiter.loop import modes
from trueup.reconciling.multinomial import MultinomialMode

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

OWN_NOISE = (
    "The printed 0.1 does not follow from the setting. The law of the summed parts is so much steeper than the total's "
    "that the released total is n* itself, and N_max keeps its own noise, whose variance 2 q / (1 - q)^2 at epsilon 5 "
    "is 0.014; the other parts, with the same noise, are printed as 0.0."
)
LOOP = (
    "Equal quotients decide here, and the paper's loop, which compares them in double precision, settles part of them by its "
    "rounding errors and the others by the order of the list: on counts in ascending order it gives every printed figure, "
    "in descending order it does not give the average of the smallest count."
)
BY_LOOP = {
    2: (("N_q1", "N_q3", "N_max"), 100_000),
    4: (("N_min", "N_q1", "N_med", "N_q3", "N_max"), 1_000_000),
}
"""Scenarios where ties matter: columns that are held to the loop, and own runs of it."""
FEWEST_TO_EXCLUDE = 10_000
"""Runs of the loop, for its descending order to be told from the printed average."""


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
    seconds: ClassVar[float] = 15.0

    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 5 % off",
        "draws in place of modes",
        "ties to the lowest index",
        "largest remainders in place of modes",
    )

    def run(self, setting: Setting) -> Found:
        rng, runs = setting.rng(self), setting.runs(RUNS)
        rows = [row for number in scenarios() for row in of_scenario(number, runs, rng)]
        for number, (columns, own) in BY_LOOP.items():
            rows += by_loop(number, columns, setting.runs(own), rng)
        return Found(
            tuple(rows),
            notes=(
                "Counts of scenarios 1 to 3 are made as the paper describes them (it shows them in a figure only); "
                "those of scenario 4 are its Table 1. Ties are settled at random but in the rows of the paper's own loop.",
                LOOP,
            ),
        )


def of_scenario(number: int, runs: int, rng: np.random.Generator, ties: str = "shuffled") -> list[Row]:
    """Rows of one scenario; the same noisy counts go through both approximations, as in the paper."""
    scenario = scenarios()[number]
    noisy = scenario.noisy(runs, rng)
    rows = [noise_of_parts(f"Scenario {number}, ", scenario, noisy)]
    for total in ("independent", "summed"):
        parts = scenario.released(MultinomialMode(total=total, ties=ties), noisy, rng)  # type: ignore[arg-type]
        columns = reported(parts, total=True)
        for (name, draws), figure in zip(columns.items(), PRINTED[number, total]):
            average, variance = mean_and_variance(f"Scenario {number}, {total}, {name}", draws, figure)
            if (number, total, name) == (2, "summed", "N_max"):
                variance = _own_noise(variance, scenario, draws)
            tied = (number, total) == (2, "independent") and name in BY_LOOP[2][0]
            rows += [average] if tied else [average, variance]  # the loop's rows have those variances
        if total == "independent":
            rows.append(as_likely(number, noisy, parts))
        if (number, total) == (4, "independent"):
            rows += _tail(columns["N_max"])
    return rows


def as_likely(number: int, noisy: Integers, parts: Integers) -> Row:
    """Whether every release is a mode: as likely as what the paper's loop makes of the same noisy counts."""
    from scipy.special import gammaln, xlogy  # slow to load

    weights = np.maximum(noisy[:, 1:], 0)
    ours, theirs = ((xlogy(k, weights) - gammaln(k + 1.0)).sum(axis=1) for k in (parts, modes(noisy)))
    less = (ours < theirs - 1e-6) | (parts.sum(axis=1) != np.maximum(noisy[:, 0], 0))
    label = f"Scenario {number}: releases that are less likely than the loop's, or do not add up"
    return claim(label, "0", f"{less.sum()} of {len(parts):,}", not less.any())


def by_loop(number: int, columns: tuple[str, ...], runs: int, rng: np.random.Generator) -> list[Row]:
    """The printed figures beside those of the paper's loop in doubles, on counts in ascending order."""
    noisy = scenarios()[number].noisy(runs, rng)
    found, rows = reported(modes(noisy)), []
    for name in columns:
        figure = PRINTED[number, "independent"][list(POINTS).index(name)]
        pair = mean_and_variance(f"Scenario {number}, the paper's loop, {name}", found[name], figure)
        rows += pair if number == 4 else pair[1:]
    return [*rows, _descending(noisy)] if number == 4 else rows


def _descending(noisy: Integers) -> Row:
    """The loop on counts in descending order does not give what is printed for the smallest count."""
    smallest = modes(np.c_[noisy[:, :1], noisy[:, :0:-1]])[:, -1]
    label = "Scenario 4, the paper's loop in descending order, N_min: average that the printed 1.0 excludes"
    if len(smallest) < FEWEST_TO_EXCLUDE:
        return shown(label, "1.0", float(smallest.mean()), "Too few runs to exclude it.")
    error = float(np.hypot(*(np.sqrt(smallest.var() / runs) for runs in (len(smallest), RUNS))))
    excluded = bool(smallest.mean() - 1.0 > rounding("1.0") + ERRORS * error)
    return claim(label, "1.0", f"{smallest.mean():.3f}", excluded)


def _own_noise(row: Row, scenario: Scenario, draws: Integers) -> Row:
    law = scenario.laws[1]
    error = variance_error(law.variance, draws.size, law.fourth_moment / law.variance**2)
    right = geometric_variance(scenario.epsilon_part)
    return corrected(row.label, row.paper, float(row.ours), right, OWN_NOISE, ours_error=error)


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
