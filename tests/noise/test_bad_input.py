"""Every input of the table gets its named error, before any noise is drawn."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.noise.bad_input import BAD
from trueup.digits import rational

DOCS = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.parametrize(
    ("call", "error", "message"), [pytest.param(c, e, m, id=what) for what, c, e, m in BAD]
)
def test_bad_input_is_refused_by_name(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert message in str(caught.value)


def test_the_table_is_large_and_documented():
    assert len(BAD) >= 60
    page = DOCS.read_text()
    assert not [what for what, *_ in BAD if f"| {what} |" not in page]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1/2", Fraction(1, 2)),
        (" 0.1 ", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        ("2.5/5", Fraction(1, 2)),
        ("+3", Fraction(3)),
        (7, Fraction(7)),
        (np.int64(7), Fraction(7)),
        (Decimal("0.30"), Fraction(3, 10)),
        (Fraction(3, 9), Fraction(1, 3)),
    ],
)
def test_exact_numbers_are_read_exactly(written, value):
    read = rational(written)
    assert read == value
    assert type(read.numerator) is int
