"""`trueup release` of counties and of blocks, the whole command, in processor seconds with compiled code kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pandas

from benchmarks._programs import HERE, compare_programs
from benchmarks._trees import SHAPES
from benchmarks.harness import Case, Harness

EXAMPLES = {"us-counties.toml": "us_counties_2010.csv", "blocks.toml": "ri_blocks_2010.csv.gz"}


def cases(harness: Harness) -> Iterator[Case]:
    """The tables of 2010 if `TRUEUP_TEST_DATA` names them, else made-up ones of equal size."""
    with tempfile.TemporaryDirectory() as folder:
        runs = count()
        for spec, name in EXAMPLES.items():
            data = table(name, Path(folder))

            def arguments(spec=spec, data=data) -> list[object]:
                out = Path(folder) / f"{next(runs)}"
                return ["-m", "trueup", "release", HERE / "examples" / spec, "--data", data, "--out", out]

            title = f"{spec.removesuffix('.toml')}{', made up' if data.is_relative_to(folder) else ''}"
            yield from compare_programs(harness, title, arguments)


def table(name: str, folder: Path) -> Path:
    """The table of 2010, or one made up in a folder."""
    real = Path(os.environ.get("TRUEUP_TEST_DATA") or ".") / name
    return real if real.exists() else made_up(folder / name)


def made_up(file: Path) -> Path:
    """Write a table of 3,143 counties or of 25,181 blocks."""
    rng = np.random.default_rng(0)
    table = _blocks(rng) if "blocks" in file.name else _counties(rng)
    table.to_csv(file, index=False)
    return file


def _counties(rng: np.random.Generator) -> pandas.DataFrame:
    n = SHAPES[6_300_000][2]
    state, county = np.sort(rng.integers(0, 51, n)).astype(str), np.arange(n).astype(str)
    people = rng.lognormal(10.2, 1.4, n).astype(int)
    return pandas.DataFrame(
        {"state": state, "state_name": state, "county": county, "county_name": county, "pop": people}
    )


def _blocks(rng: np.random.Generator) -> pandas.DataFrame:
    n = 25_181
    tract, group, block = np.sort(rng.integers(0, 244, n)), rng.integers(1, 5, n), np.arange(n) % 1000
    code = [f"44{t % 5:03d}{t:06d}{g}{b:03d}" for t, g, b in zip(tract, group, block)]
    people = (rng.lognormal(3.2, 1.2, n) * (rng.random(n) > 0.35)).astype(int)
    return pandas.DataFrame({"GEOID": code, "pop": people}).drop_duplicates("GEOID")
