"""Linear constraints as text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import SpecError
from trueup.model.linear import parse_linear, parse_sum

NAMES = ("a", "b", "c")


@pytest.mark.thorough
@given(
    st.lists(
        st.tuples(st.fractions(-9, 9, max_denominator=7), st.sampled_from(NAMES)), min_size=1, max_size=5
    ),
    st.sampled_from(["==", "<=", ">="]),
    st.fractions(-99, 99, max_denominator=9),
    st.tuples(*[st.integers(-50, 50)] * 3),
)
def test_text_means_what_it_says(terms, sense, bound, values):
    text = " + ".join(f"{c.numerator} / {c.denominator} * {name}" for c, name in terms)
    table = dict(zip(NAMES, values))
    left = sum(c * table[name] for c, name in terms)
    expected = {"==": left == bound, "<=": left <= bound, ">=": left >= bound}[sense]
    totals = {n: sum(c for c, name in terms if name == n) for n in NAMES}
    source = f"{text} {sense} {bound.numerator} / {bound.denominator}"
    if not any(totals.values()):
        with pytest.raises(SpecError, match="names nothing"):
            parse_linear(source)
        return
    row = parse_linear(source)
    assert row.holds(table) is expected
    assert dict(row.coefficients) == {n: c for n, c in totals.items() if c}


def test_decimals_are_exact_and_names_may_be_quoted():
    row = parse_linear("0.1 * 'sex=female, age=old' <= 3 - (total - 2)")
    assert row.coefficients == {"sex=female, age=old": Fraction(1, 10), "total": Fraction(1)}
    assert row.bound == 5


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a + >= 2", "position 5"),
        ("a + b", "position 1"),
        ("a < b", "position 1"),
        ("a <= b <= c", "position 1"),
        ("a * b >= 1", "position 1"),
        ("1 + a / b >= 1", "position 5"),
        ("a ** 2 >= 1", "position 1"),
        ("a / 0 >= 1", "position 1"),
        ("f(a) >= 1", "position 1"),
        ("b + True * a >= 1", "position 5"),
        ("1 >= 0", "position 1"),
        ("", "position"),
        ("(" * 5 + "a >= 1", "position"),
        ("a >= __import__('os').system('x')", "position 6"),
    ],
)
def test_what_is_not_linear_is_refused_with_its_position(text, position):
    with pytest.raises(SpecError, match=position):
        parse_linear(text)


@pytest.mark.parametrize("name", ["Private rent", "class", "2 bedrooms or more"])
def test_a_column_of_words_is_one_name(name):
    if name[0].isdigit():
        with pytest.raises(SpecError, match=r"expression '2 bedrooms or more' .*in quotes"):
            parse_sum(name)
        name = f"'{name}'"
    assert parse_sum(name) == {name.strip("'"): 1}


def test_a_sum_that_cannot_be_read_is_quoted_as_it_was_written():
    with pytest.raises(SpecError, match=r"expression 'pop \+' does not parse") as told:
        parse_sum("pop +")
    assert "==" not in str(told.value)


def test_a_sum_has_no_constant():
    with pytest.raises(SpecError, match="holds a constant"):
        parse_sum("pop - 1")
