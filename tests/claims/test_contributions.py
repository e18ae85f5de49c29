"""Claim: no unit contributes more than the spec says, whatever the table holds, and the stated loss rests on that alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from math import isqrt
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.parameters import one_in
from trueup.errors import DataError, PrivacyError, SpecError
from trueup.files.database import connect
from trueup.io.microdata import truncate
from trueup.io.microdata.by_parts import tabulate_by_parts
from trueup.io.microdata.tabulate import read_counts
from trueup.io.microdata.truncate import Limit, kept_sql, truncated
from trueup.ledger.questions import questions
from trueup.model.mechanism import plan_measurements
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.model.statements import DECLARED
from trueup.noise.law import Sensitivity
from trueup.privacy.contribution import Records
from trueup.releasing import pipeline
from trueup.releasing.pipeline import release
from trueup.run.local import LocalPool

SPEC = """
format = 2
title = "Stays"
table = {{ name = "stays", kind = "records", counts = "stay" }}
privacy = {{ unit = "patient", neighbours = "{relation}", id = "patient", contribution = {{ records = {records} }} }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}]
attribute = [{{ name = "ward", values = ["x", "y", "z"], partition = false }}]
query = [
  {{ name = "total", epsilon = {{ all = "1/2", area = "1/3" }} }},
  {{ name = "wards", attributes = ["ward"], epsilon = {{ all = "1/5", area = "1" }} }},
]
"""
PLACES = pandas.DataFrame({"area": ["a", "b"]})
GAUSSIAN = SPEC.replace("epsilon = {{", 'noise = "discrete-gaussian", rho = {{')
LIMITED = parse_spec(SPEC.format(relation="add-remove", records=2))
CELLS = public_cells(LIMITED, geography=PLACES)
HELD = [(), *(c for n in (1, 2, 3) for c in combinations_with_replacement((0, 1, 5), n))]
"""All records that one unit may have: up to three, in three of the six cells."""
KEYS = ["a7", "5e", "11"]
"""Keys under which each of three records is the one that is dropped, in turn."""
OTHERS = [(), (0,), (0, 1, 5), (0, 0, 0)]
"""What another unit has meanwhile."""


def counts_of(limit: Limit, database: dict[str, tuple[int, ...]]) -> np.ndarray:
    """Counts `(6,)` of the records that the units of a database keep."""
    rows = [(unit, cell, n) for unit, held in database.items() for cell, n in Counter(held).items()]
    unit, cell, n = zip(*rows) if rows else ((), (), ())
    counts = np.zeros(CELLS.n, np.int64)
    np.add.at(counts, *truncated(limit, np.array(unit, dtype=object), np.array(cell, int), np.array(n, int)))
    return counts


def tables_of(records: int, key: str, other: tuple[int, ...] = ()) -> np.ndarray:
    """Counts `(held, 6)` of all that one unit may have, beside what another one has."""
    return _tables_of(records, key, other, truncate.kept_sql)


@cache
def _tables_of(records: int, key: str, other: tuple[int, ...], kept_sql) -> np.ndarray:
    limit = Limit("patient", records, key)  # which records it keeps, `kept_sql` says, right or wrong
    return np.array([counts_of(limit, {"one": held, "other": other}) for held in HELD])


def moved(tables: np.ndarray, margin) -> tuple[np.ndarray, np.ndarray]:
    """L1 and squared L2 distances `(held, held)` of one margin's sums."""
    sums = np.array([CELLS.sum(table, margin) for table in tables])
    by = sums[:, None] - sums
    return np.abs(by).sum(axis=-1), (by * by).sum(axis=-1)


def neighbouring(relation: str) -> np.ndarray:
    """Which `(held, held)` a relation calls neighbours."""
    nobody = np.array([not held for held in HELD])
    return nobody[:, None] | nobody | (relation == "replace")


def largest_distances(records: int, key: str) -> dict[tuple[str, object], tuple[int, int]]:
    """The largest L1 and squared L2 distance of neighbours in every measured table, by enumeration of all of them."""
    measured = {h.margin for h in plan_measurements(LIMITED, CELLS)[0]}
    largest: dict[tuple[str, object], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for other, margin in product(OTHERS, measured):
        l1, l2_squared = moved(tables_of(records, key, other), margin)
        for relation in ("add-remove", "replace"):
            near, most = neighbouring(relation), largest[relation, margin]
            largest[relation, margin] = (
                max(most[0], int(l1[near].max())),
                max(most[1], int(l2_squared[near].max())),
            )
    return largest


def of_laplace(law, l1: int, l2_squared: int) -> Fraction:
    """The loss of neighbours at that distance: the largest log ratio of the law's masses."""
    assert abs(float(law.epsilon * l1) - (law.logpmf(0) - law.logpmf(l1))) < 1e-12
    return law.epsilon * l1


def of_gaussian(law, l1: int, l2_squared: int) -> Fraction:
    """The loss of neighbours at that distance: the Renyi divergence of every order a is a times this (at order 2, of masses)."""
    moved, half = isqrt(l2_squared), 20 * int(law.variance**0.5 + 1)
    k = np.arange(-half, half + 1)
    if moved**2 == l2_squared:
        divergence = np.log(np.exp(2 * law.logpmf(k - moved) - law.logpmf(k)).sum())
        assert abs(divergence - l2_squared / float(law.sigma2)) < 1e-9
    return Fraction(l2_squared) / (2 * law.sigma2)


LOSSES = {"laplace": (SPEC, of_laplace), "gaussian": (GAUSSIAN, of_gaussian)}


def understated(noise: str, records: int, key: str) -> bool:
    """Whether a stated loss is below the true one, which the law's masses give.

    Where it is not, it equals it: the neighbours that attain it are among those enumerated.
    """
    text, loss = LOSSES[noise]
    largest, below = largest_distances(records, key), False
    for relation in ("add-remove", "replace"):
        spec = parse_spec(text.format(relation=relation, records=records))
        headers, guarantee = plan_measurements(spec, CELLS)
        for header, charge in zip(headers, guarantee.charges, strict=True):
            true = loss(header.law, *largest[relation, header.margin])
            below |= charge.amount < true
            assert below or charge.amount == true
    return below


@pytest.fixture
def one_database(monkeypatch):
    """One database for all enumerated tables: a fresh one for each takes most of the time."""
    with connect() as shared:
        monkeypatch.setattr(truncate, "connect", shared.cursor)
        yield


@pytest.mark.thorough
@pytest.mark.usefixtures("one_database")
@pytest.mark.parametrize("noise", LOSSES)
@pytest.mark.parametrize(("records", "key"), one_in(2, [(1, "00"), *((2, key) for key in KEYS), (3, "3c")]))
def test_the_stated_loss_is_the_true_one_over_all_neighbours(noise, records, key):
    assert not understated(noise, records, key)


def joint_loss(spec, loss, key: str) -> Fraction:
    """The largest loss of neighbours over all queries together, by enumeration, each with what it moves in each of them."""
    tables = tables_of(spec.privacy.contribution.records, key)
    headers, loss = plan_measurements(spec, CELLS)[0], cache(loss)
    distances = [moved(tables, h.margin) for h in headers]
    near = neighbouring(spec.privacy.neighbours)
    pairs = set(zip(*(d[near].tolist() for both in distances for d in both), strict=True))
    return max(
        sum((loss(h.law, *pair[2 * i : 2 * i + 2]) for i, h in enumerate(headers)), Fraction(0))
        for pair in pairs
    )


QUERIES = {
    "all of them": lambda text: text,
    "no single total": lambda text: text.replace('all = "1/2", ', ""),
    "the total alone": lambda text: text.replace(', area = "1/3"', "").replace(
        text[text.index('  {{ name = "wards"') :], "]\n"
    ),
}


@pytest.mark.usefixtures("one_database")
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("queries", one_in(2, QUERIES))
@pytest.mark.parametrize("noise", LOSSES)
def test_it_says_exactly_where_all_queries_together_lose_that_much(noise, queries, relation):
    """Under `replace` nobody moves a total and a table as far as each alone can be moved: then it says at most."""
    text, loss = QUERIES[queries](LOSSES[noise][0]), LOSSES[noise][1]
    for records in (1, 2, 3):
        spec = parse_spec(text.format(relation=relation, records=records))
        guarantee = plan_measurements(spec, CELLS)[1]
        worst, said = joint_loss(spec, loss, "a7"), "costs exactly" in guarantee.sentences[0]
        assert worst <= guarantee.amount
        assert said == (worst == guarantee.amount)
        assert said == (relation == "add-remove" or queries != "all of them")


@pytest.mark.usefixtures("one_database")
def test_the_keys_that_are_enumerated_drop_different_records():
    kept = {tuple(np.flatnonzero(tables_of(2, key)[HELD.index((0, 1, 5))])) for key in KEYS}
    assert kept == {(0, 1), (0, 5), (1, 5)}


BOUNDS = {
    "not doubled under replace": lambda n, relation, cells: Sensitivity(Fraction(n), Fraction(n**2)),
    "R in place of R^2": lambda n, relation, cells: Sensitivity(
        *[Fraction((1 + (relation == "replace" and cells > 1)) * n)] * 2
    ),
}


@pytest.mark.usefixtures("one_database")
@pytest.mark.parametrize("wrong", BOUNDS)
def test_the_enumeration_sees_a_wrong_bound_of_the_squared_distance(wrong, monkeypatch):
    monkeypatch.setattr(
        Records, "sensitivity", lambda self, relation, *, cells: BOUNDS[wrong](self.records, relation, cells)
    )
    assert understated("gaussian", 2, "a7")


WRONG = {
    "every record is kept": lambda limit, named="named": f"SELECT cell, count FROM {named}",
    "the choice looks at other units": lambda limit, named="named": kept_sql(limit, named).replace(
        "|| ordinal ||", f"|| ordinal || (SELECT sum(count * (cell + 1)) FROM {named}) ||"
    ),
    "one record too many is kept": lambda limit, named="named": kept_sql(
        Limit(limit.column, limit.records + 1, limit.key), named
    ),
}


@pytest.mark.thorough
@pytest.mark.usefixtures("one_database")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("noise", LOSSES)
def test_the_enumeration_sees_a_limit_that_is_none(noise, wrong, monkeypatch):
    monkeypatch.setattr(truncate, "kept_sql", WRONG[wrong])
    assert understated(noise, 2, "a7")


def twin(limit: Limit, people: pandas.DataFrame) -> list[tuple[int, int]]:
    """Cells and counts of the records that are kept, slowly and in Python."""
    kept: Counter[int] = Counter()
    for unit, held in people.groupby("patient").cell:
        ordinals, ranked = Counter(), []
        for cell in held:
            text = f"{limit.key}|{cell}|{ordinals[cell]}|{unit}"
            ranked.append((hashlib.sha256(text.encode()).hexdigest(), cell))
            ordinals[cell] += 1
        kept.update(cell for _, cell in sorted(ranked)[: limit.records])
    return sorted(kept.items())


def _people(rng, rows: int) -> pandas.DataFrame:
    cell = rng.integers(0, 6, rows)
    return pandas.DataFrame(
        {
            "patient": rng.choice(["7", "07", "é|1", "x y", "'", *map(str, range(50))], rows),
            "area": np.array(["a", "b"])[cell // 3],
            "ward": np.array(["x", "y", "z"])[cell % 3],
            "cell": cell,
        }
    )


def _written(people: pandas.DataFrame, folder: Path, parts: int) -> Path:
    folder.mkdir()
    for i in range(parts):
        people[i::parts].to_parquet(folder / f"part-{i}.parquet")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("records", [1, 3, 10])
def test_memory_parts_and_grouped_rows_keep_the_same_records_as_the_twin(tmp_path, rng, records):
    """A unit's records lie in several files; counted before (as Spark does) or not, the same are kept."""
    people = _people(rng, 600)
    spec = parse_spec(SPEC.format(relation="replace", records=records))
    wanted = twin(Limit("patient", records, "5e"), people)
    assert sum(n for _, n in wanted) < 600
    grouped = people.groupby(["patient", "area", "ward"], as_index=False).size().rename(columns={"size": "n"})
    files, counted = _written(people, tmp_path / "files", 3), _written(grouped, tmp_path / "counted", 2)
    for source in (people, files):
        limit = Limit("patient", records, "5e")
        counts = read_counts(spec, CELLS, source, limit)
        assert [(i, n) for i, n in enumerate(counts.tolist()) if n] == wanted
        assert limit.dropped == 600 - counts.sum()
    for i, (source, rows) in enumerate([(people, None), (files, None), (counted, "n")]):
        limit = Limit("patient", records, "5e")
        out = tabulate_by_parts(
            spec,
            CELLS,
            source,
            tmp_path / f"out{i}",
            np.array([0, 1]),
            rows=rows,
            limit=limit,
            memory="100MB",
        )
        parts = [out.read(0), out.read(1)]
        assert [(int(p * 3 + c), int(n)) for o in parts for p, c, n in zip(*o)] == wanted
        assert limit.dropped == 600 - sum(n for _, n in wanted)


def _share_of_the_rare(named: str) -> float:
    """How often one record is kept that is the fourth of its unit, the other three being alike."""
    units = 40_000
    unit = np.repeat(np.array([f"u{i}" for i in range(units)], dtype=object), 2)
    cell, count = np.tile([0, 1], units), np.tile([3, 1], units)
    kept = dict(zip(*(a.tolist() for a in truncated(Limit("unit", 1, named), unit, cell, count))))
    return kept[1] / units


def test_no_kind_of_record_is_favoured(monkeypatch):
    """A quarter, within six standard errors of .0022; by the unit and the cell alone it would be a half."""
    assert abs(_share_of_the_rare("b1") - 0.25) < 0.013
    favours = lambda limit, named="named": kept_sql(limit, named).replace("|| ordinal ||", "||")  # noqa: E731
    monkeypatch.setattr(truncate, "kept_sql", favours)
    assert abs(_share_of_the_rare("b1") - 0.25) > 0.2


@pytest.mark.parametrize("empty", [None, "", "  "])
@pytest.mark.parametrize("by_parts", [False, True])
def test_an_empty_identifier_is_refused_by_its_row(tmp_path, empty, by_parts):
    people = pandas.DataFrame({"patient": ["7", "8", empty], "area": list("aba"), "ward": list("xyz")})
    files, limit = _written(people, tmp_path / "files", 1), Limit("patient", 2, "5e")
    read = read_counts if not by_parts else _tabulated
    with pytest.raises(DataError, match=r"column 'patient' has no value in row 3 of 'files'"):
        read(LIMITED, CELLS, files, limit)


def _tabulated(spec, cells, source, limit):
    return tabulate_by_parts(spec, cells, source, source.parent / "out", np.array([0, 1]), limit=limit)


def test_nothing_is_tabulated_without_the_limit(tmp_path):
    people = pandas.DataFrame({"patient": ["7"], "area": ["a"], "ward": ["x"]})
    with pytest.raises(PrivacyError, match="without the limit"):
        read_counts(LIMITED, CELLS, people)
    with pytest.raises(PrivacyError, match="without the limit"):
        tabulate_by_parts(LIMITED, CELLS, people, tmp_path / "out", np.array([0, 1]))


TEXT = SPEC.format(relation="replace", records=2)
BAD_SPECS = {
    "no limit on the records": TEXT.replace(", contribution = { records = 2 }", ""),
    "the table holds counts": TEXT.replace('kind = "records"', 'kind = "counts", count = "n"'),
    "identifies units": TEXT.replace('id = "patient"', 'id = "ward"'),
    "leave out the invariants": TEXT + '[constraints]\ninvariants = [{ level = "all" }]\n',
    "already follows": TEXT.replace('name = "total",', 'name = "total", contribution = { cells = 1 },'),
    "records": TEXT.replace("records = 2", "records = 0"),
}


@pytest.mark.parametrize("said", BAD_SPECS)
def test_a_limit_that_cannot_be_enforced_is_refused(said):
    with pytest.raises(SpecError, match=said):
        parse_spec(BAD_SPECS[said])


def _sentences(text: str) -> str:
    spec = parse_spec(text)
    return " ".join(plan_measurements(spec, public_cells(spec, geography=PLACES))[1].sentences)


def test_every_bound_that_is_not_enforced_is_said_to_be_declared():
    bare = TEXT.replace(', id = "patient", contribution = { records = 2 }', "").replace(
        ", partition = false", ""
    )
    stated = bare.replace("attributes", "contribution = { cells = 3, each = 2 }, attributes").replace(
        'name = "total",', 'name = "total", contribution = { cells = 1, each = 9 },'
    )
    alike = bare.replace('unit = "patient"', 'unit = "stay"')
    for text in (TEXT.replace('id = "patient", ', ""), stated, alike):
        assert DECLARED in _sentences(text)
    assert DECLARED not in _sentences(TEXT)
    assert "Each patient keeps at most 2 of its records" in _sentences(TEXT)


def _run(executor, folder: Path, people: pandas.DataFrame) -> None:
    (folder / "spec.toml").write_text(TEXT)
    PLACES.to_csv(folder / "places.csv", index=False)
    given = (folder / "spec.toml", _written(people, folder / "people", 3), folder / "out")
    if executor is None:
        release(*given, geography=folder / "places.csv")
    else:
        pipeline.release(*given, geography=folder / "places.csv", executor=executor)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["memory", "parts", pytest.param("spark", marks=pytest.mark.slow)])
def test_what_was_dropped_and_the_key_stay_internal(tmp_path, rng, request, engine):
    """On Spark equal records of a unit are counted where they live."""
    people = _people(rng, 600)
    executor = request.getfixturevalue("cluster") if engine == "spark" else LocalPool(1)
    _run(None if engine == "memory" else executor, tmp_path, people)
    note = json.loads((tmp_path / "out" / "internal" / "run.json").read_text())["contribution"]
    kept = int(np.minimum(people.patient.value_counts(), 2).sum())
    assert (note["records"], note["dropped"]) == (2, 600 - kept)
    assert len(bytes.fromhex(note["key"])) == 32
    public = [p.read_bytes() for p in (tmp_path / "out" / "public").rglob("*") if p.is_file()]
    assert not any(note["key"].encode() in held or b"dropped" in held for held in public)


def test_a_rule_about_other_kept_records_is_another_question():
    """Whether a rule holds on five or six kept records a unit are two exact answers; a ledger counts both."""
    rule = '[constraints]\nbounds = [{ level = "area", lower = 1 }]\n'
    asked = []
    for records in (2, 3):
        spec = parse_spec(SPEC.format(relation="replace", records=records) + rule)
        asked.append(questions(spec, CELLS))
    rules = [[q.digest for q in each if q.is_rule] for each in asked]
    assert len(rules[0]) == 1
    assert rules[0] != rules[1]
    assert [q.text for q in asked[0] if q.first == "ids"] == ["column 'patient' has a value in every row"]
