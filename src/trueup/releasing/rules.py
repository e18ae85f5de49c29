"""Check the settled tables of a bundle against every rule, independently of what settled them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram.anova import marginalise
from trueup.model.build import local_constraints
from trueup.model.cells import Cells
from trueup.model.constraints import violations
from trueup.model.header import Measured
from trueup.model.spec import Spec

Tables = Mapping[int, NDArray]
"""Per level of the whole tree, `(places, n)` counts."""
Answers = Sequence[Sequence[NDArray]]

CHECKS = ("whole numbers", "parts add up", "every constraint", "invariants exact")


def broken_rules(
    spec: Spec, cells: Cells, top: int, tables: Tables, headers: Sequence[Measured], answers: Answers
) -> list[str]:
    """Name the rules of `CHECKS` that the tables of a bundle break.

    Parameters
    ----------
    cells
        The bundle's cells; its first level is level `top` of the whole tree.
    answers
        Per measured level and header, `(places, groups)`.
    """
    holds = (
        all(table.dtype.kind in "iu" for table in tables.values()),
        all(_adds_up(cells, top, tables, level) for level, _ in pairwise(sorted(tables))),
        not violations(local_constraints(spec, cells), tables[max(tables)].ravel()),
        all(not gap.any() for header, gap in _gaps(cells, top, tables, headers, answers) if header.exact),
    )
    return [rule for rule, kept in zip(CHECKS, holds) if not kept]


def misses(
    cells: Cells, top: int, tables: Tables, headers: Sequence[Measured], answers: Answers
) -> list[dict[str, Any]]:
    """How far released counts are from noisy ones: per noisy header, how many and the sum of squares (counts squared)."""
    return [
        {"query": h.query, "level": h.margin.level, "counts": gap.size, "squares": float((gap**2.0).sum())}
        for h, gap in _gaps(cells, top, tables, headers, answers)
        if not h.exact
    ]


def _adds_up(cells: Cells, top: int, tables: Tables, level: int) -> bool:
    starts = cells.tree.starts(level - top, level - top + 1)[:-1]
    return np.array_equal(np.add.reduceat(tables[level + 1], starts, axis=0), tables[level])


def _gaps(
    cells: Cells, top: int, tables: Tables, headers: Sequence[Measured], answers: Answers
) -> Iterator[tuple[Measured, NDArray]]:
    """Every header with released minus measured counts `(places, groups)`."""
    for level, measured in enumerate(answers):
        own = [h for h in headers if h.margin.level == cells.tree.levels[level]]
        for header, answer in zip(own, measured, strict=True):
            marginal = cells.marginal(header.margin.attributes)
            yield header, marginalise(tables[top + level], marginal) - answer
