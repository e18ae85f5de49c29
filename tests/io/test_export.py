"""Exported files hold the record's own figures, keys as text, and say what was protected."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import openpyxl
import pandas
import polars
import pytest
import sdmx

import trueup
from tests.model.people import DATA, SPEC
from trueup.errors import BundleError, SpecError, TrueupError
from trueup.files import workbook
from trueup.io.export import files

KEYS = ["state", "county", "state name", "county name", "sex"]


@pytest.fixture(scope="module")
def release() -> trueup.Release:
    return trueup.reconcile(trueup.measure(trueup.parse_spec(SPEC), DATA))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "spec.toml").write_text(SPEC)
    trueup.release(folder / "spec.toml", DATA, folder / "out")
    return folder / "out"


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_csv_holds_every_table_and_a_page_about_them(release, tmp_path):
    out = trueup.export(release, tmp_path / "tables")
    names = {path.name for path in out.iterdir()}
    assert names == {"about.csv", "all.csv", "state.csv", "county.csv", "county-sex.csv"}
    heading, *rows = read_csv(out / "county-sex.csv")
    assert heading == [*KEYS, "released", "noisy", "margin of error"]
    assert [row[:5] for row in rows] == DATA[
        ["state", "county", "state_name", "county_name", "sex"]
    ].values.tolist()
    assert [int(row[5]) for row in rows] == release.counts.tolist()
    assert [int(row[6]) for row in rows] == release.measurements.values[1].tolist()
    about = dict(read_csv(out / "about.csv"))
    assert about["Title"] == "Areas by sex"
    assert "epsilon" in " ".join(text for _, text in read_csv(out / "about.csv"))


def test_a_wide_table_has_a_column_for_each_value(release, tmp_path):
    out = trueup.export(release, tmp_path / "wide", tables="county x sex", wide="sex")
    heading, *rows = read_csv(out / "county-sex.csv")
    assert heading == [*KEYS[:4], "f", "m"]
    assert [[int(x) for x in row[4:]] for row in rows] == release.counts.reshape(3, 2).tolist()


@pytest.mark.parametrize("to", ["csv", "xlsx"])
@pytest.mark.parametrize(("table", "attribute"), [("county", "sex"), ("county x sex", "age"), ((), "age")])
def test_a_table_that_is_not_by_the_wide_attribute_is_refused(release, tmp_path, to, table, attribute):
    with pytest.raises(SpecError, match=attribute):
        trueup.export(release, tmp_path / f"wide.{to}", to, tables=table, wide=attribute)
    assert not list(tmp_path.iterdir())


def test_parquet_keeps_types(release, tmp_path):
    out = trueup.export(release, tmp_path / "parquet", "parquet", tables=["county"])
    table = polars.read_parquet(out / "county.parquet")
    assert table["released"].to_list() == release.sums("county").tolist()
    assert table["noisy"].null_count() == 3
    assert table["state"].dtype == polars.String


def test_in_a_workbook_labels_are_text_and_counts_are_numbers(release, tmp_path):
    out = trueup.export(release, tmp_path / "tables.xlsx")
    book = openpyxl.load_workbook(out)
    assert book.sheetnames == ["About", "all", "state", "county", "county x sex"]
    first = next(book["county"].iter_rows(min_row=2, max_row=2))
    assert [cell.value for cell in first[:2]] == ["01", "001"]
    assert {cell.data_type for cell in first[:4]} == {"s"}
    assert {cell.number_format for cell in first[:4]} == {"@"}
    assert first[4].data_type == "n"
    assert first[4].value == release.sums("county")[0]
    about = [[cell.value for cell in row] for row in book["About"].iter_rows()]
    assert any(row[0] == "Privacy" and "person" in row[1] for row in about)


def test_a_workbook_holds_any_text_and_equal_tables_give_equal_bytes(monkeypatch):
    monkeypatch.setattr(workbook, "ROWS_PER_WRITE", 3)
    texts = [
        "<r>a</r>",
        "a & b",
        " spaces ",
        "two\nlines",
        "_x0041_",
        "\x00\x07",
        "\ud800",
        "\uffff",
        "ä" * 40_000,
        "]]>",
    ]
    numbers = np.ma.masked_equal(np.arange(10), 4)
    columns = {"<key>": texts, "n": numbers, "x": np.where(np.arange(10) == 2, np.nan, 0.5)}
    held = workbook.workbook_of([workbook.Sheet("a & b", columns, frozenset({"<key>"}), (8, 8, 8))], "<t>")
    assert held == workbook.workbook_of(
        [workbook.Sheet("a & b", columns, frozenset({"<key>"}), (8, 8, 8))], "<t>"
    )
    book = openpyxl.load_workbook(io.BytesIO(held))
    assert book.properties.title == "<t>"
    heading, *rows = [[cell.value for cell in row] for row in book["a & b"].iter_rows()]
    assert heading == ["<key>", "n", "x"]
    assert [row[1] for row in rows] == [0, 1, 2, 3, None, 5, 6, 7, 8, 9]
    assert [row[2] for row in rows] == [0.5, 0.5, None, *[0.5] * 7]
    shown = [texts[i] for i in (0, 1, 2, 3)] + [
        "_x005F_x0041_",
        "\ufffd\ufffd",
        "\ufffd",
        "\ufffd",
        "ä" * 32_767,
        "]]>",
    ]
    assert [row[0].replace("_x005F_x0041_", "_x0041_") for row in rows] == [
        t.replace("_x005F_", "_") for t in shown
    ]


HOSTILE = ("=1+1", "@SUM(A1)", "-2+3", "+cmd|' /C calc'!A0")


def hostile() -> trueup.Release:
    """Places whose names a spreadsheet would run."""
    data = pandas.DataFrame({"area": [f"{i:02d}" for i in range(4)], "name": HOSTILE, "n": [300] * 4})
    spec = trueup.parse_spec("""
    format = 2
    title = "=Title"
    table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
    privacy = { unit = "person", neighbours = "add-remove" }
    level = [{ name = "all" }, { name = "area", column = "area", label = "name" }]
    query = [{ name = "total", epsilon = { area = "1" } }]
    """)
    return trueup.reconcile(trueup.measure(spec, data))


def test_labels_are_never_formulas(tmp_path):
    release = hostile()
    book = openpyxl.load_workbook(trueup.export(release, tmp_path / "t.xlsx"))
    cells = [row[1] for row in book["area"].iter_rows(min_row=2)]
    assert [cell.value for cell in cells] == list(HOSTILE)
    assert {cell.data_type for cell in cells} == {"s"}

    plain = read_csv(trueup.export(release, tmp_path / "plain") / "area.csv")
    assert [row[1] for row in plain[1:]] == list(HOSTILE)  # nothing is changed unless it is asked for
    folder = trueup.export(release, tmp_path / "guarded", for_spreadsheets=True)
    raw = (folder / "area.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"))))
    assert [row[1] for row in rows[1:]] == [f"'{name}" for name in HOSTILE]
    assert [row[0] for row in rows[1:]] == ["00", "01", "02", "03"]
    assert "'=Title" in (folder / "about.csv").read_text(encoding="utf-8-sig")


def read_sdmx(path: Path, **options):
    """The library leaves files open that it opens itself."""
    return sdmx.read_sdmx(io.BytesIO(path.read_bytes()), format=path.suffix[1:], **options)


def test_sdmx_is_read_by_a_library_of_its_own(release, tmp_path):
    out = trueup.export(release, tmp_path / "sdmx", "sdmx-csv", agency="XX.STATS")
    structure = read_sdmx(out / "structure.xml")
    assert len(structure.dataflow) == len(structure.structure) == 4
    flow = structure.dataflow["DF_COUNTY_SEX"]
    assert [d.id for d in flow.structure.dimensions.components] == ["REF_AREA", "SEX"]
    places = structure.codelist["CL_COUNTY_SEX_REF_AREA"]
    assert [(code.id, str(code.name)) for code in places] == [
        ("01-001", "Autauga"),
        ("01-003", "Baldwin"),
        ("02-001", "Anchorage"),
    ]
    message = read_sdmx(out / "county-sex.csv", structure=flow)
    (data,) = message.data
    assert len(data.obs) == 6
    assert [int(each.value) for each in data.obs] == release.counts.tolist()
    assert {each.attached_attribute["OBS_STATUS"].value for each in data.obs} == {"E"}
    assert {each.attached_attribute["CONF_STATUS"].value for each in data.obs} == {"F"}
    every = {code.id for code in structure.codelist["CL_COUNTY_SEX_SEX"]}
    assert {each.dimension["SEX"].value for each in data.obs} == every

    total = read_sdmx(out / "all.csv", structure=structure.dataflow["DF_ALL"])
    assert total.data[0].obs[0].attached_attribute["OBS_STATUS"].value == "A"  # an invariant


def test_a_bundle_is_exported_from_its_files(bundle, tmp_path):
    read = trueup.read_release(bundle)
    out = trueup.export(bundle, tmp_path / "tables", "csv")
    _, *rows = read_csv(out / "county.csv")
    assert [int(row[4]) for row in rows] == read.sums("county").tolist()
    margins = read.margin_of_error("county")
    assert margins is not None
    assert [int(row[6]) for row in rows] == margins.tolist()  # whole numbers without a fraction


def test_the_whole_is_called_by_its_level_in_tables(release, tmp_path):
    out = trueup.export(release, tmp_path / "tables", tables="all")
    assert [row[0] for row in read_csv(out / "all.csv")] == ["all", "all"]
    assert release.table("all")["all"].tolist() == ["all"]


def test_measurements_and_posteriors_are_exported_too(release, tmp_path):
    noisy = trueup.export(release.measurements, tmp_path / "noisy", tables="state")
    assert read_csv(noisy / "state.csv")[0] == ["state", "state name", "noisy", "margin of error"]
    posterior = trueup.export(trueup.infer(release, draws=20), tmp_path / "posterior", tables="state")
    assert read_csv(posterior / "state.csv")[0][2:] == ["mean", "sd", "median", "low", "high", "mass"]


def test_what_cannot_be_written_is_refused_and_nothing_is_left(release, tmp_path, monkeypatch):
    with pytest.raises(SpecError, match="no format 'pdf'"):
        trueup.export(release, tmp_path / "out", "pdf")
    with pytest.raises(SpecError, match="no level 'country'"):
        trueup.export(release, tmp_path / "out", tables="country")
    with pytest.raises(SpecError, match="'x y' is not the identifier"):
        trueup.export(release, tmp_path / "out", "sdmx-csv", agency="x y")
    with pytest.raises(SpecError, match="in wide form"):
        trueup.export(release, tmp_path / "out", "sdmx-csv", wide="sex")
    with pytest.raises(TrueupError, match="no folder"):
        trueup.export(tmp_path / "absent", tmp_path / "out")
    monkeypatch.setattr(files, "ROWS", 2)
    with pytest.raises(TrueupError, match=r"'county' has 3 rows.*--table"):
        trueup.export(release, tmp_path / "out.xlsx")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(BundleError, match="is not empty"):
        trueup.export(release, tmp_path / "out")


def test_sums_beyond_published_tables_state_no_margin_they_do_not_have(release, tmp_path):
    without = replace(release, errors={}, expects=None)
    out = trueup.export(without, tmp_path / "tables", tables="county")
    assert {row[-1] for row in read_csv(out / "county.csv")[1:]} == {""}
    assert np.ma.getmaskarray(without.figures(trueup.Margin("county"))["margin of error"]).all()


def test_metadata_state_who_unit_loss_and_mechanisms(bundle, tmp_path):
    out = trueup.export(bundle, tmp_path / "m.json", "metadata", agency="Office")
    held = json.loads(out.read_text())
    guarantee = trueup.read_release(bundle).measurements.guarantee
    assert (held["curator"], held["unit of privacy"]) == ("Office", guarantee.unit)
    assert held["privacy loss"]["exact"] == str(guarantee.amount)
    assert float(held["privacy loss"]["rounded up"]) >= guarantee.amount
    assert sum(Fraction(m["loss"]["exact"]) for m in held["mechanisms"]) == guarantee.amount
    assert {m["law"] for m in held["mechanisms"]} == {charge.law for charge in guarantee.charges}
    assert held["statement"] == list(guarantee.sentences)


def test_metadata_are_refused_of_simulated_noise_and_beside_a_choice_of_tables(release, bundle, tmp_path):
    simulated = replace(release.measurements, simulation=True)
    with pytest.raises(SpecError, match="it protects no data"):
        trueup.export(simulated, tmp_path / "m.json", "metadata")
    with pytest.raises(SpecError, match="tables are chosen"):
        trueup.export(bundle, tmp_path / "m.json", "metadata", tables="state")
    with pytest.raises(SpecError, match=r"ends in \.json"):
        trueup.export(bundle, tmp_path / "m", "metadata")
