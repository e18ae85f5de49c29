"""Expected least-squares errors of tables, as functions of the precisions of the measured tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.histogram import Marginal
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.area_variances import Areas, area_slopes, area_variances
from trueup.kernel.histogram.error_variances import ErrorVariances, Parts, Swept
from trueup.kernel.histogram.spine import Shapes
from trueup.kernel.histogram.structural_zeros import Fold
from trueup.model.cells import Cells, Margin
from trueup.model.changes import MOST_COMBINATIONS
from trueup.model.family import FamilyCells
from trueup.model.records.places_asked import AreaTable
from trueup.noise.law import Reals
from trueup.planning import Target

FUSED_CODES = 12
"""Structural zeros are held while they tie together at most so many combinations of values: dense blocks cost their cube.
(In `examples/pl94.toml` there are 15, for four times the work and a budget that differs by 2e-7.)"""
UNMEASURED_PRECISION = 1e-9
"""Precision with which the full cross of a family of tables is taken as measured, as a share of its most precise table's."""
KEPT_SWEEPS = 2
"""Precisions whose covariances are kept."""


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected least-squares errors of tables on a hierarchy, given which tables are measured.

    Nonnegativity and rounding are left out; structural zeros too, where dense blocks of theirs would be too wide.

    Attributes
    ----------
    cells
        The finest cells; of a family of tables its full cross, of which no array of all places is made.
    measured
        The k measured tables.
    model
        Error variances as functions of the k precisions, in a basis that holds every table asked for.
    areas
        Areas off the hierarchy, where targets name them.
    fold
        Map of attribute values that removes structural zeros.
    family
        The largest tables of a family: its full cross is the last table of `model`, measured with next to no precision.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
    >>> tables = [Margin("all", ("sex",)), Margin("all", ("age",)), Margin("all", ("sex", "age"))]
    >>> expected = Expected.of(cells, tables)
    >>> mean, largest = expected.errors(np.array([1 / 2, 1e-9, 1.0]), tables)
    >>> mean.round(3)
    array([1.  , 1.5 , 0.75])
    """

    cells: Cells
    measured: tuple[Margin, ...]
    model: ErrorVariances
    areas: AreaTable | None = None
    fold: Fold | None = None
    family: tuple[Margin, ...] = ()
    _forms: dict[Margin, list[Parts]] = field(default_factory=dict, init=False, repr=False)
    _means: dict[Margin, Parts] = field(default_factory=dict, init=False, repr=False)
    _sweeps: dict[bytes, Swept] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        cells: Cells,
        measured: Sequence[Margin],
        others: Sequence[Margin] = (),
        areas: AreaTable | None = None,
        zeros: Sequence[Mapping[str, str]] = (),
    ) -> Expected:
        """Prepare the calculation of expected errors, for the measured tables and for further ones.

        Raises
        ------
        SpecError
            If the measured tables do not determine the cells of the last level.
        """
        family = cells.tables if isinstance(cells, FamilyCells) else ()
        cells = _full_cross(cells)
        fold = Fold.of(cells.shape[1:], [cells.where(zero)[0] for zero in zeros])
        fold = fold if fold.widest <= FUSED_CODES else Fold.of(cells.shape[1:])
        marginals = [fold.marginal(cells.marginal(m.attributes)) for m in (cells.finest, *measured, *others)]
        levels = [cells.tree.level(m.level) for m in measured]
        tables = tuple(zip(levels, marginals[1 : len(levels) + 1]))
        if family:
            tables = (*tables, (len(cells.tree.levels) - 1, marginals[0]))
        model = ErrorVariances(Domain.of(marginals), Shapes.of(cells.tree.child_ptr), tables)
        expected = cls(cells, tuple(measured), model, areas, fold, family)
        if not family and not expected.model.determined(np.ones(len(measured), bool)):
            raise SpecError(
                f"the measured tables do not determine the counts of '{cells.finest}'",
                needed=f"'{cells.finest}' measured, however noisily, or tables that determine it",
                remedy=f"give a query on '{cells.finest}' a budget",
            )
        return expected

    @cached_property
    def needed(self) -> NDArray[np.bool_]:
        """Return a mask (k,) of few measured tables that together determine the finest cells.

        Of a family these are its largest tables.
        """
        if self.family:
            return np.array([m in self.family for m in self.measured])
        kept = np.array([m.level == self.cells.tree.levels[-1] for m in self.measured])
        for at in sorted(np.flatnonzero(kept), key=lambda i: self.cells.size(self.measured[i])):
            kept[at] = False
            kept[at] = not self.model.determined(kept)
        return kept

    def level(self, margin: Margin) -> int:
        """Return the position, in the hierarchy, of a table's level."""
        return self.cells.tree.level(margin.level)

    def marginal(self, margin: Margin) -> Marginal:
        """Return the group, in a table, of every value of each attribute."""
        marginal = self.cells.marginal(margin.attributes)
        return self.fold.marginal(marginal) if self.fold else marginal

    def forms(self, margin: Margin) -> list[Parts]:
        """Return a quadratic form, for each kind of cell in a table, that gives its error variance."""
        if margin not in self._forms:
            self._forms[margin] = self.model.forms(self.marginal(margin))
        return self._forms[margin]

    def mean_form(self, margin: Margin) -> Parts:
        """Return the quadratic form that gives the mean error variance of a table's cells."""
        if margin not in self._means:
            self._means[margin] = self.model.mean_form(self.marginal(margin))
        return self._means[margin]

    def worst(self, swept: Swept, margin: Margin) -> tuple[float, int, int]:
        """Return the largest error variance of a table's cells, and the position of the cell that has it."""
        variances = self.model.variances(swept, self.level(margin), self.forms(margin))
        context, kind = np.unravel_index(int(np.argmax(variances)), variances.shape)
        return float(variances[context, kind]), int(context), int(kind)

    def sweep(self, precisions: Reals) -> Swept:
        """Return covariances of all estimates, given the precisions (k,) of the measured tables."""
        if not self.family:
            return self.model.sweep(precisions)
        return self.model.sweep(
            np.append(precisions, UNMEASURED_PRECISION * precisions[np.isfinite(precisions)].max())
        )

    def _swept(self, precisions: Reals) -> Swept:
        """Return covariances of all estimates at given precisions, from a cache of recent ones."""
        key = precisions.tobytes()
        found = self._sweeps.pop(key, None) or self.sweep(precisions)
        self._sweeps[key] = found
        if len(self._sweeps) > KEPT_SWEEPS:
            self._sweeps.pop(next(iter(self._sweeps)))
        return found

    def errors(self, precisions: Reals, margins: Sequence[Margin]) -> tuple[Reals, Reals]:
        """Return the mean and largest error variance (counts squared) of each table at given precisions."""
        swept = self._swept(precisions)
        wanted = [(self.level(m), self.mean_form(m), 1.0) for m in margins]
        return self.model.means(swept, wanted)[0], np.array([self.worst(swept, m)[0] for m in margins])

    def weighted(self, precisions: Reals, weights: Mapping[Margin, float]) -> tuple[Reals, Reals]:
        """Return a weighted sum of mean error variances, and its negated gradient (1, k) in the precisions."""
        swept = self.sweep(precisions)
        wanted = [(self.level(m), self.mean_form(m), weight) for m, weight in weights.items() if weight]
        means, slopes = self.model.means(swept, wanted)
        return np.array([means @ [weight for *_, weight in wanted]]), self._of_measured(slopes[None])

    def of_areas(self, margin: Margin) -> bool:
        """Return True if the table is a table of areas, which are not in the hierarchy."""
        return self.areas is not None and margin.level == self.areas.column

    @cached_property
    def _laid_out(self) -> Areas:
        assert self.areas is not None
        return self.areas.laid_out(self.cells, self.model.shapes)

    def _area_errors(self, swept: Swept, target: Target) -> tuple[Reals, list[Parts]]:
        """Return error variances of a target for all areas, with the quadratic form of each kind of cell."""
        forms = [self.mean_form(target.margin)] if target.mean else self.forms(target.margin)
        return area_variances(self.model, swept, self._laid_out, forms), forms

    def reached(self, precisions: Reals, targets: Sequence[Target]) -> tuple[Reals, list[str]]:
        """Return the error variance (j,) of each target, and the name of the place where it is largest."""
        swept = self._swept(precisions)
        found = [self._reached(swept, target) for target in targets]
        return np.array([value for value, _ in found]), [place for _, place in found]

    def _reached(self, swept: Swept, target: Target) -> tuple[float, str]:
        if self.of_areas(target.margin):
            variances = self._area_errors(swept, target)[0]
            if target.mean:
                return float(variances.mean()), ""
            assert self.areas is not None
            return float(variances.max()), self.areas.names[int(variances.max(axis=1).argmax())]
        level = self.level(target.margin)
        if target.mean:
            return self.model.means(swept, [(level, self.mean_form(target.margin), 1.0)])[0][0], ""
        value, context, _ = self.worst(swept, target.margin)
        return value, self.cells.tree.label(target.margin.level, self.model.shapes.first(level, context))

    def largest(self, precisions: Reals, targets: Sequence[Target], limits: Reals) -> tuple[Reals, Reals]:
        """Return each target's error variance divided by its limit (j,), and negative derivatives (j, k)."""
        swept = self.sweep(precisions)
        values, slopes = np.zeros(len(targets)), np.zeros((len(targets), len(self.model.tables)))
        single = []
        for j, target in enumerate(targets):
            if self.of_areas(target.margin):
                values[j], slopes[j] = self._largest_area(swept, target)
            elif target.mean:
                form = [(self.level(target.margin), self.mean_form(target.margin), 1.0)]
                (values[j],), slopes[j] = self.model.means(swept, form)
            else:
                values[j], context, kind = self.worst(swept, target.margin)
                form = self.forms(target.margin)[kind]
                single.append((j, (self.level(target.margin), form, context)))
        if single:
            slopes[[j for j, _ in single]] = self.model.slopes(swept, [wanted for _, wanted in single])
        return values / limits, self._of_measured(slopes) / limits[:, None]

    def _of_measured(self, slopes: Reals) -> Reals:
        """Return derivatives by the precisions of the measured tables, without that of the full cross."""
        return slopes[:, : len(self.measured)]

    def _largest_area(self, swept: Swept, target: Target) -> tuple[float, Reals]:
        variances, forms = self._area_errors(swept, target)
        areas = len(variances)
        if target.mean:
            weight, kind = np.full(areas, 1 / areas), 0
        else:
            area, kind = np.unravel_index(int(np.argmax(variances)), variances.shape)
            weight = (np.arange(areas) == area).astype(float)
        slopes = area_slopes(self.model, swept, self._laid_out, [(forms[int(kind)], weight)])
        return float(weight @ variances[:, kind]), slopes[0]


def _full_cross(cells: Cells) -> Cells:
    if not isinstance(cells, FamilyCells):
        return cells
    if (combinations := prod(cells.whole.shape[1:])) > MOST_COMBINATIONS:
        raise SpecError(
            f"the attributes have {combinations:,} combinations of values, too many to compute the errors of several "
            "tables together",
            needed=f"at most {MOST_COMBINATIONS:,} combinations",
            remedy="write one spec for each group of tables that share attributes",
        )
    return cells.whole
