"""Janicki et al., Table 2: ratios of noisy counts beside ratios from their posterior, by six metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import erf, exp, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from papers.census import COUNTIES
from papers.curves import Curve, Plot, plot
from papers.item import Found, Item, Setting
from papers.janicki import metropolis
from papers.janicki.population import (
    LARGEST_FAMILY,
    SCALE,
    SD,
    SHARES,
    STATES,
    expected_bad,
    population,
    spread,
    states,
)
from papers.row import Row, claim, compare, held, share_error, shown
from trueup.inferring import infer
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.statistics import INTERVAL, WHOLE_LINE, fieller
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise.law import Law
from trueup.noise.laws.undrawn import Gaussian, Laplace

Reals = NDArray[np.float64]

NORMAL_90, MARGIN = 1.6448536269514722, 200
LARGE = 20_000
"""Families of places where rules do not matter: noise has a standard deviation of 0.6 % of them, or less."""

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
REPLICATES, QUICK_REPLICATES, DRAWS, STEPS = 10, 3, 2_000, 8_000
HIERARCHICAL, HIERARCHICAL_RUNS = "HM", 2
"""Posterior under the hierarchical prior, by chains that take several times as long as independent draws."""
METROPOLIS = "MH"
UNSETTLED = {("Gauss", "NM", "BAD%"): "It gives how uneven the groups' shares are: see the note.",
            ("Laplace", "NM", "BAD%"): "A run has about 21 bad ratios, so chance alone allows all from 0 to 2.8 %."}  # fmt: skip
NEAR_ZERO = "It rests on the few denominators nearest to zero, and swings by a factor of four between runs."
"""Of the extremes, root mean squared error and lengths of noisy ratios: these have no variance."""

DEFINITIONS = (
    "Each of 51 states has ten groups, each group three counts: persons under 18 and over 18 in families, and families. The "
    "table's 1,530 ratios are persons under 18, over 18, and both, to families. NM: ratios of noisy measurements; MB: "
    "posterior means of the ratios, under a flat prior on counts that are not negative, at least one family, and families of "
    "2 to 10 members. MH: the same posterior by the paper's Metropolis sampler. HM, which the paper does not have: posterior "
    "means by `linked-gibbs`, under a hierarchical prior on the "
    "states of each group and the groups of the nation, where families may be none; not with `--quick`.",
    "MIN and MAX: smallest and largest estimate. BAD%: percent of estimates outside their range (0 to 10, the total 2 to 10). "
    "RMSE: root of the mean squared error of the ratios. COV: percent of 90 % intervals that hold the true ratio. LEN: mean "
    "length of the intervals. Intervals of MB are the 5 % and 95 % quantiles of draws, of NM Fieller's sets: those that are "
    "no interval cover where the set does and are left out of LEN.",
    "The paper's counts of families are not among the data, and its figures determine little of them. So every run draws "
    "others: a state has a family for every 3.98 persons of the 2010 Census, a group its share of the country's persons "
    "times a lognormal factor of mean 1, a family the members of one of the five states of the paper's Table 1. The factor's "
    "standard deviation on the log scale is the one figure taken from the table itself: it makes 1.4 % the expected share of "
    "bad ratios under normal noise, by quadrature, which is therefore shown only. All other printed figures follow, with the "
    "chance of one run and one population.",
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
    files: ClassVar[tuple[str, ...]] = (COUNTIES,)
    seconds: ClassVar[float] = 60.0
    catches: ClassVar[tuple[str, ...]] = (
        "noise 10 % too narrow",
        "noise 15 % too narrow",
        "inference with noise 10 % too narrow",
        "without the rule on the most members",
        "without the rule on the fewest members",
    )

    def run(self, setting: Setting) -> Found:
        rng, persons = setting.rng(self), states(setting)
        uneven = spread(persons)
        runs = QUICK_REPLICATES if setting.quick else REPLICATES
        draws = setting.runs(DRAWS)
        chains = 0 if setting.quick else HIERARCHICAL_RUNS
        found = {
            law: [
                estimates(law, population(persons, uneven, rng), draws, rng, linked=k < chains)
                for k in range(runs)
            ]
            for law in LAWS
        }
        rows = [row for law in LAWS for row in _rows(law, found[law], draws, setting.quick)]
        rows += [_bad(law, runs, expected_bad(persons, uneven, law)) for law, runs in found.items()]
        return Found((*rows, better(found)), (picture(found["Gauss"]),), DEFINITIONS)


def ratios(counts: Reals) -> Reals:
    """Under 18, over 18 and both, to families, of counts (..., 3)."""
    parts = counts[..., :2] / counts[..., 2:]
    return np.concatenate([parts, parts.sum(axis=-1, keepdims=True)], axis=-1)


class Run(NamedTuple):
    """One population with its noise (places, 3), and estimates by their names."""

    truth: Reals
    noise: Reals
    by: dict[str, Estimates]


def estimates(law: str, truth: Reals, draws: int, rng: np.random.Generator, *, linked: bool = False) -> Run:
    """Draw the noise once; estimate by noisy ratios and from the posterior, under two priors if asked to."""
    normal = law == "Gauss"
    noise = rng.normal(0, SD, truth.shape) if normal else rng.laplace(0, SCALE, truth.shape)
    noisy = truth + noise
    steps = STEPS * draws // DRAWS
    drawn = metropolis.sample(noisy, SD if normal else SCALE, normal, LARGEST_FAMILY, steps, rng)
    found = {
        "NM": _noisy(noisy, truth, normal),
        "MB": _model_based(LAWS[law], noisy, truth, draws, _constraints()),
        METROPOLIS: _of_draws(drawn, truth),
    }
    if linked:
        made = _model_based(LAWS[law], _by_group(noisy), _by_group(truth), draws, _linked(), "linked-gibbs")
        found[HIERARCHICAL] = Estimates(*(_by_place(each) for each in made))
    return Run(truth, noise, found)


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
    return _of_draws(posterior.draws.reshape(-1, *noisy.shape), truth)


def _of_draws(counts: Reals, truth: Reals) -> Estimates:
    """Posterior means of the ratios, and their 5 % and 95 % quantiles."""
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


def metrics(runs: Sequence[Run], by: str) -> dict[str, tuple[float, float]]:
    """The six metrics, means over runs, and their standard errors in one run, over noise and population."""
    made = [run.by[by] for run in runs]
    squares = [(one.ratio - ratios(run.truth)) ** 2 for one, run in zip(made, runs)]
    bad = [(one.ratio < [0.0, 0.0, 2.0]) | (one.ratio > LARGEST_FAMILY) for one in made]
    square, error = _mean(squares)
    least, most = ([getattr(one.ratio, end)() for one in made] for end in ("min", "max"))
    return {
        "MIN": (float(np.mean(least)), float(np.std(least, ddof=1))),
        "MAX": (float(np.mean(most)), float(np.std(most, ddof=1))),
        "BAD%": _mean([100.0 * one for one in bad]),
        "RMSE": (sqrt(square), error / (2 * sqrt(square))),
        "COV": _mean([100.0 * one.covered for one in made]),
        "LEN": _mean([one.length for one in made]),
    }


def _mean(runs: Sequence[NDArray]) -> tuple[float, float]:
    """Mean over runs of (places, 3), and its standard error in one run: places are independent."""
    places = np.ma.masked_invalid(runs).mean(axis=2)
    if not places.count():
        return np.nan, np.nan
    error = np.sqrt(places.var(axis=0, ddof=1).sum()) / places.shape[1]
    return float(places.mean()), float(error)


def _rows(law: str, runs: Sequence[Run], draws: int, quick: bool) -> list[Row]:
    """The printed figures, then what is exact, then what the paper's sampler gives."""
    rows = []
    for by in ("NM", "MB"):
        found = metrics(runs, by)
        lines = zip(METRICS, PRINTED[law, by])
        rows += [
            _row((law, by, metric), paper, *found[metric], len(runs)) for metric, paper in lines if paper
        ]
    rows += [_within(law, runs), _of_large(law, runs, "MB", draws), *_beside_metropolis(law, runs)]
    return rows if quick else [*rows, *_hierarchical_rows(law, runs, draws)]


def _row(key: tuple[str, str, str], paper: str, ours: float, error: float, runs: int) -> Row:
    label = f"{key[0]}, {key[1]}: {key[2]}"
    if key in UNSETTLED:
        return shown(label, paper, ours, UNSETTLED[key])
    if key[1] == "NM" and key[2] != "COV":
        return shown(label, paper, ours, NEAR_ZERO)
    if key[2] in ("MIN", "MAX") and runs < REPLICATES:
        return shown(label, paper, ours, "Too few runs to know by how much it varies.")
    # The paper drew its noise once, for as many places.
    return compare(label, paper, ours, ours_error=error / sqrt(runs), paper_error=error)


def _within(law: str, runs: Sequence[Run]) -> Row:
    """The paper's margin: 90 % of the noise is within 200."""
    inside = np.concatenate([np.abs(run.noise).ravel() <= MARGIN for run in runs])
    right = erf(MARGIN / SD / sqrt(2)) if law == "Gauss" else 1 - exp(-MARGIN / SCALE)
    error = share_error(right, inside.size)
    return held(f"{law}: share of the noise within {MARGIN}", float(inside.mean()), right, ours_error=error)


def _bad(law: str, runs: Sequence[Run], right: float) -> Row:
    """Bad noisy ratios of the drawn populations, beside their expectation by quadrature."""
    found, error = metrics(runs, "NM")["BAD%"]
    label = f"{law}, NM: BAD%, expected"
    return held(label, found, right, ours_error=error / sqrt(len(runs)))


def _of_large(law: str, runs: Sequence[Run], by: str, draws: int) -> Row:
    """Where rules do not matter a flat prior's intervals cover as often as they say, whatever the counts are."""
    chosen = [run for run in runs if by in run.by]
    places = np.concatenate([run.by[by].covered[run.truth[:, 2] >= LARGE].mean(axis=1) for run in chosen])
    label = f"{law}, {by}: coverage (%) of 90 % intervals, places of {LARGE:,} families or more"
    error = float(places.std(ddof=1)) / sqrt(places.size)
    return held(label, 100 * float(places.mean()), 100 * _between_quantiles(draws), ours_error=100 * error)


def _between_quantiles(draws: int) -> float:
    """Expected mass between the 5 % and 95 % quantiles of independent draws: their order statistics split it evenly.

    Examples
    --------
    >>> round(_between_quantiles(2000), 4)
    0.8991
    """
    return 1 - 2 * (0.05 * (draws - 1) + 1) / (draws + 1)


def _beside_metropolis(law: str, runs: Sequence[Run]) -> list[Row]:
    """Means and lengths of our posterior beside those of the paper's sampler, on the same noisy counts."""
    rows = []
    for name, field in (("posterior mean of a ratio", "ratio"), ("length of an interval", "length")):
        ours, theirs = (
            np.concatenate([getattr(run.by[by], field).mean(axis=1) for run in runs])
            for by in ("MB", METROPOLIS)
        )
        error = float((ours - theirs).std(ddof=1)) / sqrt(ours.size)
        label = f"{law}: {name}, by `infer` and by the paper's sampler"
        rows.append(held(label, float(ours.mean()), float(theirs.mean()), ours_error=error))
    return rows


def _hierarchical_rows(law: str, runs: Sequence[Run], draws: int) -> list[Row]:
    """Whether under the hierarchical prior ratios are the closer ones, and intervals of large places honest."""
    made = [run for run in runs if HIERARCHICAL in run.by]
    ours, flat = (metrics(made, by)["RMSE"][0] for by in (HIERARCHICAL, "MB"))
    return [
        claim(
            f"{law}: RMSE under the hierarchical prior, under the flat one",
            "",
            f"{ours:.3f}, {flat:.3f}",
            ours < flat,
        ),
        _of_large(law, runs, HIERARCHICAL, draws),
    ]


def better(found: Mapping[str, Sequence[Run]]) -> Row:
    """The paper's conclusion: in every run the posterior's ratios are the closer ones."""
    every = [run for runs in found.values() for run in runs]
    squares = np.array(
        [[np.mean((run.by[e].ratio - ratios(run.truth)) ** 2) for e in ("NM", "MB")] for run in every]
    )
    gains = np.sqrt(squares[:, 0] / squares[:, 1])
    return claim(
        "RMSE of noisy ratios over that of model-based ones", "drastically reduced",
        f"{gains.min():.1f} to {gains.max():.1f}", bool(gains.min() > 1),
    )  # fmt: skip


def picture(runs: Sequence[Run]) -> Plot:
    """Root mean squared error by number of families."""
    size = np.log10(np.concatenate([run.truth[:, 2] for run in runs]))
    group = np.floor(2.5 * size).astype(int)
    groups = np.unique(group)
    at = [float(10 ** size[group == g].mean()) for g in groups]

    def curve(name: str, by: str) -> Curve:
        squares = np.concatenate([((run.by[by].ratio - ratios(run.truth)) ** 2).mean(axis=1) for run in runs])
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
