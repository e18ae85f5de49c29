"""Runs `trueup` in a fork for every line of arguments: whole runs, without Python's start-up.

Prints the run's process id when it starts, and its exit code when it ends.
"""

import json
import os
import sys

import duckdb  # noqa: F401  (loaded before the fork, like all that follows)

from trueup import cli
from trueup.demo import AREAS
from trueup.reconciling.populations import warm
from trueup.reconciling.tree_topdown import TreeTopDown
from trueup.releasing import pipeline as workflow  # noqa: F401


def run(arguments):
    """Run the command line with these arguments, silently, and end the process."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    sys.argv = ["trueup", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 0)
    os._exit(0)


if __name__ == "__main__":
    warm(AREAS, [], TreeTopDown())
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            run(json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
