"""Machine code that is made late: once Python calls a compiled function, and for that function alone.

numba makes machine code of every function that it compiles: of a kernel that other kernels alone call, and of its own functions
for arrays. What nothing calls from Python is never run, since callers hold a copy of it. Here a function waits as intermediate
code, which is what callers link, and is made machine code of when its address is first asked for. numba's own functions, which
are many and short, are optimized in their callers alone. Kernels are optimized before they are linked, too: without that, sweeps
of chains take a fifth longer.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target

ENVIRONMENTS = "_ZN08NumbaEnv"
"""Beginning of the names under which code finds its constants."""

OWN = "<locals>"
"""Part of the names of numba's own functions, which are made in others."""


def make_code_late() -> None:
    """Let numba make machine code only of functions that Python calls, from now on."""
    target: Any = cpu_target.target_context
    target.codegen().__class__ = LateCodegen


class LateLibrary(JITCodeLibrary):
    """The code of one function, intermediate until its address is asked for.

    Attributes
    ----------
    made
        Whether machine code was made of it.
    """

    made = False
    _codegen: Any
    _compiled_object: bytes | None = None

    def _optimize_final_module(self) -> None:
        """Optimize kernels; leave numba's own functions to whoever links them, or to `_make`."""
        if OWN not in self.name:
            super()._optimize_final_module()

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
        """Return what is kept on disk: intermediate code, and machine code if there is any."""
        return super().serialize_using_object_code() if self.made else self.serialize_using_bitcode()


class LateCodegen(JITCPUCodegen):
    """A maker of machine code that leaves functions intermediate until Python calls them."""

    _library_class = LateLibrary

    def set_env(self, env_name: str, env: Any) -> None:
        """Give machine code its constants; code that is not made yet gets them then."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)
