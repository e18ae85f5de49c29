"""Made-up S-DHC tables of states and counties, of persons and households or of one kind, that no prior of the package draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.sdhc import PUBLISHED
from trueup.layouts.links import links_of
from trueup.model.build import build_cells, build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec, load_spec
from trueup.model.tree import Tree
from trueup.noise import law_named

FOLDER = Path(__file__).parents[1] / "examples" / "sdhc" / "substate"
TABLES = tuple(f"ph{k}" for k in range(1, 9))
HOUSEHOLDS, SPREAD = 9.3, 1.45
"""Of the logs of counties' households, all groups together: mean and standard deviation."""
VARIANCES = {"state": 36, "county": 144}
"""Of the discrete Gaussian noise."""


@dataclass(frozen=True)
class Substate:
    """True counts of one table, group by group, and how they are measured.

    Attributes
    ----------
    counts
        `(n,)` of the counties.
    """

    spec: Spec
    cells: Cells
    counts: NDArray[np.int64]

    def measure(self, rng: np.random.Generator) -> Measurements:
        """Noisy counts of states and counties."""
        own = self.cells.finest.attributes
        headers = tuple(
            Measured("published", Margin(level, own), law_named("discrete-gaussian")(variance))
            for level, variance in VARIANCES.items()
        )
        sums = [self.cells.sum(self.counts, h.margin) for h in headers]
        values = tuple(x + h.law.quantile(rng.random(len(x))).astype(np.int64) for h, x in zip(headers, sums))
        return Measurements(self.cells, headers, values, PUBLISHED, simulation=True, spec=self.spec)


def substate(table: str, counties: int, states: int, share: float, rng: np.random.Generator) -> Substate:
    """Make up a table of one group that has about a share of all households.

    Counties' households are lognormal; of a group that is not all, lognormal shares of them by state (.8) and by county (1.0).
    A household of k persons at least and K at most has k and a Poisson number, cut at K, whose mean varies by state (normal,
    .15) and county (.1); the share of each kind of persons, and of counts that are not linked, is Dirichlet by state and county.
    """
    spec = load_spec(FOLDER / f"{table}.toml")
    sizes = rng.lognormal(0.0, 0.7, states)
    state = np.sort(np.r_[np.arange(states), rng.choice(states, counties - states, p=sizes / sizes.sum())])
    cells = build_cells(spec, _tree(spec, state))
    homes = np.exp(rng.normal(HOUSEHOLDS, SPREAD, counties)) * share
    if share < 1:
        homes *= np.exp(rng.normal(0, 0.8, states)[state] + rng.normal(0, 1.0, counties))
    links = links_of(build_constraints(spec, cells))
    assert not isinstance(links, str)
    counts = np.zeros((counties, cells.shape[1]), np.int64)
    if not links.linked:
        counts[:] = _divided(np.rint(2.5 * homes).astype(np.int64), counts.shape[1], state, rng)
    for k, (persons, households) in enumerate(links.linked):
        own = np.rint(homes * np.array([0.6, 0.4][k] if len(links.linked) > 1 else 1.0)).astype(np.int64)
        least, most = -links.slack[2 * k][households[0]], links.slack[2 * k + 1][households[0]]
        further = (3.26 if least == 2 else 2.5) - least + rng.normal(0, 0.15, states)[state]
        more = rng.poisson(np.maximum(further + rng.normal(0, 0.1, counties), 0.1) * own)
        counts[:, households[0]] = own
        whole = least * own + np.minimum(more, (most - least) * own)
        counts[:, persons] = _divided(whole, len(persons), state, rng)
    return Substate(spec, cells, counts.ravel())


def _divided(
    whole: NDArray[np.int64], kinds: int, state: NDArray, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Divide among kinds, by shares that vary by state and county."""
    above = [
        rng.dirichlet(row) for row in np.tile(100 * rng.dirichlet(np.full(kinds, 3.0)), (state[-1] + 1, 1))
    ]
    return np.array([rng.multinomial(n, rng.dirichlet(100 * above[s] + 0.1)) for n, s in zip(whole, state)])


def _tree(spec: Spec, state: NDArray) -> Tree:
    """States and counties of one iteration."""
    keys = {"state": np.array([f"{s:02d}" for s in state]), "iteration": np.full(len(state), "*")}
    keys["county"] = np.array([f"{s:02d}{k:04d}" for k, s in enumerate(state)])
    names = {"iteration": "ITERATION_CODE", "county": "REGION_ID"}
    levels = [level.name for level in spec.levels]
    return Tree.from_columns(levels, [{names.get(x, x): keys[x]} if x in keys else {} for x in levels])
