"""What a spec measures, under which laws and at what cost; nothing confidential is needed."""

from __future__ import annotations

from fractions import Fraction

from trueup.errors import PrivacyError, SpecError
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Charge, Guarantee
from trueup.model.header import Measured
from trueup.model.nested import canonical, chain
from trueup.model.spec import Query, Spec
from trueup.noise import JOINT_LAWS, law_named
from trueup.noise.cost import Cost
from trueup.privacy.accountant import Loss, compose
from trueup.privacy.contribution import Contribution, Relation

SHOWN_DELTA = Fraction(1, 10**10)
"""The delta at which a zCDP guarantee is also shown as (epsilon, delta)."""


def plan_measurements(spec: Spec, cells: Cells) -> tuple[tuple[Measured, ...], Guarantee]:
    """Lay out every measurement of a spec, and the guarantee they give together.

    Parameters
    ----------
    spec
        Queries, budgets, unit of privacy, neighbour relation, invariants.
    cells
        The public cells.

    Returns
    -------
    headers, guarantee
        One header per query and level, then one per invariant; the composed exact loss.

    Raises
    ------
    SpecError
        If a contribution bound is neither derived nor given, or an invariant already fixes a query.
    InfeasibleError
        If the rules contradict each other, whatever the counts; it names them.
    """
    constraints = build_constraints(spec, cells)
    crossing = constraints.bounds and constraints.chain is None  # nested ones are held together by their tree
    if constraints.linear or crossing:
        from trueup.model.linear_system import refuse_contradiction

        refuse_contradiction(constraints)
    relation = _relation(spec, constraints)
    headers, charges, told = [], [], []
    for query in spec.queries:
        for level, budget in query.budgets.items():
            margin = canonical(cells, Margin(level, query.attributes))
            _refuse_fixed(query, margin, constraints)
            reach = contribution(spec, query)
            if law_named(query.noise) in JOINT_LAWS:
                from trueup.model.mechanism_on_lattice import plan_on_lattice

                law, cost, sentences = plan_on_lattice(query, margin, budget, reach, relation, constraints)
                told += sentences
            else:
                law = _law(query, budget, reach, spec.privacy.neighbours, cells.size(margin))
                cost = law.cost(reach.sensitivity(relation, cells=cells.size(margin)))
            headers.append(Measured(query.name, margin, law))
            charges.append(Charge(query.name, str(margin), law.name, cost.currency, cost.amount, cost.delta))
    headers += [Measured.enumerated(cells, margin) for margin in constraints.invariants]
    return tuple(headers), _guarantee(spec, relation, constraints, tuple(charges), tuple(told))


def contribution(spec: Spec, query: Query) -> Contribution:
    """Bound what one unit of privacy contributes to a query: as stated, or derived for partitions.

    Raises
    ------
    SpecError
        If it is not stated and cannot be derived.
    """
    if query.contribution is not None:
        return Contribution(query.contribution.cells, query.contribution.each)
    overlapping = [a.name for a in spec.attributes if not a.partition]
    if spec.privacy.unit == spec.table.counts and not overlapping:
        return Contribution.partition()
    why = f"attribute '{overlapping[0]}' overlaps" if overlapping else f"it counts '{spec.table.counts}'"
    raise SpecError(
        f"query '{query.name}' protects the unit '{spec.privacy.unit}' but {why}, so no contribution bound follows",
        remedy=f"state it: contribution = {{ cells = ..., each = ... }} for one {spec.privacy.unit}",
    )


def _relation(spec: Spec, constraints: Constraints) -> Relation:
    """Neighbours under invariants differ by a move; under crossing invariants, by a swap."""
    if not constraints.invariants:
        return spec.privacy.neighbours
    return "move" if chain(constraints.cells, constraints.invariants) else "swap"


def _refuse_fixed(query: Query, margin: Margin, constraints: Constraints) -> None:
    for invariant in constraints.invariants:
        if constraints.cells.contains(margin, invariant):
            raise SpecError(
                f"query '{query.name}' measures '{margin}', which the invariant '{invariant}' already fixes",
                remedy=f"remove the budget of level '{margin.level}'",
            )


def _law(query: Query, budget: Fraction, reach: Contribution, neighbours: Relation, cells: int):
    """Scale the noise to the declared relation; a total that it fixes still gets a unit's noise."""
    sensitivity = reach.sensitivity(neighbours, cells=cells)
    if not sensitivity.l1:
        sensitivity = reach.sensitivity("add-remove", cells=cells)
    kind = law_named(query.noise)
    if not kind.discrete:
        raise PrivacyError(
            f"query '{query.name}' asks for '{query.noise}' noise, which is for the analysis of others' data",
            needed="a discrete law: noise from floating-point numbers reveals the count beneath it",
            remedy='write noise = "discrete-laplace" or "discrete-gaussian"',
        )
    law = kind.budgeted(budget, sensitivity, query.options)
    if (currency := law.cost(sensitivity).currency) != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but '{query.noise}' is priced in {currency}",
            remedy=f"write `{currency} = ...`, or choose another noise",
        )
    return law


def _guarantee(
    spec: Spec,
    relation: Relation,
    constraints: Constraints,
    charges: tuple[Charge, ...],
    told: tuple[str, ...],
) -> Guarantee:
    kind = "invariant" if constraints.invariants else "dp"
    loss = compose((Cost(c.currency, c.amount, c.delta) for c in charges), kind)
    currency = "rho" if loss.rho else "epsilon"
    amount = loss.zcdp if loss.rho else loss.epsilon
    return Guarantee(
        kind,
        spec.privacy.unit,
        relation,
        currency,
        amount,
        loss.delta,
        charges,
        (*_protects(spec, relation, loss), *_conditions(spec, constraints), *told),
    )


_DIFFER = {
    "add-remove": "one {unit} is in one of them and not in the other",
    "replace": "the data of one {unit} are replaced by any others",
    "move": "one {unit} is counted in another cell, with every published invariant unchanged",
    "swap": "two {unit}s trade cells, with every published invariant unchanged",
}


def _protects(spec: Spec, relation: Relation, loss: Loss) -> tuple[str, ...]:
    unit = spec.privacy.unit
    differ = _DIFFER[relation].format(unit=unit)
    cost = _zcdp(loss) if loss.rho else _pure(loss)
    return (
        f"The noisy counts satisfy {cost}, for one {unit}.",
        f"Compared are databases in which {differ}.",
        "Everything after the noise is post-processing and costs nothing more.",
    )


def _pure(loss: Loss) -> str:
    delta = f" and delta = {float(loss.delta):.3g}" if loss.delta else ""
    return f"differential privacy with epsilon = {loss.epsilon}{delta}"


def _zcdp(loss: Loss) -> str:
    delta = loss.delta + SHOWN_DELTA
    return (
        f"zero-concentrated differential privacy with rho = {loss.zcdp}, "
        f"hence epsilon = {float(loss.at_delta(delta)):.4g} at delta = {float(delta):.3g}"
    )


def _conditions(spec: Spec, constraints: Constraints) -> tuple[str, ...]:
    stated = [q for q in spec.queries if q.contribution is not None]
    bounds = (
        f"In query '{q.name}' one {spec.privacy.unit} is taken to touch at most {q.contribution.cells} counts "
        f"and to change each by at most {q.contribution.each}; this is declared, not verified."
        for q in stated
        if q.contribution is not None
    )
    fixed = (
        f"'{margin}' is published exactly as enumerated and is not protected; the guarantee compares only "
        "databases that share it."
        for margin in constraints.invariants
    )
    return (*bounds, *fixed)
