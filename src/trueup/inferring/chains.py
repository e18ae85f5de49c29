"""Common code of Markov chains that run in parallel threads: time limits, checkpoints, diagnostics and thinning.

A killed run resumes from its checkpoints, and gives the draws of an uninterrupted one. Each chain writes a file at every
checkpoint: the draws since the last one, its state, and its random generator. The folder also records the run: the digest of
everything that draws depend on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import escape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.writing import replace_whole, replacing, writing
from trueup.inferring.method import Progress
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.model.prior import Hierarchical
from trueup.run import Deadline, cores
from trueup.version import __version__

AIMED_EFFECTIVE_SIZE = 400.0
"""Effective size of every watched number at which chains are not made longer."""
MIN_DIAGNOSED_DRAWS = 1000
"""Draws that the diagnostics rest on, at least."""
START_NOISE_DEVIATIONS = 1.0
"""Noise added to the noisy values at the starts of chains, in its own standard deviations, so that chains start apart."""
MAX_DRAWS_DIAGNOSED_AT_ONCE = 1 << 22
"""Draws of counts that are diagnosed at a time."""
SECONDS_BETWEEN_INTERRUPT_CHECKS = 0.2
"""Seconds between two looks at an interruption."""


def refuses_settings(prior: Hierarchical, of: str, chains: int = 2) -> str | None:
    """Return why a prior's settings or the number of chains are unsuitable, or None if they are suitable."""
    if prior.total.name != "flat":
        return "it supports only a flat prior of the total"
    if len(prior.concentrations) not in (0, 2):
        return f"it needs two concentrations: one of totals and one of {of}"
    return "it compares chains, so it needs two or more" if chains < 2 else None


class OutOfTimeError(Exception):
    """Chains that stopped because their time was spent; the caller decides how to go on."""


@dataclass
class ChainLimit:
    """The time limit of chains.

    Attributes
    ----------
    deadline
        In wall time.
    processor
        Seconds of a processor, all threads together, that they may take from now on.
    """

    deadline: Deadline = field(default_factory=Deadline.of)
    processor: float = math.inf
    began: float = field(default_factory=time.process_time)

    @property
    def passed(self) -> bool:
        """Return True if the deadline or the limit of processor time is reached."""
        return self.deadline.passed or time.process_time() - self.began >= self.processor

    def allows(self, processor: float, chains: int) -> bool:
        """Return True if chains that need `processor` seconds in total can finish in the time left."""
        wall = processor / min(chains, cores())
        return wall <= self.deadline.left() and processor <= self.processor - (
            time.process_time() - self.began
        )


def run_side_by_side(
    walk: Any, chain: Callable[[int], object], done: Sequence[int], each: int, tell: Progress
) -> None:
    """Run Markov chains in parallel threads, and end all of them after an interruption.

    Parameters
    ----------
    walk
        Holds their `limit`, and `stopped`, which chains look at: True once they are to end.
    chain
        Runs the chain of a number.
    done, each
        The sweeps that each has made, which it writes there; how many each makes.
    """
    walk.stopped = False
    if walk.limit.passed:
        raise OutOfTimeError
    with ThreadPoolExecutor(min(len(done), cores())) as pool:
        running = [pool.submit(chain, number) for number in range(len(done))]
        try:
            _listen(running, done, each * len(done), tell, walk.limit)
        except BaseException:  # the other chains would run on
            walk.stopped = True
            raise


def _listen(running: list[Future], done: Sequence[int], of: int, tell: Progress, limit: ChainLimit) -> None:
    """Wait until all chains have finished, and report progress at every twentieth of the run."""
    told = 0
    while True:
        finished, left = wait(running, timeout=SECONDS_BETWEEN_INTERRUPT_CHECKS)
        for each in finished:
            each.result()
        if not left or sum(done) >= told + of / 20:
            told = sum(done)
            tell(told, of)
        if not left:
            return
        if limit.passed:
            raise OutOfTimeError


def diagnosed_in_pieces(values: NDArray) -> tuple[NDArray, NDArray]:
    """Return R-hat and effective sample sizes of draws `(chains, draws, k)`, computed in pieces to save memory."""
    step = max(1, MAX_DRAWS_DIAGNOSED_AT_ONCE // (values.shape[0] * values.shape[1]))
    found = [diagnose(values[:, :, i : i + step]) for i in range(0, values.shape[2], step)]
    r_hat, ess = (np.concatenate(part) for part in zip(*found))
    return r_hat, ess


def thinned(run: NDArray, draws: int) -> NDArray:
    """Return `draws` evenly spaced draws out of `(chains, kept, n)`, or all draws if there are fewer."""
    chains, kept = run.shape[:2]
    each = min(-(-draws // chains), kept)
    if each == kept:  # a copy may be as large as all else
        return run
    return run[:, np.linspace(0, kept - 1, each).round().astype(int)]


def told_in_draws(progress: Progress, draws: int) -> Progress:
    """Return a progress function that reports sweeps as draws."""
    return lambda done, of: progress(done * draws // of, draws)


RUN_FILE = "run.json"


def key_of(*parts: Any) -> str:
    """Return a digest of everything that determines the draws, including the version of trueup."""
    digest = hashlib.sha256(__version__.encode())
    for part in parts:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return digest.hexdigest()


class Saved(NamedTuple):
    """A chain's saved state: its number of draws, and its arrays."""

    draws: int
    arrays: dict[str, NDArray]


@dataclass(eq=False)
class Checkpoint:
    """The checkpoints of one run of chains.

    Attributes
    ----------
    folder
        Folder of the checkpoints, which only its owner can read; the caller that wanted the draws removes it.
    every
        Seconds between two checkpoints of a chain.

    Examples
    --------
    >>> import tempfile
    >>> keep = Checkpoint.of(Path(tempfile.mkdtemp()) / "chains", key_of("demo"))
    >>> keep.save("run", 0, 2, np.random.default_rng(1), draws=np.array([[3], [4]]))
    >>> rng = np.random.default_rng(2)
    >>> keep.load("run", 0, rng)[0].arrays["draws"].tolist(), rng.random() == np.random.default_rng(1).random()
    ([[3], [4]], True)
    """

    folder: Path
    every: float = 60.0
    last: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, key: str) -> Checkpoint:
        """Open the checkpoints in a folder, or start new ones if the folder is empty.

        Raises
        ------
        BundleError
            If it holds something else than checkpoints of this run, or is a link or another user's.
        """
        with writing(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            _refuse_others(folder)
            if not any(folder.iterdir()):
                replace_whole(folder / RUN_FILE, json.dumps({"run": key}), private=True)
        if _record(folder).get("run") != key:
            raise BundleError(
                f"'{folder}' contains the saved draws of another run",
                needed="a new folder, or the values, method, number of draws and version of trueup of that run",
                remedy=f"move '{folder}' away, or choose another one (another --out)",
            )
        return cls(folder)

    def due(self, chain: int) -> bool:
        """Return True if it is time for a chain's next checkpoint."""
        return time.monotonic() >= self.last.get(chain, -np.inf) + self.every

    def save(self, run: str, chain: int, done: int, rng: np.random.Generator, **arrays: NDArray) -> None:
        """Write a chain's next checkpoint completely or not at all; `done` is the number of draws it contains."""
        path = self.folder / f"{run} {chain} {done:09d}.npz"
        with replacing(path, private=True) as part, part.open("wb") as file:
            np.savez(file, rng=np.array(json.dumps(rng.bit_generator.state)), **arrays)  # pyright: ignore
        self.last[chain] = time.monotonic()

    def load(self, run: str, chain: int, rng: np.random.Generator) -> list[Saved]:
        """Return a chain's saved states in a run, in order. Restore the chain's random generator."""
        found, last = [], None
        for path in sorted(self.folder.glob(f"{escape(run)} {chain} *.npz")):
            held = _arrays(path)
            with _undamaged(path):
                last = json.loads(str(held.pop("rng")))
                found.append(Saved(int(path.stem.split()[-1]), held))
        if found:
            with _undamaged(self.folder):
                rng.bit_generator.state = last  # pyright: ignore[reportAttributeAccessIssue]
        return found

    @property
    def run(self) -> str:
        """Return the name of the last run that all chains have begun, or an empty text if there is none."""
        return str(_record(self.folder).get("begun", ""))

    def begin(self, run: str) -> None:
        """Record that all chains have begun a run, and remove the checkpoint files of the run before."""
        replace_whole(self.folder / RUN_FILE, json.dumps(_record(self.folder) | {"begun": run}), private=True)
        with writing(self.folder):
            for path in self.folder.glob("*.npz"):
                if not path.name.startswith(f"{run} "):
                    path.unlink()


def _arrays(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a checkpoint, each limited to the size of its file."""
    with _undamaged(path), ZipFile(path) as held:
        if path.is_symlink() or any(part.compress_type != ZIP_STORED for part in held.infolist()):
            raise ValueError
        parts = {part.filename.removesuffix(".npy"): BytesIO(held.read(part)) for part in held.infolist()}
        return {name: np.lib.format.read_array(part, allow_pickle=False) for name, part in parts.items()}


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Turn any error that a damaged checkpoint causes into a BundleError."""
    try:
        yield
    except Exception:
        raise BundleError(
            f"the checkpoint '{path}' is damaged",
            remedy="remove the folder of this checkpoint; the run then starts again",
        ) from None


def _refuse_others(folder: Path) -> None:
    """Refuse a checkpoint folder that another user may have written to."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise BundleError(
            f"'{folder}' "
            f"{'belongs to another user' if stat.S_ISDIR(found.st_mode) else 'is a symbolic link or a file, not a folder'}",
            needed="a folder of your own, or a new one",
            remedy="remove it, or choose another --out",
        )


def _record(folder: Path) -> dict[str, str]:
    """Return the record of a checkpoint folder: the run's digest, and the last run begun by all chains."""
    try:
        held = json.loads((folder / RUN_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
