"""Accuracy at equal privacy on the paper's examples: conditional noise against noise, then projection or reconciliation.

"Reconciled" means by our own default method, with the invariants as exact nodes and counts of at least zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from benchmarks._lattice import bind, crossing, margins
from benchmarks.harness import Picture
from trueup.kernel.lattice.structure import Lattice
from trueup.measuring.entropy import words
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.tree import Tree
from trueup.noise.lattice import LatticeL2Laplace, LatticeLaplace
from trueup.noise.laws.geometric import DiscreteLaplace
from trueup.noise.laws.undrawn import Exact
from trueup.reconciling import default
from trueup.reconciling.method import Method

EPSILON = "1/4"
CHILDREN = np.array([[15, 1, 3, 1], [20, 10, 10, 15], [3, 10, 10, 2], [12, 14, 7, 2]])
"""Counties Alpha to Delta by education of the household head (fictitious; the paper's table 2)."""


def accuracy(draws: int) -> Picture:
    """Mean squared error and bias of a cell (counts), for one loss per unit of L1 distance."""
    matrix, few = margins(4, 4), max(50, draws // 20)
    plain = DiscreteLaplace(Fraction(EPSILON)).sample(16 * draws, words).reshape(draws, 16)
    methods = {
        "discrete Laplace given the margins (ours)": bind(LatticeLaplace(Fraction(EPSILON)), matrix)
        .draw(draws, words)
        .vectors,
        "L2-norm Laplace given the margins (ours)": bind(LatticeL2Laplace(Fraction(EPSILON)), matrix)
        .draw(draws, words)
        .vectors,
        "discrete Laplace, then nearest in L2 (reals)": plain - plain @ np.linalg.pinv(matrix) @ matrix,
        "discrete Laplace, then nearest in L2 (integers)": np.array([round_l2(v, matrix) for v in plain]),
        "discrete Laplace, then nearest in L1, HiGHS dual simplex's optimum": np.array(
            [nearest_l1(v, matrix, "highs-ds") for v in plain[:few]]
        ),
        "discrete Laplace, then nearest in L1, interior point's optimum": np.array(
            [nearest_l1(v, matrix, "highs-ipm") for v in plain[:few]]
        ),
        "discrete Laplace, then nearest in L1 (integers), branch and bound's optimum": np.array(
            [nearest_l1_integer(v, matrix) for v in plain[:few]]
        ),
    }
    truth, constraints = CHILDREN.ravel(), children()
    joint = LatticeLaplace(Fraction(EPSILON)).on(Lattice.of(16, matrix))
    methods |= {
        "discrete Laplace, then reconciled": reconciled(
            constraints, DiscreteLaplace(Fraction(EPSILON)), truth, plain[: 2 * few]
        ),
        **after_lattice(constraints, joint, truth, 2 * few),
    }
    return Picture(
        title=f"4 x 4 table with both margins kept, epsilon = {EPSILON} per unit of L1 distance",
        columns=COLUMNS,
        rows=_rows(methods),
    )


def counties(draws: int) -> Iterator[Picture]:
    """Compare on 102 counties with one sum kept, of a state with large counts and of one with many small counts."""
    epsilon, n = Fraction("0.192"), 102
    tree = Tree.from_columns(["state", "county"], [{}, {"county": [f"{i:03}" for i in range(n)]}])
    constraints = Constraints(Cells(tree), (Margin("county"),), invariants=(Margin("state"),))
    joint = LatticeLaplace(epsilon).on(Lattice.of(n, np.ones((1, n), np.int64)))
    plain = DiscreteLaplace(epsilon).sample(n * draws, words).reshape(draws, n)
    for name, truth in (("thousands", 5000 + 100 * np.arange(n)), ("0 to 10", np.arange(n) // 10)):
        methods = {
            "discrete Laplace given the sum (ours)": joint.bound.draw(draws, words).vectors,
            "discrete Laplace, then nearest in L2 (reals)": plain - plain.mean(axis=1, keepdims=True),
            "discrete Laplace, then reconciled": reconciled(
                constraints, DiscreteLaplace(epsilon), truth, plain
            ),
            **after_lattice(constraints, joint, truth, draws // 4),
        }
        yield Picture(
            title=f"102 counts ({name}) with their sum kept, epsilon = 0.192 per unit of L1 distance",
            columns=COLUMNS,
            rows=_rows(methods),
        )


def records(draws: int) -> Picture:
    """Compare on 14 records with three crossing sums kept, as linear rules; `general-projection` is the default there."""
    epsilon, matrix = Fraction(EPSILON), crossing()
    constraints, whole = fourteen()
    order = _order()
    plain = DiscreteLaplace(epsilon).sample(14 * draws, words).reshape(draws, 14)
    joint = bind(LatticeLaplace(epsilon), matrix).draw(draws, words).vectors
    padded = [np.zeros((draws, 16), np.int64) for _ in range(2)]
    for full, noise in zip(padded, (plain, joint)):
        full[:, order] = noise
    law = DiscreteLaplace(epsilon)
    methods = {
        "discrete Laplace given the sums (ours)": joint,
        "discrete Laplace, then nearest in L2 (reals)": plain - plain @ np.linalg.pinv(matrix) @ matrix,
        "discrete Laplace, then reconciled": reconciled(constraints, law, whole, padded[0][: draws // 2])[
            :, order
        ],
        "discrete Laplace given the sums, then reconciled": reconciled(
            constraints, law, whole, padded[1][: draws // 2]
        )[:, order],
    }
    return Picture(
        title=f"14 records with three crossing sums kept, epsilon = {EPSILON} per unit of L1 distance",
        columns=COLUMNS,
        rows=_rows(methods),
    )


def fourteen() -> tuple[Constraints, np.ndarray]:
    """The 14 records as a table of three sets by two copies, its crossing sums kept as linear rules, and its true counts."""
    truth = np.zeros(16, np.int64)
    truth[_order()] = np.arange(14) * 3
    sides = tuple(Attribute(name, (f"{name}_in", f"{name}_out")) for name in "abc")
    cells = Cells(Tree.from_columns(["all"], [{}]), (*sides, Attribute("copy", ("first", "second"))))
    totals = crossing() @ truth[_order()]
    rules = tuple(LinearRule(parse_linear(f"{n}_in == {t}"), "all") for n, t in zip("abc", totals.tolist()))
    nobody = {f"{name}": f"{name}_out" for name in "abc"}
    return Constraints(cells, (cells.finest,), zeros=(nobody,), linear=rules), truth


def _order() -> list[int]:
    """Cells of the regions of `crossing`, by the binary digits of their sets; the last two, in no set, are the zeros."""
    return [cell for k in range(1, 8) for cell in _region(k)]


def _region(k: int) -> list[int]:
    """Both cells of the region in the sets whose bits `k` has; `in` comes first on every axis."""
    place = sum((1 - (k >> bit & 1)) << (2 - bit) for bit in range(3))
    return [2 * place, 2 * place + 1]


def children() -> Constraints:
    """Lay out the table of delinquent children, both margins invariant."""
    tree = Tree.from_columns(["all"], [{}])
    cells = Cells(tree, tuple(Attribute(name, tuple("abcd")) for name in ("county", "education")))
    finest = Margin("all", ("county", "education"))
    return Constraints(
        cells, (finest,), invariants=(Margin("all", ("county",)), Margin("all", ("education",)))
    )


def after_lattice(
    constraints: Constraints, joint: Any, truth: np.ndarray, draws: int
) -> dict[str, np.ndarray]:
    """Errors of nonnegative whole counts made from noise that keeps the invariants."""
    noise = joint.bound.draw(draws, words).vectors
    return {
        "discrete Laplace given the invariants, then reconciled": reconciled(constraints, joint, truth, noise)
    }


def reconciled(
    constraints: Constraints, law: Any, truth: np.ndarray, noise: np.ndarray, method: Method | None = None
) -> np.ndarray:
    """Errors `(d, n)` of a reconciliation method, the default unless another is given."""
    method, cells = method or default(constraints), constraints.cells
    exact = [cells.sum(truth, margin) for margin in constraints.invariants]
    headers = [Measured("noisy", cells.finest, law)]
    headers += [Measured("invariant", margin, Exact()) for margin in constraints.invariants]
    values = np.hstack(
        [truth + noise, np.tile(np.concatenate([np.zeros(0, np.int64), *exact]), (len(noise), 1))]
    )
    state = method.prepare(constraints, headers)
    return method.apply(state, values, np.random.default_rng(6)).values - truth


COLUMNS = [
    "method",
    "mean squared error of a cell",
    "worst cell's variance",
    "largest |bias| in s.e.",
    "draws",
]


def _rows(methods: Mapping[str, np.ndarray]) -> list[list[str]]:
    rows = []
    for name, errors in methods.items():
        squares = (np.asarray(errors, float) ** 2).mean(axis=1)
        bias = np.mean(errors, axis=0)
        worst = np.abs(bias / (np.std(errors, axis=0) / np.sqrt(len(errors)))).max()
        rows.append(
            [
                name,
                f"{squares.mean():.2f} +- {squares.std() / np.sqrt(len(errors)):.2f}",
                f"{np.var(errors, axis=0).max():.2f}",
                f"{worst:.1f}",
                str(len(errors)),
            ]
        )
    return rows


def round_l2(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Round the L2 projection to integers, then move by single 2 x 2 swaps while they bring it nearer."""
    start = v - v @ np.linalg.pinv(matrix) @ matrix
    table = np.rint(start).astype(int).reshape(4, 4)
    table[:, 3] = -table[:, :3].sum(axis=1)
    table[3] = -table[:3].sum(axis=0)
    while True:
        best = min(_swaps(table), key=lambda t: ((t.ravel() - v) ** 2).sum())
        if ((best.ravel() - v) ** 2).sum() >= ((table.ravel() - v) ** 2).sum():
            return table.ravel()
        table = best


def _swaps(table: np.ndarray):
    for i in range(4):
        for k in range(4):
            for j in range(4):
                for m in range(4):
                    if i != k and j < m:
                        other = table.copy()
                        other[i, j] += 1
                        other[k, m] += 1
                        other[i, m] -= 1
                        other[k, j] -= 1
                        yield other


def nearest_l1(v: np.ndarray, matrix: np.ndarray, method: str) -> np.ndarray:
    """Nearest vector in L1 that keeps the margins; the optimum is not unique, and the solver picks one."""
    n, rows = len(v), np.hstack([matrix, -matrix])
    found = linprog(np.ones(2 * n), A_eq=rows, b_eq=-matrix @ v, bounds=(0, None), method=method)
    return v + found.x[:n] - found.x[n:]


def nearest_l1_integer(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Do the same over the integers."""
    n, rows = len(v), np.hstack([matrix, -matrix])
    values: Any = -matrix @ v
    found = milp(
        np.ones(2 * n),
        constraints=LinearConstraint(rows, values, values),
        integrality=np.ones(2 * n),
        bounds=Bounds(0, np.inf),
    )
    return v + np.rint(found.x[:n] - found.x[n:])
