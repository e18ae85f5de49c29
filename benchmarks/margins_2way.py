"""Nearest nonnegative two-way table with given row and column sums."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import _margins
from benchmarks.harness import Case, Harness, Run, available
from trueup.kernel.margins import nearest
from trueup.kernel.margins.whole import whole_table


def cases(harness: Harness) -> Iterator[Case]:
    for side in (30, 100, 300, 1000):
        problem = _margins.table((side, side), [(0,), (1,)])
        large = side > 300 and not harness.full
        peers: dict[str, Run | str] = {
            "osqp at 1e-7": available("osqp", lambda problem=problem: _margins.osqp(problem)),
            "piqp": "run with --full above 300"
            if large
            else available("piqp", lambda p=problem: _margins.piqp(p)),
            "clarabel": "run with --full above 300"
            if large
            else available("clarabel", lambda p=problem: _margins.clarabel(p)),
        }
        yield from harness.compare(
            f"{side} x {side}, continuous",
            lambda problem=problem: nearest(problem.noisy, problem.margins, problem.sums).table,
            peers,
        )
    for side in (30, 100, 200):
        problem = _margins.table((side, side), [(0,), (1,)])
        x = nearest(problem.noisy, problem.margins, problem.sums).table
        yield from harness.compare(
            f"{side} x {side}, controlled rounding",
            lambda problem=problem, x=x: whole_table(x, problem.margins, problem.sums).x,
        )
