"""`trueup infer` of counties and of blocks, the whole command: processor seconds, and peak memory of the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from benchmarks._programs import HERE, compare_programs, peak_of_program, program
from benchmarks.harness import Case, Harness
from benchmarks.release import EXAMPLES, table

GIVEN = '[infer]\nprior = { name = "hierarchical", concentrations = [1.0, 3.0, 10.0, 0.7] }\n'
PRIORS = {"us-counties.toml": {"estimated": ""}, "blocks.toml": {"given": GIVEN, "estimated": ""}}
"""What is added to each example's spec."""


def cases(harness: Harness) -> Iterator[Case]:
    """The prior estimated from the noisy values, or its concentrations given; 1,000 draws are written."""
    alone = replace(harness, previous=None)  # a previous version need not read bundles of this one
    with tempfile.TemporaryDirectory() as folder:
        runs = count()
        for spec, name in EXAMPLES.items():
            data = table(name, Path(folder))
            for prior, more in PRIORS[spec].items():
                bundle = _released(Path(folder), spec, more, data)

                def arguments(bundle=bundle) -> list[object]:
                    out = Path(folder) / f"posterior-{next(runs)}"
                    return ["-m", "trueup", "infer", bundle, "--out", out]

                title = f"{spec.removesuffix('.toml')}, prior {prior}"
                for case in compare_programs(alone, title, arguments):
                    yield {**case, "peak_mb": peak_of_program(HERE, *arguments())}


def _released(folder: Path, example: str, more: str, data: Path) -> Path:
    """Release an example with something added to its spec."""
    spec, out = folder / f"{len(more)}-{example}", folder / f"{len(more)}-{example}-released"
    spec.write_text(f"{(HERE / 'examples' / example).read_text()}\n{more}")
    program(HERE, "-m", "trueup", "release", spec, "--data", data, "--out", out)()
    return out
