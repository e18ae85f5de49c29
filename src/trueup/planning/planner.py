"""Repeated plans of the same tables for moving targets: one plan's results serve the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.planning.allocation import Allocation
from trueup.planning.meeting import meet
from trueup.planning.targets import read_targets
from trueup.planning.task import PlanningTask

LIVE = 5e-2
"""A quick plan may cost more than the least by this share."""


class Planner:
    """A spec laid out once for planning, for a page or a program that moves targets.

    Parameters
    ----------
    spec, geography
        As for `plan`; a `Problem` needs no geography.

    Raises
    ------
    TrueupError
        For everything that `plan` refuses.

    Notes
    -----
    The inequalities that one plan finds hold for every division (`trueup.planning.optimum`); only their right-hand sides
    depend on the targets. So the next plan begins with them and with the last division, and mostly needs two or three
    evaluations in place of twenty.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo.areas import AREAS_RHO
    >>> planner = Planner(AREAS_RHO, pandas.DataFrame({"area": ["a", "b"]}))
    >>> [round(float(planner.plan({"area": f"{counts}@95%"}).total), 4) for counts in (20, 10)]
    [0.0048, 0.0192]
    """

    def __init__(self, spec: Spec | Problem | str | Path, geography: Any = None) -> None:
        self._problem = Problem.of(spec, geography)
        self._task = PlanningTask.of(self._problem, None, None, None, "equal")

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables whose errors a plan states, coarse to fine."""
        return tuple(map(str, self._task.tables))

    @property
    def free(self) -> tuple[str, ...]:
        """Return the tables that no invariant fixes, which may be targets."""
        return tuple(str(margin) for margin in self._task.tables if not self._task.fixed(margin))

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the tables that the spec measures with noise."""
        return tuple(map(str, self._task.noise))

    def plan(
        self,
        targets: Mapping[str, object] | Iterable[str],
        *,
        total: Fraction | None = None,
        quick: bool = False,
    ) -> Allocation:
        """Plan with these targets and total, as `trueup.plan` does.

        Parameters
        ----------
        targets, total
            As for `plan`; at least one target.
        quick
            To be within 5 % of the least budget is enough, and no bound over other mechanisms is sought.

        Raises
        ------
        SpecError
            If a target is out of range, names no table, or one that the invariants fix.
        ConvergenceError
            If no division was found.
        """
        texts = [f"{k}={v}" for k, v in targets.items()] if isinstance(targets, Mapping) else list(targets)
        wanted = read_targets(texts, self._task.constraints)
        if any(target.margin not in self._task.tables for target in wanted):
            self._task = PlanningTask.of(self._problem, None, texts, None, "equal")
        return meet(self._task.aimed_at(wanted), total, gap=LIVE if quick else None)
