"""Every input of the table gets its named error, and spends nothing."""

from pathlib import Path

import pytest

from tests.bad_inputs import fresh_ledger, rows
from tests.ledger.bad_input import BAD

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.parametrize(
    ("call", "error", "message"), [pytest.param(c, e, m, id=what) for what, c, e, m in BAD]
)
def test_bad_input_is_refused_by_name_and_costs_nothing(call, error, message, tmp_path):
    ledger = fresh_ledger(tmp_path)
    before = ledger.state().head
    with pytest.raises(error) as caught:
        call(ledger)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert ledger.state().head == before


def test_the_table_is_large_and_documented_word_for_word():
    assert len(BAD) >= 60
    page = PAGE.read_text()
    assert not [line for line in rows() if line not in page]
