"""The command as a whole process: processor seconds of this checkout's, and of a previous version's beside it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Case, Harness, Run

HERE = Path(__file__).parents[1]


def program(root: Path, *arguments: object) -> Run:
    """Return what runs Python with the trueup of a checkout, or of a folder that it was installed to; it returns 0."""
    command, environment = _called(root, arguments)

    def run() -> float:
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return 0.0  # nothing to compare: what it prints is fixed, or holds fresh noise

    return run


def peak_of_program(root: Path, *arguments: object) -> float:
    """Peak resident memory in MB of Python with that trueup, of the whole process."""
    command, environment = _called(root, arguments)
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"the run that measures memory failed: {' '.join(command)}")
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def _called(root: Path, arguments: Sequence[object]) -> tuple[list[str], dict[str, str]]:
    environment = os.environ | {"PYTHONPATH": str(folder_of(root))}
    # pip compiles what it installs, so that a checkout may be compiled, too
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return [sys.executable, *map(str, arguments)], environment


def folder_of(root: Path) -> Path:
    """The folder that holds the package `trueup` of a checkout, or of a folder that it was installed to."""
    folder = root / "src" if (root / "src" / "trueup").is_dir() else root
    if not (folder / "trueup").is_dir():
        raise SystemExit(
            f"there is no trueup in '{root}': give a checkout, or a folder made by pip install --target"
        )
    return folder


def processor_seconds() -> float:
    """Processor time of all child processes so far, of the user and of the system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare_programs(
    harness: Harness, case: str, arguments: Callable[[], list[object]], others: dict[str, Run] | None = None
) -> Iterator[Case]:
    """Compare processor seconds with the previous version's and with other programs'.

    `arguments` gives those of one run.
    """
    previous = harness.previous
    peers: dict[str, Run | str] = {**(others or {})}
    peers["the previous version"] = (
        (lambda: program(previous, *arguments())()) if previous else "name it by --previous"
    )
    for peer in filter(callable, peers.values()):
        peer()  # compiled code is kept from here on
    ours: Run = lambda: program(HERE, *arguments())()  # noqa: E731
    yield from harness.compare(case, ours, peers, memory=False, clock=processor_seconds)
