"""Progress of a run for whoever watches it, and its timings for the agency's own log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from trueup.releasing.cut import PlacePart
    from trueup.releasing.run_folder import RunFolder
    from trueup.run.executor import Executor

Watch = Callable[[str, int, int], None]
"""Called with what is being done, how many parts of it are done, and how many there are."""


def quiet(what: str, done: int, of: int) -> None:
    """Show nothing."""


def stages(tell: Callable[[str], None]) -> Watch:
    """Pass on the name of each stage as it begins."""
    return lambda what, done, of: None if done else tell(what)


class Work(NamedTuple):
    """The resources of a task, for the run log, which depends on the data and stays internal."""

    part: PlacePart | None
    seconds: float
    core_seconds: float
    peak: int


class PartTask(Protocol):
    """A task carried out on every part of a layer."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if it was done before."""
        ...

    def __call__(self, part: PlacePart) -> Work: ...


@dataclass
class Log:
    """Timings of a run by task: internal, because they depend on the data.

    Attributes
    ----------
    watch
        Called with what is being done.
    before
        Called before each stage; what it raises ends the run.
    entries, notes
        What each stage took, in every attempt, and what else is to be known of the run.
    attempt
        Of a run that goes on, from 1.
    """

    watch: Watch = quiet
    before: Callable[[], None] = lambda: None
    entries: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    _file: Path | None = None

    def go_on(self, path: Path) -> None:
        """Keep the entries in a file too, after those of earlier attempts; lost ones are ignored."""
        earlier = []
        with suppress(OSError, ValueError):
            earlier = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.attempt = 1 + max((entry["attempt"] for entry in earlier), default=0)
        own = [entry | {"attempt": self.attempt} for entry in self.entries]
        self._file, self.entries = path, earlier
        for entry in own:
            self._keep(entry)

    def _keep(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        if self._file:
            with suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Announce what is done, and time it."""
        self.before()
        self.watch(what, 0, 1)
        start, used = time.perf_counter(), time.process_time()
        yield
        self._note(what, start, [Work(None, 0.0, time.process_time() - used, 0)])
        self.watch(what, 1, 1)

    def map(
        self,
        what: str,
        task: PartTask,
        folder: RunFolder,
        parts: list[PlacePart],
        executor: Executor,
        told: Callable[[PlacePart], None] = lambda part: None,
    ) -> None:
        """Carry out a task on the parts not done before, and log it; `told` is called with each."""
        self.before()
        left = [p for p in parts if not task.done(folder, p)]
        start, done, before = time.perf_counter(), [], len(parts) - len(left)
        self.watch(what, before, len(parts))
        for at, work in executor.map(task, left):
            told(left[at])
            done.append(work)
            self.watch(what, before + len(done), len(parts))
        self._note(what, start, done)

    def plain(self) -> dict[str, Any]:
        """Return the log as JSON values."""
        return {**self.notes, "stages": self.entries}

    def _note(self, what: str, start: float, done: Iterable[Work]) -> None:
        done = list(done)
        self._keep(
            {
                "what": what,
                "attempt": self.attempt,
                "ended": datetime.now().astimezone().isoformat(timespec="seconds"),
                "parts": len(done),
                "seconds": round(time.perf_counter() - start, 4),
                "worker seconds": sum(w.seconds for w in done),
                "core seconds": sum(w.core_seconds for w in done),
                "peak bytes": max((w.peak for w in done), default=0),
            }
        )
