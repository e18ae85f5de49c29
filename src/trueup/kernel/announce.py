"""What is said before something is compiled; apart from the compiler, which takes long to load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LISTENERS: list[Callable[[], None]] = []


@contextmanager
def telling_of_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call a function once, before the first thing is compiled that was not kept: that takes seconds to half a minute.

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
    """Tell whoever has not been told."""
    while _LISTENERS:
        _LISTENERS.pop()()
