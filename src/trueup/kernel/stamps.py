"""Digests of what compiled code was made of, from bytecode and constants, so that kept code is never stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np


def stamp(function: Callable) -> str:
    """Return a digest of what a function's compiled code was made of.

    It covers the bytecode and options of the function and of all that it calls, the classes that they name, as far as they
    are of its own package, and the values of the constants that they read: neither comments, docstrings nor line numbers.

    Examples
    --------
    >>> from trueup.kernel.tree.least_squares import sweep_up
    >>> len(stamp(sweep_up))
    64
    """
    package = function.__module__.partition(".")[0]
    return sha256("\0".join(sorted(set(_made_of(function, package, set())))).encode()).hexdigest()


def _made_of(value: Any, package: str, seen: set[int]) -> Iterator[str]:
    options = {name: _text(option) for name, option in getattr(value, "targetoptions", {}).items()}
    value = getattr(
        value, "py_func", getattr(value, "_defn", value)
    )  # of a compiled function, of an intrinsic
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == package:
        yield f"{options} {_function_text(value)}"
        for name, called in _read_by(value, package):
            yield from _constant_text(name, called)
            yield from _made_of(called, package, seen)
    elif isinstance(value, type) and value.__module__.partition(".")[0] == package:
        yield f"{value.__qualname__} {value.__annotations__ if '__annotations__' in vars(value) else ''}"
        for name, held in vars(value).items():
            if not name.startswith("__"):
                yield from _constant_text(name, held)


def _constant_text(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, int | float | complex | str | tuple | np.ndarray | np.generic):
        yield f"{name} = {value.tolist() if isinstance(value, np.ndarray) else value!r}"


def _read_by(function: FunctionType, package: str) -> Iterator[tuple[str, Any]]:
    """Yield what a function reads from outside, with its names: globals, their attributes if modules, and closed-over values."""
    names = set(_code_names(function.__code__))
    for name in names:
        found = function.__globals__.get(name)
        yield name, found
        if isinstance(found, ModuleType) and found.__name__.partition(".")[0] == package:
            yield from ((f"{name}.{inner}", getattr(found, inner, None)) for inner in names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _code_names(inner)


@cache
def _function_text(function: FunctionType) -> str:
    given = f"{function.__qualname__} {function.__defaults__} {function.__kwdefaults__}"
    return f"{given} {_code_text(function.__code__, function.__doc__)}"


def _text(value: Any) -> str:
    """Return a value's text, which is the same in every process; that of a set is not."""
    return repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)


def _code_text(code: CodeType, docstring: str | None) -> str:
    constants = [
        _code_text(held, None) if isinstance(held, CodeType) else _text(held)
        for held in code.co_consts
        if docstring is None or held != docstring
    ]
    return (
        f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_exceptiontable.hex()} {constants}"
    )
