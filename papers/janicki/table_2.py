"""Janicki et al., Table 2: ratios of noisy counts beside ratios from their posterior, by six metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import inf, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from papers.item import Found, Item, Setting
from papers.row import Row, claim, compare, shown
from trueup.inferring import infer
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.statistics.fieller import INTERVAL, WHOLE_LINE, fieller
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise.law import Law
from trueup.noise.laws.gaussian import Gaussian
from trueup.noise.laws.laplace import Laplace
from trueup.reporting.drawing.curves import Curve, Plot, plot

Reals = NDArray[np.float64]

STATES, LARGEST_FAMILY, NORMAL_90 = 51, 10.0, 1.6448536269514722
SD, SCALE = 200 / 1.645, 86.86
"""Noise with a 90 % margin of 200: standard deviation of the normal law, scale of the Laplace law (counts)."""

SHARES = {"White": 0.75, "Black": 0.12, "Asian": 0.045, "American Indian": 0.004, "Pacific Islander": 0.0006, "Other": 0.05,
          "Two or more": 0.02, "Hispanic": 0.13, "White, not Hispanic": 0.65, "Unattributed": 1.0}  # fmt: skip
"""Groups with the share of families that a typical state has; groups overlap, as in the table."""

RULES = ("families >= 1", "under18 + over18 >= 2 * families", "under18 + over18 <= 10 * families")
"""Families have at least 2 and at most 10 members."""

LAWS: dict[str, Law] = {"Gauss": Gaussian(Fraction(SD**2)), "Laplace": Laplace(Fraction(str(SCALE)))}
METRICS = ("MIN", "MAX", "BAD%", "RMSE", "COV", "LEN")
PRINTED = {
    ("Gauss", "NM"): ("-5.2", "17.2", "1.4", "0.7", "87.5", "1.2"),
    ("Gauss", "MB"): ("0.5", "6.2", "0.0", "0.2", "89.3", "0.3"),
    ("Laplace", "NM"): ("-6.6", "12.5", "1.4", "0.6", "", ""),
    ("Laplace", "MB"): ("0.5", "6.2", "0.0", "0.2", "86.7", "0.3"),
}
STABLE = {"BAD%", "RMSE", "COV", "LEN"}
REPLICATES, QUICK_REPLICATES, DRAWS = 10, 3, 2_000
HIERARCHICAL, HIERARCHICAL_RUNS = "HM", 2
"""Posterior under the hierarchical prior, by chains that take several times as long as independent draws."""
SLACK = {"RMSE": 0.02, "LEN": 0.02}
POSSIBLE = {"BAD%": (0.0, 0.0), "COV": (0.0, 100.0)}
"""Means of ratios that obey the rules obey them, whatever the draws."""
"""The paper's counts are the Census Bureau's; ours are synthetic, and errors of ratios follow the sizes of groups."""

DEFINITIONS = (
    "Each of 51 states has ten groups, each group three counts: persons under 18 and over 18 in families, and families. The "
    "table's 1,530 ratios are persons under 18, over 18, and both, to families. NM: ratios of noisy measurements; MB: "
    "posterior means of the ratios, under a flat prior on counts that are not negative, at least one family, and families of "
    "2 to 10 members. HM, which the paper does not have: posterior means by `linked-gibbs`, under a hierarchical prior on the "
    "states of each group and the groups of the nation, where families may be none; not with `--quick`.",
    "MIN and MAX: smallest and largest estimate. BAD%: percent of estimates outside their range (0 to 10, the total 2 to 10). "
    "RMSE: root of the mean squared error of the ratios. COV: percent of 90 % intervals that hold the true ratio. LEN: mean "
    "length of the intervals. Intervals of MB are the 5 % and 95 % quantiles of draws, of NM Fieller's sets: those that are "
    "no interval cover where the set does and are left out of LEN.",
    "Counts are synthetic. A state's families are lognormal (median a million, standard deviation of the log 1); a group has "
    "its share of them (.0006 to 1, as in the country) times a lognormal factor (median 1, standard deviation 1.2); of a "
    "family, .75 to 1.4 members are under 18 and 2 to 2.7 over 18, uniform over the 510 places. Their smallest groups "
    "are such that about as many noisy ratios are bad as in the paper. MIN, MAX "
    "and RMSE of noisy ratios rest on the few denominators near zero, and swing by a factor of four between runs.",
)


LAPLACE_COVERAGE = (
    "Exact draws cover about 90 %, as with normal noise. The printed 86.7 comes from draws of a Markov chain; the paper's own "
    "algorithm, run to convergence, covers like ours."
)


class Estimates(NamedTuple):
    """Estimated ratios (places, 3), whether their 90 % sets hold the truth, and lengths; NaN where there is none."""

    ratio: Reals
    covered: Reals
    length: Reals


class JanickiTable2(Item):
    """Six metrics of two estimates under two laws of noise."""

    name: ClassVar[str] = "janicki-table-2"
    paper: ClassVar[str] = "Janicki et al."
    place: ClassVar[str] = "Table 2"
    shows: ClassVar[str] = (
        "Average family size by age (PH5) for 51 states by ten groups, from counts with a 90 % noise margin of 200, families "
        f"cut at ten members: means over {REPLICATES} runs of the noise, {DRAWS:,} independent draws each."
    )
    seconds: ClassVar[float] = 50.0

    def run(self, setting: Setting) -> Found:
        rng, truth = setting.rng(self), families()
        runs = QUICK_REPLICATES if setting.quick else REPLICATES
        draws = setting.runs(DRAWS)
        chains = 0 if setting.quick else HIERARCHICAL_RUNS
        found = {
            law: [estimates(law, truth, draws, rng, linked=k < chains) for k in range(runs)] for law in LAWS
        }
        tables = {key: metrics([one[key[1]] for one in found[key[0]]], truth) for key in PRINTED}
        rows = [
            _row(key, metric, paper, *tables[key][metric], runs)
            for key, line in PRINTED.items()
            for metric, paper in zip(METRICS, line)
            if paper
        ]
        if not setting.quick:
            rows += [row for law in LAWS for row in _hierarchical_rows(law, found[law], truth)]
        return Found((*rows, better(found, truth)), (picture(truth, found["Gauss"]),), DEFINITIONS)


def families() -> Reals:
    """Synthetic counts (places, 3) of persons under 18 and over 18 in families, and of families: the same in every run."""
    rng = np.random.default_rng(510)
    state = np.exp(rng.normal(np.log(1e6), 1.0, (STATES, 1)))
    group = np.array(list(SHARES.values())) * np.exp(rng.normal(0, 1.2, (STATES, len(SHARES))))
    number = np.maximum(1, np.rint(state * group)).ravel()
    young, old = rng.uniform(0.75, 1.4, number.size), rng.uniform(2.0, 2.7, number.size)
    return np.column_stack([np.rint(number * young), np.rint(number * old), number])


def ratios(counts: Reals) -> Reals:
    """Under 18, over 18 and both, to families, of counts (..., 3)."""
    parts = counts[..., :2] / counts[..., 2:]
    return np.concatenate([parts, parts.sum(axis=-1, keepdims=True)], axis=-1)


def estimates(
    law: str, truth: Reals, draws: int, rng: np.random.Generator, *, linked: bool = False
) -> dict[str, Estimates]:
    """Draw the noise once; estimate by noisy ratios and from the posterior, under two priors if asked to."""
    normal = law == "Gauss"
    noisy = truth + (rng.normal(0, SD, truth.shape) if normal else rng.laplace(0, SCALE, truth.shape))
    found = {
        "NM": _noisy(noisy, truth, normal),
        "MB": _model_based(LAWS[law], noisy, truth, draws, _constraints()),
    }
    if linked:
        made = _model_based(LAWS[law], _by_group(noisy), _by_group(truth), draws, _linked(), "linked-gibbs")
        found[HIERARCHICAL] = Estimates(*(_by_place(each) for each in made))
    return found


def _by_group(places: Reals) -> Reals:
    """The rows of states by groups in the order of groups by states."""
    return places.reshape(STATES, len(SHARES), -1).swapaxes(0, 1).reshape(places.shape)


def _by_place(places: Reals) -> Reals:
    """The other way round."""
    return places.reshape(len(SHARES), STATES, -1).swapaxes(0, 1).reshape(places.shape)


def _noisy(noisy: Reals, truth: Reals, normal: bool) -> Estimates:
    none = np.full(noisy.shape, np.nan)
    if not normal:
        return Estimates(ratios(noisy), none, none)
    above = np.column_stack([noisy[:, :2], noisy[:, :2].sum(axis=1)])
    variances = SD**2 * np.array([1.0, 1.0, 2.0]), SD**2
    kind, low, high = fieller(above, noisy[:, 2:], variances, NORMAL_90)
    true, interval = ratios(truth), kind == INTERVAL
    inside = (low <= true) & (true <= high)
    outside = (true <= low) | (true >= high)  # the complement of an interval
    covered = np.where(kind == WHOLE_LINE, True, np.where(interval, inside, outside))
    return Estimates(ratios(noisy), covered.astype(float), np.where(interval, high - low, np.nan))


def _model_based(
    law: Law,
    noisy: Reals,
    truth: Reals,
    draws: int,
    constraints: Constraints,
    method: str | None = None,
) -> Estimates:
    """Ratios of the draws that `infer` makes from the noisy counts and the rules, as any user has them."""
    cells = constraints.cells
    header = Measured("families", cells.finest, law)
    values: Any = (noisy.ravel(),)  # continuous noise: no whole numbers
    measured = Measurements(cells, (header,), values, PUBLISHED, simulation=True)
    posterior = infer(measured, method, spec=constraints, draws=draws)
    counts = posterior.draws.reshape(-1, *noisy.shape)
    drawn = ratios(np.maximum(counts, [0, 0, 1]))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    true = ratios(truth)
    return Estimates(drawn.mean(axis=0), ((low <= true) & (true <= high)).astype(float), high - low)


@cache
def _constraints() -> Constraints:
    """The rules of the table's counts at 510 places, three counts each."""
    names = [f"{place:03d}" for place in range(STATES * len(SHARES))]
    return _ruled(Tree.from_columns(["all", "place"], [{}, {"place": names}]), RULES)


@cache
def _linked() -> Constraints:
    """The same counts by groups of the nation and their states; families may be none."""
    groups = np.repeat([f"{k:02d}" for k in range(len(SHARES))], STATES)
    places = np.array([f"{group}{k % STATES:02d}" for k, group in enumerate(groups)])
    levels = [{}, {"group": groups}, {"group": groups, "place": places}]
    return _ruled(Tree.from_columns(["all", "group", "place"], levels), RULES[1:])


def _ruled(tree: Tree, rules: Sequence[str]) -> Constraints:
    cells = Cells(tree, (Attribute("count", ("under18", "over18", "families"), partition=False),))
    linear = tuple(LinearRule(parse_linear(rule), "place") for rule in rules)
    return Constraints(cells, (cells.finest,), linear=linear)


def metrics(runs: Sequence[Estimates], truth: Reals) -> dict[str, tuple[float, float]]:
    """The six metrics, means over runs, and their standard errors in one run (NaN for the extremes)."""
    squares = [(one.ratio - ratios(truth)) ** 2 for one in runs]
    bad = [(one.ratio < [0.0, 0.0, 2.0]) | (one.ratio > LARGEST_FAMILY) for one in runs]
    square, error = _mean(squares)
    return {
        "MIN": (float(np.mean([one.ratio.min() for one in runs])), np.nan),
        "MAX": (float(np.mean([one.ratio.max() for one in runs])), np.nan),
        "BAD%": _mean([100.0 * one for one in bad]),
        "RMSE": (sqrt(square), error / (2 * sqrt(square))),
        "COV": _mean([100.0 * one.covered for one in runs]),
        "LEN": _mean([one.length for one in runs]),
    }


def _mean(runs: Sequence[NDArray]) -> tuple[float, float]:
    """Mean over runs of (places, 3), and its standard error in one run: the noise of places is independent."""
    places = np.ma.masked_invalid(runs).mean(axis=2)
    if not places.count():
        return np.nan, np.nan
    error = np.sqrt(places.var(axis=0, ddof=1).sum()) / places.shape[1]
    return float(places.mean()), float(error)


def _hierarchical_rows(law: str, runs: Sequence[Mapping[str, Estimates]], truth: Reals) -> list[Row]:
    """The six metrics under the hierarchical prior, and whether its ratios are the closer ones and its intervals honest."""
    made = [one for one in runs if HIERARCHICAL in one]
    found = metrics([one[HIERARCHICAL] for one in made], truth)
    flat = metrics([one["MB"] for one in made], truth)
    covered, error = found["COV"]
    return [
        *(shown(f"{law}, {HIERARCHICAL}: {metric}", "", found[metric][0]) for metric in METRICS),
        claim(
            f"{law}: RMSE under the hierarchical prior, under the flat one",
            "",
            f"{found['RMSE'][0]:.3f}, {flat['RMSE'][0]:.3f}",
            found["RMSE"][0] < flat["RMSE"][0],
        ),
        claim(
            f"{law}: coverage of 90 % intervals under the hierarchical prior",
            "",
            f"{covered:.1f}",
            abs(covered - 90.0) < 2.0 + 5.0 * error / sqrt(len(made)),
        ),
    ]


def _row(key: tuple[str, str], metric: str, paper: str, ours: float, error: float, runs: int) -> Row:
    label = f"{', '.join(key)}: {metric}"
    if key[1] == "NM" or metric not in STABLE:
        return shown(label, paper, float(ours))
    if key[0] == "Laplace" and metric == "COV":
        return shown(label, paper, float(ours), LAPLACE_COVERAGE)
    # The paper drew its noise once, for as many places.
    possible = POSSIBLE.get(metric, (0.0, inf))
    slack, ours_error = SLACK.get(metric, 0.0), float(error) / sqrt(runs)
    return compare(
        label,
        paper,
        float(ours),
        ours_error=ours_error,
        paper_error=float(error),
        slack=slack,
        possible=possible,
    )


def better(found: Mapping[str, Sequence[Mapping[str, Estimates]]], truth: Reals) -> Row:
    """The paper's conclusion: in every run the posterior's ratios are the closer ones."""
    every = [one for runs in found.values() for one in runs]
    squares = np.array(
        [[np.mean((one[e].ratio - ratios(truth)) ** 2) for e in ("NM", "MB")] for one in every]
    )
    gains = np.sqrt(squares[:, 0] / squares[:, 1])
    return claim(
        "RMSE of noisy ratios over that of model-based ones", "drastically reduced",
        f"{gains.min():.1f} to {gains.max():.1f}", bool(gains.min() > 1),
    )  # fmt: skip


def picture(truth: Reals, runs: list[dict[str, Estimates]]) -> Plot:
    """Root mean squared error by number of families."""
    size = np.log10(truth[:, 2])
    group = np.floor(2.5 * size).astype(int)
    groups = np.unique(group)
    at = [float(10 ** size[group == g].mean()) for g in groups]

    def curve(name: str, estimate: str) -> Curve:
        squares = np.mean([(one[estimate].ratio - ratios(truth)) ** 2 for one in runs], axis=(0, 2))
        return Curve(name, at, [sqrt(squares[group == g].mean()) for g in groups])

    return plot(
        [curve("noisy ratios", "NM"), curve("model-based", "MB")],
        "families in the group",
        "root mean squared error of the ratios",
        "The model's ratios are closer where groups are small; where groups are large both are the same.",
        "Root mean squared error of the three ratios by size of the group, normal noise.",
        log_across=True,
        log_up=True,
    )
