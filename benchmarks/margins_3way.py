"""Nearest nonnegative three-way table with all its two-way margins given, continuous and whole.

A whole table's peer is HiGHS on the same integer program, stopped after a minute; `difference` is then by how much our
squared distance exceeds the peer's, relative (negative where ours is nearer, none where the peer found no table), and
a further table gives the gap that we prove.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import _margins
from benchmarks.harness import Case, Harness, Picture, Run, available
from trueup.kernel.linear.programs import Answer
from trueup.kernel.margins import nearest
from trueup.kernel.margins.whole import _exact, whole_table

PAIRS = [(0, 1), (0, 2), (1, 2)]
WHOLE = ((11, 11, 10), (12, 12, 12), (20, 20, 20), (40, 40, 5), (30, 30, 30))
MINUTE = 60.0


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
    for shape in WHOLE:
        problem, x = _projected(shape)
        larger = int(np.prod(shape)) > 2000 and not harness.full
        yield from harness.compare(
            f"{' x '.join(map(str, shape))}, whole",
            lambda problem=problem, x=x: whole_table(x, problem.margins, problem.sums),
            {
                "highs, a minute": "run with --full above 2,000 cells"
                if larger
                else lambda p=problem, x=x: _exact(x, p.margins, p.sums, MINUTE, None)
            },
            difference=_excess,
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    """What is proved of the whole tables."""
    rows = []
    for shape in WHOLE:
        problem, x = _projected(shape)
        whole = whole_table(x, problem.margins, problem.sums)
        assert whole.gap is not None
        rows.append([" x ".join(map(str, shape)), f"{whole.objective:.2f}", f"{100 * whole.gap:.2f} %"])
    yield Picture(title="whole tables", columns=["shape", "squared distance", "proved gap"], rows=rows)


def _projected(shape: tuple[int, int, int]) -> tuple[_margins.Table, np.ndarray]:
    problem = _margins.table(shape, PAIRS)
    return problem, nearest(problem.noisy, problem.margins, problem.sums).table


def _excess(ours: Answer, peer: Answer) -> float:
    return ours.objective / peer.objective - 1 if np.isfinite(peer.objective) else float("nan")
