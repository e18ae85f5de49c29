"""Exact reading of numbers, vectors and matrices."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.digits import rational
from trueup.errors import DataError, SpecError

if TYPE_CHECKING:
    import scipy

Number: TypeAlias = int | float | str | Fraction | Decimal | np.number
"""One exact number: 0.1, "0.1", "1/10" and Fraction(1, 10) are the same one."""
Matrix: TypeAlias = "ArrayLike | scipy.sparse.sparray | scipy.sparse.spmatrix"
"""Dense, or sparse."""
LARGEST_COUNT = 2**62
"""Limit of the size of counts, so that noise added to them fits 64 bits."""
MOST_VALUES = 2**36
"""Most values of one array: half a terabyte of 64-bit numbers."""
MAX_FINITE_REAL = 1e100
"""Limit of the size of finite real numbers, so that sums of their squares are finite."""


def exact_number(value: Number, what: str) -> Fraction:
    """Return a positive number as the exact fraction that it is written as: the float 0.1 is one tenth.

    Raises
    ------
    SpecError
        If it is no finite number above zero.

    Examples
    --------
    >>> exact_number(0.1, "epsilon") == exact_number("1/10", "epsilon") == exact_number(np.float32(0.1), "epsilon")
    True
    """
    return rational(str(value) if isinstance(value, float | np.floating) else value, what)


def exact_or_zero(value: Number, what: str) -> Fraction:
    """Return a nonnegative number as the exact fraction that it is written as.

    Examples
    --------
    >>> exact_or_zero(0, "rho"), exact_or_zero(".5", "rho")
    (Fraction(0, 1), Fraction(1, 2))
    """
    number = isinstance(value, int | float | Fraction | Decimal | np.number)
    if number and value < 0:
        raise SpecError(f"{what} is negative", needed="a number, zero or more")
    zero = number and value == 0
    return Fraction(0) if zero and not isinstance(value, bool) else exact_number(value, what)


def whole_vector(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return a vector `(n,)` of whole numbers below 2^62 in absolute value. Errors quote none of them.

    Examples
    --------
    >>> whole_vector([3.0, 4], "the counts")
    array([3, 4])
    """
    given = np.asarray(values)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise DataError(f"{what} are not a vector of numbers", needed="one whole number for each cell, (n,)")
    if given.dtype.kind == "f" and not (np.isfinite(given) & (given == np.rint(given))).all():
        raise DataError(f"{what} are not all whole numbers", needed="whole numbers")
    if given.size and not (np.abs(given.astype(float)) < LARGEST_COUNT).all():
        raise DataError(f"some of {what} are beyond 2^62", needed="whole numbers whose sums stay below 2^62")
    return given.astype(np.int64)


def real_vector(
    values: ArrayLike,
    what: str,
    size: int | None = None,
    *,
    where: NDArray[np.bool_] | None = None,
    infinite: bool = False,
) -> NDArray[np.float64]:
    """Return a vector `(n,)` of real numbers, which have to be finite unless `infinite` is True.

    Those that are not looked for (`where` is False) become zero, whatever they are.

    Examples
    --------
    >>> real_vector(2, "the weights", 3), real_vector([np.nan, np.inf], "upper", where=np.array([False, True]), infinite=True)
    (array([2., 2., 2.]), array([ 0., inf]))
    """
    size = size if where is None else where.size
    try:
        given = np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise SpecError(f"{what} are not numbers", needed="one number for each cell, (n,)") from None
    if given.ndim == 0 and size is not None:
        given = np.full(size, float(given))
    if given.ndim != 1 or (size is not None and given.size != size):
        raise SpecError(
            f"{what} have shape {given.shape}",
            needed=f"{size} numbers" if size is not None else "one number for each cell, (n,)",
        )
    given = given if where is None else np.where(where, given, 0.0)
    if np.isnan(given).any() or not (infinite or np.isfinite(given).all()):
        raise SpecError(
            f"{what} are not all {'numbers' if infinite else 'finite'}",
            needed="numbers, not NaN" if infinite else "finite numbers",
        )
    if (np.abs(given) >= MAX_FINITE_REAL).any() and not infinite:
        raise SpecError(
            f"{what} are beyond {MAX_FINITE_REAL:g} in size",
            needed=f"numbers whose size is below {MAX_FINITE_REAL:g}",
        )
    return given


def matrix_rows(matrix: Matrix, n: int, what: str) -> scipy.sparse.csr_array:
    """Return a matrix `(m, n)` of finite numbers, given as dense, sparse or (if it is one row) as a vector.

    Examples
    --------
    >>> matrix_rows([1, 1], 2, "A").toarray()
    array([[1., 1.]])
    """
    import scipy  # its parts load when first used

    try:
        given = matrix if scipy.sparse.issparse(matrix) else np.asarray(matrix, float)
        rows = scipy.sparse.csr_array(given.reshape(1, -1) if given.ndim == 1 else given, dtype=float)  # pyright: ignore[reportAttributeAccessIssue]
    except (TypeError, ValueError, OverflowError):
        raise SpecError(f"{what} is not a matrix of numbers", needed=f"rows of {n} numbers each") from None
    if rows.shape[1] != n:
        raise SpecError(f"{what} has {rows.shape[1]} columns", needed=f"one column for each of {n} cells")
    if not (np.abs(rows.data) < MAX_FINITE_REAL).all():
        raise SpecError(
            f"{what} holds a number that is not finite, or beyond {MAX_FINITE_REAL:g}",
            needed="finite numbers",
        )
    rows.eliminate_zeros()
    return rows


def check_generator(rng: object) -> None:
    """Refuse an object that is not a random number generator, such as a seed."""
    if not isinstance(rng, np.random.Generator):
        raise SpecError(
            f"the argument rng is of type {type(rng).__name__}",
            needed="a NumPy generator",
            remedy="give np.random.default_rng(1), for example",
        )


def check_draws(draws: object, what: str = "draws", each: int = 1) -> None:
    """Refuse a number of draws that is not a positive whole number or needs too much memory."""
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1:
        raise SpecError(f"{what} is {draws!r}", needed="a whole number above zero")
    check_room(int(draws) * each)


def check_room(values: int) -> None:
    """Refuse arrays with more values than a computer's memory can hold."""
    if values > MOST_VALUES:
        raise SpecError(
            f"{values:,} values would need more memory than there is",
            needed=f"at most {MOST_VALUES:,} values at once",
            remedy="draw them by several calls of a smaller size",
        )
