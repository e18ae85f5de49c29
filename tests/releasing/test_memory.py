"""Memory: what the places of a nation take in the driver, and whole trees within the `--memory` that the engine is chosen by."""

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

HOME = Path(__file__).parents[2]
BLOCK = """
printf('%02d%03d%06d%d%03d', i // 160000, i // 1600 % 100, i // 40 % 40, 1 + i % 40 // 10, i % 10)
"""
"""The code of a block: its state, county, tract, and block of one of four groups, as long as those of the census."""
PLANNING = """
import sys
from pathlib import Path
from trueup.files.memory import peak_bytes
from trueup.model.problem import Problem
from trueup.releasing.engine import plan_of
from trueup.releasing.start import Settings, begin
from trueup.run.local import LocalPool
spec, places, out = sys.argv[1:]
problem = Problem.of(spec, places)
settings = Settings.of(LocalPool(2, memory=64 * 10**9), None, problem.cells.tree)
begin(problem, *plan_of(problem), places, Path(out), places, None, settings)
print(peak_bytes())
"""
COUNTED = """
format = 2
title = "Persons by block"
table = { name = "blocks", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [
  { name = "nation" },
  { name = "state", column = "geocode", prefix = 2 },
  { name = "county", column = "geocode", prefix = 5 },
  { name = "tract", column = "geocode", prefix = 11 },
  { name = "block", column = "geocode" },
]

[[query]]
name = "total"
noise = "discrete-gaussian"
rho = { nation = "1/10", state = "1/10", county = "1/10", tract = "1/10", block = "1/10" }
"""


def write_blocks(path: Path, count: int, more: str = "") -> Path:
    """A list of so many blocks, in Parquet."""
    duckdb.sql(f"COPY (SELECT {BLOCK} AS geocode{more} FROM range({count}) t(i)) TO '{path}'")
    return path


def child(*arguments: object) -> tuple[str, int]:
    """What a Python process prints, and the largest memory that it had (bytes)."""
    environment = {**os.environ, "PYTHONPATH": str(HOME / "src")}
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        said = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return said, 1024 * used.ru_maxrss


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most"), [(500_000, 500e6), (2_000_000, 1.4e9)])
def test_the_places_of_a_nation_are_planned_in_little_memory(tmp_path, count, most):
    places = write_blocks(tmp_path / "places.parquet", count)
    said, _ = child("-c", PLANNING, HOME / "examples" / "pl94.toml", places, tmp_path / "out")
    print(f"{count:,} places: {int(said) / 1e6:.0f} MB")
    assert int(said) < most


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("count", "memory"), [(1_000_000, "1GB"), (5_000_000, "4GB")])
def test_a_tree_is_released_within_the_memory_that_the_engine_was_chosen_by(tmp_path, count, memory):
    blocks = write_blocks(tmp_path / "blocks.parquet", count, ", (hash(i) % 100)::BIGINT AS n")
    (tmp_path / "spec.toml").write_text(COUNTED)
    given = ("--data", blocks, "--out", tmp_path / "out", "--memory", memory)
    _, peak = child("-m", "trueup", "release", tmp_path / "spec.toml", *given)
    print(f"{count:,} places, --memory {memory}: {peak / 1e6:.0f} MB")
    assert peak < float(memory.removesuffix("GB")) * 1e9
