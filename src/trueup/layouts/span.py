"""Limits on how far noise widths may differ before methods that weigh all noise together lose the wide part."""

from __future__ import annotations

from collections.abc import Sequence

from trueup.errors import SpecError
from trueup.model.header import Measured

OF_PROGRAMS = 1e8
"""Largest ratio of two variances under which optima are proved; from 10^9 on systems of equations are too poor."""
OF_HISTOGRAMS = 1e10
"""The same on one level of a histogram tree; from 10^11 on the narrow noise hides whether histograms are determined."""


def refuse_wide_span(headers: Sequence[Measured], most: float) -> None:
    """Raise SpecError if some noise has more than `most` times the variance of other noise.

    Methods for nested margins, and histograms across levels, take averages by variance, which no ratio harms.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.model.cells import Margin
    >>> from trueup.noise import DiscreteLaplace
    >>> laws = DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(40))
    >>> refuse_wide_span([Measured(name, Margin("all"), law) for name, law in zip("ab", laws)], OF_PROGRAMS)
    Traceback (most recent call last):
    trueup.errors.SpecError: the noise of query 'a' on 'all' has more than 100,000,000 times the variance ... an invariant.
    """
    noisy = sorted((h for h in headers if not h.exact), key=lambda h: float(h.law.variance))
    if noisy and noisy[-1].law.variance > most * noisy[0].law.variance:
        wide, narrow = noisy[-1], noisy[0]
        raise SpecError(
            f"the noise of query '{wide.query}' on '{wide.margin}' has more than {most:,.0f} times the variance of "
            f"that of query '{narrow.query}' on '{narrow.margin}', and the method weighs both together",
            remedy="bring the two budgets closer, or declare what the narrow noise hardly hides an invariant",
        )


def refuse_wide_levels(headers: Sequence[Measured], most: float) -> None:
    """Raise SpecError if the noise of some level alone spans more than `most` times its variance."""
    for level in {h.margin.level: None for h in headers}:
        refuse_wide_span([h for h in headers if h.margin.level == level], most)
