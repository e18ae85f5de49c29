"""Queries with noise that changes no invariant (`noise = "lattice-..."`).

Counting invariants as integer rows, each fixing how many units fall into a set of cells, or a weighted sum of its counts.
Source: Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy", definition 1 and equation 3.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when first used

from trueup.arrays.lattice import bind
from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.linear_system import margin_rows
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise import law_named
from trueup.privacy.contribution import Reach


class LatticePlan(NamedTuple):
    """A law bound to the lattice of one measured margin, with its notes."""

    law: Any
    sentences: tuple[str, ...]


def plan_on_lattice(
    spec: Spec, query: Query, margin: Margin, budget: Fraction, reach: Reach, constraints: Constraints
) -> LatticePlan:
    """Bind a lattice law to the invariants that are sums of the groups of `margin`.

    The budget is the loss of one step of the spec's neighbour relation: epsilon is the budget itself under `add-remove`, half
    of it under `replace`. Groups that hold structural zeros alone get no noise.

    Raises
    ------
    SpecError
        No invariant is a sum of the measured groups; a unit does not count exactly once; a budget in the
        wrong currency; or no exact sampler is fast enough.
    PrivacyError
        The invariants determine every count.
    """
    cells, law = constraints.cells, law_named(query.noise)
    if not invariants_over(constraints, margin).shape[0]:
        raise SpecError(
            f"query '{query.name}' asks for noise '{query.noise}' at '{margin}', where no invariant is held",
            needed="an invariant that sums counts of that table",
            remedy="declare it under [constraints] invariants, or use 'discrete-laplace'",
        )
    if not reach.exact:
        raise SpecError(
            f"query '{query.name}' has noise '{query.noise}', but a unit does not count exactly once in it",
            needed="counts that partition the units of privacy",
            remedy="use 'discrete-laplace' and leave the invariants to reconciliation",
        )
    step = reach.sensitivity(spec.privacy.neighbours, cells=cells.size(margin))
    n, zeros = cells.size(margin), constraints.zero_groups(margin)
    bound = bind(law.for_budget(budget, step), n, invariants_over(constraints, margin), zeros, query.options)
    if (currency := bound.cost(step).currency) != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but '{query.noise}' is priced in {currency}",
            remedy=f"write `{currency} = ...`, or choose another noise",
        )
    return LatticePlan(bound, _sentences(query, margin, bound))


def slowest_of(query: Query) -> float:
    """Return the expected seconds of a draw beyond which it is refused: the option `slowest`, and no other is taken."""
    given = dict(query.options)
    slowest = given.pop("slowest", 60.0)
    if given or isinstance(slowest, bool) or not isinstance(slowest, int | float) or not slowest >= 0:
        raise SpecError(
            f"query '{query.name}' has an option that its noise does not take", needed="slowest = 300"
        )
    return float(slowest)


def _sentences(query: Query, margin: Margin, bound: Any) -> tuple[str, ...]:
    parameter = ", ".join(f"{name} = {value}" for name, value in bound.parameters().items())
    return (
        f"The noise of '{query.name}' at '{margin}' changes no invariant ({parameter}).",
        *(f"Drawn: {line}." for line in bound.bound.explain()),
    )


def invariant_matrix(constraints: Constraints) -> scipy.sparse.csr_array:
    """Return all invariants as whole rows over the finest cells, `(m, n)` int64; rows may depend on each other.

    Structural zeros are not among them: what may vary is `{v : A v = 0, v = 0 at constraints.zero_cells}`.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
    >>> women = Margin("all", where=((("sex", "f"),),))
    >>> invariant_matrix(Constraints(cells, (), (women, Margin("all")))).toarray().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 1]]
    """
    return invariants_over(constraints, constraints.cells.finest)


def invariants_over(constraints: Constraints, margin: Margin) -> scipy.sparse.csr_array:
    """Return the invariants that are sums of groups of a margin, as whole rows over them, `(k, groups)` int64."""
    cells = constraints.cells
    rows = [over for each in constraints.invariants if (over := _over(cells, each, margin)) is not None]
    none: Any = scipy.sparse.csr_array((0, cells.size(margin)), dtype=np.int64)
    stacked = scipy.sparse.csr_array(scipy.sparse.vstack([none, *rows], format="csr", dtype=np.int64))
    return stacked[np.flatnonzero(np.diff(stacked.indptr))]


def _over(cells: Cells, invariant: Margin, margin: Margin) -> Any:
    """Return one invariant as rows over the groups of a margin, or None if it is no sum of them."""
    size = cells.size(margin)
    if cells.contains(invariant, margin):
        ones = np.ones(size, np.int64)
        place = (cells.groups(margin, invariant), np.arange(size))
        return scipy.sparse.csr_array((ones, place), shape=(cells.size(invariant), size))
    if not invariant.where:
        return None
    rows = rows_over(cells, margin_rows(cells, invariant), margin)
    return None if rows is None else rows.rint().astype(np.int64)


def rows_over(cells: Cells, rows: scipy.sparse.csr_array, margin: Margin) -> scipy.sparse.csr_array | None:
    """Return rows over the finest cells as rows over the groups of a margin, or None if they are no sums of these.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> both = scipy.sparse.csr_array([[3.0, 3.0]])
    >>> rows_over(cells, both, Margin("all")).toarray(), rows_over(cells, both * [1, 0], Margin("all"))
    (array([[3.]]), None)
    """
    groups = margin_rows(cells, margin)
    mean = scipy.sparse.csr_array((rows @ groups.T).multiply(1 / groups.sum(axis=1)))
    # A sum of groups counts all cells of a group equally often.
    return None if abs(mean @ groups - rows).max() > 1e-6 else mean
