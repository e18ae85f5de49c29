"""`njit` for kernels: compiled code that is cached on disk, loaded quickly, and never out of date.

numba keeps the machine code of a function beside its file, and takes it for good while that file stays as it is. But the
code holds that of the functions it calls, from other files, too, which an edit or a new version may have changed; and
what an older version kept may name a class that is gone, which raises AttributeError for ever after. So here the stamp of
kept code covers the version of the package and all that was compiled into it, and what cannot be read is compiled anew.
A new comment, docstring or place in the file changes no bytecode, so that the kept code still serves.

Before numba reads kept code, it fills the tables by which it compiles (all of Python, NumPy and SciPy's linear algebra:
.3 s of processor time, a third of a small release). Kept code needs none of them; here they wait until something is
compiled, which fills them anyway.

A third of the time of compilation went to what nothing needs. Kernels that other kernels call get no code for calls from
Python, which unpacks every array of their arguments, until Python calls them, too, nor machine code (`machine_code`). And all
let other threads run, since numba compiles its own functions again for callers of other options.

Processes that start together (the workers of a first release) would compile the same kernels side by side, and what one of them
keeps while another reads is taken for damaged. So a process that finds no kept code waits for one that is compiling it.

Copies and sums entry by entry stand here for all kernels: NumPy's compile for a second each, most of it for the texts of their
errors.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import Unpickler
from typing import Any

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys
from numba.core.sigutils import normalize_signature
from numba.core.types import unliteral

from trueup.kernel import announce_compilation
from trueup.kernel.machine_code import make_code_late, stamp
from trueup.version import __version__

MAX_WAIT_SECONDS = 60.0
"""Seconds to wait for another process that compiles the same kernel, which takes at most half of that on a slow machine."""
OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""New objects after which garbage is looked for while a kernel is compiled: at Python's 700 that takes an eighth of the time."""
SECONDS_BETWEEN_LOCK_CHECKS = 0.02
"""Seconds between two looks at whether it has ended."""


def njit(*, cache: bool, **options: Any) -> Callable[[Callable], Any]:
    """Compile a kernel as `numba.njit` does, and cache its code on disk.

    Parameters
    ----------
    cache
        True to keep the code on disk.
    options
        Further options of `numba.njit`. Its manual leaves out `_nrt=False`: no counting of references is compiled, for functions
        that make no array, and borrow those of their callers.

    Examples
    --------
    >>> @njit(cache=False)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(1.5)
    3.0
    """

    def compiled(function: Callable) -> Any:
        # Nothing calls a kernel from C, and the code for that takes a twentieth of the time of compilation.
        given = {"nogil": True, "no_cfunc_wrapper": True, **options}
        kernel: Any = numba.njit(**given)(function)
        kernel.__class__ = Kernel
        if cache:
            kernel._cache = KeptCode(kernel)
        return kernel

    return compiled


class Kernel(CPUDispatcher):
    """A compiled function, which has an entry point for Python only once Python calls it."""

    _compiler: Any
    overloads: Any
    _cache: Any

    @property
    def called_by_kernel(self) -> bool:
        """Return True if the kernel being compiled calls this one."""
        return self._compiler.pipeline_class is ForKernels

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile a kernel for calls by other kernels, once for all constants of the same type."""
        args, kws = [unliteral(kind) for kind in args], {name: unliteral(kind) for name, kind in kws.items()}
        with global_compiler_lock:
            before, self._compiler.pipeline_class = self._compiler.pipeline_class, ForKernels
            try:
                return super().get_call_template(args, kws)
            finally:
                self._compiler.pipeline_class = before

    def compile(self, sig: Any) -> Any:
        """Compile a kernel with an entry point for Python, or without one for a call by another kernel."""
        with global_compiler_lock, _rare_collections():
            make_code_late()
            types, _ = normalize_signature(sig)
            if types in self.overloads and not (self.called_by_kernel or _for_python(self.overloads[types])):
                del self.overloads[types]
            try:
                return super().compile(sig)
            finally:
                if isinstance(self._cache, KeptCode):
                    self._cache.let_others_compile()

    def add_overload(self, cres: Any) -> None:
        """Register a compiled kernel's entry point for Python if it has one."""
        if _for_python(cres):
            super().add_overload(cres)
        else:
            self.overloads[tuple(cres.signature.args)] = cres


class ForKernels(Compiler):
    """A numba pipeline that compiles a kernel without an entry point for Python.

    The option is set behind the back of what is compiled on the way, which numba would compile again for it.
    """

    def define_pipelines(self) -> Any:
        """Turn off the wrapper for Python again after inlined functions have turned it on."""
        self.state.flags.no_cpython_wrapper = True
        return super().define_pipelines()


@contextmanager
def _rare_collections() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _for_python(code: Any) -> bool:
    return code.library.get_pointer_to_function(code.fndesc.llvm_cpython_wrapper_name) != 0


class KeptFiles(CompileResultCacheImpl):
    """File names of cached code that do not depend on a function's line number."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        """Return the name of a cache file without its suffix."""
        return (
            f"{fullname.replace('<locals>', 'locals')}.py{sys.version_info[0]}{sys.version_info[1]}{abiflags}"
        )


class KeptCode(FunctionCache):
    """The cached code of one function, which is used only if compiling now would give the same code."""

    _impl_class = KeptFiles

    def __init__(self, kernel: Kernel):
        super().__init__(kernel.py_func)
        self._cache_file._source_stamp = ""  # `stamp` covers what of the file is compiled
        self._kernel = kernel
        self._lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached code for a signature, or None."""
        # numba reads the version first of all, and where it differs, nothing more of the file.
        self._cache_file._version = f"numba {numba.__version__}, trueup {__version__}, {stamp(self._kernel)}"
        rtsys.initialize(target_context)  # the counting of references, which kept code calls
        kept = self._load_unless_damaged(sig, target_context)
        if kept is None:
            self._wait_and_lock()
            kept = self._load_unless_damaged(sig, target_context)  # another process may have kept it since
        if kept is None:
            announce_compilation()
        return kept

    def _load_unless_damaged(self, sig: Any, target_context: Any) -> Any:
        try:
            kept = self._load_overload(sig, target_context)
        except Exception:  # whatever a file raises that is damaged, or names what is gone
            if self._lock is not None:  # else another process may be writing it
                self.flush()
            return None
        return kept if kept is None or self._kernel.called_by_kernel or _for_python(kept) else None

    def _wait_and_lock(self) -> None:
        """Lock this function's cached code, waiting for other processes."""
        if self._lock is not None:  # by a call for other types, from which this one comes
            return
        with suppress(OSError):  # a folder that cannot be written, or without locks: compile beside others
            self._impl.locator.ensure_cache_path()
            self._lock = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o666)
            deadline = time.monotonic() + MAX_WAIT_SECONDS
            while not _locked(self._lock) and time.monotonic() < deadline:
                time.sleep(SECONDS_BETWEEN_LOCK_CHECKS)

    @property
    def _lock_path(self) -> str:
        return f"{self._cache_file._index_path}.lock"

    def let_others_compile(self) -> None:
        """Release the lock on this function's cached code if this process has acquired it."""
        if self._lock is not None:
            with suppress(FileNotFoundError):
                Path(self._lock_path).unlink()
            os.close(self._lock)
            self._lock = None

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        name = self._cache_file._load_index().get(self._index_key(sig, target_context.codegen()))
        if name is None or not self._enabled:
            return None
        with Path(self._cache_file._data_path(name)).open("rb") as file:
            return self._impl.rebuild(target_context, _CodeReader(file).load())


def _locked(file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


class _CodeReader(Unpickler):
    """A reader of cached code that does not import the numba modules with which it was compiled."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, constants: list, name: str) -> Environment:
    """Return the environment of compiled code: the Python objects among its constants."""
    found = Environment._memo.get(name)
    if found is None:
        held = vars(sys.modules[module]) if module in sys.modules else {"__name__": module}
        found = Environment._memo[name] = Environment(held)
        found.consts[:], found.env_name = constants, name
    return found


@njit(cache=True)
def copy_line(out, values):
    """Set `out` (n,) to the values (n,)."""
    for i in range(out.size):
        out[i] = values[i]


@njit(cache=True)
def add_line(out, values):
    """Add values (n,) to `out` (n,)."""
    for i in range(out.size):
        out[i] += values[i]


@njit(cache=True)
def copy_table(out, values):
    """Copy values (rows, columns) to `out`."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = values[i, j]


@njit(cache=True)
def row_sums(x):
    """Return the sums (rows,) of a table's rows."""
    sums = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[i] += x[i, j]
    return sums
