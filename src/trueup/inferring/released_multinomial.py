"""The posterior of true counts, given only counts released by a multinomial mode or draw.

One file: the method, with what it says of each kind of release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.inferring.chains import AIMED_EFFECTIVE_SIZE, MIN_DIAGNOSED_DRAWS
from trueup.inferring.method import InferenceMethod, Progress, in_blocks
from trueup.inferring.released import own_decides, two_parts
from trueup.inferring.released.posterior import ModePosterior, draw_posterior
from trueup.inferring.released.summed import SummedTreeChain
from trueup.inferring.released.tree import ReleasedTree, ReleasedTreeChain, draw_tree
from trueup.inferring.released.zero import ZeroPosterior
from trueup.kernel.released.tree import DRAWN, FIRST, SHUFFLED
from trueup.kernel.statistics.diagnostics import diagnose, r_hat_by_chance
from trueup.layouts.released import ReleasedSum
from trueup.layouts.tree import TreeProblem, tree_problem
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.prior import (
    FLAT,
    AnyPrior,
    Bounded,
    CountPrior,
    Estimated,
    FlatTotal,
    Hierarchical,
    Poisson,
    Prior,
)
from trueup.model.records.drawn import Drawn, Marginals
from trueup.noise.law import Law
from trueup.run import Deadline

DRAWS_AT_ONCE = 1000
"""Draws of a block; an interruption or the time limit keeps finished blocks."""
NUMBER_OF_CHAINS = 4


@dataclass(frozen=True)
class ReleasedMultinomial(InferenceMethod):
    """The posterior of true counts when only a multinomial method's released counts were published.

    Behind a mode draws are exact and independent, for any number of parts, and two parts have
    exact marginals. Behind a draw they are chains, checked for convergence. A released total of
    zero tells of the true total alone; draws are exact and independent. Behind a tree of several
    sums draws are chains, doubled until every count of the tree has mixed.

    Attributes
    ----------
    release
        `mode` or `sample`: which multinomial method released the counts.
    total, empty, ties, algorithm
        The same as in that method: `ties` of the mode, `algorithm` of the draw.
    prior
        Name, or name and parameters: flat, bounded, poisson, negative-binomial or masses on every
        part, or flat-total.
    sweeps
        Most steps of a chain on a tree in the run that is kept.

    References
    ----------
    Wang and Reiter (2021), section 4; Wang (2020), sections 3.1.1 and 3.2.
    """

    release: Literal["mode", "sample"] = "mode"
    total: Literal["independent", "summed"] = "independent"
    empty: Literal["error", "uniform"] = "uniform"
    ties: Literal["first", "shuffled"] = "first"
    algorithm: Literal[1, 2] = 2
    prior: AnyPrior = FLAT
    sweeps: int = 32_000

    name: ClassVar[str] = "released-multinomial"
    title: ClassVar[str] = "released counts alone: behind multinomial modes or draws"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})
    released: ClassVar[bool] = True

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return why the measurements do not fit this method, or None if they do."""
        if constraints.bounds or not constraints.nonnegative:
            return "it supports no bounds other than zero"
        if any(header.groups is not None for header in headers):
            return "it needs tables of which every count was measured"
        if any(header.law.joint for header in headers):
            return "the noise was drawn so that counts add up, so the released counts are the noisy counts themselves"
        measured = [canonical(constraints.cells, h.margin) for h in headers]
        parts = [h for h, margin in zip(headers, measured) if margin == constraints.cells.finest]
        if constraints.structure() == "tree":
            why = self._refuses_tree(constraints, measured)
        elif len(parts) != 1 or len(headers) > 2:
            why = "it needs exactly one noisy value of each part, and at most one of the total"
        else:
            why = None
        return why or ("the parts are invariants" if parts[0].exact else None)

    def _refuses_tree(self, constraints: Constraints, measured: Sequence[Margin]) -> str | None:
        """Return why a tree's measurements do not fit this method, or None if they do."""
        margins = constraints.nested.margins
        for margin in margins:
            if (times := measured.count(margin)) != 1:
                return (
                    f"it needs exactly one noisy query or invariant of every level, and '{margin}' has {times or 'none'} "
                    "('tree-exact' uses the measurements, where they are public)"
                )
        return None

    def refuses_release(self, method: Mapping[str, Any]) -> str | None:
        """Return why counts released by a given method do not fit this one, or None if they do."""
        expected = {"mode": "multinomial-mode", "sample": "multinomial-sample"}[self.release]
        if method.get("method") != expected:
            return f"the counts were released by '{method.get('method')}', not by '{expected}'"
        for name in ("total", "empty", "ties" if self.release == "mode" else "algorithm"):
            if (released := method.get(name, self.__dataclass_fields__[name].default)) != getattr(self, name):
                return f"the counts were released with {name} = {released!r}, not {getattr(self, name)!r}"
        if simulated := method.get("monte_carlo"):
            return f"the counts were released with simulated sums of noise (monte_carlo = {simulated}), which cannot be repeated"
        flat = {"name": "flat"}
        informed = [p for p in ("prior", "prior_total") if method.get(p, "flat") not in ("flat", flat)]
        return f"the counts were released with a `{informed[0]}` that is not flat" if informed else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> _State | TreeProblem:
        """Return the laws and cells of a single sum, or the problem of a tree."""
        if constraints.structure() == "tree":
            return tree_problem(constraints, headers)
        finest = constraints.cells.finest
        laws = {canonical(constraints.cells, h.margin) == finest: h.law for h in headers}
        active = np.flatnonzero(~constraints.zero_cells)
        return _State(constraints, laws[True], laws.get(False), active)

    def apply(
        self,
        state: _State | TreeProblem,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Draw the true counts given released ones `(n,)`."""
        deadline = deadline or Deadline.of()
        if isinstance(state, TreeProblem):
            tree = self._tree(state, values)
            chain_of = partial(SummedTreeChain, deadline=deadline) if tree.summed else ReleasedTreeChain
            return draw_tree(tree, draws, rng, self.sweeps, progress, deadline, chain_of)
        problem = self._problem(state, values)
        if problem.trials == 0:
            return _behind_zero(problem, state, draws, rng, progress, deadline)
        if self.release == "sample":
            return self._chains(problem, state, draws, rng)
        posterior = ModePosterior.of(problem)
        accepted = []

        def block(size: int) -> NDArray:
            drawn, share = posterior.draw(size, rng)
            accepted.append(share)
            return state.spread(drawn)

        counts, whole = in_blocks(block, draws, DRAWS_AT_ONCE, progress, deadline)
        stats = {
            "accepted": float(np.mean(accepted)),
            "dropped_mass": posterior.left_out,
            "draws": len(counts),
            "interrupted": not whole,
        }
        two = len(state.active) == state.constraints.cells.n == 2 and not problem.listed
        exact = _exact_marginals(problem, state) if two else {}
        return Drawn(counts[None], independent=True, marginals=exact, stats=stats)

    def _tree(self, problem: TreeProblem, values: NDArray) -> ReleasedTree:
        nested = problem.nested
        counts = np.empty(nested.level_ptr[-1], np.int64)
        for margin, nodes in zip(nested.margins, nested.nodes):
            counts[nodes] = nested.cells.sum(np.asarray(values).astype(np.int64), margin)
        release = DRAWN if self.release == "sample" else SHUFFLED if self.ties == "shuffled" else FIRST
        algorithm = self.algorithm if self.release == "sample" else 2
        summed = self.total == "summed" and not (algorithm == 2 and own_decide(problem))
        return ReleasedTree(problem, counts, self.prior, release, self.empty == "uniform", algorithm, summed)

    def _problem(self, state: _State, values: NDArray) -> ReleasedSum:
        counts = np.asarray(values)[state.active].astype(np.int64)
        prior, prior_total = _priors(self.prior, state.constraints.cells.n, state.active, int(counts.sum()))
        return ReleasedSum(
            counts,
            (state.law,) * len(counts),
            state.total_law,
            self.total,
            prior,
            prior_total,
            self.empty,
            self.algorithm if self.release == "sample" else 2,
            self.ties,
        )

    def _chains(self, problem: ReleasedSum, state: _State, draws: int, rng: np.random.Generator) -> Drawn:
        each = -(-draws // NUMBER_OF_CHAINS)
        counts = state.spread(
            draw_posterior(problem, NUMBER_OF_CHAINS, max(each, MIN_DIAGNOSED_DRAWS // NUMBER_OF_CHAINS), rng)
        )
        watched = np.concatenate([counts, counts.sum(axis=2, keepdims=True)], axis=2)
        r_hat, ess = diagnose(watched)
        allowed = r_hat_by_chance(watched.shape[2], AIMED_EFFECTIVE_SIZE)
        good = r_hat.max() <= allowed and ess.min() >= AIMED_EFFECTIVE_SIZE
        refused = (
            "" if good else f"R-hat {r_hat.max():.3f}, effective draws {ess.min():.0f}; ask for more draws"
        )
        chosen = np.linspace(0, counts.shape[1] - 1, each).round().astype(int)
        stats = {
            "chains": NUMBER_OF_CHAINS,
            "largest_r_hat": float(r_hat.max()),
            "r_hat_allowed": allowed,
            "smallest_ess": float(ess.min()),
        }
        # One auxiliary number of full support is all that a draw remembers: any table may follow any other.
        return Drawn(
            counts[:, chosen],
            independent=False,
            connected=True,
            r_hat=r_hat[:-1],
            ess=ess[:-1],
            refused=refused,
            stats=stats,
        )


@dataclass(frozen=True, eq=False)
class _State:
    """The laws of one sum, and its active cells: those that are not structural zeros."""

    constraints: Constraints
    law: Law
    total_law: Law | None
    active: NDArray[np.int64]

    def spread(self, counts: NDArray) -> NDArray:
        """Return counts `(..., n)` of all cells, given those of the active cells."""
        out = np.zeros((*counts.shape[:-1], self.constraints.cells.n), np.int64)
        out[..., self.active] = counts
        return out


def _priors(given: Prior, cells: int, active: NDArray[np.int64], total: int) -> tuple[CountPrior, CountPrior]:
    """Return the priors of the active cells and of their total."""
    assert not isinstance(given, Hierarchical | Estimated)  # refused when the method was made
    if isinstance(given, Poisson):
        given.refuse_other_than(cells)
        return (Poisson(tuple(given.mean[cell] for cell in active)) if given.varying else given), FLAT  # pyright: ignore
    given.refuse_varying()
    if not isinstance(given, FlatTotal):
        return given, FLAT
    if given.split == "uniform":
        return FLAT, Bounded(given.upper)
    shares = given.shares(cells)[active]
    if not (shares > 0).all():
        raise SpecError(
            "the prior gives a part the probability 0",
            needed="a probability above 0 for each part",
            remedy="raise it, or declare the part a structural zero",
        )
    mean = max(total, 1) * shares / shares.sum()
    return Poisson(float(mean[0]) if np.ptp(mean) == 0 else tuple(mean.tolist())), Bounded(given.upper)


def _behind_zero(
    problem: ReleasedSum,
    state: _State,
    draws: int,
    rng: np.random.Generator,
    progress: Progress,
    deadline: Deadline,
) -> Drawn:
    """Draw the true counts, given that their total was released as zero."""
    posterior = ZeroPosterior.of(problem)
    draw = lambda k: state.spread(posterior.draw(k, rng))  # noqa: E731
    counts, whole = in_blocks(draw, draws, DRAWS_AT_ONCE, progress, deadline)
    stats = {"dropped_mass": posterior.left_out, "draws": len(counts), "interrupted": not whole}
    return Drawn(counts[None], independent=True, stats=stats)


def _exact_marginals(problem: ReleasedSum, state: _State) -> dict[Margin, Marginals]:
    """Return exact probabilities of the counts of two parts, and of their total."""
    first, second, mass = two_parts(problem)
    parts = [mass.sum(axis=1), mass.sum(axis=0)]
    sums = np.arange(first.size)[:, None] + np.arange(second.size)[None, :]
    total = np.bincount(sums.ravel(), mass.ravel()).astype(float)
    cells = state.constraints.cells
    return {
        cells.finest: Marginals(
            np.cumsum([0, first.size, second.size]), np.array([first[0], second[0]]), np.concatenate(parts)
        ),
        cells.coarsest: Marginals(np.array([0, total.size]), np.array([first[0] + second[0]]), total),
    }


def own_decide(problem: TreeProblem) -> bool:
    """Return True if no total's estimate depends on the noisy parts below it."""
    nested, cells = problem.nested, problem.nested.cells
    law_at = {canonical(cells, header.margin): header.law for header in problem.headers}
    laws, parts = [law_at[margin] for margin in nested.margins], np.diff(nested.child_ptr)
    for level, (own, below) in enumerate(pairwise(laws)):
        sizes = set(parts[nested.at(nested.margins[level])].tolist())
        sizes |= {1} if problem.constraints.zeros else set()
        if not own.exact and not below.exact and not all(own_decides(own, below, size) for size in sizes):
            return False
    return True
