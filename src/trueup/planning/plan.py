"""Plan a budget: the cost of each table, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.model.verb import takes_records
from trueup.planning.allocation import Allocation
from trueup.planning.at_delta import EpsilonAtDelta, plan_at_delta
from trueup.planning.dividing import divide
from trueup.planning.meeting import meet
from trueup.planning.task import PlanningTask, Preset


@takes_records
def plan(
    spec: Spec | Problem | str | Path,
    geography: Any = None,
    *,
    total: Fraction | str | None = None,
    weights: Mapping[str, float] | None = None,
    targets: Mapping[str, object] | Iterable[str] | None = None,
    preset: Preset = "equal",
    areas: Any = None,
    column: str = "area",
) -> Allocation:
    """Find the least budget whose errors meet targets, or the division of a budget with the least error.

    Parameters
    ----------
    spec
        The spec, the path of one, or a Problem; its own budgets say which tables may be measured, and by which noise.
    geography
        The public list of places; confidential counts are never read.
    total
        What is divided. By default with targets the least that meets them, with weights what the spec spends. As text an
        epsilon at a delta, such as `"8@1e-10"`: the largest total whose exact privacy loss is within it.
    weights
        What one count squared of mean error variance of a table is worth, 1 where not named.
    targets
        Margins of error (counts) that tables may have, as `"county=10@95%"` or `{"county": "10@95%"}`: of
        every count of the table (`"mean:county=10"`: of their root mean square), at 90 % where no percentage is given.
    preset
        Without weights and targets: `"equal"` weights, `"relative"` to the errors of the spec's own budgets
        (weights are one over their variances), or `"no-worse"`: those errors as targets.
    areas, column
        A table with a row for each place of each area off the hierarchy (the `column` of areas, and the keys of the
        last level), whose areas targets may name: `"area=25@95%"`, `"area x sex=10"`.

    Raises
    ------
    SpecError
        If there are linear rules, several queries measure one table, budgets are in different currencies, or a
        target is out of range, names no table, or one that the invariants fix.
    ConvergenceError
        If no division was found, or no total with that epsilon.

    Notes
    -----
    Errors are those of weighted least squares on all tables together, structural zeros held (where they tie together
    more than 12 combinations of values they are left out, which only makes errors larger), before nonnegativity and
    rounding. See `trueup.planning.optimum` for how the least is found and proved, and
    `trueup.planning.bound` for the bound over all mechanisms.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo.areas import AREAS_RHO
    >>> planned = plan(AREAS_RHO, pandas.DataFrame({"area": ["a", "b"]}), targets=["area=10@95%", "all=12@95%"])
    >>> planned.levels, sum(planned.budgets) == planned.total, round(float(planned.total), 4)
    (('all', 'area'), True, 0.0208)
    """
    task = PlanningTask.of(spec, geography, targets, weights, preset, areas, column)

    def planned(amount: Fraction | None) -> Allocation:
        if task.targets:
            return meet(task, amount)
        return divide(task, task.spent if amount is None else amount)

    if isinstance(total, str):
        return plan_at_delta(task.problem, EpsilonAtDelta.read(total), task.spent, planned)
    return planned(total)
