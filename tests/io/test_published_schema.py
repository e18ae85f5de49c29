"""The JSON Schema of specs of published tables takes what the reader takes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.io.bad_input import COUNT, POINTERS
from trueup.schema import published_schema

jsonschema = pytest.importorskip("jsonschema")
EXAMPLES = Path(__file__).parents[2] / "examples" / "perturbed"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_specs_are_valid_and_misspelt_ones_are_not(path):
    check = jsonschema.Draft202012Validator(published_schema())
    document = tomllib.loads(path.read_text())
    assert not list(check.iter_errors(document))
    for wrong in (
        {"lwa": {}},
        {"law": {"name": "random-roundin"}},
        {"unlisted": "none"},
        {"law": {"name": "rounded", "bas": 5}},
    ):
        part = document["published"][0] | wrong
        assert list(check.iter_errors({**document, "published": [part]})), wrong


def test_places_by_their_parents_are_valid():
    check = jsonschema.Draft202012Validator(published_schema())
    document = tomllib.loads(POINTERS + COUNT)
    assert not list(check.iter_errors(document))
    assert list(check.iter_errors(document | {"parents": {"id": "code"}}))
