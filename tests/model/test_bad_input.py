"""Every mistake of the table is named in the words of TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_inputs import spec_rows
from tests.model.bad_input import SPEC
from trueup.errors import SpecError
from trueup.model.spec import parse_spec

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


def test_the_table_is_documented_word_for_word():
    page = PAGE.read_text()
    assert not [line for line in spec_rows() if line not in page]


def test_a_rule_that_is_nested_too_deeply_is_refused():
    text = f"{'-' * 9999}male <= 1"
    with pytest.raises(SpecError, match="is nested too deeply"):
        parse_spec(SPEC.replace("[privacy]", f'[constraints]\nlinear = ["{text}"]\n[privacy]'))
