"""Questions that are answered draw by draw: sums, differences, ratios, ranks and comparisons of counts."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from trueup.errors import SpecError, TrueupError
from trueup.model.records.drawn import floors_of_draws
from trueup.model.records.places_asked import Count, Names
from trueup.model.records.quantity import quotients

MAX_QUESTION_CHARACTERS = 10_000
"""Characters of a question."""
_FORM = (
    "names in quotes with + - * / and numbers, rank(...), and at most one comparison, such as "
    "\"'county=001, sex=f' / 'county=001'\""
)
_COMPARED: dict[type, Callable] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _whole_or_real(operation: Callable) -> Callable:
    """Return an operation that uses whole numbers if its results stay below 2^62, else real numbers."""

    def combine(left: NDArray, right: NDArray) -> NDArray:
        real = operation(left.astype(float), right.astype(float))
        return operation(left, right) if (np.abs(real) < 2.0**62).all() else real

    return combine


_COMBINED: dict[type, Callable] = {
    ast.Add: _whole_or_real(operator.add),
    ast.Sub: _whole_or_real(operator.sub),
    ast.Mult: _whole_or_real(operator.mul),
    ast.Div: quotients,
}


def _no_limit(left: NDArray, right: NDArray) -> NDArray:
    return np.full(np.broadcast_shapes(left.shape, right.shape), np.nan)


_LEAST: dict[Callable, Callable[[NDArray, NDArray], NDArray]] = {
    _COMBINED[ast.Add]: operator.add,
    _COMBINED[ast.Mult]: lambda left, right: np.where((left >= 0) & (right >= 0), left * right, np.nan),
    _COMBINED[ast.Div]: lambda left, right: np.where((left == 0) & (right >= 0), 0.0, np.nan),
}
"""Lower limits of sums, products and ratios from those of their sides; a ratio may be 0 where its numerator may be."""


@dataclass(frozen=True, eq=False)
class AskedDraws:
    """The values that a question has in each draw, for one quantity or for each place.

    Attributes
    ----------
    draws
        `(chains, draws, k)` values: whole numbers, ratios (NaN where the denominator is 0), or 0 and 1 of an event.
    level, names
        The level whose `k` places are asked about one by one, and their labels; None where the answer is one quantity.
    event
        True if the question is a comparison, which holds in a draw or does not.
    least
        `(k,)` lower limits of the values, NaN where none is known.
    """

    draws: NDArray
    level: str | None = None
    names: tuple[str, ...] | None = None
    event: bool = False
    least: NDArray = field(default_factory=lambda: np.full(1, np.nan))

    def with_other(self, other: AskedDraws, combine: Callable) -> AskedDraws:
        """Combine two answers draw by draw; a single quantity is combined with each place of the other."""
        if self.names is not None and other.names is not None and self.names != other.names:
            raise SpecError(
                f"'{self.level}' and '{other.level}' hold different places, so that they cannot be combined place by "
                "place",
                needed="the same places on both sides, or one place on one side",
            )
        about = self if self.names is not None else other
        left, right = np.broadcast_arrays(self.draws, other.draws)
        least = _LEAST.get(combine, _no_limit)(self.least, other.least)
        return AskedDraws(combine(left, right), about.level, about.names, least=least)


def ask_draws(question: str, names: Names, draws: NDArray) -> AskedDraws:
    """Answer a question from joint draws `(chains, draws, n)` of the cells that `names` knows.

    Examples
    --------
    >>> from trueup.model.cells import Cells
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> draws = np.array([[[3, 4], [5, 4], [4, 4]]])
    >>> ask_draws("'area=a' - 'area=b'", Names(cells), draws).draws.ravel().tolist()
    [-1, 1, 0]
    >>> ask_draws("area / all > 0.5", Names(cells), draws).draws.mean(axis=(0, 1)).round(2).tolist()
    [0.33, 0.33]
    """
    asked = _Reader(question, names, draws).asked
    if asked.draws.shape[:2] != draws.shape[:2]:
        raise SpecError(f"the question '{question}' names no place", needed="a place, such as 'county=001'")
    return asked


@dataclass(frozen=True, eq=False)
class _Reader:
    """A reader that parses and evaluates a question."""

    text: str
    names: Names
    draws: NDArray

    @cached_property
    def asked(self) -> AskedDraws:
        try:
            if not isinstance(self.text, str) or len(self.text) > MAX_QUESTION_CHARACTERS:
                raise ValueError
            body = ast.parse(self.text.strip(), mode="eval").body
            with np.errstate(over="ignore", invalid="ignore"):
                found = self._compared(body) if isinstance(body, ast.Compare) else self._value(body)
            if np.isinf(found.draws).any():
                raise self._error("has values that are too large to be computed")
            return found
        except SyntaxError as error:
            hint = "put names with other characters than letters in quotes" if "=" in self.text else ""
            raise self._error(f"does not parse at position {error.offset or 1}", hint) from None
        except (ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, TrueupError):
                raise
            raise self._error("is no question of at most 10,000 characters, not nested deeply") from None

    def _error(self, what: str, remedy: str = "") -> SpecError:
        text = str(self.text)
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        return SpecError(f"the question '{shown}' {what}", needed=_FORM, remedy=remedy)

    def _compared(self, node: ast.Compare) -> AskedDraws:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARED:
            raise self._error("is not one comparison")
        left, right = self._value(node.left), self._value(node.comparators[0])
        compare = _COMPARED[type(node.ops[0])]
        found = self._combined(left, right, lambda a, b: _where_defined(a, b, compare(a, b)))
        return AskedDraws(found.draws, found.level, found.names, event=True)

    def _value(self, node: ast.expr) -> AskedDraws:
        match node:
            case ast.Name(id=name) | ast.Constant(value=str(name)):
                return self._counted(self.names.find(name))
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return self._number(number)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                found = self._value(inner)
                return AskedDraws(-found.draws, found.level, found.names)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMBINED:
                if isinstance(op, ast.Div):
                    self._refuse_crossed(left, right)
                return self._combined(self._value(left), self._value(right), _COMBINED[type(op)])
            case ast.Call(func=ast.Name(id="rank"), args=[inner], keywords=[]):
                return self._rank(inner)
        raise self._error("holds what cannot be computed")

    def _refuse_crossed(self, left: ast.expr, right: ast.expr) -> None:
        """Refuse a ratio of one place's count to the counts of all places of a level, because it looks like a share."""
        above, below = (self.names.find(n) if (n := _name(node)) else None for node in (left, right))
        if above is None or below is None or not above.single or below.single:
            return
        levels, each = self.names.cells.tree.levels, below.places.level
        if each not in levels or above.places.level not in levels:
            return
        values = "".join(f", {name}={value}" for name, value in above.values.items())
        finer = levels.index(above.places.level) > levels.index(each)
        if finer or dict(above.values) != dict(below.values):
            share = f"'{above.places.level if finer else each}{values}' / '{_name(right)}'"
            raise self._error(
                f"divides one count of '{above.places.names[0]}' by those of each {each}",
                f"did you mean \"{share}\"? Else write \"1 * '{_name(left)}' / '{_name(right)}'\"",
            )

    def _combined(self, left: AskedDraws, right: AskedDraws, combine: Callable) -> AskedDraws:
        """Combine two quantities of places; each place of the lower level is paired with the place above it."""
        levels = self.names.cells.tree.levels
        if left.level in levels and right.level in levels:
            finer = max(left.level, right.level, key=levels.index)
            left, right = self._brought_to(left, finer), self._brought_to(right, finer)
        return left.with_other(right, combine)

    def _brought_to(self, asked: AskedDraws, finer: str) -> AskedDraws:
        if asked.level == finer:
            return asked
        tree = self.names.cells.tree
        holder = tree.ancestors(tree.level(finer), tree.level(str(asked.level)))
        names = tuple(tree.labels(finer))
        return AskedDraws(asked.draws[..., holder], finer, names, least=asked.least[holder])

    def _number(self, number: float) -> AskedDraws:
        if not abs(number) < 2**53:
            raise self._error("holds a number beyond 2^53")
        if number and abs(number) < 2**-53:
            raise self._error("holds a number that is nearer to 0 than 2^-53")
        return AskedDraws(np.full((1, 1, 1), number), least=np.full(1, float(number)))

    def _counted(self, count: Count) -> AskedDraws:
        found, least = count.draws(self.names.cells, self.draws), self._least(count)
        if count.single:
            return AskedDraws(found, least=least)
        return AskedDraws(found, count.places.level, count.places.names, least=least)

    def _least(self, count: Count) -> NDArray:
        """Return the sums `(k,)` of the floors of a count's cells; zeros where draws are in files."""
        if self._floors is None:
            return np.zeros(len(count.places.names))
        return count.draws(self.names.cells, self._floors)[0, 0].astype(float)

    @cached_property
    def _floors(self) -> NDArray | None:
        return floors_of_draws(self.draws)[None, None] if isinstance(self.draws, np.ndarray) else None

    def _rank(self, node: ast.expr) -> AskedDraws:
        """Return the rank of one place, or of every place, within its level by any quantity; rank 1 is the largest."""
        if (name := _name(node)) is not None:
            count = self.names.find(name)
            if count.single:
                ranks = count.ranks(self.names.cells, self.draws)
                return AskedDraws(ranks[..., None], least=np.ones(1))
        found = self._value(node)
        if found.names is None:
            raise self._error("ranks a quantity that is not of each place of a level")
        if np.isnan(found.draws).any():
            raise self._error("ranks a ratio whose denominator may be 0")
        ranks = rankdata(-found.draws, method="min", axis=2).astype(np.int64)
        return AskedDraws(ranks, found.level, found.names, least=np.ones(ranks.shape[2]))


def _name(node: ast.expr) -> str | None:
    """Return the name if an operand consists of one name alone, else None."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
    return name if isinstance(name, str) else None


def _where_defined(left: NDArray, right: NDArray, holds: NDArray) -> NDArray:
    """Return 1 where an event holds, 0 where it does not, and NaN where either side of it is undefined."""
    gaps = np.isnan(left) | np.isnan(right)
    return np.where(gaps, np.nan, holds) if gaps.any() else holds.astype(np.int64)
