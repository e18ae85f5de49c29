"""Engines of a release: the whole in memory, or by parts."""

from __future__ import annotations

from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import CELL, PROCESS, memory_text
from trueup.files.text import OBJECT
from trueup.model.cells import Cells
from trueup.model.problem import Problem
from trueup.model.tree import Tree
from trueup.releasing.division import plan_of

ENGINES = ("memory", "local", "spark")
"""The whole problem in the memory of one process; by parts on this machine; by parts on Apache Spark."""
MEMORY_BYTES = 4_000_000_000
"""Bytes that a run may use, unless told otherwise."""


def refuse_unknown(engine: str) -> None:
    """Refuse an engine that does not exist."""
    if engine not in ENGINES:
        raise SpecError(f"there is no engine '{engine}'", needed=f"one of: {', '.join(ENGINES)}")


def default_engine(problem: Problem, memory: int) -> str:
    """Choose the engine from public sizes: in memory if it fits, by parts if it does not and can be divided.

    Examples
    --------
    >>> from trueup.demo.areas import AREAS_BY_SEX
    >>> from trueup.model.tree import Tree
    >>> problem = Problem.of(AREAS_BY_SEX, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> default_engine(problem, 10**9), default_engine(problem, 100)
    ('memory', 'local')
    """
    if (needed := whole_bytes(problem.cells)) <= memory:
        return "memory"
    try:
        plan_of(problem)
    except SpecError as error:
        raise SpecError(
            f"the whole problem needs about {memory_text(needed)} of memory, and may use {memory_text(memory)}; by parts it "
            f"cannot be released: {error.given}",
            remedy="raise --memory, or give --engine memory to try all the same",
        ) from None
    return "local"


def whole_bytes(cells: Cells) -> int:
    """Return about how many bytes a problem needs in memory as a whole: its places, their keys and its cells."""
    return driver_bytes(cells.tree) + CELL * cells.n


PLACE = 100
"""Bytes of a place in the driver beside its keys."""
KEYS = 2
"""How often the driver holds the keys of all levels at once: as they were read, and in order."""


def driver_bytes(tree: Tree) -> int:
    """Return about how many bytes the driver needs at most: itself, the public places and their keys."""
    keys = sum(_key_bytes(column) for level in tree.keys for column in level.values())
    names = sum(_key_bytes(column) for column in tree.names if column is not None)
    return PROCESS + int(tree.sizes[-1] * (PLACE + KEYS * (keys + names)))


def _key_bytes(column: NDArray) -> float:
    """Return the mean bytes of one key of a column."""
    if column.dtype != object:
        return column.itemsize
    return OBJECT + sum(map(len, column.tolist())) / max(1, column.size)
