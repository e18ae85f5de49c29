"""Compiled code is kept while all it was compiled from stays, and no longer; what cannot be read is compiled anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from trueup.kernel import compiled, telling_of_compilation

CALLED = (
    "from trueup.kernel.compiled import njit\n@njit(cache=True)\ndef called(x):\n    return x + {added}\n"
)
CONSTANT = "STEP = {added}\n"
CLASS = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    x: int\n    y: int = {added}\n"

CALLS = """
from trueup.kernel.compiled import njit
from kept.other import {name}
@njit(cache=True)
def calls(x):
    return {body}
"""

TOGETHER = """
import sys
sys.path.insert(0, sys.argv[1])
from kept.calls import calls
print("ready", flush=True)
sys.stdin.readline()
print(calls(2), sum(calls.stats.cache_misses.values()))
"""
HOLDS = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


class Package:
    """A package `kept` of two files, whose function `calls` is compiled from both; loading it again is a new process."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch

    def load(self, other: str, calls: str):
        for name, text in {"": "", "other": other, "calls": calls}.items():
            path = self.folder / f"{name or '__init__'}.py"
            path.write_text(text)
            spec = spec_from_file_location(f"kept.{name}".rstrip("."), path)
            module = module_from_spec(spec)
            self.monkeypatch.setitem(sys.modules, spec.name, module)
            exec(compile(text, path, "exec"), vars(module))  # never an older .pyc
        return module.calls


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")  # kept beside the files, wherever else is said
    return Package(tmp_path, monkeypatch)


def hits(function) -> int:
    return sum(function.stats.cache_hits.values())


@pytest.mark.parametrize(
    ("other", "name", "body"), [(CALLED, "called", "called(x)"), (CONSTANT, "STEP", "x + STEP")]
)
def test_kept_code_is_that_of_all_files_it_was_compiled_from(package, other, name, body):
    calls = CALLS.format(name=name, body=body)
    first = package.load(other.format(added=1), calls)
    assert (first(2), hits(first)) == (3, 0)
    again = package.load(other.format(added=1), calls)
    assert (again(2), hits(again)) == (3, 1)
    changed = package.load(other.format(added=5), calls)
    assert (changed(2), hits(changed)) == (7, 0)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("", "# a comment\n\n", True),
        ("    return x + STEP", '    """Return a sum."""\n    return x + STEP', None),
        ("x + STEP", "x - STEP", False),
        ("cache=True", "cache=True, error_model='numpy'", False),
        ("(x):", "(x, y=2):", False),
    ],
)
def test_only_what_is_compiled_makes_kept_code_stale(package, before, after, kept):
    calls = CALLS.format(name="STEP", body="x + STEP")
    package.load("STEP = 1", calls)(2)
    changed = package.load("STEP = 1", calls.replace(before, after, 1))
    assert changed(2) == (1 if "-" in after else 3)
    assert kept is None or hits(changed) == kept


@pytest.mark.thorough
def test_the_stamp_is_the_same_in_every_process():
    code = """if True:
        from trueup.kernel.machine_code import stamp
        from trueup.kernel.table_walks.columns import column_sweep
        print(stamp(column_sweep))
    """
    run = [sys.executable, "-c", code]
    stamps = {
        subprocess.run(
            run, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(stamps) == 1


def test_a_reworded_docstring_keeps_the_code(package):
    calls = CALLS.format(name="STEP", body="x + STEP").replace("(x):\n", '(x):\n    """{}"""\n')
    package.load("STEP = 1", calls.format("Add."))(2)
    again = package.load("STEP = 1", calls.format("Return\n\n    a sum."))
    assert (again(2), hits(again)) == (3, 1)


def test_code_for_kernels_alone_is_compiled_again_once_python_calls(package):
    """Calling code that was compiled without the part that Python calls would end the process."""
    calls = CALLS.format(name="called", body="called(x)")
    for hits_of_called in (0, 1):
        outer = package.load(CALLED.format(added=1), calls)
        assert outer(2) == 3
        called = sys.modules["kept.other"].called
        assert (called(2), called(2), hits(called)) == (3, 3, hits_of_called)
        assert outer(2.0) == 3.0  # another type, compiled for the kernel alone
        assert called(2.0) == 3.0


def test_machine_code_is_made_of_what_python_calls_alone(package):
    calls = CALLS.format(name="called", body="called(x)")
    raises = "    if x > 9:\n        raise ValueError('too large', x)\n"
    other = CALLED.format(added=1).replace("    return", raises + "    return")
    for _ in range(2):  # compiled, then kept
        outer = package.load(other, calls)
        called = sys.modules["kept.other"].called
        assert outer(2) == 3
        with pytest.raises(ValueError, match="too large"):
            outer(10)
        made = [code.library.made for code in (*outer.overloads.values(), *called.overloads.values())]
        assert made in ([True, False], [True])  # kept code holds that of all it calls
    assert called(2) == 3
    with pytest.raises(ValueError, match="too large"):
        called(10)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("loops", "options", "apart"), [(1, "", 0), (30, "", 1), (30, ", forceinline=True", 0)]
)
def test_large_kernels_are_linked_after_their_callers_are_optimized(package, loops, options, apart):
    loop = "    for i in range(x):\n        total = (total * 3 + i % {}) % 1009\n"
    body = "    total = 1\n" + "".join(loop.format(k + 2) for k in range(loops)) + "    return total\n"
    other = CALLED.format(added=1).replace("    return x + 1\n", body).replace("=True", f"=True{options}")
    calls = CALLS.format(name="called", body="called(x)")
    for again in range(2):  # compiled, then kept
        outer = package.load(other, calls)
        assert outer(4) == sys.modules["kept.other"].called.py_func(4)
        (code,) = outer.overloads.values()
        assert again or len(code.library._large) == apart


def test_compiling_is_announced_and_loading_is_not(package):
    calls = CALLS.format(name="STEP", body="x + STEP")
    for said in (["compiling"], []):
        heard: list[str] = []
        function = package.load("STEP = 1", calls)
        with telling_of_compilation(lambda heard=heard: heard.append("compiling")):
            function(2)
        assert heard == said


def test_the_version_of_the_package_is_part_of_the_stamp(package, monkeypatch):
    calls = CALLS.format(name="STEP", body="x + STEP")
    package.load("STEP = 1", calls)(2)
    monkeypatch.setattr(compiled, "__version__", "0.0.0")
    newer = package.load("STEP = 1", calls)
    assert (newer(2), hits(newer)) == (3, 0)


def test_an_index_that_names_a_class_that_is_gone_is_not_read(package):
    calls = CALLS.format(name="Pair", body="x.x + x.y")
    old = package.load(CLASS.format(added=1), calls)
    assert old(sys.modules["kept.other"].Pair(2)) == 3
    new = package.load(CLASS.format(added=1).replace("Pair", "Two"), calls.replace("Pair", "Two"))
    assert (new(sys.modules["kept.other"].Two(2)), hits(new)) == (3, 0)


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_files_are_compiled_anew_and_replaced(package, ending):
    calls = CALLS.format(name="STEP", body="x + STEP")
    package.load("STEP = 1", calls)(2)
    (damaged,) = package.folder.rglob(f"*.{ending}")
    damaged.write_bytes(damaged.read_bytes()[:-20])
    function = package.load("STEP = 1", calls)
    assert (function(2), hits(function)) == (3, 0)
    function = package.load("STEP = 1", calls)
    assert (function(2), hits(function)) == (3, 1)


@pytest.mark.thorough
def test_processes_that_start_together_compile_once(tmp_path):
    """The others wait, and load what the first one keeps; nothing else is left beside it."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "__init__.py").write_text("")
    (tmp_path / "kept" / "other.py").write_text(CALLED.format(added=1))
    (tmp_path / "kept" / "calls.py").write_text(CALLS.format(name="called", body="called(x)"))
    order = [sys.executable, "-c", TOGETHER, str(tmp_path)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    together = [subprocess.Popen(order, env=environment, **pipes) for _ in range(3)]
    assert all(process.stdout.readline() == "ready\n" for process in together)
    for process in together:
        process.stdin.write("\n")
        process.stdin.flush()
    said = sorted(process.communicate()[0].strip() for process in together)
    assert said == ["3 0", "3 0", "3 1"]
    assert not list(tmp_path.rglob("*.lock"))


def test_a_process_that_was_killed_while_it_compiled_holds_nobody_up(package, monkeypatch):
    """A lock file that is left is free; one that is held is waited for, and no longer than is said."""
    monkeypatch.setattr(compiled, "MAX_WAIT_SECONDS", 0.3)
    calls = CALLS.format(name="STEP", body="x + STEP")
    function = package.load("STEP = 1", calls)
    left = Path(function._cache._lock_path)
    left.parent.mkdir(exist_ok=True)
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(left)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    began = time.monotonic()
    assert (function(2), hits(function)) == (3, 0)
    assert time.monotonic() - began > 0.3
    holder.kill()
    holder.communicate()
    left.touch()
    monkeypatch.setattr(compiled, "MAX_WAIT_SECONDS", 60)
    began = time.monotonic()
    assert package.load("STEP = 2", calls)(2) == 4
    assert time.monotonic() - began < 30


@pytest.mark.thorough
def test_kept_code_is_loaded_without_the_tables_for_compiling():
    code = """if True:
        import sys
        import numpy as np
        from trueup.kernel.tree.topdown import topdown
        tree, q = np.array([1, 3, 3, 3]), np.array([2.0, 1.0, 1.0])
        print(topdown(tree, q, np.zeros(3), np.full(3, np.inf), np.array([6.0, 8.0, -4.0])), "numba.np.linalg" in sys.modules)
    """
    for _ in range(2):  # the first may have to compile
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["(array([5.,", "5.,", "0.]),", "-1)", "False"]


@pytest.mark.thorough
def test_arrays_of_lists_are_had_without_compiling():
    code = """if True:
        import sys
        import numpy as np
        from trueup.kernel.messages import upward
        from trueup.kernel.messages.downward import mixed_above
        lists = [upward.empty_messages(3).masses for _ in range(2)]
        upward.set_array(lists[0], 1, np.array([0.25, 0.75]))
        offsets = [np.zeros(3, np.int64)] * 2
        print(mixed_above(offsets, lists, np.array([0.5, 0.5]), slice(1, 2))[1], "numba.np.linalg" in sys.modules)
    """
    for _ in range(2):  # the first may have to compile
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["[array([0.625,", "0.375])]", "False"]


def test_arrays_that_are_constants_are_part_of_the_stamp(package):
    calls = CALLS.format(name="STEPS", body="x + STEPS.sum()")
    text = "import numpy as np\nSTEPS = np.array([{}])"
    assert package.load(text.format("1.0, 2.0"), calls)(np.float64(2)) == 5
    assert package.load(text.format("1.0, 4.0"), calls)(np.float64(2)) == 7


def test_every_kernel_is_kept_so():
    source = Path(compiled.__file__).parents[1]
    others = [
        p for p in source.rglob("*.py") if re.search(r"from numba import .*njit|numba\.jit", p.read_text())
    ]
    assert not others
