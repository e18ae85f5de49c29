"""How every benchmark measures: interleaved medians, peak memory, difference from a named oracle.

A benchmark is one file ``benchmarks/<name_with_underscores>.py`` whose docstring's first line is its
title and that defines ``cases``::

    from benchmarks.harness import Case, Harness, available

    def cases(harness: Harness) -> Iterator[Case]:
        for n in (10**4, 10**5, *([10**6] if harness.full else [])):
            problem = make(n)
            yield from harness.compare(
                f"n = {n:,}",
                lambda: ours(problem),
                {"piqp": available("piqp", lambda: by_piqp(problem)),    # not installed: said by name
                 "osqp": (lambda: by_osqp(problem)) if n <= 10**5 else "not run above 1e5"},
            )

``compare`` yields one case per peer (or a single one with no peer). A peer is a function, or a string that
says why it was not run. ``difference`` is the largest absolute difference between the two results, or what a
``difference(ours, peer)`` given by the benchmark returns; NaN becomes null in JSON.

A benchmark may also define ``pictures(harness) -> Iterator[Picture]``: further tables, printed after the cases and
under the key ``pictures`` of the JSON object. One that takes long names its ``PARTS``, and measures ``harness.part`` alone
where that is given; ``python -m benchmarks --join FILE...`` shows the JSON objects of all parts as one.

How time is taken: one untimed call of ours (it compiles and fills caches), then rounds in which ours and
every peer run once, one after the other; the medians over the rounds are reported. Rounds stop after
``repeats`` or when ``seconds`` are spent, never before one round. ``ratio`` is the peer's median over ours.

How memory is taken: ours runs once more in a forked child, and ``peak_mb`` is that child's peak resident
memory (interpreter, libraries and the problem itself included), from ``getrusage``.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

import numpy as np

Run = Callable[[], Any]


class Case(TypedDict):
    """One line of a benchmark; times in seconds, memory in MB (1e6 bytes), None where not measured."""

    case: str
    ours_s: float | None
    peer: str | None
    peer_s: float | None
    ratio: float | None
    peak_mb: float | None
    difference: float | None


class Picture(TypedDict):
    """A further table, for what does not fit in cases: a title, column names, rows of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def available(module: str, run: Run) -> Run | str:
    """``run``, or the reason why it cannot run: its module is not installed."""
    return run if find_spec(module) else "not installed"


def largest_difference(ours: Any, peer: Any) -> float:
    """Largest absolute difference of two arrays (or what converts to arrays)."""
    return float(np.max(np.abs(np.asarray(ours, float) - np.asarray(peer, float)), initial=0.0))


def peak_memory(run: Run) -> float:
    """Peak resident memory in MB of a forked child that calls ``run`` once."""
    _return_free_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside the idle threads of BLAS
        child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError("the forked run that measures memory failed")
    return usage.ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024) / 1e6


def _return_free_memory() -> None:
    """Give back what earlier peers have freed, so that the child does not inherit it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim:
        trim(0)


@dataclass
class Harness:
    """Measures cases; ``full`` asks for the large sizes and the slow peers as well, ``part`` for one of a benchmark's `PARTS`
    alone, ``previous`` is where a version is that benchmarks of whole commands run beside ours."""

    full: bool = False
    repeats: int = 5
    seconds: float = 10.0
    progress: Callable[[str], None] = field(default=lambda line: None)
    previous: Path | None = None
    part: str | None = None

    def compare(
        self,
        case: str,
        ours: Run,
        peers: dict[str, Run | str] | None = None,
        *,
        difference: Callable[[Any, Any], float] = largest_difference,
        memory: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Iterator[Case]:
        """Yield one case per peer: medians of interleaved runs, memory, difference."""
        self.progress(case)
        peers = peers or {}
        runs = {name: peer for name, peer in peers.items() if callable(peer)}
        answer = ours()
        peak = peak_memory(ours) if memory else None  # before the peers leave their own memory behind
        times, answers = self._interleave({"": ours, **runs}, clock)
        ours_s = median(times[""])
        if not peers:
            yield _case(case, ours_s, peak)
        for name, peer in peers.items():
            if callable(peer):
                gap = difference(answer, answers[name])
                yield _case(case, ours_s, peak, name, median(times[name]), gap)
            else:
                yield _case(case, ours_s, peak, f"{name} ({peer})")

    def _interleave(
        self, runs: dict[str, Run], clock: Callable[[], float]
    ) -> tuple[dict[str, list[float]], dict[str, Any]]:
        times: dict[str, list[float]] = {name: [] for name in runs}
        answers: dict[str, Any] = {}
        start = time.perf_counter()
        for _ in range(self.repeats):
            for name, run in runs.items():
                begin = clock()
                result = run()
                times[name].append(clock() - begin)
                answers.setdefault(name, result)
            if time.perf_counter() - start > self.seconds:
                break
        return times, answers


def _case(
    case: str,
    ours_s: float | None,
    peak: float | None,
    peer: str | None = None,
    peer_s: float | None = None,
    difference: float | None = None,
) -> Case:
    ratio = peer_s / ours_s if peer_s is not None and ours_s else None
    return Case(
        case=case,
        ours_s=_finite(ours_s),
        peer=peer,
        peer_s=_finite(peer_s),
        ratio=_finite(ratio),
        peak_mb=_finite(peak),
        difference=_finite(difference),
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(value)
