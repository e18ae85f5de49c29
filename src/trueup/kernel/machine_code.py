"""Machine code that is generated late, and digests that identify outdated cached code.

*Late code.* numba makes machine code of every function that it compiles: of a kernel that other kernels alone call, and of its
own functions for arrays. What nothing calls from Python is never run, since callers hold a copy of it. Here a function waits as
intermediate code, which is what callers link, and is made machine code of when its address is first asked for. numba's own
functions, which are many and short, are optimized in their callers alone. Kernels are optimized before they are linked, too:
without that, sweeps of chains take a fifth longer. A large kernel is linked after its caller was optimized, so that it is
optimized once and not again in every caller of its callers; only a kernel of few blocks, or one that asks for it, is inlined.
numba's passes over single functions are left out, since those over whole modules do their work again: together a fifth of the
time of compilation.

*Stamps* are digests of what compiled code was made of, from bytecode and constants, so that kept code is never stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from itertools import islice
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target

ENVIRONMENTS = "_ZN08NumbaEnv"
"""Beginning of the names under which code finds its constants."""

INLINED_BLOCKS = 20
"""Blocks of instructions up to which a kernel may be inlined; with 60, sweeps of chains were no faster."""

OWN = "<locals>"
"""Part of the names of numba's own functions, which are made in others."""


def make_code_late() -> None:
    """Make numba generate machine code only for functions that Python calls."""
    target: Any = cpu_target.target_context
    target.codegen().__class__ = LateCodegen


class LateLibrary(JITCodeLibrary):
    """The code of one function, in intermediate form until its machine code is needed.

    Attributes
    ----------
    made
        True if machine code was generated.
    """

    made = False
    _codegen: Any
    _compiled_object: bytes | None = None

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._large: dict[LateLibrary, None] = {}

    def add_linking_library(self, library: Any) -> None:
        """Link inlinable code before optimisation, and other code after it."""
        library._ensure_finalized()
        if isinstance(library, LateLibrary) and library.is_large():
            self._large[library] = None
        else:
            super().add_linking_library(library)

    def is_large(self) -> bool:
        """Return True if this code is optimised and too large to be inlined without request."""
        if OWN in self.name:
            return False
        functions: list[Any] = list(self._get_module_for_linking().functions)
        blocks = (block for function in functions for block in function.blocks)
        more = next(islice(blocks, INLINED_BLOCKS, None), None)
        groups = (group for function in functions for group in function.attributes)
        return more is not None and not any(b"alwaysinline" in group for group in groups)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Skip the optimisation of single functions, which passes over whole modules do better."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Optimise the module of a kernel, but not those of numba's own functions."""
        if OWN not in self.name:
            super()._optimize_final_module()
        for library in self._large:
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)

    def _finalize_final_module(self) -> None:
        if self._compiled_object:  # kept machine code
            self.made = True
            super()._finalize_final_module()
        else:
            self._finalize_dynamic_globals()
            self._verify_declare_only_symbols()
            self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return a function's address, or 0 if this code does not define it."""
        self._ensure_finalized()
        if not self.made and any(function.name == name for function in self.get_defined_functions()):
            self._make()
        return super().get_pointer_to_function(name)

    def _make(self) -> None:
        self.made = True
        self._get_module_for_linking()
        if OWN in self.name:
            super()._optimize_final_module()
        super()._finalize_final_module()
        for constants in self._final_module.global_variables:
            if constants.name.startswith(ENVIRONMENTS):
                found = lookup_environment(constants.name)
                if found is not None:
                    self._codegen.set_env(constants.name, found)

    def serialize_using_object_code(self) -> Any:
        """Return the code to store on disk: intermediate code, and machine code if it was generated."""
        return super().serialize_using_object_code() if self.made else self.serialize_using_bitcode()


class LateCodegen(JITCPUCodegen):
    """A code generator that keeps functions in intermediate form until Python calls them."""

    _library_class = LateLibrary

    def set_env(self, env_name: str, env: Any) -> None:
        """Set the constants of machine code, if the code exists already."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)


def stamp(function: Callable) -> str:
    """Return a digest of everything that a function's compiled code depends on.

    It covers the bytecode and options of the function and of all that it calls, the classes that they name, as far as they
    are of its own package, and the values of the constants that they read: neither comments, docstrings nor line numbers.

    Examples
    --------
    >>> from trueup.kernel.tree import sweep_up
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
    """Yield what a function reads from outside: globals, attributes of modules, and closed-over values."""
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
    """Return a value as text that is the same in every process."""
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
