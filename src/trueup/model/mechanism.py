"""What a spec measures, under which laws and at what cost; nothing confidential is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import islice

from trueup.errors import PrivacyError, SpecError
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.changes import smallest_change
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Change, Charge, Guarantee
from trueup.model.header import Measured
from trueup.model.kept import Kept
from trueup.model.nested import canonical
from trueup.model.spec import Query, Spec
from trueup.noise import JOINT_LAWS, law_named
from trueup.noise.cost import Cost
from trueup.privacy.accountant import Loss, compose
from trueup.privacy.contribution import RELATIONS, Contribution, Relation

SHOWN_DELTA = Fraction(1, 10**10)
"""The delta at which a zCDP guarantee is also shown as (epsilon, delta)."""
SHOWN = 20
"""Counts that follow from invariants which a guarantee names one by one."""


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
    shared = {total: Kept.of(constraints, total=total) for total in (False, True)}
    headers, charges, told, reaches = [], [], [], []
    for query in spec.queries:
        for level, budget in query.budgets.items():
            margin = canonical(cells, Margin(level, query.attributes))
            _refuse_fixed(query, margin, constraints)
            reach = contribution(spec, query)
            if law_named(query.noise) in JOINT_LAWS:
                from trueup.model.mechanism_on_lattice import plan_on_lattice

                law, sentences = plan_on_lattice(spec, query, margin, budget, reach, constraints)
                told += sentences
            else:
                law = _law(query, budget, reach, spec.privacy.neighbours, cells.size(margin))
            headers.append(Measured(query.name, margin, law))
            charges.append(_charge(spec.privacy.neighbours, headers[-1], reach, shared))
            reaches.append(reach)
    measured = tuple(headers)
    invariants = (Measured.enumerated(cells, margin) for margin in constraints.invariants)
    change = None
    if all(reach.exact for reach in reaches):
        change = smallest_change(constraints, spec.privacy.neighbours, [(h.margin, h.law) for h in measured])
    told += known(shared[False], measured) if constraints.invariants else ()
    return (*measured, *invariants), _guarantee(spec, constraints, tuple(charges), change, tuple(told))


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


def _charge(relation: Relation, header: Measured, reach: Contribution, shared: Mapping[bool, Kept]) -> Charge:
    """Price one step of each relation; where compared databases share a count it does not move."""
    prices: dict[Relation, Cost] = {}
    for at in RELATIONS:
        kept = shared[at == "replace" and reach.exact]
        prices[at] = header.law.cost(reach.sensitivity(at, cells=kept.fixed(header.margin).free))
    own = prices[relation]
    return Charge(
        header.query,
        str(header.margin),
        header.law.name,
        own.currency,
        own.amount,
        own.delta,
        tuple(prices.items()),
    )


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
    constraints: Constraints,
    charges: tuple[Charge, ...],
    change: Change | None,
    told: tuple[str, ...],
) -> Guarantee:
    loss = compose(Cost(c.currency, c.amount, c.delta) for c in charges)
    amount = loss.zcdp if loss.rho else loss.epsilon
    invariant = bool(constraints.invariants)
    sentences = (
        *_step(spec, loss, not invariant and change is not None and change.attains(amount)),
        *(_shared(spec, constraints, change, loss) if invariant else ()),
        *_conditions(spec, constraints),
        *told,
    )
    return Guarantee(
        "invariant" if invariant else "dp",
        spec.privacy.unit,
        spec.privacy.neighbours,
        "rho" if loss.rho else "epsilon",
        amount,
        loss.delta,
        charges,
        sentences,
        change if invariant else None,
    )


_DIFFER = {
    "add-remove": "one {unit} is in one of two databases and not in the other",
    "replace": "the data of one {unit} are replaced by any others",
}


def _step(spec: Spec, loss: Loss, attained: bool) -> tuple[str, ...]:
    unit = spec.privacy.unit
    differ = _DIFFER[spec.privacy.neighbours].format(unit=unit)
    further = "k^2 times as much" if loss.rho else "k times as much"
    if loss.delta:
        further = "k times that epsilon, with a delta of at most k e^((k-1) epsilon) times that delta"
    return (
        f"One step, in which {differ}, costs {'exactly' if attained else 'at most'} {_zcdp(loss) if loss.rho else _pure(loss)}.",
        f"Databases k steps apart cost at most {further}; what several releases cost for one step adds up.",
        "Everything after the noise is post-processing and costs nothing more.",
    )


def _pure(loss: Loss) -> str:
    delta = f" and delta = {float(loss.delta):.3g}" if loss.delta else ""
    return f"epsilon = {loss.epsilon}{delta} (differential privacy)"


def _zcdp(loss: Loss) -> str:
    delta = loss.delta + SHOWN_DELTA
    return (
        f"rho = {loss.zcdp} (zero-concentrated differential privacy), "
        f"hence epsilon = {float(loss.at_delta(delta)):.4g} at delta = {float(delta):.3g}"
    )


def _shared(spec: Spec, constraints: Constraints, change: Change | None, loss: Loss) -> tuple[str, ...]:
    """What the comparison of databases with the same invariants means."""
    zeros = " and structural zeros" if constraints.zeros else ""
    if change is not None:
        smallest = change.sentence(
            spec.privacy.unit, f"the invariants{zeros}", "rho" if loss.rho else "epsilon"
        )
    else:
        smallest = (
            f"How large the smallest change is that the invariants{zeros} allow is not known here: "
            "what is stated is the cost of a step."
        )
    rules = constraints.bounds or constraints.linear
    return (
        "Compared are only databases that share every count published exactly; a step is priced whether or not it "
        "alone leaves them as they are.",
        smallest,
        *(("Declared bounds and linear rules are not taken into account there.",) if rules else ()),
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


def known(kept: Kept, measured: Sequence[Measured]) -> tuple[str, ...]:
    """Name the measured counts that follow from the invariants."""
    sentences = []
    for margin in dict.fromkeys(h.margin for h in measured):
        fixed = kept.fixed(margin)
        if names := list(islice(fixed.labels(), SHOWN)):
            more = f" and {fixed.count - len(names)} more" if fixed.count > len(names) else ""
            sentences.append(
                f"The invariants determine these counts of '{margin}', published exactly and not protected: "
                f"{'; '.join(names)}{more}."
            )
    return tuple(sentences)
