"""Releases from a spec to a folder; this file has progress, timings, and the counting of refusals.

Whoever runs a spec under a ledger sees which rule failed, and only its keeper sees where. A row number in a message is some 17
bits of confidential data, for an answer that is counted as one. So what is raised while confidential rows are read is written to
the keeper's private log, and the analyst is told the rule that was counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trueup.errors import BudgetError, BusyError, DataError, ResourceError, TrueupError

if TYPE_CHECKING:
    from trueup.ledger.account import Account
    from trueup.ledger.questions import Question
    from trueup.ledger.reservation import Reservation
    from trueup.releasing.cut import PlacePart
    from trueup.releasing.run_folder import RunFolder
    from trueup.run import Executor

Watch = Callable[[str, int, int], None]
"""Called with what is being done, how many parts of it are done, and how many there are."""


def quiet(what: str, done: int, of: int) -> None:
    """Do nothing; used if nobody watches the progress."""


class Work(NamedTuple):
    """Time and memory that a task used, for the run log, which depends on the data and stays internal."""

    part: PlacePart | None
    seconds: float
    core_seconds: float
    peak: int


class PartTask(Protocol):
    """A task that is carried out on every part of a layer of the tree."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the task was carried out on a part before."""
        ...

    def __call__(self, part: PlacePart) -> Work: ...


@dataclass
class Log:
    """Timings of a run by task; they depend on the data and stay internal.

    Attributes
    ----------
    watch
        Called with what is being done.
    before
        Called before each stage; what it raises ends the run.
    entries, notes
        Time and memory of each stage in every attempt, and other notes on the run.
    attempt
        Number of this attempt at the run, from 1.
    """

    watch: Watch = quiet
    before: Callable[[], None] = lambda: None
    entries: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    _file: Path | None = None

    def go_on(self, path: Path) -> None:
        """Also write the entries to a file from now on, after the entries of earlier attempts."""
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
        """Announce a stage of the run, and record the time that the block takes."""
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
        """Carry out a task on the parts that are left, and log it; call `told` with each result."""
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


PRIVATE = ("input", "contribution")
"""Notes on a run's data that only the keeper may see."""


def read_under(account: Account, reservation: Reservation, log: Log, read: Callable[[], None]) -> None:
    """Read confidential rows. If they are refused, count the refusal and reveal at most the broken rule.

    Raises
    ------
    TrueupError
        If a rule does not hold; the message names it or says only that one does not.
    """
    seen, log.watch = log.watch, _in_one(log.watch)
    found: Exception | None = None
    try:
        read()
    except (BudgetError, BusyError):
        raise
    except Exception as error:  # whatever it is, that it was raised depends on the rows
        found = error
    finally:
        log.watch = seen
    if found is not None:
        raise _counted(found, account, reservation)  # outside the clause: with no context that quotes a row
    facts = {name: log.notes.pop(name) for name in PRIVATE if name in log.notes}
    if facts:
        account.note(reservation.name, **facts)


def _in_one(watch: Watch) -> Watch:
    """Return a progress function that names the stage but not the part, which would reveal where a fault is."""
    return lambda what, done, of: None if done else watch(what, 0, 1)


def _counted(error: Exception, account: Account, reservation: Reservation) -> Exception:
    """Count a refusal in the ledger, note it for the keeper, and return the error that the analyst may see."""
    known = error if isinstance(error, TrueupError) else None
    named = reservation.refuse(known.about if known else "")
    account.note(reservation.name, refused=str(error) if known else type(error).__name__)
    if isinstance(
        error, MemoryError | ResourceError | OSError
    ):  # says nothing of the rows but that they are many
        return error
    if known is not None and named is not None and named.is_rule and not named.rule:
        return known  # it names rules alone
    return _told(named)


def _told(named: Question | None) -> DataError:
    if named is None:
        return DataError(
            "the confidential table cannot be read, or does not agree with the spec; the fault is not shown, because "
            "it would reveal data",
            needed="a table and a spec that agree; this refusal counts as a check of the data",
            remedy="ask the keeper of the ledger, who finds the fault in the private log (refusals.jsonl)",
        )
    return DataError(
        f"the confidential table does not satisfy this rule: {named.text}",
        needed="a table and a spec that agree; this answer counts as a check of the data",
        remedy="correct the table or the spec; the keeper of the ledger finds the place in the private log (refusals.jsonl)",
    )
