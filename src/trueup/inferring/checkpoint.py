"""Checkpoints of Markov chains: a killed run resumes from them, and gives the draws of an uninterrupted one.

Each chain writes a file at every checkpoint: what it drew since the last one, where it is, and its generator. The folder also
says which run it belongs to: the digest of all that draws depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
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
from trueup.version import __version__

KEY = "run.json"


def key_of(*parts: Any) -> str:
    """Return a digest of what draws depend on: arrays by their bytes, all else by repr, and the version."""
    digest = hashlib.sha256(__version__.encode())
    for part in parts:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return digest.hexdigest()


class Saved(NamedTuple):
    """A chain's saved state: how many draws it had made, and its arrays."""

    draws: int
    arrays: dict[str, NDArray]


@dataclass(eq=False)
class Checkpoint:
    """The checkpoints of one run of chains.

    Attributes
    ----------
    folder
        Where they stand; its owner alone may read it. Whoever asked for the draws removes it.
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
        """Open the checkpoints of a folder, or begin new ones.

        Raises
        ------
        BundleError
            If it holds something else than checkpoints of this run, or is a link or another user's.
        """
        with writing(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            _refuse_others(folder)
            if not any(folder.iterdir()):
                replace_whole(folder / KEY, json.dumps({"run": key}), private=True)
        if _record(folder).get("run") != key:
            raise BundleError(
                f"'{folder}' holds the chains of another run",
                needed="the same values, method, number of draws and version of trueup, or a new folder",
                remedy="remove it, or move it away",
            )
        return cls(folder)

    def due(self, chain: int) -> bool:
        """Return True if it is time for a chain's next checkpoint."""
        return time.monotonic() >= self.last.get(chain, -np.inf) + self.every

    def save(self, run: str, chain: int, done: int, rng: np.random.Generator, **arrays: NDArray) -> None:
        """Write a chain's next checkpoint, whole or not at all, after so many draws of a run."""
        path = self.folder / f"{run} {chain} {done:09d}.npz"
        with replacing(path, private=True) as part, part.open("wb") as file:
            np.savez(file, rng=np.array(json.dumps(rng.bit_generator.state)), **arrays)  # pyright: ignore
        self.last[chain] = time.monotonic()

    def load(self, run: str, chain: int, rng: np.random.Generator) -> list[Saved]:
        """Return a chain's saved states of a run in the order of its draws, and restore its generator."""
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
        """Return the run that all chains have begun; empty before."""
        return str(_record(self.folder).get("begun", ""))

    def begin(self, run: str) -> None:
        """Record that all chains have begun a run, and remove what the one before left."""
        replace_whole(self.folder / KEY, json.dumps(_record(self.folder) | {"begun": run}), private=True)
        with writing(self.folder):
            for path in self.folder.glob("*.npz"):
                if not path.name.startswith(f"{run} "):
                    path.unlink()


def _arrays(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a checkpoint; they are unpacked, so that none is larger than its file."""
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
            remedy="remove the folder that it is in; the run begins anew",
        ) from None


def _refuse_others(folder: Path) -> None:
    """Refuse a folder that somebody else may have filled."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise BundleError(
            f"'{folder}' is a link, no folder, or another user's", remedy="remove it, or choose another --out"
        )


def _record(folder: Path) -> dict[str, str]:
    """Return a folder's record: its run, and the run that all chains have begun; empty if unreadable."""
    try:
        held = json.loads((folder / KEY).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
