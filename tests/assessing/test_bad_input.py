"""Every input of the table gets its named error, which holds no count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.assessing.bad_input import BAD, SECRET
from tests.bad_inputs import assess_rows

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.parametrize(
    ("call", "error", "message"), [pytest.param(c, e, m, id=what) for what, c, e, m in BAD]
)
def test_bad_input_is_refused_by_name_and_shows_no_count(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert str(SECRET) not in str(caught.value).replace(",", "")


def test_the_table_is_documented_word_for_word():
    """But for the lists of all methods, which grow."""
    page = PAGE.read_text()
    assert not [line for line in assess_rows() if line.split(" Needed: one of: tree")[0] not in page]
