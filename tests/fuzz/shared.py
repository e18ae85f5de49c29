"""One instance of DuckDB for many readers: a new one costs 13 ms of a processor, more than all else that most files take."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import duckdb

_NUMBER = count()


class _Fresh:
    """A connection with an empty database of its own, used as one of a new instance.

    Its settings are those of the instance: it may open any file, so that whether a reader asks for one of elsewhere is up to
    the reader alone.
    """

    def __init__(self, instance: Any) -> None:
        self._own, self._name = instance.cursor(), f"own_{next(_NUMBER)}"
        self._own.execute(f"ATTACH ':memory:' AS {self._name}; USE {self._name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def execute(self, query: str, *more: Any) -> Any:
        return self if query.startswith("SET ") else self._own.execute(query, *more)

    def __enter__(self) -> _Fresh:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(duckdb.Error):
            self._own.execute(f"USE memory; DETACH {self._name}")
        self._own.close()

    __del__ = close


@contextmanager
def one_instance() -> Iterator[None]:
    """Have what connects in the block share an instance, which begins with the first block, and anew after a fatal error."""
    own = duckdb.connect
    try:
        instance = _instance()
        instance.execute("SELECT 1")
    except duckdb.FatalException:  # some file ended the instance: readers, who have one each, are told so
        _HELD.clear()
        instance = _instance()
    duckdb.connect = lambda *_, **__: _Fresh(instance)
    try:
        yield
    finally:
        duckdb.connect = own


_HELD: list[Any] = []


def _instance() -> Any:
    if not _HELD:
        atexit.register(_HELD.clear)
        _HELD.append(
            duckdb.connect(":memory:", config={"threads": "1", "autoload_known_extensions": "false"})
        )
    return _HELD[0]
