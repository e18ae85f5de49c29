"""The demonstration, which releases made-up tables of a synthetic geography from spec to report.

Here too: the smallest useful specs, for the examples in docstrings: two areas and their total.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from trueup.demo.synthetic import synthetic_blocks
from trueup.files.target import refuse_occupied
from trueup.files.writing import write_csv
from trueup.model.records.release import Release
from trueup.model.spec import Spec, parse_spec
from trueup.releasing.pipeline import release

TABLES = ("blocks", "children")
"""Names of the demonstration's specs and tables."""


def run_demo(folder: Path, tell: Callable[[str], None] = lambda stage: None) -> dict[str, Release]:
    """Write the tables and specs of the demonstration into a new folder, and release them.

    The tables are synthetic and seeded; the noise is not: it is fresh on every run.

    Raises
    ------
    BundleError
        If the folder already holds something.
    """
    refuse_occupied(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "blocks.csv", synthetic_blocks())
    packaged = files("trueup.demo")
    (folder / "children.csv").write_text((packaged / "children.csv").read_text())
    released = {}
    for name in TABLES:
        spec = folder / f"{name}.toml"
        spec.write_text((packaged / f"{name}.toml").read_text())
        released[name] = release(
            spec,
            folder / f"{name}.csv",
            folder / name,
            watch=lambda stage, done, of, name=name: None if done else tell(f"{name}: {stage}"),
        )
    return released


_AREAS = """
format = 2
title = "Two areas"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
"""


def _areas(*rest: str) -> Spec:
    return parse_spec(_AREAS + "\n".join(rest))


AREAS = _areas('query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]')
"""Half of epsilon for the total, half for the areas."""
AREAS_RHO = _areas(
    'query = [{ name = "total", noise = "discrete-gaussian", rho = { all = "1/2", area = "1/2" } }]'
)
"""The same with discrete Gaussian noise."""
AREAS_BY_SEX = _areas(
    'attribute = [{ name = "sex", values = ["f", "m"] }]',
    'query = [{ name = "detailed", attributes = ["sex"], epsilon = { all = "1/2", area = "1/2" } }]',
)
"""Counts by sex."""
