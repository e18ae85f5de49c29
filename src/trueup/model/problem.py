"""Problems: a spec with its public places, and all that follows from both before a confidential count is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from trueup.digits import ThreeLines
from trueup.errors import DataError, SpecError, TrueupError
from trueup.model.build import build_constraints, problem_cells
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.spec import Spec, parse_spec, read_spec_text
from trueup.model.tree import Tree
from trueup.noise.law import Law


@dataclass(frozen=True, eq=False, repr=False)
class Problem(ThreeLines):
    """A spec with its public places; derived quantities are computed once, when first needed.

    Attributes
    ----------
    spec
        The declaration of all that is counted, protected, measured and published.
    cells
        The public cells: places by attributes.
    text
        The TOML text of the spec, where it was read from a file.
    rows
        Number of rows that the confidential table must hold, if it is known; the table is held to it as to a rule.
    """

    spec: Spec
    cells: Cells
    text: str | None = None
    rows: int | None = None

    @classmethod
    def of(
        cls,
        spec: Spec | Problem | str | Path,
        geography: Any = None,
        *,
        data: Any = None,
        rows: int | None = None,
    ) -> Problem:
        """Make a problem from a spec and its public places.

        Parameters
        ----------
        spec
            A spec, or the path of one; a Problem is returned as it is.
        geography
            The public list of places: a path, a dataframe, a DuckDB relation or a `Tree`.
        data
            The table to be measured: where the spec declares its keys public, it lists the places.
        rows
            Number of rows that the confidential table must hold.

        Raises
        ------
        TrueupError
            If the spec or the places are at fault, or there is no public list of places.

        Examples
        --------
        >>> import pandas
        >>> from trueup.demo import AREAS
        >>> problem = Problem.of(AREAS, pandas.DataFrame({"area": ["a", "b"]}))
        >>> problem
        Problem: Two areas
          2 finest cells: all / area (1, 2 places)
          measured: all, area; structure: sum
        >>> problem.guarantee.amount
        Fraction(1, 1)
        """
        if isinstance(spec, Problem):
            _refuse_rows(spec.spec, rows)
            return spec if rows is None else replace(spec, rows=rows)
        stated, text = spec_and_text(spec)
        _refuse_rows(stated, rows)
        return cls(stated, public_cells(stated, data, geography), text, rows)

    def written(self) -> str:
        """Return the TOML text of the spec, as it is written into a bundle."""
        return self.spec.text() if self.text is None else self.text

    @cached_property
    def constraints(self) -> Constraints:
        """Return the constraints on released counts."""
        return build_constraints(self.spec, self.cells)

    @cached_property
    def _mechanism(self) -> tuple[tuple[Measured, ...], Guarantee]:
        from trueup.model.mechanism import plan_measurements

        return plan_measurements(self.spec, self.cells, self.constraints)

    @property
    def headers(self) -> tuple[Measured, ...]:
        """Return the headers of all noisy measurements, then of invariants."""
        return self._mechanism[0]

    @cached_property
    def left_out(self) -> Law | None:
        """Return the noise law of the number of records that the limit leaves out; None if it is not measured."""
        from trueup.model.mechanism import left_out_law

        return left_out_law(self.spec)

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee: the protected unit and the exact loss."""
        return self._mechanism[1]

    def _lines(self) -> tuple[str, str, str]:
        tree = self.cells.tree
        by = "".join(f" x {a.name} ({a.size})" for a in self.cells.attributes)
        measured = dict.fromkeys(str(margin) for margin in self.constraints.margins)
        return (
            f"Problem: {self.spec.title}",
            f"{self.cells.n:,} finest cells: {' / '.join(tree.levels)} ({', '.join(f'{s:,}' for s in tree.sizes)} places){by}",
            f"measured: {', '.join(measured)}; structure: {self.constraints.structure()}",
        )


def _refuse_rows(spec: Spec, rows: int | None) -> None:
    if rows is not None and getattr(spec.table, "join", None) is not None:
        raise SpecError(
            "--expect-rows is given for two linked tables, where it could mean either of them",
            remedy="leave out --expect-rows, in Python rows=",
        )


def spec_and_text(spec: Spec | Problem | str | Path) -> tuple[Spec, str | None]:
    """Read a spec; return it with its TOML text, or with None if it was made in Python."""
    if isinstance(spec, Problem):
        return spec.spec, spec.text
    if isinstance(spec, str | Path):
        text = read_spec_text(spec)
        return parse_spec(text), text
    if isinstance(spec, Spec):
        return spec, None
    raise TrueupError(
        f"a {type(spec).__name__} is given as the spec",
        needed="a Spec, a Problem, or the path of a spec",
        remedy="read a spec from a file by trueup.load_spec(path)",
    )


def public_cells(spec: Spec, data: Any = None, geography: Any = None) -> Cells:
    """Return the cells that cross the public places with the declared attributes."""
    places = geography if geography is not None else data if spec.table.keys == "public" else None
    if places is None and len(spec.levels) > 1:
        public = spec.table.keys == "public"
        raise DataError(
            "no public geography is given"
            + ("" if public else ", and the spec does not declare the keys of the table public"),
            needed="the list of all places",
            remedy="give --geography FILE, in Python geography=..."
            + ("" if public else ', or write keys = "public" under [table] for a table of counts'),
        )
    if isinstance(places, Tree):
        return problem_cells(spec, places)
    from trueup.model.geography import read_tree

    return problem_cells(spec, read_tree(spec, places))
