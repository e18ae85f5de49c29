"""Pure numerics on arrays, compiled when first used.

Here: the outcomes of a problem, one list of words for every solver, and announcements before compilation, which are apart from
the compiler because it takes long to load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import isnan, nan


class Status(StrEnum):
    """The outcome of solving a problem. The text of each value is the sentence that a user reads.

    Only `SOLVED` lets a point out. That rules exclude each other is never a status: it is an error, and is raised with
    a proof only.

    Examples
    --------
    >>> Status.SOLVED == "solved"
    True
    """

    SOLVED = "solved"
    UNSOLVED = (
        "not solved within the limit of time or iterations; nothing says that the rules exclude each other"
    )
    INACCURATE = "the point that the solver returned violates a rule by more than its tolerance"
    NOT_FINITE = "the arithmetic broke down: a count or a residual is not a finite number"

    @classmethod
    def worst(cls, found: Iterable[Status]) -> Status:
        """Return the first status other than `SOLVED`, or `SOLVED` if there is no other."""
        return next((status for status in found if status is not cls.SOLVED), cls.SOLVED)


def largest(amounts: Iterable[float]) -> float:
    """Return the largest amount: 0 if there are none, and NaN if any is NaN.

    Python's `max` may ignore a NaN.

    Examples
    --------
    >>> max(1.0, float("nan")), largest([1.0, float("nan")])
    (1.0, nan)
    """
    every = [0.0, *map(float, amounts)]
    return nan if any(map(isnan, every)) else max(every)


_LISTENERS: list[Callable[[], None]] = []


@contextmanager
def telling_of_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once before the first uncached kernel is compiled, which may take half a minute.

    Examples
    --------
    >>> with telling_of_compilation(lambda: print("compiling")):
    ...     announce_compilation()
    ...     announce_compilation()
    compiling
    """
    _LISTENERS.append(tell)
    try:
        yield
    finally:
        _LISTENERS.clear()


def announce_compilation() -> None:
    """Tell each listener once that kernels are being compiled."""
    while _LISTENERS:
        _LISTENERS.pop()()
