"""Every input of the table gets its named error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_inputs import infer_rows
from tests.inferring.bad_input import BAD

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.parametrize(
    ("error", "message", "call"), [pytest.param(e, m, c, id=what) for what, e, m, c in BAD]
)
def test_bad_input_is_refused_by_name(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert message.lower() in str(caught.value).lower()


def test_the_table_is_documented_word_for_word():
    page = PAGE.read_text()
    assert not [line for line in infer_rows() if line not in page]
