"""Natural mistakes in Python and on the command line: each is answered by what was given, what is needed or what to do.

No answer shows a count, and none is a raw error of Python.
"""

from __future__ import annotations

import builtins
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import trueup as tu
from tests.command import run
from trueup.measuring import simulate

SPEC = """
format = 2
title = "Towns"
table = { name = "towns", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }, { name = "town", column = "town", label = "name" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", epsilon = { all = "1/4", county = "1/4", town = "1/4" } },
         { name = "by sex", attributes = ["sex"], epsilon = { town = "1/4" } }]
"""
PLACES = pandas.DataFrame(
    {"county": ["01", "01", "02"], "town": ["a", "b", "c"], "name": ["Ash", "Bell", "Châlons"]}
)
COUNTS = (48611, 70213, 59077, 36299, 81551, 92863)
"""Confidential counts, which no answer may show."""
TABLE = PLACES.loc[[0, 0, 1, 1, 2, 2], ["county", "town"]].assign(sex=["f", "m"] * 3, n=COUNTS)
LOCKED = pandas.DataFrame({"id": ["q", "r"], "county": ["01", "02"], "town": ["a", "c"], "sex": ["f", "m"]})


@cache
def made() -> SimpleNamespace:
    """Records that were made once, of simulated noise."""
    spec = tu.parse_spec(SPEC)
    problem = tu.Problem.of(spec, PLACES)
    noisy = simulate(problem, np.array(COUNTS), np.random.default_rng(7))
    return SimpleNamespace(
        spec=spec,
        problem=problem,
        noisy=noisy,
        release=tu.reconcile(noisy),
        posterior=tu.infer(noisy, draws=20),
    )


def _table(**columns) -> pandas.DataFrame:
    return TABLE.assign(**columns)


def measured(**columns):
    return tu.measure(made().spec, _table(**columns), PLACES)


PARTS = {
    "title": "Towns",
    "table": {"name": "towns", "kind": "counts", "counts": "person", "count": "n"},
    "privacy": {"unit": "person", "neighbours": "add-remove"},
    "levels": ["all", "town"],
    "queries": [{"name": "total", "epsilon": {"all": "1/2", "town": "1/2"}}],
}


def spec(**parts) -> tu.Spec:
    return tu.Spec(**{**PARTS, **parts})


def total(**parts) -> tu.Spec:
    return spec(queries=[{"name": "total", "levels": ["town"], "epsilon": 1, **parts}])


PYTHON = {
    # a spec in Python
    "a key misspelt": (lambda: spec(titel="x"), "did you mean 'title'"),
    "American spelling": (lambda: spec(privacy={"unit": "person", "neighbors": "replace"}), "'neighbours'"),
    "a level as text": (lambda: spec(levels="town"), "levels is not a list"),
    "a budget as a float": (lambda: total(epsilon=0.1), "0.1"),
    "a budget in words": (lambda: total(epsilon="a lot"), "query 'total': epsilon"),
    "a budget below zero": (lambda: total(epsilon="-1"), "query 'total'"),
    "two currencies": (lambda: total(rho="1/2"), "epsilon"),
    "no budget": (
        lambda: spec(queries=[{"name": "total", "levels": ["town"]}]),
        "query 'total': no budget is given",
    ),
    "a level that is not there": (lambda: total(levels=["twon"]), "did you mean 'town'"),
    "an attribute that is not there": (lambda: total(attributes=["sx"]), "unknown attribute 'sx'"),
    "an unknown noise": (lambda: total(noise="pareto"), "discrete-gaussian"),
    "numbers as values": (lambda: spec(attributes={"age": [1, 2]}), "attribute 'age': values 1 is not text"),
    "one value as text": (lambda: spec(attributes={"age": "young"}), "attribute 'age': values is not a list"),
    "another neighbour relation": (
        lambda: spec(privacy={"unit": "person", "neighbours": "unbounded"}),
        "'add-remove' or 'replace'",
    ),
    "a spec of nothing": (lambda: tu.Spec(), "title is missing"),
    "a draft without values": (
        lambda: tu.Spec.of(LOCKED, ["town"], ["sex"], public=PLACES),
        "attributes={'sex'",
    ),
    "a draft of other columns": (
        lambda: tu.Spec.of(LOCKED, ["village"], public=PLACES),
        "no column 'village'",
    ),
    "a draft of no table": (lambda: tu.Spec.of(3, ["town"], public=PLACES), "'int' is not a type of table"),
    # a spec and its places
    "text in place of a spec": (lambda: tu.parse_spec("counties.toml"), "is not TOML"),
    "a spec in place of a path": (lambda: tu.load_spec(made().spec), "Spec"),
    "a spec file that is not there": (lambda: tu.Problem.of("nowhere.toml", PLACES), "nowhere.toml"),
    "a list in place of a spec": (lambda: tu.Problem.of([SPEC], PLACES), "a list is given as the spec"),
    "no places": (lambda: tu.measure(made().spec, TABLE), "no public geography"),
    "a list in place of places": (
        lambda: tu.Problem.of(made().spec, ["a", "b"]),
        "'list' is not a type of table",
    ),
    "places without a column": (lambda: tu.Problem.of(made().spec, PLACES[["town"]]), "no column 'county'"),
    "places without a row": (lambda: tu.Problem.of(made().spec, PLACES[:0]), "a header but no rows"),
    "a place twice": (
        lambda: tu.Problem.of(made().spec, PLACES.loc[[0, 0]].assign(name=["A", "B"])),
        "more than once",
    ),
    "keys with a fraction": (
        lambda: tu.Problem.of(made().spec, PLACES.assign(county=[1.5, 1.5, 2.0])),
        "a fraction",
    ),
    # the table
    "a misspelt keyword": (lambda: tu.measure(made().spec, TABLE, geografy=PLACES), "geograph"),
    "the places in place of the data": (lambda: tu.measure(made().spec, PLACES, PLACES), "no column"),
    "a file that is not there": (lambda: tu.measure(made().spec, "people.csv", PLACES), "people.csv"),
    "keys without their zeros": (lambda: measured(county=[1, 1, 1, 1, 2, 2]), "leading zeros"),
    "keys as floats in the table": (lambda: measured(county=[1.0] * 4 + [2.0] * 2), "leading zeros"),
    "keys that were floats": (lambda: measured(county=["1.0"] * 4 + ["2.0"] * 2), "leading zeros"),
    "counts below zero": (lambda: measured(n=[-48611, *COUNTS[1:]]), "a negative number"),
    "counts with a fraction": (lambda: measured(n=[48611.5, *COUNTS[1:]]), "a fraction"),
    "counts as words": (lambda: measured(n=["many"] * 6), "not a whole number"),
    "a missing count": (lambda: measured(n=[None, *COUNTS[1:]]), "no value"),
    "a value that is not declared": (lambda: measured(sex=["f", "x"] * 3), "outside the domain of 'sex'"),
    "a place that is not listed": (lambda: measured(town=["a", "a", "b", "b", "c", "z"]), "names no place"),
    "a cell twice": (lambda: measured(sex=["f"] * 6), "the same cell"),
    # verbs and records
    "a spec in place of a record": (lambda: tu.reconcile(made().spec), "Measurements"),
    "a table in place of measurements": (lambda: tu.reconcile(TABLE), "trueup.measure makes them"),
    "a path in place of a record": (lambda: tu.infer("towns"), "read_"),
    "an unknown method": (lambda: tu.reconcile(made().noisy, "topdown"), "tree-topdown"),
    "a method of another verb": (lambda: tu.infer(made().noisy, "tree-topdown"), "tree-topdown"),
    "draws as text": (lambda: tu.infer(made().noisy, draws="many"), "draws"),
    "a level beyond 1": (lambda: tu.infer(made().noisy, level=95), "'90%'"),
    "a report of a table": (lambda: tu.report(TABLE), "no report can be made of a DataFrame"),
    "an unknown table": (lambda: made().release.table("tract"), "no level 'tract'"),
    "an unknown attribute of a table": (lambda: made().release.table("town", by="age"), "'age'"),
    "an unknown library": (lambda: made().release.table("town", backend="excel"), "'pandas'"),
    "an unknown figure": (
        lambda: made().release.table("town", by="sex", wide="sex", figure="true"),
        "one of released",
    ),
    "wide by what is not there": (lambda: made().release.table("town", wide="age"), "'age' is not declared"),
    "a level in words": (lambda: made().release.table("town", level="high"), "not a probability"),
    "an area as a list": (lambda: made().posterior.area(["01/a", "02/c"]), "'town'"),
    "an area of an unknown level": (lambda: made().posterior.area({"village": ["a"]}), "no level 'village'"),
    "an area of an unknown place": (lambda: made().posterior.area({"town": ["01/z"]}), "01/z"),
    "an unknown quantity": (lambda: made().posterior.quantity("town"), "town"),
    "an unknown target": (lambda: tu.plan(made().problem, targets=["town better"]), "town better"),
    "a bundle that is none": (lambda: tu.read_release("tests"), "not a bundle"),
    "an unknown form": (lambda: tu.export("tests", "out", to="doc"), "xlsx|bundle"),
    "a neighbour of a public name": (lambda: tu.mesure, "measure"),
}


def answered(call) -> str:
    """What the caller is told."""
    with pytest.raises((tu.TrueupError, AttributeError)) as error:
        call()
    assert error.type is not AttributeError or "did you mean" in str(error.value)
    return str(error.value)


def shows_no_count(text: str) -> bool:
    return not any(str(count) in re.sub(r"[ ,]", "", text) for count in COUNTS)


@pytest.mark.parametrize("what", PYTHON)
def test_a_mistake_in_python_is_answered(what):
    call, words = PYTHON[what]
    said = answered(call)
    assert re.search(words, said), said
    assert shows_no_count(said)
    assert said.count("To do") <= 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The files of a beginner, many of them with a fault."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "towns.toml").write_text(SPEC)
    (folder / "typo.toml").write_text(SPEC.replace("privacy =", "privcay ="))
    (folder / "broken.toml").write_text(SPEC.replace('"Towns"', '"Towns'))
    TABLE.to_csv(folder / "towns.csv", index=False)
    PLACES.to_csv(folder / "places.csv", index=False)
    PLACES.to_csv(folder / "latin.csv", index=False, encoding="latin-1")
    PLACES.to_excel(folder / "places.xlsx", index=False)
    TABLE.to_excel(folder / "towns.xlsx", index=False)
    lines = (folder / "towns.csv").read_bytes().splitlines()
    (folder / "short.csv").write_bytes(b"\n".join([*lines[:3], lines[3].rpartition(b",")[0], *lines[4:]]))
    (folder / "mixed.csv").write_bytes(b"\r\n".join(lines[:3]) + b"\n" + b"\n".join(lines[3:]) + b"\n")
    (folder / "quote.csv").write_bytes(b"\n".join([*lines[:4], b'01,"b,f,70213', *lines[5:]]))
    (folder / "header.csv").write_bytes(lines[0] + b"\n")
    (folder / "empty.csv").write_bytes(b"")
    (folder / "utf16.csv").write_text("county,town,sex,n\n01,a,f,48611\n", encoding="utf-16")
    (folder / "towns.xls").write_bytes(b"")
    _table(county=[1, 1, 1, 1, 2, 2]).to_csv(folder / "zeros.csv", index=False)
    (folder / "taken").mkdir()
    (folder / "taken" / "file").write_text("")
    return folder


RELEASE = "release towns.toml --data {} --geography places.csv --out out"
COMMANDS = {
    "no spec": ("release", "SPEC"),
    "a spec that is not there": ("release nowhere.toml --data towns.csv --out out", "nowhere.toml"),
    "a key misspelt": ("explain typo.toml --geography places.csv", "did you mean 'privacy'"),
    "a spec that is no TOML": ("explain broken.toml", "line 3"),
    "the table in place of the spec": ("explain towns.csv", "is not TOML"),
    "no geography": ("release towns.toml --data towns.csv --out out", "--geography FILE"),
    "the folder in place of the spec": ("explain taken", "taken"),
    "a folder that is taken": (RELEASE.format("towns.csv").replace("--out out", "--out taken"), "taken"),
    "short rows": (RELEASE.format("short.csv"), "line 4 of 'short.csv' cannot be read: it has 3 fields"),
    "mixed line endings": (
        RELEASE.format("mixed.csv"),
        "line 3 of 'mixed.csv' cannot be read: it ends in LF",
    ),
    "an open quotation mark": (RELEASE.format("quote.csv"), "line 5 of .* it holds a quotation mark"),
    "latin-1": (
        RELEASE.format("towns.csv").replace("places.csv", "latin.csv"),
        "line 4 .*--encoding latin-1",
    ),
    "an encoding that is none": (
        f"{RELEASE.format('towns.csv')} --encoding latin-99",
        "encoding 'latin-99' is unknown",
    ),
    "another encoding": (
        f"{RELEASE.format('towns.csv').replace('places.csv', 'latin.csv')} --encoding utf-16",
        "'latin.csv' cannot be read in the encoding 'utf-16'",
    ),
    "a header alone": (RELEASE.format("header.csv"), "a header but no rows"),
    "an empty file": (RELEASE.format("empty.csv"), "'empty.csv' is empty"),
    "UTF-16": (RELEASE.format("utf16.csv"), "UTF-16|header"),
    "an ending that is not known": (RELEASE.format("towns.xls"), "unknown file extension"),
    "keys without their zeros": (RELEASE.format("zeros.csv"), "leading zeros"),
    "a misspelt option": (f"{RELEASE.format('towns.csv')} --geograpy places.csv", "--geography"),
    "a misspelt command": ("relase towns.toml", "release"),
    "a method that is none": ("explain towns.toml --geography places.csv --method best", "best"),
    "memory in words": (f"{RELEASE.format('towns.csv')} --memory lots", "800MB"),
    "a ledger that is not there": (
        f"{RELEASE.format('towns.csv')} --ledger none.db --analyst ana",
        "trueup budget init",
    ),
    "an analyst without a ledger": (f"{RELEASE.format('towns.csv')} --analyst ana", "--ledger"),
    "check of no bundle": ("check taken", "not a bundle"),
    "export in an unknown form": ("export taken --to doc --out out", "xlsx|bundle"),
    "infer of no bundle": ("infer towns.csv --out out", "is not TOML"),
    "assess without a truth": ("assess towns.toml --out out", "--data"),
    "plan of an unknown target": ("plan towns.toml --geography places.csv --target nonsense", "nonsense"),
    "a cap in words": (
        "budget init l.db --dataset towns --unit person --neighbours add-remove --cap much",
        "much",
    ),
    "resume of nothing": ("release --resume out.run", "out.run"),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_mistake_on_the_command_line_is_answered(what, folder, monkeypatch):
    words, wanted = COMMANDS[what]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    before = sorted(path.name for path in folder.iterdir())
    done = run(*words.split())
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode in (2, 3, 4), said
    assert re.search(wanted, said), said
    assert "internal error" not in said
    assert "Traceback" not in said
    assert shows_no_count(said)
    assert said.count("To do") <= 1
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is left half-written"


def test_workbooks_and_other_encodings_are_read(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for data, places, out in (("towns.xlsx", "places.xlsx", "a"), ("towns.csv", "latin.csv", "b")):
        done = run(
            *f"release towns.toml --data {data} --geography {places} --encoding latin-1 --out {out}".split()
        )
        assert done.returncode == 0, done.stderr
    assert "Châlons" in tu.read_release(folder / "b").table("town")["town name"].tolist()


def test_a_missing_extra_is_named(folder, monkeypatch):
    made()  # while everything is there
    plain = builtins.__import__
    hidden = ("xarray", "arviz", "openpyxl", "polars", "pandas", "pyarrow")

    def without(name, *arguments, **options):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(name)
        return plain(name, *arguments, **options)

    def absent(name, package=None):
        raise ImportError(name)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("trueup.errors.import_module", absent)
    calls = {
        "posterior": lambda: made().release.to_xarray(),
        "arviz": lambda: made().posterior.to_arviz(),
        "polars": lambda: made().release.table("town", backend="polars"),
        "excel": lambda: tu.Problem.of(made().spec, folder / "places.xlsx"),
    }
    for extra, call in calls.items():
        assert f"trueup[{extra}]" in answered(call), extra


def test_there_are_sixty_mistakes_and_an_answer_without_words_would_be_seen():
    assert len(PYTHON) + len(COMMANDS) >= 60
    with pytest.raises(pytest.fail.Exception):
        answered(lambda: None)
    with pytest.raises(TypeError):
        answered(lambda: len(3))
    assert not shows_no_count("town a holds 48,611 persons")
