"""Tasks whose answers stay in a folder, so that a run that was killed goes on, on whatever engine."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.run.executor import Executor, InTurn, Item, Result
from trueup.run.parts import Parts
from trueup.version import __version__


@dataclass(frozen=True)
class KeptExecutor:
    """An executor that keeps the answer of every task under the digest of the task and its items.

    Whoever gives the same task the same items again is given the answers that stand there, so that a run that was killed is
    begun again, and does what is left. Items go to workers through the folder, some in a file, and a worker that needs none
    does not read them.

    Attributes
    ----------
    executor
        Carries out the tasks.
    folder
        Readable by its owner alone, on a file system that all workers share.
    together
        Items of a file.
    """

    executor: Executor
    folder: Path
    together: int = 1

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Carry out a task on every item; see `Executor.map`."""
        given, done = _given(self.folder), _done(self.folder)
        edges = [*range(0, len(items), self.together), len(items)]

        def name_of(k: int) -> str:
            data = pickle.dumps((__version__, task, [items[at] for at in range(*edges[k : k + 2])]))
            name = hashlib.sha256(data).hexdigest()
            if done.find(name) is None:
                given.commit(name, lambda path: path.write_bytes(data))
            return name

        for k, name in self.executor.map(CarryOut(self.folder), InTurn(name_of, len(edges) - 1)):
            answers = pickle.loads(done.path(name).read_bytes())
            given.forget(name)
            yield from zip(range(*edges[k : k + 2]), answers)


@dataclass(frozen=True)
class CarryOut:
    """A task carried out on the items of a file, unless it was done before."""

    folder: Path

    def __call__(self, name: str) -> str:
        done = _done(self.folder)
        if done.find(name) is None:
            _, task, items = pickle.loads(_given(self.folder).path(name).read_bytes())
            answers: Any = [task(item) for item in items]
            done.commit(name, lambda path: path.write_bytes(pickle.dumps(answers)))
        return name


def _given(folder: Path) -> Parts:
    return Parts(folder / "given", follows=True)


def _done(folder: Path) -> Parts:
    return Parts(folder / "done", follows=True)
