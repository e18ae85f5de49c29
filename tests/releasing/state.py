"""A small state whose release by blocks has three layers, for all tests of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas

from trueup.ledger.questions import invariants
from trueup.ledger.request import Terms
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import run_path

SPEC = """
format = 2
title = "A small state"
table = { name = "small", kind = "records", counts = "person" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [
  { name = "state" }, { name = "county", column = "block", prefix = 1 }, { name = "tract", column = "block", prefix = 2 },
  { name = "block", column = "block" },
]
attribute = [{ name = "race", values = ["r0", "r1", "r2"] }, { name = "age", values = ["young", "old"] }]

[[query]]
name = "total"
noise = "discrete-gaussian"
rho = { county = "1/100", tract = "1/100" }

[[query]]
name = "race"
attributes = ["race"]
noise = "discrete-gaussian"
rho = { state = "1/100", block = "1/100" }

[[query]]
name = "detailed"
attributes = ["race", "age"]
noise = "discrete-gaussian"
rho = { state = "1/100", county = "1/100", tract = "1/100", block = "1/100" }

[constraints]
invariants = [{ level = "state" }]
zeros = [{ race = "r2", age = "young" }]
bounds = [{ level = "tract", attributes = ["race"], where = { race = "r0" }, lower = 1 }]
"""
MOST = 6
"""Places of a bundle at which this state is cut twice."""
BLOCKS = [f"{county}{tract}{block}" for county in "012" for tract in "012" for block in "0123"][:-2]
"""The last tract has two blocks, the others four."""
_CELLS = public_cells(parse_spec(SPEC), geography=pandas.DataFrame({"block": BLOCKS}))
TERMS = Terms("person", "add-remove", {q.text: q.digest for q in invariants(parse_spec(SPEC), _CELLS)})
"""What its account is kept under."""


def write_state(folder: Path, *, spec: str = SPEC) -> dict[str, Path]:
    """Write spec, places and records; return their paths by the names of the release's arguments."""
    rng = np.random.default_rng(8)
    cells = [("r0", "young"), ("r0", "old"), ("r1", "young"), ("r1", "old"), ("r2", "old")]
    people = [(b, *cells[rng.integers(5)]) for b in BLOCKS for _ in range(rng.integers(0, 9))]
    paths = {
        "spec": folder / "spec.toml",
        "data": folder / "people.csv",
        "geography": folder / "blocks.csv",
    }
    paths["spec"].write_text(spec)
    paths["data"].write_text("block,race,age\n" + "".join(f"{','.join(row)}\n" for row in people))
    paths["geography"].write_text("block\n" + "".join(f"{b}\n" for b in BLOCKS))
    return paths


def copy_of(run: Path, place: Path) -> Path:
    """A copy of an interrupted run that goes elsewhere and asks no ledger."""
    copied = run_path(place / "undisturbed")
    shutil.copytree(run, copied)
    folder = RunFolder(copied)
    changed = {"out": str(place / "undisturbed"), "account": None}
    folder.write_plan(folder.spec_text, folder.plan | changed)
    return copied
