"""Dharangutte et al., Figures 1, 4 and 6: how fast the paper's Markov chain converges, by L-lag coupling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers import markov_chain as chain
from papers.curves import Curve, Plot, plot
from papers.dharangutte.exact import mean_norm, moments
from papers.dharangutte.examples import EPSILON, PAPER, Example, children, records
from papers.item import Found, Item, Setting
from papers.row import Row, claim, held

PAIRS, LONGEST = 200, 400_000
CONVERGED, FEWEST_STEPS = 0.01, 5_000
STARTS, WIDER, KEPT, RHAT = 4, 5, 10, 1.1
"""As in E.4: chains, how many times wider the target of their starts is, steps for each state kept; the usual limit."""


@dataclass(frozen=True, eq=False)
class Run:
    """One target with the chain's tuning: scale of the jumps, scale of the dispersed start, lags, chains that are stopped."""

    example: Example
    norm: int
    scale: float
    spread: float
    lags: tuple[int, ...]
    chains: int

    @property
    def title(self) -> str:
        return f"{self.example.title}, L{self.norm} norm"

    @property
    def target(self) -> chain.ChainTarget:
        """The law on the basis of the Smith form, which the paper's proposals move along."""
        norm = {1: chain.L1, 2: chain.L2}[self.norm]
        return chain.ChainTarget(chain.smith_basis(self.example.invariants), norm, float(EPSILON))

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

    def dispersed(self, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """States `(4, k, n)` of chains that start from an overdispersed target, after so many steps on each target."""
        wide = self.target._replace(rate=self.target.rate / WIDER)
        zero = np.zeros(len(wide.basis), np.int64)
        states = []
        for _ in range(STARTS):
            start = self._jump(
                chain.run_lattice_chain(rng, wide, WIDER * self.scale, zero, steps, steps)[0][0]
            )
            start = self._jump(
                chain.run_lattice_chain(rng, self.target, self.scale, start, steps, steps)[0][0]
            )
            states.append(chain.run_lattice_chain(rng, self.target, self.scale, start, 10 * steps, KEPT)[0])
        return np.array(states)

    def _jump(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        """Coefficients of a state on the basis."""
        found = np.linalg.lstsq(self.target.basis.T.astype(float), state.astype(float), rcond=None)[0]
        return np.rint(found).astype(np.int64)


def runs() -> tuple[Run, ...]:
    """Figure 1 is the table with the L1 norm, Figure 6 with the L2 norm; Figure 4 is the 14 records."""
    return (
        Run(children(), 1, 1.2, 10.0, (250, 1000, 4000), 2000),
        Run(children(), 2, 3.0, 20.0, (250, 1000, 4000), 2000),
        Run(records(), 1, 1.2, 10.0, (500, 2000, 8000), 500),
        Run(records(), 2, 4.0, 20.0, (500, 2000, 8000), 500),
    )


class DharangutteFigure1(Item):
    """Bounds on the total variation between the chain and its target, drawn."""

    name: ClassVar[str] = "dharangutte-figure-1"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figures 1, 4 and 6"
    shows: ClassVar[str] = (
        "The paper's Gibbs-within-Metropolis chain on the 4 x 4 table and on the 14 records, both norms, epsilon 1/4: "
        "bound on its distance to the target over 200 coupled pairs, for three lags; 500 or 2,000 chains stopped where the bound "
        "is 0.01; four chains from dispersed starts."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)
    seconds: ClassVar[float] = 50.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 10 % off",
        "a chain that hardly moves",
    )

    def run(self, setting: Setting) -> Found:
        rng, pairs = setting.rng(self), PAIRS // 10 if setting.quick else PAIRS
        rows, pictures = [], []
        for each in runs():
            times = {lag: each.meetings(lag, pairs, rng) for lag in each.lags}
            rows += convergence(each, times, rng, each.chains // (10 if setting.quick else 1))
            pictures += [curves(each, times)] if all((t > 0).all() for t in times.values()) else []
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


def convergence(
    each: Run, times: dict[int, NDArray[np.int64]], rng: np.random.Generator, chains: int
) -> list[Row]:
    """When the bound is small, whether it is stable in the lag, and whether the chain is then where it should be."""
    all_met = all((t > 0).all() for t in times.values())
    met = claim(f"{each.title}: pairs that met", "all", _met(times), all_met)
    if not all_met:
        return [met]  # no bound follows, nor a number of steps
    *_, middle, long = each.lags
    steps = chain.steps_for(times[middle], middle, CONVERGED)
    return [
        met,
        _stable(each.title, {lag: times[lag] - lag for lag in (middle, long)}),
        *_arrived(each, steps, chains, rng),
        _mixed(each.title, each.dispersed(max(steps, FEWEST_STEPS), rng)),
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


def _arrived(each: Run, steps: int, chains: int, rng: np.random.Generator) -> list[Row]:
    """Compare the norms and the errors of chains stopped after so many steps with their exact means."""
    reached, epsilon = each.ends(steps, chains, rng), float(EPSILON)
    squares = (reached.astype(float) ** 2).mean(axis=1)
    found = {
        "norm": (np.linalg.norm(reached, each.norm, axis=1), mean_norm(each.example, each.norm, epsilon)),
        "squared error of a cell": (
            squares,
            float(moments(each.example, each.norm, epsilon).square.mean()),
        ),
    }
    return [
        held(
            f"{each.title}: mean {name} of {chains:,} chains after {steps:,} steps",
            float(values.mean()),
            right,
            ours_error=float(values.std()) / np.sqrt(chains),
        )
        for name, (values, right) in found.items()
    ]


def _mixed(title: str, states: NDArray[np.int64]) -> Row:
    """The largest potential scale reduction factor of a cell (Gelman and Rubin 1992)."""
    states = states.astype(float)
    within, between = states.var(axis=1, ddof=1).mean(axis=0), states.mean(axis=1).var(axis=0, ddof=1)
    factor = float(np.sqrt(1 + (between / np.maximum(within, 1e-12)).max()))
    label = f"{title}: largest R-hat of a cell, four chains from dispersed starts"
    return claim(label, "converged", f"{factor:.4f} (limit {RHAT})", factor < RHAT)


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
