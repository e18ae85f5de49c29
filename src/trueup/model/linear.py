"""Linear equalities and inequalities, read from text and stored as exact fractions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from trueup.errors import SpecError

Sense = Literal["==", "<=", ">="]
_SENSES: dict[type, Sense] = {ast.Eq: "==", ast.LtE: "<=", ast.GtE: ">="}
Terms = dict[str, Fraction]
_CONSTANT = ""
"""The key of the constant term."""


@dataclass(frozen=True)
class Linear:
    """One row `sum_i coefficient_i * name_i  (== | <= | >=)  bound`.

    Attributes
    ----------
    text
        The constraint as the user wrote it; errors name it so.
    coefficients
        Exact coefficient of each name.
    sense, bound
        Comparison and right-hand side.
    """

    text: str
    coefficients: Mapping[str, Fraction]
    sense: Sense
    bound: Fraction

    def holds(self, values: Mapping[str, float], slack: float = 0) -> bool:
        """Return True if the row holds for values with an error of at most `slack` each."""
        gap = sum((c * values[name] for name, c in self.coefficients.items()), -self.bound)
        reach = slack * sum(map(abs, self.coefficients.values()))
        return {"==": abs(gap) <= reach, "<=": gap <= reach, ">=": gap >= -reach}[self.sense]


def parse_linear(text: str) -> Linear:
    """Read a linear constraint such as `under18 + over18 >= 2 * families`.

    Names are words, or quoted where they hold other characters. Numbers are exact: `0.1` is one
    tenth, `1/3` one third.

    Raises
    ------
    SpecError
        With the position, where the text is not one linear comparison.

    Examples
    --------
    >>> row = parse_linear("under18 + over18 >= 2 * families")
    >>> row.sense, row.bound, {name: int(c) for name, c in row.coefficients.items()}
    ('>=', Fraction(0, 1), {'under18': 1, 'over18': 1, 'families': -2})
    >>> parse_linear("under18 + >= 2")
    Traceback (most recent call last):
    trueup.errors.SpecError: constraint 'under18 + >= 2' does not parse at position 11. Needed: ...
    """
    source = text.strip()
    reader = _Reader(source)
    body = reader.parsed()
    if not isinstance(body, ast.Compare) or len(body.ops) != 1 or type(body.ops[0]) not in _SENSES:
        raise reader.error("is not one comparison", body.col_offset + 1)
    coefficients, constant = reader.row(body.left, body.comparators[0])
    return Linear(source, coefficients, _SENSES[type(body.ops[0])], -constant)


def parse_sum(text: str) -> dict[str, Fraction]:
    """Read a sum of names without a constant, such as `pop - vap`.

    Examples
    --------
    >>> parse_sum("pop - vap"), parse_sum("Private rent")
    ({'pop': Fraction(1, 1), 'vap': Fraction(-1, 1)}, {'Private rent': Fraction(1, 1)})
    """
    source = text.strip()
    if _WORDS.fullmatch(source):
        return {source: Fraction(1)}
    reader = _Reader(source, "expression", _SUM)
    coefficients, constant = reader.row(reader.parsed())
    if constant:
        raise SpecError(f"expression '{text}' holds a constant", needed="a sum of names")
    return coefficients


_LARGEST = 2**62
_SHOWN_CHARACTERS = 200  # characters of a constraint that a message writes down
_VAST = re.compile(r"e[+-]?\d{4,}$", re.IGNORECASE)  # Fraction("1e1000000000") would fill the memory
_FORM = "a linear comparison with ==, <= or >=, such as 'under18 + over18 >= 2 * families'"
_SUM = "names with + and -, such as 'pop - vap'; one with other characters than letters and digits in quotes"
_WORDS = re.compile(r"[^\W\d]\w*( +\w+)*")


class _Reader:
    """A reader of linear expressions, which quotes their text in errors."""

    def __init__(self, text: str, kind: str = "constraint", form: str = _FORM) -> None:
        self.text, self.kind, self.form = text, kind, form

    def error(self, what: str, position: int, needed: str = "") -> SpecError:
        said = self.text if len(self.text) <= _SHOWN_CHARACTERS else f"{self.text[:_SHOWN_CHARACTERS]}..."
        return SpecError(f"{self.kind} '{said}' {what} at position {position}", needed=needed or self.form)

    def parsed(self) -> ast.expr:
        """Return the syntax tree of the text."""
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise self.error("does not parse", error.offset or 1) from None
        except ValueError:
            raise self.error("holds a null character", 1) from None
        except (RecursionError, MemoryError):
            raise self.error("is nested too deeply", 1) from None

    def row(self, left: ast.expr, right: ast.expr | None = None) -> tuple[Terms, Fraction]:
        """Return the coefficients and the constant of the left side minus the right side."""
        try:
            terms = _combined_terms(self.terms(left), self.terms(right) if right else {}, -1)
        except RecursionError:
            raise self.error("is nested too deeply", 1) from None
        if any(max(abs(c.numerator), c.denominator) > _LARGEST for c in terms.values()):
            raise self.error("holds a number beyond 2^62", 1, "numbers that counts can reach")
        constant = terms.pop(_CONSTANT, Fraction(0))
        coefficients = {name: c for name, c in terms.items() if c}
        if not coefficients:
            raise self.error("names nothing", 1, "at least one name")
        return coefficients, constant

    def terms(self, node: ast.expr) -> Terms:
        """Return the coefficient of each name in a linear expression."""
        match node:
            case ast.Name(id=name):
                return {name: Fraction(1)}
            case ast.Constant(value=str() as name) if name:
                return {name: Fraction(1)}
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return {_CONSTANT: self._number(node)}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _multiplied(self.terms(operand), Fraction(-1))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.terms(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return self._combine(node, _OPERATIONS[type(op)], self.terms(left), self.terms(right))
        raise self.error("is not linear", node.col_offset + 1)

    def _number(self, node: ast.expr) -> Fraction:
        written = (ast.get_source_segment(self.text, node) or "").replace("_", "")
        if _VAST.search(written):
            raise self.error(
                "holds a number beyond 2^62", node.col_offset + 1, "numbers that counts can reach"
            )
        try:
            return Fraction(written)
        except ValueError:
            raise self.error("holds an unreadable number", node.col_offset + 1, "a decimal number") from None

    def _combine(self, node: ast.expr, combine: Callable, left: Terms, right: Terms) -> Terms:
        try:
            return combine(left, right)
        except ValueError:
            raise self.error("multiplies or divides by a name", node.col_offset + 1) from None
        except ZeroDivisionError:
            raise self.error("divides by zero", node.col_offset + 1) from None


def _multiplied(terms: Terms, factor: Fraction) -> Terms:
    return {name: c * factor for name, c in terms.items()}


def _combined_terms(left: Terms, right: Terms, sign: int = 1) -> Terms:
    return {n: left.get(n, Fraction(0)) + sign * right.get(n, Fraction(0)) for n in (*left, *right)}


def _constant(terms: Terms) -> Fraction:
    if set(terms) - {_CONSTANT}:
        raise ValueError("the text holds a name where only a number can stand")
    return terms.get(_CONSTANT, Fraction(0))


def _multiply(left: Terms, right: Terms) -> Terms:
    if set(left) <= {_CONSTANT}:
        left, right = right, left
    return _multiplied(left, _constant(right))


_OPERATIONS: dict[type, Callable[[Terms, Terms], Terms]] = {
    ast.Add: _combined_terms,
    ast.Sub: lambda left, right: _combined_terms(left, right, -1),
    ast.Mult: _multiply,
    ast.Div: lambda left, right: _multiplied(left, 1 / _constant(right)),
}
