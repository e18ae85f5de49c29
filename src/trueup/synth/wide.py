"""Columns of a wide table from the counts of its cells, by solving the column sums that a spec names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells
from trueup.model.linear import parse_sum
from trueup.model.spec import Spec


@dataclass(frozen=True)
class WideTable:
    """Columns that give every cell its count.

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
        """Solve the sums of a spec, with zeros for free columns.

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
        """Return one row per place from one row per occupied cell."""
        leaf, at = np.unique(rows["leaf"], return_inverse=True)
        table = np.zeros((leaf.size, cells), np.int64)
        table[at, rows["cell"]] = rows["units"]
        return {"leaf": leaf, **dict(zip(self.names, (table @ self.solution.T).T.copy()))}


def _unsolvable() -> SpecError:
    return SpecError(
        "the sums of columns under [[table.cell]] do not say what each column holds",
        needed="sums such as 'pop - vap' from which every column follows, for synthetic data",
    )
