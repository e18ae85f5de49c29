"""Wrong versions of the package, by name, and the items of `python -m papers` that tell each from the right one.

What an item lists in `catches` is what is here. A wrong version replaces what an item takes from the package (a law, a kernel, a
method), or the noise that it draws; never what the item holds it to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from papers import markov_chain
from papers.dharangutte import examples, figure_1, figure_2, figure_10, tables
from papers.dharangutte.figure_10 import REAL, WHOLE
from papers.item import Setting
from papers.janicki import table_2 as janicki
from papers.wang import posterior, scenarios
from papers.wang import table_1 as wang_1
from papers.wang import table_4 as wang_4
from papers.wangreiter import example, negative_counts, summed_totals
from papers.wangreiter import table_2 as wangreiter
from papers.zhu import figure_5, figure_6, new_mexico, residuals, variances
from trueup.inferring import released as released_sums
from trueup.noise import DiscreteLaplace, Laplace
from trueup.noise.lattice import LatticeL2Laplace, LatticeLaplace
from trueup.noise.laws.undrawn import Gaussian
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample

Apply = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A wrong version.

    Attributes
    ----------
    name
        As items list it.
    apply
        Puts it in place.
    items
        What must turn to "differs" in a full run.
    whole
        Those of them for which a quick run has too few replicates.
    rows
        Beginnings of labels, by item, each of which a row that differs in a full run must have.
    """

    name: str
    apply: Apply
    items: tuple[str, ...]
    whole: tuple[str, ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Narrow(np.random.Generator):
    """A generator whose noise is too narrow; draws of other things, of scales below 5, are as they should be."""

    factor = 1.0

    def laplace(self, loc=0.0, scale=1.0, size=None):
        return super().laplace(loc, scale * self.factor, size)

    def normal(self, loc=0.0, scale=1.0, size=None):
        return super().normal(loc, scale * (self.factor if scale > 5 else 1.0), size)


# --- laws and noise ---------------------------------------------------------------------------


def scaled(law: Any, factor: str) -> Callable[..., Any]:
    """A law whose parameter is off by a factor."""
    return lambda parameter: law(Fraction(parameter) * Fraction(factor))


def epsilon_of(factor: str, *modules: Any) -> Apply:
    """Epsilon off by a factor in every law that modules take from the package."""
    laws = {law.__name__: law for law in (DiscreteLaplace, LatticeLaplace, LatticeL2Laplace)}

    def apply(patch: pytest.MonkeyPatch) -> None:
        for module in modules:
            for name, law in laws.items():
                if hasattr(module, name):
                    patch.setattr(module, name, scaled(law, factor))

    return apply


def narrow(factor: float) -> Apply:
    """Noise that NumPy draws, too narrow."""
    right = Setting.rng

    def apply(patch: pytest.MonkeyPatch) -> None:
        def rng(self: Setting, item: Any) -> Narrow:
            made = Narrow(right(self, item).bit_generator)
            made.factor = factor
            return made

        patch.setattr(Setting, "rng", rng)

    return apply


def wide_law(patch: pytest.MonkeyPatch) -> None:
    for module in (figure_5, figure_6):
        patch.setattr(module, "NOISE", Laplace(Fraction(101, 10)))
    patch.setattr(variances, "Laplace", scaled(Laplace, "101/100"))


def other_norm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(examples, "LatticeLaplace", LatticeL2Laplace)
    patch.setattr(examples, "LatticeL2Laplace", LatticeLaplace)


def plain_noise(patch: pytest.MonkeyPatch) -> None:
    def draw(counties: int, draws: int, rng: np.random.Generator) -> Any:
        law = DiscreteLaplace(examples.EPSILON_COUNTIES)
        return law.sample(counties * draws, rng.bytes).reshape(draws, counties)

    patch.setattr(figure_2, "county_noise", draw)


def narrow_inference(patch: pytest.MonkeyPatch) -> None:
    normal, laplace = Gaussian(Fraction(janicki.SD**2 * 0.81)), Laplace(Fraction(str(janicki.SCALE)) * 9 / 10)
    laws = {"Gauss": normal, "Laplace": laplace}
    patch.setattr(janicki, "LAWS", laws)


# --- projections ------------------------------------------------------------------------------


def clip_and_scale(patch: pytest.MonkeyPatch) -> None:
    """Negative counts become zero, then all are multiplied by what gives the total."""

    def project(spread, lower, upper, total, values):
        clipped = np.clip(values, lower, upper)
        return clipped * total / clipped.sum(axis=1, keepdims=True)

    for module in (residuals, new_mexico):
        patch.setattr(module, "project_on_total", project)


def raised(by: float, module: Any) -> Apply:
    right = module.project_on_total
    return lambda patch: patch.setattr(module, "project_on_total", lambda *given: right(*given) + by)


def low_bound(patch: pytest.MonkeyPatch) -> None:
    right = new_mexico.nonnegative_bias_bound
    patch.setattr(new_mexico, "nonnegative_bias_bound", lambda *given: 0.99 * right(*given))


def one_part_more(patch: pytest.MonkeyPatch) -> None:
    distance, law = figure_5.wasserstein, figure_6.projected_error
    patch.setattr(figure_5, "wasserstein", lambda noise, n: distance(noise, n + 1))
    patch.setattr(figure_6, "projected_error", lambda noise, n: law(noise, n + 1))


def no_projection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(variances, "least_squares", lambda star, spread, noise: noise)


def gap_on_one(patch: pytest.MonkeyPatch) -> None:
    """Another nearest point in L1, as a solver of linear programs may return it."""
    right = figure_10._projected

    def projected(method, constraints, law, noise):
        if len(constraints.invariants) > 1:
            return right(method, constraints, law, noise)
        moved = noise.astype(float)
        moved[:, 0] -= noise.sum(axis=1)
        return moved

    patch.setattr(figure_10, "_projected", projected)


def odd_by_place(patch: pytest.MonkeyPatch) -> None:
    right = figure_10.counties

    def counties(draws, rng):
        found = right(draws, rng)
        real = found[REAL][: len(found[WHOLE])]
        return found | {WHOLE: real + np.sort(found[WHOLE] - real, axis=1)}

    patch.setattr(figure_10, "counties", counties)


# --- chains -----------------------------------------------------------------------------------


def chain_rate(patch: pytest.MonkeyPatch) -> None:
    right = figure_1.Run.target.fget  # type: ignore[union-attr]

    def target(self):
        found = right(self)
        return found._replace(rate=1.1 * found.rate)

    patch.setattr(figure_1.Run, "target", property(target))


def chain_stays(patch: pytest.MonkeyPatch) -> None:
    right = markov_chain.run_lattice_chain

    def run(rng, target, scale, start, steps, keep):
        return right(rng, target, 0.05, start, steps, keep)

    patch.setattr(markov_chain, "run_lattice_chain", run)


# --- multinomial modes and posteriors ---------------------------------------------------------


class LargestRemainders:
    """Proportional claims, rounded down, and what is left to the largest remainders."""

    def prepare(self, constraints, headers):
        return None

    def apply(self, prepared, noisy, rng):
        weights, totals = np.maximum(noisy[:, 1:], 0), np.maximum(noisy[:, 0], 0)
        claims = weights * (totals / np.maximum(weights.sum(axis=1), 1))[:, None]
        parts = np.floor(claims).astype(np.int64)
        order = np.argsort(np.argsort(parts - claims, axis=1, kind="stable"), axis=1)
        return SimpleNamespace(values=parts + (order < (totals - parts.sum(axis=1))[:, None]))


def modes_become(make: Callable[[str], Any]) -> Apply:
    """Another method wherever items release modes."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        for module in (wangreiter, example):
            patch.setattr(module, "MultinomialMode", lambda total="independent", ties="": make(total))
        patch.setitem(wang_1.ALGORITHMS, "Algorithm 3", make("independent"))

    return apply


def modes_for_posterior_draws(patch: pytest.MonkeyPatch) -> None:
    for total, name in (("independent", "Algorithm 1 (ind)"), ("summed", "Algorithm 1 (summed)")):
        patch.setitem(wang_1.ALGORITHMS, name, MultinomialSample(algorithm=2, total=total))  # type: ignore[arg-type]


def highest_index(patch: pytest.MonkeyPatch) -> None:
    """The last part gives back, not the first."""
    right = released_sums.mode_table
    patch.setattr(released_sums, "mode_table", lambda first, second, k: right(second, first, k[::-1]).T)


def falling_prior(patch: pytest.MonkeyPatch) -> None:
    right = posterior.two_parts

    def two_parts(*given, **options):
        first, second, mass = right(*given, **options)
        tilted = mass * 0.99 ** (first - first[0])[:, None]
        return first, second, tilted / tilted.sum()

    patch.setattr(posterior, "two_parts", two_parts)


def modes_for_draws(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wang_4, "posterior", lambda drawn: posterior.posterior())


def changed_scenarios(module: Any, change: Callable[[Any], Any]) -> Apply:
    right = wangreiter.scenarios
    return lambda patch: patch.setattr(
        module, "scenarios", lambda: {n: replace(s, counts=change(s.counts)) for n, s in right().items()}
    )


# --- rules and tables -------------------------------------------------------------------------


def without_rule(place: int) -> Apply:
    def apply(patch: pytest.MonkeyPatch) -> None:
        rules = tuple(rule for i, rule in enumerate(janicki.RULES) if i != place)
        patch.setattr(janicki, "RULES", rules)
        patch.setattr(janicki, "_constraints", janicki._constraints.__wrapped__)  # not the kept ones

    return apply


def wrong_cell(patch: pytest.MonkeyPatch) -> None:
    cells = tables.CHILDREN.copy()
    cells[0, 0] += 1
    patch.setattr(tables, "CHILDREN", cells)


SMALL = ("dharangutte-figure-5", "dharangutte-figure-7", "dharangutte-tables")
POSTERIORS = ("wangreiter-table-3", "wangreiter-figure-2", "wang-table-5")
MODES = ("wangreiter-table-2", "wang-table-1", "wang-table-3")
P_PLUS = ("zhu-figure-1", "zhu-figure-4")

MUTATIONS = (
    Mutation("clip and scale in place of the projection", clip_and_scale, (*P_PLUS, "zhu-new-mexico"), ("zhu-figure-4",)),
    Mutation("epsilon 2 % off", epsilon_of("51/50", residuals, examples), (*P_PLUS, *SMALL), (*P_PLUS, *SMALL)),
    Mutation("every place 0.02 counts too high", raised(0.02, residuals), P_PLUS, ("zhu-figure-4",)),
    Mutation("every place 0.15 counts too high", raised(0.15, new_mexico), ("zhu-new-mexico",), ("zhu-new-mexico",)),
    Mutation("bound 1 % too low", low_bound, ("zhu-new-mexico",)),
    Mutation("noise 5 % too narrow", narrow(0.95),
             ("zhu-new-mexico", "zhu-figure-5", "zhu-figure-6", "zhu-variances"),
             ("zhu-new-mexico", "zhu-figure-5", "zhu-figure-6", "zhu-variances")),
    Mutation("a law whose scale is 1 % off", wide_law, ("zhu-figure-5", "zhu-figure-6", "zhu-variances")),
    Mutation("the mean of n + 1 parts for that of n", one_part_more, ("zhu-figure-5", "zhu-figure-6")),
    Mutation("no projection", no_projection, ("zhu-variances",), ("zhu-variances",)),
    Mutation("epsilon 1 in place of 1/4", epsilon_of("4", examples), SMALL),
    Mutation("epsilon 1/20 in place of 1/4", epsilon_of("1/5", examples), SMALL),
    Mutation("the other norm", other_norm, SMALL),
    Mutation("a printed cell 1 too high", wrong_cell, ("dharangutte-tables",)),
    Mutation("epsilon 10 % off", chain_rate, ("dharangutte-figure-1",), ("dharangutte-figure-1",)),
    Mutation("a chain that hardly moves", chain_stays, ("dharangutte-figure-1",)),
    Mutation("noise that is not given the total", plain_noise, ("dharangutte-figure-2",)),
    Mutation("the whole gap on one county", gap_on_one, ("dharangutte-figure-10",)),
    Mutation("odd persons borne by place", odd_by_place, ("dharangutte-figure-10",)),
    Mutation("epsilon 5 % off", epsilon_of("21/20", scenarios, figure_2, figure_10),
             (*MODES, "dharangutte-figure-2", "dharangutte-figure-10"),
             ("wang-table-3", "dharangutte-figure-2", "dharangutte-figure-10"),
             {"wangreiter-table-2": ("Scenario 1,", "Scenario 2,", "Scenario 3,", "Scenario 4,")}),
    Mutation("epsilon 1 % off", epsilon_of("101/100", scenarios, posterior),
             (*POSTERIORS, "wang-table-4", "wangreiter-negative-counts", "wangreiter-summed-totals")),
    Mutation("draws in place of modes", modes_become(lambda total: MultinomialSample(total=total)),
             (*MODES, "wangreiter-example")),
    Mutation("ties to the lowest index", modes_become(lambda total: MultinomialMode(total=total, ties="first")),
             ("wangreiter-table-2", "wang-table-3"), ("wangreiter-table-2", "wang-table-3")),
    Mutation("largest remainders in place of modes", modes_become(lambda total: LargestRemainders()),
             ("wangreiter-table-2",)),
    Mutation("posterior modes in place of posterior draws", modes_for_posterior_draws,
             ("wang-table-1", "wang-table-3"), ("wang-table-1", "wang-table-3")),
    Mutation("ties to the highest index", highest_index, POSTERIORS),
    Mutation("a prior that falls by 1 % a count", falling_prior, (*POSTERIORS, "wang-table-4")),
    Mutation("modes in place of draws", modes_for_draws, ("wang-table-4",)),
    Mutation("one part left out", changed_scenarios(summed_totals, lambda counts: counts[1:]), ("wangreiter-summed-totals",)),
    Mutation("counts 1 too high", changed_scenarios(negative_counts, lambda counts: counts + 1), ("wangreiter-negative-counts",)),
    Mutation("noise 10 % too narrow", narrow(0.9), ("janicki-table-2",)),
    Mutation("noise 15 % too narrow", narrow(0.85), ("janicki-table-2",)),
    Mutation("inference with noise 10 % too narrow", narrow_inference, ("janicki-table-2",)),
    Mutation("without the rule on the most members", without_rule(2), ("janicki-table-2",)),
    Mutation("without the rule on the fewest members", without_rule(1), ("janicki-table-2",)),
)  # fmt: skip
