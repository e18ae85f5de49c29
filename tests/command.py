"""The command `trueup`, run in the process of the tests, and by whom."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """What a command printed and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments) -> Done:
    """Run `trueup` in this process, as its entry point does."""
    from trueup.cli import main

    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["trueup", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        return Done(int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = argv
    return Done(0, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write everywhere: step back from it."""
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        yield
    finally:
        os.seteuid(before)
