"""Stated totals of persons (or other units) in each region, and columns of wide tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files import select
from trueup.files.source import open_table
from trueup.files.values import whole_counts
from trueup.model.cells import Cells
from trueup.model.linear import parse_sum
from trueup.model.spec import Spec

PERSONS_PER_PLACE = {"state": 6_500_000, "county": 105_000, "tract": 3_900, "block group": 1_400, "block": 40}
"""Persons for each place of a level of these names, where only one of the two numbers is given, as in 2020."""
PERSONS_PER_BLOCK = PERSONS_PER_PLACE["block"]
"""The same for a level of any other name."""


@dataclass(frozen=True)
class SynthRegion:
    """A region of the synthetic country, with its name, code and total.

    Attributes
    ----------
    code
        Digits that begin the codes of its places.
    name
        Readable name.
    persons, places
        Stated total, and number of places of the last level.
    """

    code: str
    name: str
    persons: int
    places: int = 0


def stated_regions(totals: Any = None) -> list[SynthRegion]:
    """Return regions with their stated totals: states in the 2020 census, or rows of a user's table.

    Parameters
    ----------
    totals
        A table with the columns `name`, `persons` and, if wanted, `code` (digits).

    Raises
    ------
    DataError, SpecError
        If a column, code or total is not what it should be.

    Examples
    --------
    >>> sum(region.persons for region in stated_regions())
    331449281
    """
    table = open_table(str(files("trueup.synth") / "states.csv") if totals is None else totals)
    rows = select(table, ["name", "persons"])
    persons = whole_counts(rows["persons"], "persons")
    width = max(2, len(str(len(persons))))
    own = [str(i + 1).zfill(width) for i in range(len(persons))]
    codes = table.select(["code"])["code"] if "code" in table.columns() else own
    names = [str(name) for name in rows["name"]]
    _refuse_bad(names, [str(code) for code in codes])
    return [SynthRegion(str(c), n, int(p)) for c, n, p in zip(codes, names, persons, strict=True)]


def _refuse_bad(names: list[str], codes: list[str]) -> None:
    if not names:
        raise DataError("the table of totals is empty", needed="a row for every region")
    for what, given in (("name", names), ("code", codes)):
        if twice := [value for value in given if given.count(value) > 1]:
            raise DataError(
                f"the table of totals holds the {what} '{twice[0]}' twice", needed="one row for each of them"
            )
    if bad := [c for c in codes if not (c.isascii() and c.isdigit()) or len(c) != len(codes[0])]:
        raise DataError(
            f"'{bad[0]}' cannot be the code of a region",
            needed="digits, equally many in the code of every region",
        )


def chosen(regions: Sequence[SynthRegion], names: Sequence[str]) -> list[SynthRegion]:
    """Return the regions that have the given names or codes, and refuse unknown ones.

    Raises
    ------
    SpecError
        If a name is unknown.
    """
    known = {key.casefold(): r for r in regions for key in (r.code, r.name)}
    for name in names:
        if name.casefold() not in known:
            close = get_close_matches(name.casefold(), list(known), 1)
            hint = f"did you mean '{known[close[0]].name}'?" if close else "see the table of totals"
            raise SpecError(
                f"no region is called '{name}'",
                remedy=hint,
                needed="the name or code of a region in the table of totals",
            )
    wanted = {known[name.casefold()] for name in names}
    return [r for r in regions if r in wanted or not names]


def sized(
    regions: Sequence[SynthRegion],
    persons: int | None,
    places: int | None,
    per_place: int = PERSONS_PER_BLOCK,
) -> list[SynthRegion]:
    """Return regions with a number of places each, and with totals scaled to a given sum.

    Where only places are given there are so many persons for each, and the other way round; sums are met exactly.

    Examples
    --------
    >>> [(r.persons, r.places) for r in sized([SynthRegion("1", "a", 300), SynthRegion("2", "b", 100)], None, 10)]
    [(300, 7), (100, 3)]
    """
    stated_persons = np.array([r.persons for r in regions], dtype=np.int64)
    total = int(stated_persons.sum())
    if persons is None:
        persons = per_place * places if places is not None else total
    if places is None:
        places = max(len(regions), round(persons / per_place))
    if persons < 0 or places < len(regions):
        raise SpecError(
            f"{persons:,} persons in {places:,} places cannot be divided among {len(regions)} regions",
            needed=f"at least {len(regions)} places, and 0 or more persons",
        )
    if not total:
        raise SpecError("the stated totals are all zero", needed="at least one region with a positive total")
    people = share_out(persons, stated_persons) if persons != total else stated_persons
    extra = share_out(places - len(regions), stated_persons)
    return [SynthRegion(r.code, r.name, int(p), int(1 + q)) for r, p, q in zip(regions, people, extra)]


def share_out(total: int, weights: NDArray) -> NDArray[np.int64]:
    """Divide a whole total in proportion to weights, by largest remainders.

    Examples
    --------
    >>> share_out(10, np.array([1, 1, 1]))
    array([4, 3, 3])
    """
    exact = [total * int(w) for w in weights]
    whole = np.array([e // int(weights.sum()) for e in exact], dtype=np.int64)
    remainders = np.array([e % int(weights.sum()) for e in exact])
    whole[np.argsort(-remainders, kind="stable")[: total - int(whole.sum())]] += 1
    return whole


@dataclass(frozen=True)
class WideTable:
    """The columns of a wide table, as linear functions of the counts of all cells.

    Attributes
    ----------
    names
        The columns.
    solution
        `(columns, cells)`: whole numbers; cell counts times this are columns.
    """

    names: tuple[str, ...]
    solution: NDArray[np.int64]

    @classmethod
    def of(cls, spec: Spec, cells: Cells) -> WideTable:
        """Return columns that satisfy the sums in a spec, as linear functions of the counts.

        Raises
        ------
        SpecError
            If no whole columns exist for every table of counts.

        Examples
        --------
        >>> from trueup.model.spec import parse_spec
        >>> from trueup.model.build import build_cells
        >>> from trueup.model.tree import Tree
        >>> spec = parse_spec('''
        ... format = 2
        ... title = "Wide"
        ... table = { name = "wide", kind = "counts", counts = "person", cell = [
        ...   { count = "vap", where = { age = "adult" } }, { count = "pop - vap", where = { age = "child" } } ] }
        ... privacy = { unit = "person", neighbours = "add-remove" }
        ... level = [{ name = "all" }, { name = "area", column = "area" }]
        ... attribute = [{ name = "age", values = ["child", "adult"] }]
        ... query = [{ name = "by age", attributes = ["age"], levels = ["area"], epsilon = 1 }]
        ... ''')
        >>> wide = WideTable.of(spec, build_cells(spec, Tree.from_columns(["all"], [{}])))
        >>> wide.names, wide.solution.tolist()
        (('pop', 'vap'), [[1, 1], [0, 1]])
        """
        sums = [parse_sum(cell.count) for cell in spec.table.cells]
        names = tuple(sorted({name for terms in sums for name in terms}))
        matrix = np.zeros((cells.n, len(names)))
        for cell, terms in zip(spec.table.cells, sums):
            at = np.ravel_multi_index(
                [a.values.index(cell.where[a.name]) for a in cells.attributes], cells.shape[1:]
            )
            matrix[at, [names.index(name) for name in terms]] = [float(c) for c in terms.values()]
        pivots = scipy.linalg.qr(matrix, mode="r", pivoting=True)[1][: cells.n]
        solution = np.zeros((len(names), cells.n))
        try:
            solution[pivots] = np.linalg.inv(matrix[:, pivots])
        except np.linalg.LinAlgError:
            raise _unsolvable() from None
        whole = np.rint(solution).astype(np.int64)
        if (whole < 0).any() or not np.array_equal(matrix @ whole, np.eye(cells.n)):
            raise _unsolvable()
        return cls(names, whole)

    def columns(self, rows: dict[str, NDArray], cells: int) -> dict[str, NDArray]:
        """Return a wide table with a row for each place, given a row for each occupied cell."""
        leaf, at = np.unique(rows["leaf"], return_inverse=True)
        table = np.zeros((leaf.size, cells), np.int64)
        table[at, rows["cell"]] = rows["units"]
        return {"leaf": leaf, **dict(zip(self.names, (table @ self.solution.T).T.copy()))}


def _unsolvable() -> SpecError:
    return SpecError(
        "the sums under [[table.cell]] do not determine what each column holds",
        needed="for synthetic data, sums such as 'pop - vap' that determine every column",
    )
