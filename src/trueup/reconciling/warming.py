"""Compilation of a method's kernels before any data are read, by running it on a few places."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from trueup.errors import TrueupError
from trueup.model.build import build_constraints, cells_of_sizes
from trueup.model.header import Measured
from trueup.model.spec import Spec
from trueup.reconciling.method import Method
from trueup.reconciling.populations import drawn_populations


def warm(spec: Spec, headers: Sequence[Measured], method: Method) -> None:
    """Reconcile zeros on two places of every level but the first, so that kernels are compiled for their types.

    Noise that is drawn for all places together is left out: its law holds for these places alone.

    Examples
    --------
    >>> from trueup.demo.areas import AREAS
    >>> from trueup.reconciling.tree_topdown import TreeTopDown
    >>> warm(AREAS, [], TreeTopDown())
    """
    if any(h.law.joint for h in headers):
        return
    with suppress(
        TrueupError
    ):  # a rule may not hold of these places; the kernels before it are ready all the same
        cells = cells_of_sizes(spec, [1, *[2] * (len(spec.levels) - 1)])
        few = [Measured(h.query, h.margin, h.law).at(cells) for h in headers]
        state = method.prepare(build_constraints(spec, cells), few)
        values = np.zeros(sum(h.sums(cells, np.zeros(cells.n, np.int64)).size for h in few), np.int64)
        method.apply(state, values, np.random.default_rng(0))
        method.errors(state)
        drawn_populations(build_constraints(spec, cells), few, values, 1, np.random.default_rng(0))
