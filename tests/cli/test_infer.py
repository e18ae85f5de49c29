"""`trueup infer` from a bundle and from published files."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.areas import write_areas
from tests.command import run
from trueup.cli.infer import area_summary
from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells
from trueup.model.tree import Tree

PERTURBED = Path(__file__).parents[2] / "examples" / "perturbed"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("areas")
    spec, table = write_areas(folder)
    assert run("release", spec, "--data", table, "--out", folder / "bundle").returncode == 0
    return folder / "bundle"


@pytest.mark.thorough
def test_it_prints_every_level_and_writes_a_folder(bundle, tmp_path):
    done = run("infer", bundle, "--draws", 50, "--out", tmp_path / "posterior")
    assert done.returncode == 0, done.stderr
    assert "50 independent draws by method 'tree-exact'" in done.stdout
    assert "What the true counts may be" in (tmp_path / "posterior" / "report.html").read_text()
    manifest = json.loads((tmp_path / "posterior" / "manifest.json").read_text())
    assert manifest["kind"] == "posterior"
    assert manifest["stats"]["dropped_mass"] <= 1e-9
    draws = duckdb.sql(f"SELECT count(*), min(count) FROM '{tmp_path}/posterior/draws.parquet'").fetchall()[0]
    assert draws[0] == 50 * 3
    assert draws[1] >= 0


def test_perturbed_tables_are_described_in_a_folder_with_a_report(tmp_path):
    tables = ("--table", PERTURBED / "totals.csv", "--table", PERTURBED / "by-sex.csv")
    done = run(
        "infer", "--perturbed", PERTURBED / "districts.toml", *tables, "--draws", 5, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    assert "Another producer rounded" in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["kind"] == "posterior"


@pytest.mark.thorough
def test_every_published_table_and_total_is_printed_and_written_whatever_method_answers(tmp_path):
    files = [part for name in ("sex-by-age", "sex", "age") for part in ("--table", PERTURBED / f"{name}.csv")]
    done = run("infer", "--perturbed", PERTURBED / "crossing.toml", *files, "--out", tmp_path / "out")
    assert "by method 'lattice-moves'" in done.stdout
    wanted = ["place", "place x sex", "place x age", "place x sex x age"]
    assert [line.strip() for line in done.stdout.splitlines() if line.strip() in wanted] == wanted
    files = {path.stem for path in (tmp_path / "out" / "summary").iterdir()}
    assert files == {"place", "place-sex", "place-age", "place-sex-age"}
    page = (tmp_path / "out" / "report.html").read_text()
    shown = ["place", "place by sex", "place by age", "place by sex and age"]
    assert all(f"Posterior counts: {name}<" in page for name in shown)


def test_perturbed_tables_may_be_in_another_encoding(tmp_path):
    spec = PERTURBED / "clients.toml"
    (tmp_path / "clients.csv").write_text(
        (PERTURBED / "clients.csv").read_text().replace("Ash", "\xc4sch"), encoding="latin-1"
    )
    given = ("infer", "--perturbed", spec, "--table", tmp_path / "clients.csv", "--draws", 5)
    assert "--encoding latin-1" in run(*given).stderr
    assert "\xc4sch" in run(*given, "--encoding", "latin-1").stdout


def test_memory_that_is_too_little_or_no_size_is_refused_whatever_is_read(bundle):
    clients = ("--perturbed", PERTURBED / "clients.toml", "--table", PERTURBED / "clients.csv")
    for given in ((bundle,), clients):
        for memory, said in (("1KB", "at most 1000 bytes"), ("lots", "is not a size")):
            done = run("infer", *given, "--draws", 5, "--memory", memory)
            assert done.returncode == 2
            assert said in " ".join(done.stderr.split())


def test_perturbed_tables_may_have_a_list_of_places(tmp_path):
    (tmp_path / "places.csv").write_text("county\nAsh\nBirch\nCedar\nElm\n")
    given = (
        "infer",
        "--perturbed",
        PERTURBED / "clients.toml",
        "--table",
        PERTURBED / "clients.csv",
        "--draws",
        5,
    )
    assert run(*given, "--geography", tmp_path / "places.csv").returncode == 0
    (tmp_path / "places.csv").write_text("county\nAsh\nBirch\n")
    assert "names the place 'Cedar'" in run(*given, "--geography", tmp_path / "places.csv").stderr
    (tmp_path / "places.csv").write_text("county\nAsh\nAsh\n")
    assert "'Ash'" in run(*given, "--geography", tmp_path / "places.csv").stderr


@pytest.mark.thorough
def test_the_level_may_be_a_percentage(bundle):
    done = [run("infer", bundle, "--draws", 5, "--json", "--level", level) for level in ("80%", ".8", "95%")]
    low = [json.loads(one.stdout)["summary"]["county"]["low"] for one in done]
    assert low[0] == low[1] != low[2]
    assert "drawing: 5 of 5" in done[0].stderr
    refused = run("infer", bundle, "--level", "many")
    assert refused.returncode == 2
    assert "not a probability" in " ".join(refused.stderr.split())


@pytest.mark.thorough
def test_chosen_counts_are_named_by_their_labels(bundle, tmp_path):
    chosen = ("--chosen", "01/003", "--out", tmp_path / "posterior")
    assert run("infer", bundle, "--draws", 5, *chosen).returncode == 0
    done = run("infer", bundle, "--draws", 5, "--chosen", "nowhere", "--out", tmp_path / "other")
    assert done.returncode == 2
    assert "no count is called 'nowhere'" in " ".join(done.stderr.split())
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--by", "sex"], "--by has no effect without --areas"),
        (["--areas", "school=missing.csv"], "missing.csv"),
        (["--geography", "places.csv"], "--geography has no effect without --perturbed"),
        (["--csv"], "--csv has no effect without --out"),
        (["--chosen", "01"], "--chosen has no effect without --out"),
        (["--chosen", "nowhere", "--out", "posterior"], "nowhere"),
        (["--areas", "missing.csv"], "missing.csv"),
        (["--within", "state=01", "--chosen", "02/001", "--out", "posterior"], "02/001"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_drawn(bundle, options, said):
    done = run("infer", bundle, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "drawing" not in done.stderr


def test_areas_that_would_sum_overlapping_values_are_refused_before_anything_is_drawn(tmp_path):
    """What is returned otherwise describes areas once the draws are made."""
    kinds = Attribute("count", ("persons", "families"), partition=False)
    cells = Cells(Tree.from_columns(["all", "place"], [{}, {"place": ["a", "b"]}]), (kinds,))
    (tmp_path / "map.csv").write_text("area,place\nnorth,a\n")
    with pytest.raises(SpecError, match=r"'count' overlap.*keep the attribute"):
        area_summary(cells, tmp_path / "map.csv", "area", None)
    assert callable(area_summary(cells, tmp_path / "map.csv", "area", "count"))


def test_json_holds_the_summary(bundle):
    done = run("infer", bundle, "--draws", 20, "--json")
    constants: list[str] = []
    summary = json.loads(done.stdout, parse_constant=constants.append)["summary"]
    assert not constants  # NaN is no JSON
    assert summary["county"]["label"] == ["01/001", "01/003", "02/001"]


def test_an_occupied_folder_and_missing_files_are_refused(bundle, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert run("infer", bundle, "--draws", 5, "--out", tmp_path / "full").returncode == 2
    spec, _ = write_areas(tmp_path)
    done = run("infer", spec)
    assert done.returncode == 2
    assert "a spec is given without measurements" in " ".join(done.stderr.split())


NMF = """
format = 2
title = "Persons in group quarters"
table = { name = "pl94", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "US" }, { name = "Block", column = "geocode" }]
attribute = [{ name = "hhgq", values = ["household", "prison"] }]
query = [{ name = "total", levels = ["US"], rho = 1 }, { name = "detailed", attributes = ["hhgq"], levels = ["Block"], rho = 1 }]
"""


@pytest.mark.thorough
def test_published_noisy_measurement_files_are_read_with_their_bounds(tmp_path):
    (tmp_path / "pl94.toml").write_text(NMF)
    rows = {
        "US.parquet/DPQuery": [("0", "total_dpq", "[1]", "[21]", "1.5", "NULL")],
        "Block.parquet/DPQuery": [
            ("044001", "detailed_dpq", "[2]", "[12, -2]", "4.0", "NULL"),
            ("044002", "detailed_dpq", "[2]", "[8, 1]", "4.0", "NULL"),
        ],
        "Block.parquet/Constraint": [
            ("044001", "hhgq_total_lb_con", "[2]", "[0, 3]", "0.0", "'>='"),
            ("044002", "hhgq_total_lb_con", "[2]", "[0, 0]", "0.0", "'>='"),
        ],
    }
    for folder, lines in rows.items():
        (tmp_path / "nmf" / folder).mkdir(parents=True)
        values = ", ".join(
            f"('{g}', '{q}', {s}, {v}, {x}::DOUBLE, {sign}::VARCHAR)" for g, q, s, v, x, sign in lines
        )
        names = "t(geocode, query_name, query_shape, value, variance, sign)"
        duckdb.sql(f"SELECT * FROM (VALUES {values}) AS {names}").write_parquet(
            str(tmp_path / "nmf" / folder / "part0.parquet")
        )
    done = run(
        "infer",
        tmp_path / "pl94.toml",
        "--table",
        tmp_path / "nmf",
        "--draws",
        40,
        "--out",
        tmp_path / "out",
        "--csv",
    )
    assert done.returncode == 0, done.stderr
    draws = (tmp_path / "out" / "draws.csv").read_text().split()[1:]
    prison = [int(row.split(",")[-1]) for row in draws if ",044001," in row and ",prison," in row]
    assert len(prison) == 40
    assert min(prison) >= 3


RELEASED = """
format = 2
title = "Areas"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }]
query = [{ name = "total", epsilon = { all = "1/2", county = "1/2" } }]
reconcile = { method = "multinomial-mode" }
infer = { method = "released-multinomial" }
"""


def test_released_counts_alone_have_a_posterior(tmp_path):
    spec, table = write_areas(tmp_path, spec=RELEASED, table="county,n\na,40\nb,7\nc,0\n")
    assert run("release", spec, "--data", table, "--out", tmp_path / "bundle").returncode == 0
    done = run("infer", tmp_path / "bundle", "--draws", 200, "--out", tmp_path / "posterior")
    assert done.returncode == 0, done.stderr
    assert "200 independent draws by method 'released-multinomial'" in done.stdout
    page = (tmp_path / "posterior" / "report.html").read_text()
    assert "true count − released count" in page
    assert "noisy count</li>" not in page  # whoever has released counts alone does not know them


def test_released_counts_are_inferred_without_a_bundle(tmp_path):
    own = RELEASED.replace('infer = { method = "released-multinomial" }', "")
    spec, table = write_areas(tmp_path, spec=own, table="county,released\na,40\nb,7\nc,0\n")
    done = run("infer", spec, "--released", table, "--draws", 200)
    assert done.returncode == 0, done.stderr
    assert "200 independent draws by method 'released-multinomial'" in done.stdout
    done = run("infer", spec, "--released", table, "--table", table)
    assert done.returncode == 2
    assert "together with another source" in " ".join(done.stderr.split())


def test_a_released_prior_of_another_name_is_refused(tmp_path):
    entry = 'infer = { method = "released-multinomial", release = "sample" }'
    spec, table = write_areas(
        tmp_path,
        spec=RELEASED.replace('infer = { method = "released-multinomial" }', entry),
        table="county,n\na,4\nb,7\n",
    )
    assert run("release", spec, "--data", table, "--out", tmp_path / "bundle").returncode == 0
    done = run("infer", tmp_path / "bundle", "--draws", 9)
    assert done.returncode == 2
    assert "not by 'multinomial-sample'" in " ".join(done.stderr.split())


def test_estimates_of_published_tables_are_written_by_the_names_that_users_know(tmp_path):
    rows = ["REGION_ID|REGION_TYPE|ITERATION_CODE|PH5_{}_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE"]
    for part, cells in (("NUM", {"2": 130, "3": 190}), ("DENOM", {"1": 100})):
        lines = [
            rows[0].format(part),
            *(f"01|STATE|A|{c}|{n}|Discrete Gaussian|144" for c, n in cells.items()),
        ]
        (tmp_path / f"{part}.csv").write_text("\n".join(lines) + "\n")
    given = ("examples/sdhc/ph5.toml", "--table", tmp_path / "NUM.csv", "--table", tmp_path / "DENOM.csv")
    target = tmp_path / "estimates.csv"
    assert run("infer", *given, "--draws", 200, "--estimates", target).returncode == 0
    assert target.read_text().splitlines()[0].endswith("|COUNT_NOISY|VARIANCE|MOE_NOISY|PRED|PRED_LO|PRED_HI")
    assert len((tmp_path / "estimates_ratios.csv").read_text().splitlines()) == 4
    again = run("infer", *given, "--estimates", target)
    assert again.returncode == 2
    assert "exists" in again.stderr
    bundle = run("infer", tmp_path, "--estimates", tmp_path / "other.csv")
    assert bundle.returncode == 2


def test_a_whole_among_places_is_noted_before_the_answer(tmp_path):
    """Hidden cells beside it or not: what would be counted twice does not stand in the last line alone."""
    (tmp_path / "pupils.csv").write_text("area,n\nBarra,32\nHarris,20\nLewis,60\nUist,25\nIsles,137\n")
    (tmp_path / "spec.toml").write_text(
        'format = 1\ntitle = "Pupils"\ntable = { name = "pupils", counts = "pupil" }\n'
        'level = [{ name = "all" }, { name = "area", column = "area" }]\n'
        '[[published]]\nname = "pupils"\nfile = "pupils.csv"\nlevel = "area"\ncell = [{ count = "n" }]\n'
        'law = { name = "exact" }\n'
    )
    done = run(
        "infer", "--perturbed", tmp_path / "spec.toml", "--table", tmp_path / "pupils.csv", "--draws", 5
    )
    assert done.returncode == 0, done.stderr
    assert "note: 'Isles' is about the sum of the 4 other places" in done.stderr
