"""The command `trueup`, run in the process of the tests."""

from __future__ import annotations

import contextlib
import io
import sys
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
