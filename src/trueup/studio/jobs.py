"""Jobs of the studio: processes that outlive the server, of which none is started twice for one task.

A job is a folder: `job.json` (what to do), `progress.json` (how far it is, and how it ended), `lock` (held while it lives).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.errors import BundleError
from trueup.files.writing import replace_whole

MAX_STOPPING_SECONDS = 10.0
"""Seconds in which a process that is asked to end may do so by itself."""
STOPPED, ENDED = "It was stopped.", "The process ended before its work was done."


@dataclass(frozen=True)
class Job:
    """A job of the studio, kept in a folder of its own."""

    folder: Path

    @property
    def name(self) -> str:
        """Return the name of the job, which is used in web addresses."""
        return self.folder.name

    @property
    def alive(self) -> bool:
        """Return True if the process of the job still runs, judged by its lock."""
        try:
            with (self.folder / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @property
    def task(self) -> dict[str, Any]:
        """Return the task of the job: its kind, and the arguments with which it was started."""
        return _read(self.folder / "job.json")

    @property
    def result(self) -> dict[str, Any] | None:
        """Return the result of the job, or None before there is one."""
        return _read(self.folder / "result.json") or None

    @property
    def progress(self) -> dict[str, Any]:
        """Return the progress of the job: `state` (running, done, failed, ended), `stage`, `done`, `of`, `error`."""
        found = {
            "state": "running",
            "stage": "starting",
            "done": 0,
            "of": 0,
            **_read(self.folder / "progress.json"),
        }
        if (
            found["state"] == "running"
            and not self.alive
            and not _read(self.folder / "progress.json").get("final")
        ):
            again = _read(self.folder / "progress.json")  # it may have ended between the two looks
            found |= (
                again
                if again.get("final")
                else {"state": "ended", "error": STOPPED if (self.folder / "stopped").exists() else ENDED}
            )
        return found

    def stop(self) -> None:
        """Stop the job; a loss that was charged for drawn noise stays charged.

        The process leads a group of its own, whose number is its own. It lives while its lock is held, so that no other
        process can have that number.
        """
        threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        group = _read(self.folder / "process.json").get("group")
        for end, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
            if group is None or not self.alive:
                return
            with suppress(OSError):
                (self.folder / "stopped").touch()
                end(group, number)
            until = time.monotonic() + MAX_STOPPING_SECONDS
            while self.alive and time.monotonic() < until:
                time.sleep(0.1)

    def report(self, **progress: Any) -> None:
        """Record the progress of the job."""
        with suppress(BundleError):
            replace_whole(self.folder / "progress.json", json.dumps(progress), private=True)


def start(folder: Path, kind: str, task: dict[str, Any], *, again: bool = False) -> Job:
    """Start a job for a task, or return the one that was started before for the same task.

    The folder is made first, and only by one: of two requests for the same task one starts a process.
    """
    text = json.dumps({"kind": kind, **task}, sort_keys=True)
    name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    job = Job(folder / "jobs" / name)
    job.folder.parent.mkdir(mode=0o700, exist_ok=True)
    if again and job.folder.exists() and not job.alive and job.progress["state"] != "done":
        number = sum(1 for _ in job.folder.parent.glob(f"{name}.ended-*"))
        with suppress(OSError):
            job.folder.rename(job.folder.with_name(f"{name}.ended-{number}"))
    try:
        job.folder.mkdir(mode=0o700)
    except FileExistsError:
        return job
    lock = os.open(job.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:  # the child inherits the lock, so that it is held from the first moment to its last
        fcntl.flock(lock, fcntl.LOCK_EX)
        replace_whole(job.folder / "job.json", text, private=True)
        process = subprocess.Popen(  # what it may print is kept nowhere: a message may quote data
            [sys.executable, "-m", "trueup.studio.job", str(job.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock,),
        )
        replace_whole(job.folder / "process.json", json.dumps({"group": process.pid}), private=True)
        threading.Thread(target=process.wait, daemon=True).start()  # or it would stay as a defunct process
    finally:
        os.close(lock)
    return job


def find(folder: Path, name: str) -> Job | None:
    """Return the job with a given name, or None."""
    return next((job for job in every(folder) if job.name == name), None)


def newest(folder: Path, kind: str, **task: str) -> Job | None:
    """Return the newest job of a kind for a task, or None."""
    return next((job for job in every(folder) if {"kind": kind, **task}.items() <= job.task.items()), None)


def every(folder: Path) -> list[Job]:
    """Return all jobs of a project, the newest first."""
    jobs = folder / "jobs"
    found = [path for path in jobs.iterdir() if (path / "job.json").exists()] if jobs.is_dir() else []
    return [Job(path) for path in sorted(found, key=lambda path: -path.stat().st_mtime)]


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
