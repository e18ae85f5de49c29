"""A verb is a folder and a function: `trueup.measure` is a package, and calling it measures."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from trueup.errors import TrueupError

_SOURCES = {
    "Spec": "trueup.load_spec(path) reads one",
    "Constraints": "trueup.load_spec(path) reads a spec, which serves as well",
    "Measurements": "trueup.measure makes them, trueup.read_measurements(folder) reads them; a release has .measurements",
    "Release": "trueup.reconcile makes one, trueup.read_release(folder) reads one",
}
"""Where each record comes from."""


class _Verb(ModuleType):
    """A package that can be called as the function that bears its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        verb = getattr(self, self.__name__.rpartition(".")[2])
        signature = inspect.signature(verb)
        for name, given in signature.bind(*arguments, **options).arguments.items():
            _refuse_other_kinds(verb.__name__, name, str(signature.parameters[name].annotation), given)
        return verb(*arguments, **options)


def _refuse_other_kinds(verb: str, name: str, annotation: str, given: Any) -> None:
    """Refuse what is not the record that a parameter asks for: by the names of types, so that none need be loaded."""
    kinds = annotation.split(" | ")
    if not set(kinds) <= set(_SOURCES) or any(kind.__name__ in kinds for kind in type(given).__mro__):
        return
    raise TrueupError(
        f"trueup.{verb} was given a {type(given).__name__} as {name}",
        needed=f"a record: {' or '.join(kinds)}",
        remedy=_SOURCES[kinds[0]],
    )


def make_verb(package: str) -> None:
    """Let a package be called as the function of the same name inside it.

    Raises
    ------
    TrueupError
        When it is called, if an argument is not the record that the verb takes.

    Examples
    --------
    >>> import trueup
    >>> callable(trueup.measure), trueup.measure.draw.__name__
    (True, 'draw')
    """
    sys.modules[package].__class__ = _Verb
