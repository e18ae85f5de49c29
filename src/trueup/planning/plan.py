"""Plan a budget: what each level should cost, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from trueup.errors import SpecError
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Charge
from trueup.model.header import Measured
from trueup.model.mechanism import plan_measurements
from trueup.model.nested import canonical
from trueup.model.problem import public_cells
from trueup.model.spec import Spec
from trueup.planning.allocation import Allocation, Errors, Priced, divide, tree_errors
from trueup.planning.expected import histogram_errors

Noise = dict[Margin, tuple[Measured, Charge | None]]


def plan(
    spec: Spec,
    geography: Any = None,
    *,
    total: Fraction | None = None,
    weights: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
) -> Allocation:
    """Divide a budget between the levels of a spec so that the error after reconciliation is least.

    Parameters
    ----------
    spec
        The spec; its own budgets say which levels may be measured, and by which noise.
    geography
        The public list of places; confidential counts are never read.
    total
        What is divided; by default what the spec spends.
    weights, targets
        What matters, by table (`state`, `state x sex`): see `trueup.ledger.planning.divide`.

    Raises
    ------
    SpecError
        If there are linear rules, several queries measure one table, or budgets are in different currencies.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> planned = plan(spec, pandas.DataFrame({"area": ["a", "b"]}))
    >>> planned.levels, sum(planned.budgets) == 1
    (('all', 'area'), True)
    """
    cells = public_cells(spec, geography=geography)
    constraints = build_constraints(spec, cells)
    if constraints.structure() == "general":
        raise SpecError(
            "linear rules, or cells that are no partition, have no closed form of the error",
            needed="nested or crossing tables of one partition",
        )
    headers, guarantee = plan_measurements(spec, cells)
    currencies = {charge.currency for charge in guarantee.charges}
    if len(currencies) != 1:
        raise SpecError("budgets are given in epsilon and in rho", remedy="state them in one currency")
    noise = _noise(cells, headers, guarantee.charges)
    tables, errors = _closed_form(constraints, tuple(noise))
    levels = [_level(margin, noise) for margin in tables]
    total = sum((level.cost for level in levels), Fraction(0)) if total is None else total
    return divide(errors, levels, currencies.pop(), total, weights=weights, targets=targets)


def _closed_form(constraints: Constraints, measured: tuple[Margin, ...]) -> tuple[tuple[Margin, ...], Errors]:
    """The tables to plan, coarse before fine, and their errors: the chain, or the measured tables if they cross."""
    if constraints.chain is not None:
        tree = constraints.nested
        return constraints.chain, tree_errors(tree.child_ptr, tree.level_ptr)
    levels = constraints.cells.tree.levels
    tables = tuple(sorted(measured, key=lambda m: (levels.index(m.level), len(m.attributes))))
    return tables, histogram_errors(constraints.cells, tables)


def _noise(cells: Cells, headers: tuple[Measured, ...], charges: tuple[Charge, ...]) -> Noise:
    """Header and charge of every measured margin; invariants carry no charge."""
    noise: Noise = {}
    noisy = iter(charges)
    for header in headers:
        margin = canonical(cells, header.margin)
        if margin in noise:
            raise SpecError(f"several queries measure '{margin}'", needed="one query for each table to plan")
        noise[margin] = (header, None if header.exact else next(noisy))
    return noise


def _level(margin: Margin, noise: Noise) -> Priced:
    if margin not in noise:
        return Priced(str(margin), None, Fraction(0))
    header, charge = noise[margin]
    return Priced(str(margin), header.law, charge.amount if charge else Fraction(0))
