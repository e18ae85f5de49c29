"""For comparison: project from the top without least squares first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import NDArray

from trueup.layouts.tree import TreeProblem
from trueup.model.cells import Margin
from trueup.reconciling.tree_topdown import TreeTopDown


@dataclass(frozen=True)
class TopDownRaw(TreeTopDown):
    """Project the raw measurements of each parent's children on its settled total, from the top.

    It ignores the measurements of the levels below, which costs a quarter to a third of the accuracy
    of the upper levels; `tree-topdown` differs in that alone.
    """

    name: ClassVar[str] = "topdown-raw"
    title: ClassVar[str] = "raw measurements projected from the top, for comparison"
    raw: ClassVar[bool] = True

    def errors(self, state: TreeProblem) -> dict[Margin, NDArray]:
        """None in closed form: what is shared out depends on the measurements of the parents alone."""
        return {}
