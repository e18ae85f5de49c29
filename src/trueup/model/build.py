"""From a spec and the public places to cells and constraints."""

from __future__ import annotations

from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Bound, Constraints, LinearRule, name_mask
from trueup.model.linear import parse_linear
from trueup.model.nested import canonical
from trueup.model.spec import AttributePart, BoundPart, Spec
from trueup.model.tree import Tree


def build_cells(spec: Spec, tree: Tree) -> Cells:
    """Cross the places with the declared attributes."""
    return Cells(tree, tuple(map(_attribute, spec.attributes)))


def _attribute(part: AttributePart) -> Attribute:
    recodes = tuple(Recode.of(r.name, r.groups, part.values) for r in part.recodes)
    return Attribute(part.name, part.values, part.partition, recodes)


def build_constraints(spec: Spec, cells: Cells, further: tuple[Bound, ...] = ()) -> Constraints:
    """Collect everything that the counts of a spec must satisfy.

    Parameters
    ----------
    spec, cells
        What is declared, and of which cells.
    further
        Public bounds that came with the measurements.

    Raises
    ------
    SpecError
        If a linear rule names no attribute value, or sums over values that overlap.
    """
    part = spec.constraints
    margins = (Margin(level, q.attributes) for q in spec.queries for level in q.budgets)
    rules = tuple(LinearRule(parse_linear(r.rule), r.level or cells.tree.levels[-1]) for r in part.linear)
    for name in (name for rule in rules for name in rule.linear.coefficients):
        name_mask(cells, name)
    invariants = tuple(canonical(cells, Margin(m.level, m.attributes)) for m in part.invariants)
    for margin in invariants:
        _refuse_overlap(cells, margin)
    return Constraints(
        cells,
        margins=tuple(dict.fromkeys(canonical(cells, m) for m in margins)),
        invariants=tuple(dict.fromkeys(invariants)),
        nonnegative=part.nonnegative,
        zeros=part.zeros,
        bounds=(*(_bound(cells, b) for b in part.bounds), *further),
        linear=rules,
    )


def local_constraints(spec: Spec, cells: Cells) -> Constraints:
    """The signs, structural zeros and bounds of a spec that concern the levels of some part of the places."""
    part = spec.constraints
    bounds = tuple(_bound(cells, b) for b in part.bounds if b.level in cells.tree.levels)
    return Constraints(cells, (), nonnegative=part.nonnegative, zeros=part.zeros, bounds=bounds)


def _bound(cells: Cells, part: BoundPart) -> Bound:
    margin = canonical(cells, Margin(part.level, part.attributes))
    outside = [name for name in part.where if not cells.contains(Margin(part.level, (name,)), margin)]
    if outside:
        raise SpecError(
            f"a bound on '{margin}' has a condition on '{min(outside)}'",
            remedy="name the attribute among the bound's attributes",
        )
    return Bound(margin, part.lower, part.upper, tuple(part.where.items()))


def _refuse_overlap(cells: Cells, margin: Margin) -> None:
    for attribute in cells.attributes:
        if not attribute.partition and attribute.name not in margin.attributes:
            raise SpecError(
                f"the invariant '{margin}' sums over '{attribute.name}', whose values overlap",
                remedy=f"name '{attribute.name}' among its attributes",
            )
