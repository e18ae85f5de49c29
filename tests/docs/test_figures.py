"""Pictures and the tables beside them follow contracts, folders and registries."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.conformance.structures import STRUCTURES
from trueup import inferring, reconciling
from trueup.cli.standalone import methods_and_laws
from trueup.inferring.method import inference_misfit
from trueup.model.constraints import STRUCTURES as NAMES
from trueup.reconciling import default

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", DOCS / "figures.py")
    module = sys.modules["figures"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_and_tables_are_current(figures):
    stale = [path.name for path, text in figures.made().items() if path.read_text() != text]
    assert not stale, "run: python docs/figures.py"


def test_a_change_of_a_default_or_of_a_floor_is_seen(figures, monkeypatch):
    before = figures.choice()
    monkeypatch.setattr(reconciling, "METHODS", [*reconciling.METHODS][::-1])
    assert figures.choice() != before
    held = figures.layers()
    monkeypatch.setattr(figures, "layers", lambda: ["trueup.attic", *held])
    with pytest.raises(ValueError, match="attic"):
        figures.house()


def test_every_structure_has_its_place(figures):
    assert sorted(name for case in figures.CASES for name in case.structures) == sorted(NAMES)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_the_picture_names_the_methods_that_a_problem_gets(structure, figures):
    constraints = structure.constraints
    case = next(case for case in figures.CASES if constraints.structure() in case.structures)
    reconciled, inferred = figures.methods_of(case)
    assert default(constraints).name == reconciled
    measured = SimpleNamespace(headers=structure.headers, cells=constraints.cells)
    chosen = inferring.choose_inference({}, constraints, measured).name
    refused = inferred[: inferred.index(chosen)]
    assert all(inference_misfit(inferring.METHODS.named(name)(), constraints, measured) for name in refused)


def test_every_method_is_on_the_page():
    page, found = (DOCS / "which-method.md").read_text(), methods_and_laws()
    assert [
        m["name"] for verb in ("reconcile", "infer") for m in found[verb] if f"`{m['name']}`" not in page
    ] == []


def test_every_contract_is_on_the_page():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    page = (DOCS / "architecture.md").read_text()
    assert [c["name"] for c in contracts if c["name"] not in page] == []


@pytest.mark.parametrize("name", ["architecture", "which-method", "picture"])
def test_a_picture_is_told_to_those_who_do_not_see_it_and_its_text_is_large_enough(name):
    svg = (DOCS / f"{name}.svg").read_text()
    assert 'aria-labelledby="a b"' in svg
    assert re.search(r'<title id="a">.{20,}</title>', svg)
    assert re.search(r'<desc id="b">.{100,}</desc>', svg)
    assert min(map(float, re.findall(r"font-size:([\d.]+)px", svg))) >= 11
