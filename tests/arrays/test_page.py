"""The page of `trueup.arrays`: each paper's first hour is short and needs nothing else; and the verbs stand on the module."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import trueup.arrays

PAGE = Path(__file__).parents[2] / "docs" / "arrays.md"
LINES, SCRIPTS = 25, 5


def scripts():
    """The code of each section of the first hours, line by line."""
    hours = PAGE.read_text().split("## Each paper's first hour")[1]
    blocks = re.findall(r"```python\n(.*?)```", hours, re.DOTALL)
    return [
        [line[4:] for line in block.splitlines() if line.startswith((">>> ", "... "))] for block in blocks
    ]


def test_each_papers_first_hour_is_short_and_needs_numpy_and_this_module_alone():
    found = scripts()
    assert len(found) == SCRIPTS
    for lines in found:
        assert len(lines) <= LINES
        taken = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
        assert taken <= {"numpy", "itertools", "trueup.arrays"}


def test_every_name_is_there_and_on_the_page():
    page = PAGE.read_text()
    for name in trueup.arrays.__all__:
        assert getattr(trueup.arrays, name).__doc__
    functions = [name for name in trueup.arrays.__all__ if name.islower()]
    assert [name for name in functions if f"`{name}`" not in page] == []
    assert trueup.arrays.__all__ == dir(trueup.arrays)
    with pytest.raises(AttributeError, match="nothing_such"):
        trueup.arrays.nothing_such  # noqa: B018


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part", "use"),
    [
        ("projection", "import trueup.reconciling.general_projection"),
        ("lattice", "import trueup.model.mechanism_on_lattice"),
        ("losses", "from trueup.privacy import Loss; Loss(rho=1).at_delta(1e-10)"),
    ],
)
def test_without_the_module_the_verbs_break(part, use):
    subprocess.run([sys.executable, "-c", use], check=True)
    program = f"import sys; sys.modules['trueup.arrays.{part}'] = None; {use}"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert failed.returncode
    assert f"trueup.arrays.{part}" in failed.stderr


def test_importing_trueup_loads_no_arrays():
    program = (
        "import sys, trueup; assert not [m for m in sys.modules if m.startswith(('trueup.arrays', 'numpy'))]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
