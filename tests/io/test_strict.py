"""A bundle that somebody made to be read here: nothing is written or read elsewhere, nothing hangs, nothing is internal."""

import json
import shutil
import time
import zipfile
from contextlib import suppress

import numpy as np
import pandas
import pytest

import trueup
from tests.fuzz.honest import GOLDEN, PERTURBED, published
from tests.fuzz.mutate import signed
from trueup.checking.bundle import check
from trueup.demo import AREAS
from trueup.errors import BundleError, DataError, SpecError, TrueupError
from trueup.files.source import open_table
from trueup.files.workbook import open_workbook
from trueup.inferring.chains import Checkpoint, key_of
from trueup.io.bundle.areas import write_areas
from trueup.io.bundle.manifest import listed, read_manifest, refuse_altered
from trueup.io.bundle.read import read_measurements, read_release
from trueup.io.published.drafting import draft_published
from trueup.model.spec import parse_spec
from trueup.releasing.again import reconcile_bundle, reconcile_published, render_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("bundle") / "areas"
    trueup.release(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}), out)
    return out


@pytest.fixture
def copied(bundle, tmp_path):
    return shutil.copytree(bundle, tmp_path / "bundle")


def change(folder, **parts):
    path = folder / "public" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))


READERS = [
    check,
    read_release,
    read_measurements,
    render_bundle,
    lambda folder: reconcile_bundle(folder, folder.parent / "again"),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "name",
    ["measurements/../../../profile", "/etc/passwd", "..", "a/../b", ".hidden", "a\\b", "a/b/c/d", "", "x\0"],
)
def test_a_name_that_leads_elsewhere_is_refused(copied, reader, name):
    secret = copied.parent / "profile"
    secret.write_text("mine")
    files = json.loads((copied / "public" / "manifest.json").read_text())["files"]
    change(copied, files=files | {name: "0" * 64})
    with pytest.raises(BundleError, match="damaged"):
        reader(copied)
    assert secret.read_text() == "mine"
    assert sorted(p.name for p in copied.parent.iterdir()) == ["bundle", "profile"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("pattern", ["../../*", "/etc/*", "counts/../../../x"])
def test_a_pattern_that_leads_elsewhere_is_refused(copied, reader, pattern):
    counts = json.loads((copied / "public" / "manifest.json").read_text())["counts"]
    change(copied, counts=[entry | {"files": pattern} for entry in counts])
    with pytest.raises(BundleError, match="damaged"):
        reader(copied)


@pytest.mark.parametrize("reader", READERS)
def test_no_link_is_followed(copied, reader):
    places = copied / "public" / "places.parquet"
    places.rename(copied.parent / "elsewhere.parquet")
    places.symlink_to(copied.parent / "elsewhere.parquet")
    with pytest.raises(BundleError, match="is a link"):
        reader(copied)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("amount", ["1e999999999", "-1", "nan", "1/0", "9" * 5000, None, [], 1e300, True])
def test_an_amount_that_is_none_is_refused_at_once(copied, reader, amount):
    guarantee = json.loads((copied / "public" / "manifest.json").read_text())["guarantee"]
    change(copied, guarantee=guarantee | {"amount": amount})
    used = time.process_time()
    with pytest.raises(BundleError, match="damaged"):
        reader(copied)
    assert time.process_time() - used < 2


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "1" * 100_000, "\ud800", "{}", "[]", "null", "3"]
)
def test_what_is_no_manifest_is_refused(copied, reader, text):
    (copied / "public" / "manifest.json").write_text(text, errors="surrogatepass")
    with pytest.raises(BundleError, match="damaged"):
        reader(copied)


@pytest.mark.thorough
def test_mutated_manifests_are_read_or_refused_and_write_nothing_elsewhere(copied, rng):
    """A short run; every value in turn is replaced by another kind."""
    path = copied / "public" / "manifest.json"
    whole = json.loads(path.read_text())
    others = [None, True, -1, 10**30, 1e308, "", "../x", "1e99999", [], {}, [[]], {"a": []}]
    spots = list(_spots(whole))
    before = sorted(p.name for p in copied.parent.iterdir())
    for _ in range(150):
        changed = json.loads(json.dumps(whole))
        *above, last = spots[rng.integers(len(spots))]
        holder = changed
        for key in above:
            holder = holder[key]
        holder[last] = others[rng.integers(len(others))]
        path.write_text(json.dumps(changed))
        for reader in (read_manifest, read_measurements, check):
            with suppress(TrueupError):
                reader(copied)
    assert sorted(p.name for p in copied.parent.iterdir()) == before


def _spots(part, path=()):
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, held in items:
        yield (*path, key)
        yield from _spots(held, (*path, key))


SHEET = (
    '<?xml version="1.0"?>{entity}<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    '<row r="1"><c r="A1" t="inlineStr"><is><t>area</t></is></c><c r="B1" t="inlineStr"><is><t>n</t></is></c></row>'
    '<row r="2"><c r="A2" t="inlineStr"><is><t>a</t></is></c><c r="B2"><v>3</v></c></row>{more}</sheetData></worksheet>'
)


def workbook(folder, more="", entity=""):
    from openpyxl import Workbook

    plain, path = folder / "plain.xlsx", folder / "made.xlsx"
    Workbook().save(plain)
    with zipfile.ZipFile(plain) as held, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in held.namelist():
            own = (
                SHEET.format(more=more, entity=entity).encode()
                if name.endswith("sheet1.xml")
                else held.read(name)
            )
            out.writestr(name, own)
    return path


@pytest.mark.thorough
def test_a_stray_cell_far_away_takes_neither_memory_nor_rows(tmp_path):
    import tracemalloc

    path = workbook(tmp_path, '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')
    tracemalloc.start()
    table = open_workbook(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.select(["area", "n"])["n"].tolist() == [3]
    assert peak < 50_000_000


@pytest.mark.parametrize("more", ["&broken;", "<row", '<row r="x"><c r="?"/></row>'])
def test_a_broken_workbook_is_refused(tmp_path, more):
    with pytest.raises(DataError, match="cannot be read as a workbook"):
        open_workbook(workbook(tmp_path, more))


@pytest.mark.thorough
def test_a_workbook_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    path = tmp_path / "packed.xlsx"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held,
        held.open("xl/sheet.xml", "w", force_zip64=True) as out,
    ):
        for _ in range(600):
            out.write(b" " * 1_000_000)
    assert path.stat().st_size < 5_000_000
    with pytest.raises(DataError, match="expands to more"):
        open_workbook(path)


def test_an_unlisted_file_of_a_pattern_is_never_opened(copied):
    """It may be a link that leads elsewhere, and only files that the manifest lists were looked at."""
    counts = json.loads((copied / "public" / "manifest.json").read_text())["counts"]
    change(copied, counts=[e | {"files": e["files"].replace(".parquet", "*.parquet")} for e in counts])
    (copied / "public" / "counts" / "areazz.parquet").symlink_to("/etc/passwd")
    assert listed(read_manifest(copied), "counts/area*.parquet") == ["counts/area.parquet"]
    assert read_release(copied).counts.size == 2


def test_measurements_without_a_seal_are_no_bundle(tmp_path):
    folder = shutil.copytree(GOLDEN / "0.1.0", tmp_path / "bundle")
    manifest = json.loads((folder / "public" / "manifest.json").read_text())
    for lost in ("parts", "seal", "levels", "cells"):
        left = {name: part for name, part in manifest.items() if name != lost}
        (folder / "public" / "manifest.json").write_text(json.dumps(left))
        with pytest.raises(BundleError, match="damaged"):
            read_measurements(folder)


def test_more_rows_than_announced_are_not_unpacked(copied):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = copied / "public" / "places.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 1).take(pa.array([0] * 2_000_000)), path)
    signed(copied)
    assert path.stat().st_size < 100_000
    used = time.process_time()
    with pytest.raises(BundleError, match="more than the 2 rows that are announced"):
        read_measurements(copied)
    assert time.process_time() - used < 2


def test_a_key_of_thousands_of_parts_is_refused_before_it_is_parsed():
    with pytest.raises(SpecError, match="too deeply"):
        parse_spec("a." * 20_000 + "b = 1")
    with pytest.raises(SpecError, match="too deeply"):
        parse_spec("x = { " + '"a" . ' * 60 + "b = 1 }")


def test_a_checkpoint_that_is_packed_damaged_or_a_link_is_refused(tmp_path):
    keep = Checkpoint.of(tmp_path / "chains", key_of("x"))
    keep.save("run", 0, 2, np.random.default_rng(1), draws=np.zeros(10))
    path = next((tmp_path / "chains").glob("*.npz"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(BundleError, match="damaged"):
        keep.load("run", 0, np.random.default_rng(1))
    np.savez_compressed(path, rng=np.array("{}"), draws=np.zeros(10_000_000))
    with pytest.raises(BundleError, match="damaged"):
        keep.load("run", 0, np.random.default_rng(1))
    path.unlink()
    (tmp_path / "elsewhere.npz").write_bytes(whole)
    path.symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(BundleError, match="damaged"):
        keep.load("run", 0, np.random.default_rng(1))
    (tmp_path / "link").symlink_to(tmp_path / "chains")
    with pytest.raises(BundleError, match="is a symbolic link"):
        Checkpoint.of(tmp_path / "link", key_of("x"))


@pytest.mark.thorough
def test_lists_and_long_texts_in_a_few_bytes_are_not_unpacked(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"n": [[7] * 10_000] * 2_500}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match="several values in a row"):
        open_table(path).select(["n"])
    pq.write_table(pa.table({"n": ["7" * 100_000] * 2_500}), path)
    with pytest.raises(DataError, match="more than 10,000 bytes"):
        open_table(path).select(["n"])


def test_a_name_that_is_no_text_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"sexes": [1]}), path)
    path.write_bytes(path.read_bytes().replace(b"sexes", b"s\xff\xfees"))
    with pytest.raises(DataError, match="cannot be read"):
        open_table(path).columns()


def test_a_zero_byte_in_a_name_is_refused(tmp_path):
    """NumPy drops it at the end of a text, so that the column would be found by one name and not by the other."""
    path = tmp_path / "table.csv"
    path.write_text("place,se\0,n\na,f,5\na,m,6\nb,f,7\nb,m,8\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        draft_published([path], "made up", None)


@pytest.mark.parametrize("value", [np.inf, 1e30, 0.5])
def test_a_measured_value_that_no_noise_gives_is_refused(value, tmp_path):
    (tmp_path / "perturbed.toml").write_text(PERTURBED)
    reconcile_published(tmp_path / "perturbed.toml", [published()], tmp_path / "bundle")
    path = tmp_path / "bundle" / "public" / "published.parquet"
    table = pandas.read_parquet(path)
    table.loc[0, "value"] = value
    table.to_parquet(path)
    signed(tmp_path / "bundle")
    with pytest.raises(BundleError, match="cannot produce"):
        read_measurements(tmp_path / "bundle")


@pytest.mark.thorough
def test_a_bundle_by_parts_with_more_rows_than_announced_is_not_unpacked(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("measurements", "counts/block"):
        folder = shutil.copytree(GOLDEN / "0.1.0-parts", tmp_path / name.replace("/", " "))
        path = sorted((folder / "public" / name).glob("*.parquet"))[0]
        table = pq.read_table(path)
        pq.write_table(table.slice(0, 1).take(pa.array([0] * 2_000_000)), path)
        signed(folder)
        used = time.process_time()
        with pytest.raises(BundleError, match="that its manifest allows"):
            check(folder)
        assert time.process_time() - used < 2


def test_a_manifest_without_the_file_of_places_is_refused(copied):
    manifest = json.loads((copied / "public" / "manifest.json").read_text())
    del manifest["files"]["places.parquet"]
    change(copied, files=manifest["files"])
    with pytest.raises(BundleError, match=r"does not list places\.parquet"):
        refuse_altered(copied, read_manifest(copied), ["places.parquet"])
    areas = copied / "areas.csv"
    areas.write_text("area,area key\nx,a\n")
    with pytest.raises(TrueupError):
        write_areas(copied, areas, copied / "out.csv")
