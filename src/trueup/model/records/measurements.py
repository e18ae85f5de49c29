"""The record of `measure`: noisy counts with the laws of their noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.problem import Problem
from trueup.model.records.tabled import NINE_OF_TEN, Tabled
from trueup.model.spec import Spec
from trueup.model.tables import probability_of
from trueup.noise.law import NO_LIMIT, Law


@dataclass(frozen=True, repr=False)
class LeftOut:
    """The noisy number of records that the limit on one unit's records leaves out.

    Attributes
    ----------
    law
        The law of the noise.
    value
        The noisy number.
    most
        Largest number of records of one unit that are counted.
    """

    law: Law
    value: int
    most: int

    def margin_of_error(self, level: float | str = NINE_OF_TEN) -> int:
        """Return the margin of error (records) at the given probability."""
        return self.law.tail(1 - probability_of(level)).counts

    def __repr__(self) -> str:
        return f"LeftOut({self.law!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Measurements(Tabled):
    """Noisy counts that were drawn once; later results are post-processing.

    Attributes
    ----------
    cells
        The public cells they speak of.
    headers
        One header per measured margin.
    values
        The measured integers of each header, in the order of its groups.
    guarantee
        The privacy guarantee: the protected unit and the cost.
    bounds
        Public limits on margins that were published with the values, for every group.
    simulation
        True if the noise came from a seeded generator; such a record is never released.
    spec
        The spec that it was measured by, where that is known; verbs that take the record need no other.
    frame
        The library of the dataframe that was measured; None for a file. Tables are made in it.
    left_out
        Noisy number of records that the limit on those of one unit leaves out; None if it was not measured.
    sealed
        For a run by parts, the digest over its files, which stands for the digest of the values.

    Raises
    ------
    DataError
        If a header has no values, or others than one finite number for each of its groups; it names the table.
    """

    cells: Cells
    headers: tuple[Measured, ...]
    values: tuple[NDArray[np.int64], ...]
    guarantee: Guarantee
    bounds: tuple[Bound, ...] = field(default=(), kw_only=True)
    simulation: bool = field(default=False, kw_only=True)
    spec: Spec | None = field(default=None, kw_only=True)
    frame: str | None = field(default=None, kw_only=True)
    left_out: LeftOut | None = field(default=None, kw_only=True)
    sealed: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if len(self.headers) != len(self.values):
            raise DataError(
                f"{len(self.headers)} headers and {len(self.values)} arrays of values are given",
                needed="one array of values for each header",
            )
        for header, values in zip(self.headers, self.values):
            _refuse_unusable(self.cells, header, values)

    def _lines(self) -> tuple[str, str, str]:
        """Return three lines that describe the record; they state no counts."""
        title = self.spec.title if self.spec else "spec not known"
        tables = dict.fromkeys(str(header.margin) for header in self.headers)
        cost = self.guarantee.line
        return (
            f"Measurements: {title}",
            f"{len(self.flat):,} counts in {len(tables)} tables: {', '.join(tables)}",
            "simulated noise: never released" if self.simulation else cost,
        )

    @cached_property
    def flat(self) -> NDArray[np.int64]:
        """Return all `q` measured values in one vector."""
        return np.concatenate(self.values) if self.values else np.zeros(0, dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the public content (laws, margins and values), which seeds post-processing."""
        if self.sealed is not None:
            return self.sealed
        whole = hashlib.sha256()
        for header, values in zip(self.headers, self.values):
            law = ", ".join(f"{k}={v}" for k, v in sorted(header.law.parameters().items()))
            whole.update(f"{header.query}|{header.margin}|{header.law.name}|{law}\n".encode())
            if header.groups is not None:
                whole.update(np.ascontiguousarray(header.groups, dtype="<i8").tobytes())
            kind = "<f8" if np.asarray(values).dtype.kind == "f" else "<i8"
            whole.update(np.ascontiguousarray(values, dtype=kind).tobytes())
        for bound in self.bounds:
            whole.update(f"{bound.margin}|{bound.lower}|{bound.upper}|{bound.where}\n".encode())
        if self.left_out is not None:
            whole.update(
                f"left out|{self.left_out.law!r}|{self.left_out.most}|{self.left_out.value}\n".encode()
            )
        return whole.hexdigest()

    def _facts(self) -> dict[str, str]:
        return {"guarantee": self.guarantee.sentences[0]}

    def figures(self, margin: Margin | str, level: float | str | None = None) -> dict[str, NDArray]:
        """Return a margin's columns `noisy` (`exact` for an invariant) and `margin of error` (counts), one row per group.

        Raises
        ------
        SpecError
            If the margin was not measured.
        """
        values, reach, exact = self._best(margin, probability_of(NINE_OF_TEN if level is None else level))
        if np.ma.getmaskarray(values).all():
            measured = dict.fromkeys(str(h.margin) for h in self.headers)
            raise SpecError(f"the table '{margin}' was not measured", needed=f"one of {', '.join(measured)}")
        return {"exact" if exact.all() else "noisy": values, "margin of error": reach}

    def exact(self, margin: Margin | str) -> NDArray[np.bool_]:
        """Return a mask of the groups of a margin that are published exactly."""
        return self._best(margin, 0.5)[2]

    def noisy(self, margin: Margin | str) -> NDArray:
        """Return the noisy counts `(groups,)` of a margin, for each group the value of least variance; masked without one."""
        values, _, exact = self._best(margin, 0.5)
        return np.ma.masked_where(exact, values)

    def _best(self, margin: Margin | str, level: float) -> tuple[NDArray, NDArray, NDArray[np.bool_]]:
        """Return each group's value of least variance, its margin of error, and True if exact; masked if not measured."""
        margin = canonical(self.cells, self.cells.margin(margin))
        size = self.cells.size(margin)
        kind = np.result_type(np.int64, *(part.dtype for part in self.values))
        values, reach = (np.ma.array(np.zeros(size, t), mask=True) for t in (kind, np.int64))
        exact, least = np.zeros(size, bool), np.full(size, np.inf)
        for header, part in zip(self.headers, self.values):
            if canonical(self.cells, header.margin) != margin:
                continue
            at = np.arange(size) if header.groups is None else header.groups
            law: Any = header.law  # some published values are codes, and no numbers
            better = (law.variance < least[at]) & (True if law.numeric else law.numeral(part))
            at, part = at[better], part[better]
            least[at], exact[at], values[at] = law.variance, header.exact, part
            reach[at] = law.tail(1 - level).counts
        return values, reach, exact

    def shown(self, margin: Margin | str) -> NDArray:
        """Return the published numbers `(groups,)` of a margin; masked where there is a code or nothing."""
        return self._best(margin, 0.5)[0]

    @cached_property
    def value_bounds(self) -> tuple[Bound, ...]:
        """Return the bounds on true counts that perturbed values imply, one for each perturbed table."""
        found = []
        for header, values in zip(self.headers, self.values):
            if header.law.additive:
                continue
            groups = slice(None) if header.groups is None else header.groups
            lower = np.full(self.cells.size(header.margin), -np.inf)
            upper = np.full(len(lower), np.inf)
            low, high = header.law.bounds(values)
            lower[groups], upper[groups] = low, np.where(high >= NO_LIMIT, np.inf, high)
            found.append(Bound(header.margin, lower, upper))
        return tuple(found)

    def of(self, problem: Problem, frame: str | None) -> Measurements:
        """Return the measurements joined to the problem that was measured.

        How many rows the table must have held is nothing that a publishable record says.
        """
        known = replace(self, spec=problem.spec, frame=frame)
        known.__dict__["problem"] = problem if problem.rows is None else replace(problem, rows=None)
        return known

    def by(self, spec: Spec | Problem | None) -> Problem:
        """Return the problem of the given spec on the record's cells, or the record's own problem.

        Raises
        ------
        SpecError
            If no spec is known.
        """
        own = self.problem
        if isinstance(spec, Problem):
            return spec if spec.cells is self.cells else Problem(spec.spec, self.cells)
        if spec is not None and (own is None or spec is not own.spec):
            return Problem(spec, self.cells)
        if own is None:
            raise SpecError("the measurements were read without their spec", remedy="give the spec: spec=...")
        return own

    def rng(self) -> np.random.Generator:
        """Return the random generator for post-processing, seeded from the public digest."""
        return np.random.default_rng(int(self.digest, 16))


def _refuse_unusable(cells: Cells, header: Measured, values: NDArray) -> None:
    """Refuse values that are not one finite number for each group that a header measures."""
    groups = cells.size(header.margin) if header.groups is None else len(header.groups)
    where = f"the values of query '{header.query}' on '{header.margin}'"
    if np.shape(values) != (groups,):
        raise DataError(
            f"{where} have the shape {np.shape(values)}", needed=f"({groups},), one for each group"
        )
    if not np.issubdtype(np.asarray(values).dtype, np.number) or np.iscomplexobj(values):
        raise DataError(f"{where} are of the type {np.asarray(values).dtype}", needed="numbers")
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        label = cells.margin_label(
            header.margin, int(bad[0] if header.groups is None else header.groups[bad[0]])
        )
        many = f", as are {bad.size - 1:,} more" if bad.size > 1 else ""
        raise DataError(
            f"{where} are not finite at '{label}'{many}",
            needed="a finite number for each group",
            remedy="leave out the groups without a value: give the header the `groups` that were measured",
        )
