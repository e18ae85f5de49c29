"""The measurements of a spec with their laws and costs, from public information alone.

One file: the guarantee is composed of exactly the measurements that are laid out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from trueup.errors import PrivacyError, SpecError
from trueup.model.build import build_constraints, query_margin
from trueup.model.cells import Cells, Margin
from trueup.model.changes import Changes, kept_of
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Change, Charge, Guarantee
from trueup.model.header import Measured
from trueup.model.kept import Kept
from trueup.model.names import COUNTED_UNIT
from trueup.model.spec import Spec
from trueup.model.spec_queries import LeftOutPart, Query
from trueup.model.statements import known, statements
from trueup.noise import law_named
from trueup.noise.law import Cost, Currency, Law, Sensitivity
from trueup.privacy import Loss, NoisePart, compose
from trueup.privacy.contribution import (
    RELATIONS,
    Contribution,
    Reach,
    Records,
    Relation,
    records_left_out,
)


def plan_measurements(
    spec: Spec, cells: Cells, constraints: Constraints | None = None
) -> tuple[tuple[Measured, ...], Guarantee]:
    """Determine every measurement of a spec, and the guarantee that they give together.

    Parameters
    ----------
    spec
        Queries, budgets, unit of privacy, neighbour relation, invariants.
    cells
        The public cells.
    constraints
        The constraints on the counts, if they were built already.

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
    constraints = constraints or build_constraints(spec, cells)
    crossing = constraints.bounds and constraints.chain is None  # nested ones are held together by their tree
    if constraints.linear or crossing:
        from trueup.model.linear_system import refuse_contradiction

        refuse_contradiction(constraints)
    shared = {total: kept_of(constraints, total=total) for total in (False, True)}
    headers, told, reaches = [], [], []
    for query in spec.queries:
        reach = contribution(spec, query)
        together = {}
        if query.noise == "add-up-laplace":
            from trueup.model.mechanism_on_lattice import plan_adding_up

            together = plan_adding_up(spec, query, constraints, reach)
        for level, budget in query.budgets.items():
            margin = query_margin(cells, query, level)
            _refuse_fixed(query, margin, constraints)
            if level in together:
                law, sentences = together[level]
            elif law_named(query.noise).joint:
                from trueup.model.mechanism_on_lattice import plan_on_lattice, plan_within

                planned = plan_within if query.noise == "within-laplace" else plan_on_lattice
                law, sentences = planned(spec, query, margin, budget, reach, constraints)
            else:  # with a condition, only groups that can hold a counted unit are counts
                size = len(cells.held(margin)) if margin.where else cells.size(margin)
                law, sentences = _law(query, budget, reach, spec.privacy.neighbours, size), ()
            told += sentences
            headers.append(Measured(query.name, margin, law).at(cells))
            reaches.append(reach)
    measured = tuple(headers)
    priced = _priced_together(spec, measured, reaches, shared)
    named = [(header.query, str(header.margin)) for header in measured]
    named += [(spec.left_out.name, "all records")] if spec.left_out is not None else []
    charges = [_charge(spec.privacy.neighbours, *names, each) for names, each in zip(named, priced)]
    invariants = (Measured.enumerated(cells, margin) for margin in constraints.invariants)
    change = _change(spec, constraints, shared, measured, reaches)
    told += known(shared[False], measured) if constraints.invariants else ()
    if isinstance(change, Change):
        attained = change.attains(_amount(charges))
    else:
        attained = all(isinstance(reach, Records) for reach in reaches) and _by_records(
            spec, shared, measured
        )
    free = not (  # of two tables, one unit is one household and its persons at once: what is said is a bound
        constraints.invariants or constraints.bounds or constraints.linear
    )  # else some steps are ruled out
    attained = free and attained and spec.left_out is None
    parts = tuple(each[spec.privacy.neighbours] for each in priced)
    given = (spec, constraints, tuple(charges), parts, change, attained, tuple(told))
    return (*measured, *invariants), _guarantee(*given)


def left_out_law(spec: Spec) -> Law | None:
    """Return the noise law of the number of records that the limit leaves out, or None if it is not measured.

    Raises
    ------
    TrueupError
        If its budget and its noise do not fit together.
    """
    if (part := spec.left_out) is None:
        return None
    return _law(part, part.budget, records_left_out(part.most), spec.privacy.neighbours, 1)


def contribution(spec: Spec, query: Query) -> Reach:
    """Return a bound on one unit's contribution to a query: limited, stated, or derived."""
    if spec.table.join is not None and query.where[COUNTED_UNIT] == spec.table.join.counts:
        return Records(1)  # a household is one record of its own table
    if spec.privacy.contribution is not None:
        return Records(spec.privacy.contribution.records)  # a record has one value of every attribute
    if query.contribution is not None:
        return Contribution(query.contribution.cells, query.contribution.each)
    overlapping = [a.name for a in spec.attributes if not a.partition]
    if spec.privacy.unit == spec.table.counts and not overlapping:
        return Contribution.partition()
    why = f"attribute '{overlapping[0]}' overlaps" if overlapping else f"it counts '{spec.table.counts}'"
    raise SpecError(
        f"query '{query.name}' protects the unit '{spec.privacy.unit}' but {why}, so that nothing says how many counts "
        "one unit affects",
        remedy=f"state it: contribution = {{ cells = ..., each = ... }} for one {spec.privacy.unit}"
        + _ENFORCED * (spec.table.kind == "records"),
    )


_ENFORCED = (
    ", or name the column of its identifier under [privacy]: id = ..., contribution = { records = ... }"
)


def _priced(header: Measured, reach: Reach, shared: Mapping[bool, Kept]) -> dict[Relation, NoisePart]:
    """Return a measured table's change in one step of each relation; shared counts do not change."""
    found: dict[Relation, NoisePart] = {}
    for at in RELATIONS:
        kept = shared[at == "replace" and reach.exact]
        free = kept.fixed(header.margin).free if header.groups is None else len(header.groups)
        found[at] = NoisePart.reached(header.law, reach, at, cells=free)
    return found


def _priced_together(
    spec: Spec, measured: Iterable[Measured], reaches: Iterable[Reach], shared: Mapping[bool, Kept]
) -> list[dict[Relation, NoisePart]]:
    """Return the change of every noisy measurement in one step of each relation, that of left-out records last."""
    priced = [_priced(header, reach, shared) for header, reach in zip(measured, reaches)]
    if spec.left_out is not None and (alone := left_out_law(spec)) is not None:
        most = records_left_out(spec.left_out.most)
        priced.append({at: NoisePart.reached(alone, most, at, cells=1) for at in RELATIONS})
    return priced


def noise_parts(spec: Spec, constraints: Constraints, headers: Iterable[Measured]) -> tuple[NoisePart, ...]:
    """Return every noisy measurement of a spec: its law, and the change of its counts in one step.

    Parameters
    ----------
    spec, constraints
        The spec and the constraints, as given to `plan_measurements`.
    headers
        The headers that `plan_measurements` returned.
    """
    shared = {total: kept_of(constraints, total=total) for total in (False, True)}
    reaches = {query.name: contribution(spec, query) for query in spec.queries}
    noisy = [header for header in headers if not header.exact]
    priced = _priced_together(spec, noisy, [reaches[header.query] for header in noisy], shared)
    return tuple(each[spec.privacy.neighbours] for each in priced)


def _charge(relation: Relation, query: str, margin: str, priced: Mapping[Relation, NoisePart]) -> Charge:
    """Return the loss of one query at one level, under the spec's neighbour relation and under both relations."""
    own = priced[relation]
    prices: tuple[tuple[Relation, Cost], ...] = tuple((at, part.cost) for at, part in priced.items())
    return Charge(query, margin, own.law.name, own.cost.currency, own.cost.amount, own.cost.delta, prices)


def _change(
    spec: Spec,
    constraints: Constraints,
    shared: Mapping[bool, Kept],
    measured: Sequence[Measured],
    reaches: Sequence[Reach],
) -> Change | str:
    """Return the smallest change of the cell that is hardest to change, or the reason why none is stated."""
    if not all(reach.exact for reach in reaches):
        return f"a {spec.privacy.unit} does not count exactly once in every query"
    relation = spec.privacy.neighbours
    kept = shared[relation == "replace"]
    found = Changes(kept, relation, tuple((h.margin, h.law) for h in measured)).hardest()
    if found is not None:
        return replace(found, attained=found.attained and all(h.law.attained for h in measured))
    if not kept.fixed(kept.cells.finest).free:
        return "they determine every count"
    return "it was not found within the steps of the search"


def _by_records(spec: Spec, shared: Mapping[bool, Kept], measured: Sequence[Measured]) -> bool:
    """Return True if some change of units with several records has the charged loss.

    One unit whose records all lie in one cell, added or removed, does in every query at once. Under `replace` all
    records move to a cell that differs in every query, if there is one; where every query has one count, they
    leave; one query of one count beside others of more is never moved by the same unit as far as these.
    """
    laws = [(h.margin, h.law) for h in measured]
    once = [law.cost(Sensitivity(Fraction(2), Fraction(2))) for _, law in laws]
    if any(cost.delta for cost in once) or len({cost.currency for cost in once}) > 1:
        return False
    counts = {shared[False].fixed(margin).free for margin, _ in laws}
    if spec.privacy.neighbours == "add-remove" or counts == {1}:
        return 0 not in counts
    apart = Changes(shared[True], "replace", tuple(laws)).hardest() if not counts & {0, 1} else None
    return apart is not None and apart.attains(_amount(once))


def _refuse_fixed(query: Query, margin: Margin, constraints: Constraints) -> None:
    for invariant in constraints.invariants:
        if constraints.cells.contains(margin, invariant):
            raise SpecError(
                f"query '{query.name}' measures '{margin}', which the invariant '{invariant}' already publishes",
                remedy=f"remove the budget of level '{margin.level}'",
            )


def _law(query: Query | LeftOutPart, budget: Fraction, reach: Reach, neighbours: Relation, cells: int):
    """Return the noise law of a query, scaled so that one step of the relation costs the budget."""
    sensitivity = reach.sensitivity(neighbours, cells=cells)
    if not sensitivity.l1:
        sensitivity = reach.sensitivity("add-remove", cells=cells)
    kind = law_named(query.noise)
    if not kind.discrete:
        raise PrivacyError(
            f"query '{query.name}' asks for '{query.noise}' noise, which is only for analysing data of others",
            needed="a discrete law, because noise in floating-point numbers reveals the true count",
            remedy='write noise = "discrete-laplace" or "discrete-gaussian"',
        )
    law = kind.budgeted(budget, sensitivity, query.options)
    if (currency := law.cost(sensitivity).currency) != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but the budget of '{query.noise}' noise is given "
            f"in {currency}",
            remedy=f"write `{currency} = ...`, or choose another noise",
        )
    return law


def _guarantee(
    spec: Spec,
    constraints: Constraints,
    charges: tuple[Charge, ...],
    parts: tuple[NoisePart, ...],
    change: Change | str,
    attained: bool,
    told: tuple[str, ...],
) -> Guarantee:
    loss, currency = _composed(charges)
    invariant = bool(constraints.invariants)
    return Guarantee(
        "invariant" if invariant else "dp",
        spec.privacy.unit,
        spec.privacy.neighbours,
        currency,
        loss.zcdp if currency == "rho" else loss.epsilon,
        loss.delta,
        charges,
        (*statements(spec, constraints, loss, parts, currency, change, attained=attained), *told),
        change if invariant and isinstance(change, Change) else None,
    )


def _composed(costs: Iterable[Charge | Cost]) -> tuple[Loss, Currency]:
    """Return the composed loss of several parts, and its unit: rho if any part is in rho, else epsilon."""
    costs = [Cost(c.currency, c.amount, c.delta) for c in costs]
    return compose(costs), "rho" if any(c.currency == "rho" for c in costs) else "epsilon"


def _amount(costs: Iterable[Charge | Cost]) -> Fraction:
    loss, currency = _composed(costs)
    return loss.zcdp if currency == "rho" else loss.epsilon
