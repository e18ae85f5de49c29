"""Multi-pass top-down, as production releases do it: each level from its own measurements, margins first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.histogram.marginals import refines
from trueup.layouts.histogram import HistogramProblem
from trueup.layouts.span import OF_PASSES, refuse_wide_levels
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.histogram_tree import HistogramTree, solution
from trueup.reconciling.method import Solution


@dataclass(frozen=True)
class TopDownMultipass(HistogramTree):
    """Settle every level from its own measurements alone, given its parents, in passes over nested marginals.

    For comparison: what is measured below a place does not help to estimate it. Each pass fixes the marginal tables
    of the pass before. Invariants of deeper levels are summed to the levels above, so that these can keep them.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    passes
        Attributes or recodes of the marginal of each pass, nested; the histogram itself always comes last. By default the
        nested ones among the measured marginals.
    """

    rounding: Literal["controlled", "none"] = "controlled"
    passes: tuple[tuple[str, ...], ...] = ()

    name: ClassVar[str] = "topdown-multipass"
    title: ClassVar[str] = "top-down in passes: each level from its own measurements, for comparison"
    structures: ClassVar[frozenset[str]] = frozenset({"histogram"})
    upward: ClassVar[bool] = False

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> HistogramProblem:
        """Prepare every level by itself."""
        tables = [constraints.cells.marginal(attributes) for attributes in self.passes]
        for at, (coarse, fine) in enumerate(pairwise(tables)):
            if not refines(fine, coarse):
                before, after = (list(attributes) for attributes in self.passes[at : at + 2])
                raise SpecError(f"pass {after} does not keep the attributes of the pass {before} before it")
        refuse_wide_levels(headers, OF_PASSES)
        return super().prepare(constraints, headers)

    def apply(self, state: HistogramProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding."""
        if not self.passes:
            return super().apply(state, values, rng)
        wanted = [state.marginal(attributes) for attributes in self.passes]
        chains = [state.chain(level, wanted) for level in range(len(state.tree.plan))]
        return solution(state, values, chains, rng, integer=self.integer)

    def errors(self, state: HistogramProblem) -> dict[Margin, NDArray]:
        """None: a level's result depends on its settled parents, which no closed form follows."""
        return {}
