"""What it takes to import the package and to print help, in processor seconds of whole processes."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks._programs import HERE, compare_programs, program
from benchmarks.harness import Case, Harness


def cases(harness: Harness) -> Iterator[Case]:
    numpy = {"import numpy": program(HERE, "-c", "import numpy")}
    yield from compare_programs(harness, "import trueup", lambda: ["-c", "import trueup"], numpy)
    yield from compare_programs(harness, "trueup --help", lambda: ["-m", "trueup", "--help"])
