"""Announcements before compilation, in a module apart from the compiler, which takes long to load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LISTENERS: list[Callable[[], None]] = []


@contextmanager
def telling_of_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call a function once, before the first uncached kernel is compiled, which takes up to half a minute.

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
    """Announce compilation to listeners not told yet."""
    while _LISTENERS:
        _LISTENERS.pop()()
