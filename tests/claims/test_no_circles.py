"""No file imports itself by way of others, not even inside functions or for its types."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import trueup

SOURCE = Path(trueup.__file__).parent
Texts = dict[str, str]


def texts() -> Texts:
    """Every module's name with its text."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imported(text: str, modules: Texts) -> set[str]:
    """The modules that a text imports, wherever in it and for whatever, types too."""
    named = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            named |= {full if full in modules else node.module for full in whole}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names} & modules.keys()
    return named


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    modules = texts()
    return {name: imported(text, modules) for name, text in modules.items()}


def test_no_file_imports_itself_by_way_of_others(imports):
    list(TopologicalSorter(imports).static_order())


@pytest.mark.parametrize(
    "line",
    [
        "from trueup.reconciling.tree_topdown import TreeTopDown",
        "def late():\n    import trueup.layouts.tree",
    ],
)
def test_a_circle_is_seen(imports, line):
    with_it = imports | {"trueup.kernel.tree.whole": imported(line, dict.fromkeys(imports, ""))}
    with pytest.raises(CycleError):
        list(TopologicalSorter(with_it).static_order())
