"""Nearest nonnegative three-way table with all its two-way margins given."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import _margins
from benchmarks.harness import Case, Harness, Run, available
from trueup.kernel.margins import nearest

PAIRS = [(0, 1), (0, 2), (1, 2)]


def cases(harness: Harness) -> Iterator[Case]:
    for side in (5, 10, 20, 30):
        problem = _margins.table((side,) * 3, PAIRS)
        slow = "run with --full above 20" if side > 20 and not harness.full else None
        peers: dict[str, Run | str] = {
            "piqp": available("piqp", lambda problem=problem: _margins.piqp(problem)),
            "clarabel": slow or available("clarabel", lambda problem=problem: _margins.clarabel(problem)),
            "osqp at 1e-7": slow or available("osqp", lambda problem=problem: _margins.osqp(problem)),
        }
        yield from harness.compare(
            f"{side}^3",
            lambda problem=problem: nearest(problem.noisy, problem.margins, problem.sums).table,
            peers,
        )
