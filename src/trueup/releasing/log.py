"""What a run does, for whoever watches it, and what it took, for the agency's own log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from trueup.releasing.cut import PlacePart
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.tasks import Task, Work
from trueup.run.executor import Executor

Watch = Callable[[str, int, int], None]
"""Hears what is being done, how many bundles of it are done, and how many there are."""


def quiet(what: str, done: int, of: int) -> None:
    """Hear nothing."""


@dataclass
class Log:
    """What a run took, by what was done: internal, since it depends on the data."""

    watch: Watch
    entries: list[dict[str, Any]] = field(default_factory=list)

    def map(self, what: str, task: Task, bundles: list[PlacePart], executor: Executor) -> None:
        """Carry out a task on the bundles for which it was not done before, and take note."""
        folder = RunFolder(task.path)
        left = [b for b in bundles if not task.done(folder, b)]
        start, done, before = time.perf_counter(), [], len(bundles) - len(left)
        self.watch(what, before, len(bundles))
        for _, work in executor.map(task, left):
            done.append(work)
            self.watch(what, before + len(done), len(bundles))
        self.note(what, time.perf_counter() - start, done)

    def note(self, what: str, seconds: float, done: Iterable[Work] = ()) -> None:
        """Write down what was done."""
        done = list(done)
        self.entries.append(
            {
                "what": what,
                "bundles": len(done),
                "seconds": seconds,
                "worker seconds": sum(w.seconds for w in done),
                "core seconds": sum(w.core_seconds for w in done),
                "peak bytes": max((w.peak for w in done), default=0),
            }
        )
