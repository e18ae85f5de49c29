"""Values of some groups of a margin under one law, and of rows with their own variances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.published.perturbed.numbers import Convention, read_number
from trueup.model.cells import Cells, Margin
from trueup.model.perturbed import PublishedTable
from trueup.noise.laws.of_variance import law_of_variance

MOST_VARIANCES = 10_000
"""Different variances of the rows of a table."""


@dataclass(frozen=True, eq=False)
class ValuesUnderLaw:
    """Values `(v,)` of some groups of a margin under one law."""

    part: PublishedTable
    margin: Margin
    law: Any
    groups: NDArray[np.int64]
    values: NDArray

    def among(self, keep: NDArray[np.bool_]) -> ValuesUnderLaw:
        return replace(self, groups=self.groups[keep], values=self.values[keep])


def covers_margin(cells: Cells, v: ValuesUnderLaw) -> bool:
    return len(v.groups) == cells.size(v.margin)


def by_variance(
    cells: Cells, v: ValuesUnderLaw, texts: NDArray, name: str, by: Convention
) -> list[ValuesUnderLaw]:
    """Group values by the variance of their row; those of variance 0 are exact."""
    every, which = np.unique(texts, return_inverse=True)
    if len(every) > MOST_VARIANCES:
        raise DataError(
            f"table '{v.part.name}' has {len(every):,} different variances",
            needed=f"at most {MOST_VARIANCES:,}",
        )
    result: dict[Fraction, NDArray[np.bool_]] = {}
    for k, text in enumerate(every.tolist()):
        here = which == k
        variance = _variance(text, by)
        if variance is None:
            label = cells.margin_label(v.margin, int(v.groups[np.argmax(here)]))
            raise DataError(
                f"table '{v.part.name}' has the variance '{text[:30]}' for '{label}'",
                needed="a number above 0, or 0 where the value is exact",
            )
        result[variance] = result.get(variance, False) | here
    return [replace(v.among(here), law=law_of_variance(name, variance)) for variance, here in result.items()]


def _variance(text: str, by: Convention) -> Fraction | None:
    found = read_number(text, by)
    if found is None or found < 0 or (found and not -30 <= found.adjusted() <= 30):
        return None
    return Fraction(found)
