"""Functions that draw noise, the only ones in `trueup.arrays` to read the operating system's randomness."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.arrays.exact import Matrix, Number, check_generator, check_room, exact_number, whole_vector
from trueup.arrays.lattice import LatticeLaw, Norm, additive_rows, law_keeping
from trueup.arrays.trees import level_order
from trueup.arrays.within import NoiseWithin
from trueup.errors import DataError, SpecError
from trueup.measuring.entropy import words
from trueup.noise.lattice import OnLattice
from trueup.noise.law import Cost, Integers, Law

Charge: TypeAlias = Callable[[Cost | None], object]
"""Takes the loss out of a budget, or raises."""


N = TypeVar("N", LatticeLaw, NoiseWithin)


class NoisyCounts(NamedTuple, Generic[N]):
    """Noisy counts, together with the law of their noise.

    Attributes
    ----------
    values
        (n,) whole noisy counts, with `A values = A x` exactly; some may be negative where nothing bounds them.
    noise
        For `noise_keeping`, the law with the smallest change, its loss and tail; for `noise_within`, the loss for each unit
        of distance (proved), how it is drawn, its bias by count.
    """

    values: Integers
    noise: N


def sample(
    law: Law | LatticeLaw, size: int | tuple[int, ...] = 1, rng: np.random.Generator | None = None
) -> Integers:
    """Draw independent values from a noise law, exactly.

    Parameters
    ----------
    law
        A law of one count, or joint noise.
    size
        Number of values, or a shape. If the law is joint, each value is a vector `(n,)`.
    rng
        For simulations: the same state gives the same draws. Without it they are made from the operating system's entropy, as a
        release needs; there is no seed then.

    Returns
    -------
    int64 array of that shape; `(*size, n)` of joint noise

    Raises
    ------
    PrivacyError
        The law is continuous: its draws would be rounded, and reveal what they should hide.

    Examples
    --------
    >>> from trueup.arrays import discrete_laplace, law_keeping
    >>> sample(discrete_laplace(1), (2, 3)).shape
    (2, 3)
    >>> sample(law_keeping([[1, 1, 1]], epsilon=1), 5).sum(axis=1)
    array([0, 0, 0, 0, 0])
    """
    shape = size if isinstance(size, tuple) else (size,)
    if any(not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 0 for k in shape):
        raise SpecError(
            "the argument size is not a shape", needed="a whole number, or a tuple of whole numbers"
        )
    if rng is not None:
        check_generator(rng)
    source = words if rng is None else rng.bytes
    joint = isinstance(law, OnLattice)
    if joint and law.bound is None:
        raise SpecError(
            "the law keeps no sums", needed="a law that keeps sums, such as law_keeping(A, epsilon=1)"
        )
    check_room(prod(map(int, shape)) * (law.bound.n if joint else 1))
    if joint:
        return law.bound.draw(prod(shape), source).vectors.reshape(*shape, law.bound.n)
    return np.asarray(law.sample(prod(shape), source)).reshape(shape)


def noise_keeping(
    x: ArrayLike,
    A: Matrix,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    norm: Norm = "l1",
    slowest: float = 60.0,
    charge: Charge | None = None,
) -> NoisyCounts[LatticeLaw]:
    """Return counts plus integer noise that leaves all sums `A x` unchanged.

    Parameters
    ----------
    x
        (n,) confidential whole counts. No error holds one of them.
    A
        (m, n) whole numbers, dense or sparse: any sums, weighted or signed ones too.
    epsilon, rho, norm, slowest
        The parameters of `law_keeping`: epsilon is the loss for each unit of distance in the norm between tables with the same
        `A x`; rho that for a squared L2 distance of 1.
    charge
        Called with the loss of the smallest change before any noise is drawn: where it raises, nothing is drawn.

    Returns
    -------
    NoisyCounts
        `values`, and the `noise` that was added.

    Raises
    ------
    DataError
        The counts are not whole, or beyond 2^62.
    SpecError
        A does not fit the counts, or no exact sampler is fast enough.
    PrivacyError
        A determines every cell.

    Notes
    -----
    The guarantee compares tables with the same `A x` only, whose sums are published exactly. What can be told of a cell by them
    alone is told.

    References
    ----------
    Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy".

    Examples
    --------
    >>> kept = noise_keeping([10, 20, 30], [[1, 1, 1]], epsilon=1)
    >>> int(kept.values.sum()), kept.noise.loss
    (60, Cost(currency='epsilon', amount=Fraction(2, 1), delta=Fraction(0, 1)))
    """
    counts = whole_vector(x, "the counts")
    noise = law_keeping(A, epsilon=epsilon, rho=rho, norm=norm, slowest=slowest)
    if noise.lattice.n != counts.size:
        raise SpecError(
            f"the matrix A has {noise.lattice.n} columns, and {counts.size} counts are given",
            needed="one column of A for each count",
        )
    if charge is not None:
        charge(noise.loss)
    return NoisyCounts(counts + sample(noise, 1)[0], noise)


def noise_within(
    x: ArrayLike,
    *,
    epsilon: Number,
    sensitivity: Number = 1,
    A: Matrix | None = None,
    lower: ArrayLike = -inf,
    upper: ArrayLike = inf,
    R: Matrix | None = None,
    least: ArrayLike = (),
    slowest: float = 60.0,
    charge: Charge | None = None,
) -> NoisyCounts[NoiseWithin]:
    """Return counts plus integer noise, all within a public feasible set.

    Parameters
    ----------
    x
        (n,) confidential whole counts, which obey the rules. No error holds one of them.
    epsilon, sensitivity
        The loss, and the largest L1 distance between the counts of two neighbours, both of which obey the rules.
    A
        (m, n) whole numbers: sums that are published as they are, and kept.
    lower, upper
        Bounds of the counts, (n,) or one.
    R, least
        Known inequalities `R x >= least`.
    slowest
        Expected seconds of one draw beyond which the noise is refused.
    charge
        Called with the loss before any noise is drawn.

    Returns
    -------
    NoisyCounts
        `values`, and the `noise`, with `epsilon`, `explain()` and `bias(x)`.

    Raises
    ------
    DataError
        The counts are not whole, or break a rule.
    SpecError
        Rules do not fit the counts, or no exact sampler is fast enough.
    PrivacyError
        The rules leave one table.

    Notes
    -----
    Near a bound the mean of a noisy count is not the true one; `bias` says by how much, by count.

    References
    ----------
    Dharangutte, Gao, Gong and Yu, section 6.

    Examples
    --------
    >>> answers = noise_within([0, 1, 1, 0, 1], epsilon=1, lower=0, upper=1)
    >>> sorted({0, 1} | set(answers.values.tolist())), answers.noise.bias([0, 1, 1, 0, 1])[:2].round(3).tolist()
    ([0, 1], [0.269, -0.269])
    """
    counts = whole_vector(x, "the counts")
    amount = exact_number(epsilon, "epsilon")
    each = amount / exact_number(sensitivity, "sensitivity")
    noise = NoiseWithin.of(
        counts, epsilon=each, A=A, lower=lower, upper=upper, R=R, least=least, slowest=slowest
    )
    if charge is not None:
        charge(Cost("epsilon", amount))
    return NoisyCounts(noise.draw(counts, 1, words)[0], noise)


def add_up(
    x: ArrayLike, parents: ArrayLike, *, epsilon: Number, slowest: float = 60.0, charge: Charge | None = None
) -> NoisyCounts[LatticeLaw]:
    """Return noisy counts of a tree (or of a total and its parts) that add up exactly.

    Parameters
    ----------
    x
        (n,) confidential whole counts of all nodes, each the sum of its parts.
    parents
        (n,) parent of each node, -1 of the root, in any order.
    epsilon
        Loss of one record that is added or removed: it moves the count of a leaf and of every node above it, by one each.

    Returns
    -------
    NoisyCounts
        `values` add up exactly and are unbiased; nothing is processed afterwards. The noise is that of independent two-sided
        geometric counts, of epsilon divided by the levels of the tree, given that it adds up.

    Raises
    ------
    DataError
        The counts do not add up. No error tells where.
    SpecError
        The parents make no tree, or no exact sampler is fast enough: trees of two levels, and small ones, are drawn.

    References
    ----------
    The open question at the end of Wang and Reiter (2021), by the noise of Dharangutte, Gao, Gong and Yu.

    Examples
    --------
    >>> kept = add_up([60, 10, 20, 30], [-1, 0, 0, 0], epsilon=2)
    >>> int(kept.values[0] - kept.values[1:].sum()), kept.noise
    (0, LatticeLaplace(epsilon=Fraction(1, 1)))
    """
    counts = whole_vector(x, "the counts")
    order, child_ptr = level_order(parents)
    if order.size != counts.size or order.size < 2:
        raise SpecError(
            f"{counts.size} counts and {order.size} parents are given",
            needed="a parent for each count, and at least two counts",
        )
    rows = additive_rows(np.asarray(parents))
    if (rows @ counts != 0).any():
        raise DataError(
            "the counts do not add up", needed="counts in which every total is the sum of its parts"
        )
    levels, first, last = 0, 0, 1
    while first < last:
        levels, first, last = levels + 1, child_ptr[first], child_ptr[last]
    return noise_keeping(
        counts, rows, epsilon=exact_number(epsilon, "epsilon") / levels, slowest=slowest, charge=charge
    )
