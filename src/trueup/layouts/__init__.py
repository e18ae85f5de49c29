"""Estimation problems prepared for each method, and reasons why a method cannot solve a problem.

Here: reasons why methods cannot take a problem: rules that histograms cannot keep, noise of too many widths,
counts that nothing bounds.

They are apart from the layouts, which import the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trueup.errors import SpecError
from trueup.kernel.histogram import refines
from trueup.model.constraints import Constraints
from trueup.model.header import Measured

MAX_VARIANCE_RATIO_IN_PROGRAMS = 1e8
"""Largest ratio of two variances under which optima are proved; from 10^9 on systems of equations are too poor."""
MAX_VARIANCE_RATIO_IN_HISTOGRAMS = 1e10
"""Largest ratio of two variances on one level of a histogram tree; from 10^11 on the narrow noise hides whether histograms are
determined."""


def refuse_wide_span(headers: Sequence[Measured], most: float) -> None:
    """Refuse noise with more than `most` times the variance of other noise that is fitted with it.

    Methods for nested margins, and histograms across levels, take averages by variance, which no ratio harms.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.model.cells import Margin
    >>> from trueup.noise import DiscreteLaplace
    >>> laws = DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(40))
    >>> refuse_wide_span([Measured(name, Margin("all"), law) for name, law in zip("ab", laws)], MAX_VARIANCE_RATIO_IN_PROGRAMS)
    Traceback (most recent call last):
    trueup.errors.SpecError: the noise of query 'a' on 'all' has more than 100,000,000 times the variance ... an invariant.
    """
    noisy = sorted((h for h in headers if not h.exact), key=lambda h: float(h.law.variance))
    if noisy and noisy[-1].law.variance > most * noisy[0].law.variance:
        wide, narrow = noisy[-1], noisy[0]
        raise SpecError(
            f"the noise of query '{wide.query}' on '{wide.margin}' has more than {most:,.0f} times the variance of that "
            f"of query '{narrow.query}' on '{narrow.margin}', and both are fitted together",
            remedy=f"bring the two budgets closer, or declare '{narrow.margin}' an invariant",
        )


def refuse_wide_levels(headers: Sequence[Measured], most: float) -> None:
    """Refuse noise with more than `most` times the variance of other noise on the same level."""
    for level in {h.margin.level: None for h in headers}:
        refuse_wide_span([h for h in headers if h.margin.level == level], most)


def refuses_on_histogram(constraints: Constraints, *, upper: bool = False) -> str | None:
    """Return the reason why histogram methods cannot satisfy the constraints, or None if they can."""
    if not upper and any(b.upper is not None for b in constraints.bounds):
        return "it cannot enforce upper bounds on crossing margins"
    if constraints.bounds and not constraints.nonnegative:
        return "it can enforce bounds only on nonnegative counts"
    margins = (*constraints.invariants, *(b.margin for b in constraints.bounds))
    tables = [constraints.cells.marginal(m.attributes) for m in margins]
    for margin, mine in zip(margins, tables, strict=True):
        if not all(refines(mine, other) or refines(other, mine) for other in tables):
            return f"its invariants and bounds must be nested, and '{margin}' crosses another"
    return None


def refuses_columns(constraints: Constraints, headers: Sequence[Measured]) -> str | None:
    """Return the reason why the column sampler cannot solve a problem, or None if it can."""
    if not constraints.nonnegative:
        return "it needs nonnegative counts"
    if len(constraints.cells.tree.levels) < 2:
        return "it needs places on at least two levels"
    if constraints.linear:
        return "it cannot enforce linear rules"
    if any(h.groups is not None or h.margin.where for h in headers):
        return "it needs measurements of all places of a level"
    if unknown := [h.law.name for h in headers if not h.exact and not _closed(h)]:
        return f"law '{unknown[0]}' is bounded or perturbs, or does not factor over cells"
    if reason := refuses_on_histogram(without_upper(constraints)):
        return reason
    open_ = ~constraints.zero_cells.reshape(constraints.cells.shape[0], -1)
    return None if (open_ == open_[:1]).all() else "it needs the same structural zeros at all places"


def without_upper(constraints: Constraints) -> Constraints:
    """Return the constraints without upper bounds."""
    lower = (replace(b, upper=None) for b in constraints.bounds if b.lower is not None)
    return replace(constraints, bounds=tuple(lower))


def _closed(header: Measured) -> bool:
    form = header.law.form  # of a perturbation it is rough
    return header.law.additive and form is not None and not np.isfinite(form.reach)


def improper(label: str, most: float) -> SpecError:
    """Return the error for a count that nothing limits, with a suggested upper bound above the number `most`.

    Examples
    --------
    >>> print(improper("b", 1234))  # doctest: +ELLIPSIS
    nothing limits the count of 'b', so that ... prior = { name = "bounded", upper = 100000 }, with ...
    """
    upper = 10 ** (len(str(int(max(most, 100)))) + 1)
    return SpecError(
        f"nothing limits the count of '{label}', so that its posterior cannot be computed",
        needed="a measurement of it or of a sum that holds it, an upper bound, or a prior that sums to 1",
        remedy="write two lines at the end of the spec, "
        f'[infer] and prior = {{ name = "bounded", upper = {upper} }}, with a number that no count exceeds; or, where a code '
        'hides it and stands for a range of counts everywhere, say which, such as "1-4"',
    )
