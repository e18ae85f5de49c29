"""Rules that no table satisfies, noise that no method weighs together: each is refused by name before noise is drawn."""

from __future__ import annotations

from pathlib import Path

from tests.bad_inputs import rule_rows

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


def test_the_table_is_documented_word_for_word():
    page = PAGE.read_text()
    assert not [line for line in rule_rows() if line not in page]
