"""A verb is a folder and a function: `trueup.measure` is a package, and calling it measures."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """A package that can be called as the function that bears its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


def make_verb(package: str) -> None:
    """Let a package be called as the function of the same name inside it.

    Examples
    --------
    >>> import trueup
    >>> callable(trueup.measure), trueup.measure.draw.__name__
    (True, 'draw')
    """
    sys.modules[package].__class__ = _Verb
