"""Which engine a release runs on: the whole in memory, or by parts."""

from __future__ import annotations

from trueup.errors import SpecError
from trueup.model.problem import Problem

ENGINES = ("memory", "local", "spark")
"""The whole problem in the memory of one process; by parts on this machine; by parts on Apache Spark."""
BYTES = 100
"""About how many bytes the whole problem needs in memory for each of its cells."""


def refuse_unknown(engine: str) -> None:
    """Refuse an engine that does not exist.

    Raises
    ------
    SpecError
        Naming the engines.
    """
    if engine not in ENGINES:
        raise SpecError(f"there is no engine '{engine}'", needed=f"one of: {', '.join(ENGINES)}")


def default_engine(problem: Problem, memory: int) -> str:
    """Choose from public sizes: in memory what fits there, by parts what does not and can be.

    Examples
    --------
    >>> from trueup.model.spec import parse_spec
    >>> from trueup.model.tree import Tree
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... attribute = [{ name = "sex", values = ["f", "m"] }]
    ... query = [{ name = "detailed", attributes = ["sex"], epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> problem = Problem.of(spec, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> default_engine(problem, 10**9), default_engine(problem, 100)
    ('memory', 'local')
    """
    if BYTES * problem.cells.n <= memory:
        return "memory"
    from trueup.releasing.start import plan_of

    try:
        plan_of(problem)
    except SpecError:
        return "memory"
    return "local"
