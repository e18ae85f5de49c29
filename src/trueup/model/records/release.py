"""The record of `reconcile`: counts that satisfy every constraint, with a certificate.

One file: a release, what is left of it without its measurements, and which of its tables can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.digits import ThreeLines
from trueup.model.cells import Cells, Margin
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.records.measurements import LeftOut, Measurements
from trueup.model.records.tabled import NINE_OF_TEN, Tabled
from trueup.model.spec import Spec
from trueup.model.tables import probability_of


@dataclass(frozen=True)
class Miss:
    """The distance between released and noisy counts of one query at one level.

    Attributes
    ----------
    query, level
        The query and its level.
    counts
        Number of noisy counts.
    rms
        Root mean square of released minus noisy count (counts).
    """

    query: str
    level: str
    counts: int
    rms: float


@dataclass(frozen=True, eq=False, repr=False)
class Release(Tabled):
    """Released counts that add up, with the measurements and the checks that they passed.

    Attributes
    ----------
    measurements
        The measurements they were made from.
    counts
        `(n,)` integers (or reals for a continuous method) of the finest cells.
    method
        Name and parameters of the reconciliation method.
    checks
        Each rule that was checked on the final counts, and whether it holds.
    stats
        Figures that the method reported.
    published
        The margins whose tables are released, coarse to fine.
    errors
        For margins where it is known in closed form, the standard error `(groups,)` of the
        least-squares estimate (counts), before nonnegativity and rounding.
    expects
        The errors to expect by size of the released count, or what simulates them when they are first asked for.
    """

    measurements: Measurements
    counts: NDArray
    method: Mapping[str, Any]
    checks: Mapping[str, bool]
    stats: Mapping[str, Any]
    published: tuple[Margin, ...] = ()
    errors: Mapping[Margin, NDArray] = field(default_factory=dict)
    expects: ExpectedErrors | Callable[[Release], ExpectedErrors] | None = field(default=None, kw_only=True)

    def _lines(self) -> tuple[str, str, str]:
        guarantee = self.guarantee
        kept = ", ".join(rule for rule, holds in self.checks.items() if holds)
        return (
            f"Release: {self.spec.title if self.spec else 'spec not known'}",
            f"tables: {', '.join(map(str, self.published))}; {guarantee.line}",
            f"by the method '{self.method.get('method')}'; holds: {kept}",
        )

    @property
    def spec(self) -> Spec | None:
        """Return the spec of the measurements, or None if it is not known."""
        return self.measurements.spec

    @property
    def problem(self) -> Problem | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the problem that was measured; None if its spec is not known."""
        return self.measurements.problem

    @cached_property
    def expected(self) -> ExpectedErrors | None:
        """Return the expected errors, simulated from public information alone; None if they were not simulated."""
        return self.expects(self) if callable(self.expects) else self.expects

    @property
    def cells(self) -> Cells:
        """Return the finest cells."""
        return self.measurements.cells

    @property
    def headers(self) -> tuple[Measured, ...]:
        """Return the headers of all measurements."""
        return self.measurements.headers

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of the measurements: the protected unit and the exact loss."""
        return self.measurements.guarantee

    @property
    def digest(self) -> str:
        """Return the digest of the measurements, from which all later randomness was seeded."""
        return self.measurements.digest

    @property
    def parts(self) -> int:
        """Return the number of parts in which the release was measured."""
        return 1

    @property
    def left_out(self) -> LeftOut | None:
        """Return the noisy number of records that a limit left out; None if it was not measured."""
        return self.measurements.left_out

    @cached_property
    def misses(self) -> tuple[Miss, ...]:
        """Return the distances between released and noisy counts, for every noisy query and level."""
        if self.guarantee.kind == "none":  # a code has no distance
            return ()
        noisy = [h for h in self.headers if not h.exact]
        gaps = zip(noisy, self.adjustments().values(), strict=True)
        return tuple(
            Miss(h.query, h.margin.level, gap.size, float(np.sqrt((gap**2.0).mean()))) for h, gap in gaps
        )

    def sums(self, margin: Margin | str) -> NDArray:
        """Return released counts `(groups,)` of a margin, summed from the finest cells.

        Examples
        --------
        >>> import pandas
        >>> from trueup.demo import AREAS
        >>> from trueup.measuring import measure
        >>> from trueup.reconciling import reconcile
        >>> release = reconcile(measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})))
        >>> bool(release.sums("all")[0] == release.sums("area").sum())
        True
        """
        return self.cells.sum(self.counts, self.cells.margin(margin))

    @property
    def frame(self) -> str | None:
        """Return the name of the dataframe library of the table that was given."""
        return self.measurements.frame

    def _facts(self) -> dict[str, str]:
        return {
            "method": str(self.method.get("method", "")),
            "guarantee": self.guarantee.sentences[0],
        }

    def figures(self, margin: Margin | str, level: float | str | None = None) -> dict[str, NDArray]:
        """Return a margin's columns `released`, `noisy` and `margin of error` (counts), masked where there is no figure.

        Of tables that somebody else published: `released` and `published`, masked where a code stands.
        """
        if self.guarantee.kind == "none":
            return {"released": self.sums(margin), "published": self.measurements.shown(margin)}
        none = np.ma.masked_all(self.cells.size(margin))
        error = self.margin_of_error(margin, NINE_OF_TEN if level is None else level)
        return {
            "released": self.sums(margin),
            "noisy": np.ma.masked_where(self._known_zeros(margin), self.measurements.noisy(margin)),
            "margin of error": none if error is None else _whole_if_exact(error),
        }

    @property
    def shows_counts(self) -> bool:
        """Return True if the released counts are in memory."""
        return "counts" in vars(self)

    def _shown_figures(self, margin: Margin) -> dict[str, NDArray]:
        """Return the figures shown in a notebook; margins of error that must first be simulated are left out."""
        if callable(self.expects) and "expected" not in vars(self):
            return {"released": self.sums(margin), "noisy": self.measurements.noisy(margin)}
        return self.figures(margin)

    def margin_of_error(self, margin: Margin | str, level: float | str = NINE_OF_TEN) -> NDArray | None:
        """Return the margin of error (counts) of every released count of a margin, at the given probability.

        It is looked up by the size of the released count where errors were simulated; for tables that are not
        published it is that of least squares (its standard error times the normal quantile), and None without one. Counts that
        the rules make zero have none.

        Raises
        ------
        SpecError
            If the level is none of 50%, 80%, 90%, 95% and 99%, and errors were simulated.
        """
        margin = canonical(self.cells, self.cells.margin(margin))
        if self.expected and margin in self.expected.tables:
            error = self.expected.margin_of_error(margin, self.sums(margin), level)
        elif margin in self.errors:
            error = NormalDist().inv_cdf(0.5 + probability_of(level) / 2) * self.errors[margin]
        else:
            return None
        return None if error is None else np.where(self._known_zeros(margin), 0.0, error)

    def _known_zeros(self, margin: Margin | str) -> NDArray[np.bool_]:
        """Return a mask `(groups,)` of the counts that the rules force to zero."""
        margin = self.cells.margin(margin)
        rules = self.spec.constraints if self.spec else None
        if self.problem is None or rules is None or not (rules.zeros or rules.bounds):
            return np.zeros(self.cells.size(margin), bool)
        return self.problem.constraints.known_zeros(margin)

    def adjustments(self) -> dict[str, NDArray]:
        """Return released minus noisy counts, for every noisy measurement by name."""
        pairs = zip(self.measurements.headers, self.measurements.values)
        noisy = ((h, v) for h, v in pairs if not h.exact)
        return {f"{h.query} @ {h.margin}": h.sums(self.cells, self.counts) - v for h, v in noisy}


def _whole_if_exact(error: NDArray) -> NDArray:
    """Return numbers as integers if all are whole, else unchanged."""
    whole = np.rint(error).astype(np.int64) if np.isfinite(error).all() else error
    return whole if np.array_equal(whole, error) else error


MOST, NEARLY_ALL = 0.5, 0.9
"""Shares of the counts from which on a table is named, and from which on nothing of it can be read."""


def unreadable_tables(release: Release) -> Iterator[str]:
    """Yield a sentence for each published table in which most margins of error exceed the count.

    The mean is asked for as well because a small margin exceeds a count of 0, which most counts of a sparse table are.
    """
    for margin in release.published if release.parts == 1 else ():
        counts, errors = release.sums(margin), release.margin_of_error(margin)
        if errors is not None and counts.size:
            exceeded = (errors > counts) & (errors > counts.mean())
            yield from _large_error_sentences(str(margin), float(exceeded.mean()), "")


def unreadable_forecast(expected: ExpectedErrors | None, cells: Cells, units: int) -> Iterator[str]:
    """Yield warnings for tables whose margins of error would mostly exceed counts that sum to `units`."""
    if expected is None or not all(attribute.partition for attribute in cells.attributes):
        return
    for margin, classes in expected.tables.items():
        mean, ends = units / cells.size(margin), [c.lowest for c in classes[1:]]
        middles = [(max(c.lowest, 1) * end) ** 0.5 if end > 1 else 0.0 for c, end in zip(classes, ends)]
        exceeded = [c.margin(90) > max(m, mean) for c, m in zip(classes, [*middles, classes[-1].lowest])]
        times = [c.simulated or 1 for c in classes]
        yield from _large_error_sentences(
            str(margin), float(np.average(exceeded, weights=times)), " in made-up populations"
        )


def _large_error_sentences(table: str, share: float, whose: str) -> Iterator[str]:
    if share > MOST:
        read = "no number and no order" if share >= NEARLY_ALL else "neither most numbers nor their order"
        yield (
            f"From the table '{table}' {read} can be read: for {np.floor(100 * share):.0f} % of its counts{whose} the "
            "90 % margin of error exceeds both the number itself and the average one. A larger budget, or fewer and "
            "coarser tables, would help."
        )


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedCounts(ThreeLines):
    """Released counts without measurements, which `infer` uses if no measurements were published.

    Attributes
    ----------
    problem
        The spec, which says under which laws counts were measured, with its places.
    counts
        `(n,)` released whole counts of the finest cells.
    method
        Name and parameters of the method that released them, as the spec says.
    """

    problem: Problem
    counts: NDArray
    method: Mapping[str, Any]

    def _lines(self) -> tuple[str, str, str]:
        return (
            f"Released counts: {self.problem.spec.title}",
            f"{self.counts.size:,} finest cells, no measurements",
            f"released by the method '{self.method['method']}'",
        )

    @property
    def cells(self) -> Cells:
        """Return the finest cells."""
        return self.problem.cells

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of the release, as stated in its spec."""
        return self.problem.guarantee
