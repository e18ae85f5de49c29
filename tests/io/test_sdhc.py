"""S-DHC files: round trips, tolerance, clear refusals; PH1 to PH8 are specs alone."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from trueup.errors import DataError
from trueup.inferring import infer
from trueup.io.published.sdhc import read_sdhc, write_estimates
from trueup.model.spec import load_spec

EXAMPLES = Path(__file__).parents[2] / "examples" / "sdhc"
TABLES = [f"PH{k}" for k in range(1, 9)]


COUNTIES = ("01001", "01003", "44001", "44003", "44005")


def made_up(folder, table, rng, law="Discrete Gaussian", variance="144", counties=()):
    """Write files in the published layout: two states, or counties with the states that they add up to; two iterations."""
    spec = load_spec(EXAMPLES / ("substate" if counties else "") / f"{table.lower()}.toml")
    iterated = any(level.column == "ITERATION_CODE" for level in spec.levels)
    places = [(state, "STATE", sum(c.startswith(state) for c in counties) or 1) for state in ("01", "44")]
    places += [(county, "COUNTY", 1) for county in counties]
    files = {}
    for cell in spec.table.cells:
        prefix, code = cell.count.split("_")
        middle = "" if prefix == "CELL" else f"_{prefix}"
        head = f"REGION_ID|REGION_TYPE|{'ITERATION_CODE|' if iterated else ''}{table}{middle}_DATA_CELL"
        lines = files.setdefault(middle.lower(), [f"{head}|COUNT|NOISE_DISTRIBUTION|VARIANCE"])
        base = 60 if prefix == "DENOM" else 130
        for (place, kind, many), iteration in product(places, ("*|", "H|") if iterated else ("",)):
            sd, told = (6, "36") if counties and kind == "STATE" else (12, variance)
            noisy = base * many + int(rng.normal(0, sd))
            lines.append(f"{place}|{kind}|{iteration}{code}|{noisy}|{law}|{told}")
    for middle, lines in files.items():
        (folder / f"{table.lower()}{middle}.csv").write_text("\n".join(lines) + "\n")
    return spec, [folder / f"{table.lower()}{middle}.csv" for middle in files]


def published_noise(paths):
    """Region, iteration, data cell and number of every line of the published files."""
    found = set()
    for path in paths:
        head, *lines = (line.split("|") for line in path.read_text().splitlines())
        column = next(name for name in head if name.endswith("DATA_CELL"))
        prefix = next((x for x in ("NUM", "DENOM") if f"_{x}_" in column), "CELL")
        for line in lines:
            row = dict(zip(head, line))
            cell = f"{prefix}_{row[column]}"
            found.add((row["REGION_ID"], row.get("ITERATION_CODE", "*"), cell, float(row["COUNT"])))
    return found


def estimated_noise(path):
    """Return the same of the lines of written estimates."""
    head, *lines = (line.split("|") for line in path.read_text().splitlines())
    rows = [dict(zip(head, line)) for line in lines]
    return {(r["GEOID"], r["ITERATION_CODE"], r["DATA_CELL"], float(r["COUNT_NOISY"])) for r in rows}


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_a_spec_and_no_code(table, tmp_path, rng):
    spec, paths = made_up(tmp_path, table, rng)
    measurements = read_sdhc(spec, paths)
    posterior = infer(measurements, spec=spec, draws=400)
    quantities = posterior.ratio_summary()
    assert (quantities["mean"] > 0).all()
    if table in ("PH1", "PH5", "PH8"):
        assert (quantities["mean"] <= 10).all()
    write_estimates(tmp_path / "estimates.csv", posterior, spec, measurements)
    head = (tmp_path / "estimates.csv").read_text().splitlines()[0]
    assert (
        head
        == "GEOID|REGION_TYPE|ITERATION_CODE|DATA_CELL|COUNT_NOISY|VARIANCE|MOE_NOISY|PRED|PRED_LO|PRED_HI"
    )
    assert estimated_noise(tmp_path / "estimates.csv") == published_noise(paths)
    ratios = (tmp_path / "estimates_ratios.csv").read_text().splitlines()
    assert ratios[0].endswith("|DATA_CELL|RATIO_NOISY|RATIO_PRED|RATIO_PRED_LO|RATIO_PRED_HI")
    assert len(ratios) - 1 == len(quantities["mean"])


def test_a_geometric_law_has_the_stated_variance(tmp_path, rng):
    spec, paths = made_up(tmp_path, "PH2", rng, "Two-Sided Geometric", "1151.83335")
    [law] = {header.law for header in read_sdhc(spec, paths).headers}
    assert law.name == "discrete-laplace"
    assert law.variance == pytest.approx(1151.83335, rel=1e-6)


def test_order_and_extra_columns_do_not_matter(tmp_path, rng):
    spec, [path] = made_up(tmp_path, "PH4", rng)
    plain = read_sdhc(spec, [path])
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"NOTE|{head}", *(f"x|{line}" for line in reversed(lines))]) + "\n")
    assert read_sdhc(spec, [path]).digest == plain.digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("COUNT", "N", 1), "no column 'COUNT'"),
        (lambda text: text.replace("|144", "|0", 1), "VARIANCE '0'"),
        (lambda text: text.replace("|144", "|", 1), "VARIANCE"),
        (lambda text: text.replace("Discrete Gaussian", "Cauchy", 1), "'Cauchy' is unknown"),
        (lambda text: "\n".join(text.splitlines()[:-1]) + "\n", "is missing"),
        (lambda text: text + text.splitlines()[-1] + "\n", "listed more than once"),
        (lambda text: text.replace("PH4_DATA_CELL", "CELL", 1), "0 columns of data cells"),
    ],
)
def test_damaged_files_are_refused(change, says, tmp_path, rng):
    spec, [path] = made_up(tmp_path, "PH4", rng)
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=says):
        read_sdhc(spec, [path])


@pytest.mark.parametrize("table", TABLES)
def test_states_and_counties_are_read_as_one_tree(table, tmp_path, rng):
    spec, paths = made_up(tmp_path, table, rng, counties=COUNTIES)
    read = read_sdhc(spec, paths)
    assert {header.margin.level for header in read.headers} == {"state", "county"}
    assert sorted(read.flat) == sorted(number for *_, number in published_noise(paths))


@pytest.mark.slow
@pytest.mark.parametrize(("table", "cells"), [("PH5", 3), pytest.param("PH8", 4, marks=pytest.mark.slow)])
def test_states_are_the_sums_of_their_counties_in_every_draw(table, cells, tmp_path, rng):
    """And ratios, of at most 10 persons, have intervals at every level, in the columns that users of these tables know."""
    spec, paths = made_up(tmp_path, table, rng, counties=COUNTIES)
    read = read_sdhc(spec, paths)
    posterior = infer(read, spec=spec, draws=200)
    ratios = posterior.ratio_summary()
    assert set(ratios["level"]) == {"county", "state", "iteration", "nation"}
    assert (ratios["low"] >= 0).all()
    assert (ratios["high"] <= 10).all()
    write_estimates(tmp_path / "estimates.csv", posterior, spec, read)
    rows = (tmp_path / "estimates.csv").read_text().splitlines()[1:]
    assert len(rows) == len(read.flat)
    assert sum("|STATE|" in row for row in rows) == 2 * 2 * cells
    assert len((tmp_path / "estimates_ratios.csv").read_text().splitlines()) - 1 == 3 * 2 * (2 + 5)


def test_a_state_without_counties_is_refused(tmp_path, rng):
    spec, paths = made_up(tmp_path, "PH4", rng, counties=COUNTIES)
    text = paths[0].read_text() + "72|STATE|*|2|50|Discrete Gaussian|36\n"
    paths[0].write_text(text)
    with pytest.raises(DataError, match="72"):
        read_sdhc(spec, paths)


@pytest.mark.parametrize("law", ["Gaussian", "Laplace"])
def test_continuous_laws_are_read_with_their_fractions(law, tmp_path, rng):
    """As in the study of these tables, whose noise is continuous: draws are real numbers."""
    spec, paths = made_up(tmp_path, "PH5", rng, law)
    for path in paths:
        path.write_text(path.read_text().replace(f"|{law}", f".25|{law}"))
    read = read_sdhc(spec, paths)
    assert {header.law.name for header in read.headers} == {law.lower()}
    assert (read.flat % 1 == 0.25).all()
    np.testing.assert_allclose([header.law.variance for header in read.headers], 144, rtol=1e-6)
    assert infer(read, spec=spec, draws=50).draws.dtype == float
