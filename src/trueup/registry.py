"""Registries of named classes, such as methods and laws, which are imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

K = TypeVar("K")


class Registry(Sequence[type[K]]):
    """A registry of the classes of one kind, such as methods. The preferred class comes first.

    Parameters
    ----------
    package
        The package that holds their files.
    homes
        For each name the file and the class, such as `tree_topdown.TreeTopDown`; for a method whose file is large also the
        structures that it handles, such as `tree_exact.TreeExact: sum, tree`.

    Examples
    --------
    >>> from trueup.reconciling import METHODS
    >>> METHODS[0].name, all(kind.name == name for kind, name in zip(METHODS, METHODS.names))
    ('tree-topdown', True)
    """

    def __init__(self, package: str, homes: Mapping[str, str]) -> None:
        self.names = tuple(homes)
        parts = [home.partition(": ") for home in homes.values()]
        self._homes = [f"{package}.{home}".rpartition(".") for home, _, _ in parts]
        self.stated = [structures.split(", ") if structures else None for _, _, structures in parts]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, at: int) -> type[K]:  # pyright: ignore[reportIncompatibleMethodOverride]
        module, _, kind = self._homes[at]
        return getattr(import_module(module), kind)

    def handling(self, structure: str) -> Iterator[type[K]]:
        """Yield the classes that support a structure, in order of preference."""
        return (self[at] for at, stated in enumerate(self.stated) if stated is None or structure in stated)

    def named(self, name: str) -> type[K]:
        """Return the class with a given name in specs."""
        return self[self.names.index(name)]

    def attribute(self, name: str) -> Any:
        """Return the class with a given Python name, for a package's `__getattr__`."""
        for at, (_, _, kind) in enumerate(self._homes):
            if kind == name:
                return self[at]
        raise AttributeError(f"no method, law or prior has the class name '{name}'")
