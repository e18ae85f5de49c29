"""Honest files of every kind that may come from elsewhere, small and with much in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas

import trueup
from tests.files import test_opendocument as ods
from tests.io.nmf_writer import write_nmf
from trueup.inferring.chains import Checkpoint, key_of
from trueup.io.bundle.posterior import write_posterior
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.problem import public_cells
from trueup.model.records.drawn import Drawn
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.spec import parse_spec
from trueup.noise import law_named
from trueup.releasing.again import assess_table, reconcile_published
from trueup.releasing.pipeline import measure_only

GOLDEN = Path(__file__).parents[1] / "golden"
SDHC = Path(__file__).parents[2] / "examples" / "sdhc"
SPEC = """
format = 2
title = "People by sex and age"
table = { name = "people", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }

[[level]]
name = "all"
[[level]]
name = "county"
column = "block"
prefix = 1
[[level]]
name = "block"
column = "block"

[[attribute]]
name = "sex"
values = ["f", "m"]
[[attribute]]
name = "age"
values = ["0-17", "18-64", "65+"]
recode = [{ name = "adult", groups = { child = ["0-17"], adult = ["18-64", "65+"] } }]

[[query]]
name = "total"
noise = "discrete-gaussian"
rho = { county = "0.125" }
[[query]]
name = "detail"
attributes = ["sex", "age"]
noise = "discrete-gaussian"
rho = { block = "1/2" }
[[query]]
name = "adults"
attributes = ["adult"]
noise = "discrete-gaussian"
rho = { county = "1/8", block = "1/16" }

[constraints]
invariants = [{ level = "all", attributes = ["sex"] }]
zeros = [{ sex = "m", age = "65+" }]
linear = ["f <= 100000"]
bounds = [{ level = "block", lower = 0, upper = "most" }]
"""
PERTURBED = """
format = 1
title = "Districts"
table = { name = "demo", counts = "person" }
level = [{ name = "all" }, { name = "district", column = "district" }]
attribute = [{ name = "sex", values = ["f", "m"] }]

[[published]]
name = "by sex"
level = "district"
attributes = ["sex"]
count = "n"
total = "T"
law = { name = "random-rounding", base = 3 }
codes = { "*" = "1-4", ".." = "unknown" }
"""
FAMILY = (
    SPEC.split("[[query]]")[0]
    + """
[[query]]
name = "by sex"
attributes = ["sex"]
noise = "discrete-gaussian"
rho = { block = "1/2" }
[[query]]
name = "by age"
attributes = ["age"]
noise = "discrete-gaussian"
rho = { county = "1/2" }
"""
)
POINTERS = """
format = 2
title = "Places by parent pointers"
table = { name = "people", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county" }, { name = "block" }]
parents = { id = "block", parent = "parent" }
query = [{ name = "total", noise = "discrete-gaussian", rho = { block = "1/2" } }]
constraints = { bounds = [{ level = "block", upper = "most" }] }
"""
NOISY = """
format = 2
title = "Noisy measurements"
table = { name = "pl94", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "US" }, { name = "State", column = "geocode", prefix = 3 }, { name = "County", column = "geocode" }]
attribute = [{ name = "votingage", values = ["under", "over"] }]
query = [{ name = "total", levels = ["State"], rho = 1 },
         { name = "by age", attributes = ["votingage"], levels = ["County"], rho = 1 }]
"""
BLOCKS = ["a1", "a2", "b1", "b2", "b3"]


def places() -> pandas.DataFrame:
    """The public places of `SPEC`."""
    return pandas.DataFrame({"block": BLOCKS, "most": [500, 500, 900, 900, 900]})


def table() -> pandas.DataFrame:
    """A table of counts for `SPEC`."""
    keys = [
        (b, s, a) for b in BLOCKS for s in "fm" for a in ("0-17", "18-64", "65+") if (s, a) != ("m", "65+")
    ]
    counts = [10 + 7 * k % 41 for k in range(len(keys))]
    return pandas.DataFrame(keys, columns=["block", "sex", "age"]).assign(n=counts)


def published() -> pandas.DataFrame:
    """A table for `PERTURBED`."""
    keys = [(d, s) for d in "abc" for s in "fmT"]
    held = ["3", "*", "9", "6", "12", "18", "..", "0", "6"]
    return pandas.DataFrame(keys, columns=["district", "sex"]).assign(n=held)


def write_honest(folder: Path) -> None:
    """Write one of each kind: bundles, an assessment, specs, a workbook, tables in Parquet and CSV, shapes, checkpoints."""
    spec = parse_spec(SPEC)
    trueup.release(spec, table(), folder / "release", geography=places())
    trueup.release(spec, table(), folder / "release again", geography=places())
    trueup.release(parse_spec(FAMILY), table(), folder / "family", geography=places())
    measure_only(spec, table(), folder / "measured", geography=places())
    shutil.copytree(GOLDEN / "0.1.0-parts", folder / "parts")
    (folder / "perturbed.toml").write_text(PERTURBED)
    reconcile_published(folder / "perturbed.toml", [published()], folder / "published")
    assess_table(
        spec, table(), folder / "assessment", geography=places(), public_truth=True, replicates=40, seed=1
    )
    for name, text in (("spec", SPEC), ("family", FAMILY), ("pointers", POINTERS), ("nmf", NOISY)):
        (folder / f"{name}.toml").write_text(text)
    published().to_excel(folder / "table.xlsx", index=False)
    cells = [published().columns.tolist(), *published().values.tolist()]
    rows = "".join(ods.row(*map(ods.text, map(str, line))) for line in cells)
    ods.written(folder, {"table": rows}, name="table.ods")
    published().to_csv(folder / "table.csv", index=False)
    table().to_parquet(folder / "table.parquet")
    places().to_parquet(folder / "places.parquet")
    places().to_csv(folder / "places.csv", index=False)
    pointers = {
        "block": ["all", "a", "b", *BLOCKS],
        "parent": ["", "all", "all", *"aabbb"],
        "most": [900] * 8,
    }
    pandas.DataFrame(pointers).to_csv(folder / "pointers.csv", index=False)
    crosswalk = pandas.DataFrame({"before": BLOCKS, "after": ["a1", "a2", "b1", "b3", "b2"]})
    crosswalk.to_csv(folder / "crosswalk.csv", index=False)
    crosswalk.to_parquet(folder / "crosswalk.parquet")
    _write_census(folder)
    pandas.DataFrame({"area": ["x", "x", "y"], "block": ["a1", "b1", "b2"]}).to_parquet(
        folder / "map.parquet"
    )
    square = {"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [0, 0]]]}
    features = [{"type": "Feature", "properties": {"block": b}, "geometry": square} for b in BLOCKS]
    (folder / "shapes.json").write_text(_json({"type": "FeatureCollection", "features": features}))
    _write_chains(folder / "chains")
    _write_posterior(folder / "posterior")


def _write_posterior(folder: Path) -> None:
    cells = public_cells(parse_spec(SPEC), geography=places())
    draws = np.random.default_rng(3).integers(0, 50, (2, 20, cells.n))
    stats = {"doubt": "Few counts.", "prior": {"estimates": [], "doubts": ["One level."]}}
    drawn = Drawn(draws, independent=False, stats=stats, connected=True)
    method = {"method": "histogram-gibbs", "prior": {"name": "hierarchical", "concentrations": [1.0]}}
    write_posterior(folder, Posterior(cells, drawn, method, "ab" * 32))


def _write_census(folder: Path) -> None:
    rng = np.random.default_rng(5)
    shutil.copy(SDHC / "ph4.toml", folder / "sdhc.toml")
    rows = [
        f"{region}|STATE|{iteration}|{cell}|{rng.integers(-3, 90)}|Discrete Gaussian|144"
        for region in ("01", "44")
        for iteration in "AH"
        for cell in (2, 3)
    ]
    head = "REGION_ID|REGION_TYPE|ITERATION_CODE|PH4_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE"
    (folder / "sdhc.csv").write_text("\n".join([head, *rows, ""]))
    spec = parse_spec(NOISY)
    cells = public_cells(
        spec, pandas.DataFrame({"geocode": ["044001", "044003"], "votingage": "over", "n": 0})
    )
    law = law_named("discrete-gaussian")("9/4")
    margins = [Margin("State"), Margin("County", ("votingage",)), Margin("US")]
    headers = tuple(Measured("q", margin, law) for margin in margins[:2])
    headers += (Measured("invariant", margins[2], law_named("exact")()),)
    values = tuple(rng.integers(-3, 90, cells.size(margin)) for margin in margins)
    write_nmf(folder / "nmf", spec, Measurements(cells, headers, values, PUBLISHED))


def _write_chains(folder: Path) -> None:
    keep, rng = Checkpoint.of(folder, key_of("fuzz")), np.random.default_rng(1)
    for done in (2, 4):
        keep.save("run", 0, done, rng, draws=np.arange(8).reshape(2, 4), where=np.array([1.0, 2.0]))
    keep.begin("run")


def _json(held: object) -> str:
    import json

    return json.dumps(held)
