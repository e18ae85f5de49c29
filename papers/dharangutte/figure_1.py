"""Dharangutte et al., Figures 1, 4 and 6: how fast the paper's Markov chain converges, by L-lag coupling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.dharangutte.examples import EPSILON, PAPER, Example, children, records
from papers.item import Found, Item, Setting
from papers.row import ERRORS, Row, claim, shown
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice_samplers import markov_chain as chain
from trueup.reporting.drawing.curves import Curve, Plot, plot

PAIRS, LONGEST = 200, 400_000
CONVERGED = 0.01


@dataclass(frozen=True, eq=False)
class Run:
    """One target with the chain's tuning: scale of the jumps, scale of the dispersed start, lags."""

    example: Example
    norm: int
    scale: float
    spread: float
    lags: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"{self.example.title}, L{self.norm} norm"

    @property
    def target(self) -> chain.ChainTarget:
        """The law on the basis of the Smith form, which the paper's proposals move along."""
        norm = {1: chain.L1, 2: chain.L2}[self.norm]
        return chain.ChainTarget(algebra.smith_basis(self.example.invariants), norm, float(EPSILON))

    def meetings(self, lag: int, pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Meeting times of coupled pairs `(pairs,)`."""
        return chain.meeting_times(rng, self.target, self.scale, self.spread, lag, pairs, LONGEST)

    def ends(self, steps: int, chains: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """States `(chains, n)` after so many steps from a dispersed start."""
        starts = rng.geometric(1 / (1 + self.spread), (2, chains, len(self.target.basis)))
        states = [
            chain.run_lattice_chain(rng, self.target, self.scale, start, steps, steps)[0]
            for start in starts[0] - starts[1]
        ]
        return np.vstack(states)


def runs() -> tuple[Run, ...]:
    """Figure 1 is the table with the L1 norm, Figure 6 with the L2 norm; Figure 4 is the 14 records."""
    return (
        Run(children(), 1, 1.2, 10.0, (250, 1000, 4000)),
        Run(children(), 2, 3.0, 20.0, (250, 1000, 4000)),
        Run(records(), 1, 1.2, 10.0, (500, 2000, 8000)),
        Run(records(), 2, 4.0, 20.0, (500, 2000, 8000)),
    )


class DharangutteFigure1(Item):
    """Bounds on the total variation between the chain and its target, drawn."""

    name: ClassVar[str] = "dharangutte-figure-1"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figures 1, 4 and 6"
    shows: ClassVar[str] = (
        "The paper's Gibbs-within-Metropolis chain on the 4 x 4 table and on the 14 records, both norms, epsilon 1/4: "
        "bound on its distance to the target over 200 coupled pairs, for three lags."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)
    seconds: ClassVar[float] = 25.0

    def run(self, setting: Setting) -> Found:
        rng, pairs = setting.rng(self), PAIRS // 10 if setting.quick else PAIRS
        rows, pictures = [], []
        for each in runs():
            times = {lag: each.meetings(lag, pairs, rng) for lag in each.lags}
            rows += convergence(each, times, rng)
            pictures.append(curves(each, times))
        return Found(
            tuple(rows),
            tuple(pictures),
            (
                "The paper's tuning and its numbers of iterations are not stated in words, so these chains are tuned "
                "anew and no number of steps is compared. They start from dispersed states: zero, which the paper "
                "suggests for convenience, is the mode, and a chain that has not left it looks converged.",
                f"{pairs} pairs that all met certify no distance below {3 / pairs:.3f} (rule of three); exact draws, "
                "as elsewhere on this page, need no certificate.",
            ),
        )


def convergence(each: Run, times: dict[int, NDArray[np.int64]], rng: np.random.Generator) -> list[Row]:
    """When the bound is small, whether it is stable in the lag, and whether the chain is then where it should be."""
    *_, middle, long = each.lags
    steps = chain.steps_for(times[middle], middle, CONVERGED)
    return [
        claim(
            f"{each.title}: pairs that met", "all", _met(times), all((t > 0).all() for t in times.values())
        ),
        shown(f"{each.title}: steps until the bound is {CONVERGED} (lag {middle:,})", "", f"{steps:,}"),
        _stable(each.title, {lag: times[lag] - lag for lag in (middle, long)}),
        _arrived(each, steps, len(times[middle]) // 4, rng),
    ]


def _met(times: dict[int, NDArray[np.int64]]) -> str:
    return f"{sum((t > 0).sum() for t in times.values())} of {sum(map(len, times.values()))}"


def _stable(title: str, waits: dict[int, NDArray[np.int64]]) -> Row:
    """Hold the distributions of the meeting time less the lag against each other, for the two longer lags."""
    from scipy.stats import ks_2samp  # slow to load

    (a, first), (b, second) = waits.items()
    p_value = float(ks_2samp(first, second)[1])  # type: ignore[arg-type]
    label = f"{title}: meeting time less the lag, lags {a:,} and {b:,}"
    return claim(label, "stable in the lag", f"p-value {p_value:.2g}", p_value > 1e-6)


def _arrived(each: Run, steps: int, chains: int, rng: np.random.Generator) -> Row:
    """Compare the average norm of chains stopped after so many steps with that of exact draws."""
    reached, exact = (
        np.linalg.norm(states, each.norm, axis=1)
        for states in (each.ends(steps, chains, rng), each.example.noise(each.norm, 10_000, rng))
    )
    error = exact.std() * np.sqrt(1 / len(reached) + 1 / len(exact))
    label = f"{each.title}: average norm of {chains} chains after {steps:,} steps"
    ours = f"{reached.mean():.1f} (exact draws {exact.mean():.1f})"
    return claim(label, "converged", ours, bool(abs(reached.mean() - exact.mean()) < ERRORS * error))


def curves(each: Run, times: dict[int, NDArray[np.int64]]) -> Plot:
    """Draw the bound over the steps, a curve for each lag."""
    last = max(chain.steps_for(t, lag, CONVERGED) for lag, t in times.items())
    at = np.linspace(0, last, 81).astype(int)
    bounds = {lag: np.minimum(chain.total_variation(t, lag, at), 1.0) for lag, t in times.items()}
    return plot(
        [Curve(f"lag {lag:,}", at.tolist(), bound.tolist()) for lag, bound in bounds.items()],
        "steps of the chain",
        "bound on total variation",
        f"{each.title}: the bound falls to zero within {last:,} steps at every lag.",
        f"{each.title}: bound on the total variation between the chain and its target, at most 1, over "
        f"{len(times[each.lags[0]])} coupled pairs.",
    )
