"""Claim: a question is everything that the tabulation reads. Two specs whose answers differ on some table differ in digest.

Every key of six specs (counts, counts under parent pointers, a wide table, records of units, a family of tables whose values are
read by bins, dates and case, two linked tables) is changed in turn, and all specs that come of it are compared with each other on
tables in order and tables at fault. Which keys there are is asked of the spec's own parts.
"""

import copy
import json
import re
from dataclasses import fields
from functools import cache
from itertools import combinations

import numpy as np
import pandas
import pytest

from tests import linked_tables
from trueup.errors import DataError, InfeasibleError, TrueupError
from trueup.files import JoinedTables
from trueup.io.microdata.truncate import Limit
from trueup.ledger.questions import questions
from trueup.measuring import read_confidential
from trueup.model.build import build_constraints
from trueup.model.constraints import Constraints
from trueup.model.family import FamilyCells
from trueup.model.problem import public_cells
from trueup.model.reading import Reading, stated
from trueup.model.spec import Spec
from trueup.model.spec_document import SpecDocument
from trueup.model.spec_table import SpecPart

PLACES = pandas.DataFrame({"block": ["11", "12", "21"], "area": ["21", "11", "12"], "most": [9, 9, 9]})
COMMON = {
    "format": 2,
    "title": "t",
    "level": [
        {"name": "all"},
        {"name": "county", "column": "block", "prefix": 1},
        {"name": "block", "column": "block", "label": "area"},
    ],
    "query": [{"name": "q", "attributes": ["sex"], "epsilon": {"block": "1/2"}}],
}
SEX = {"name": "sex", "column": "sex", "values": ["f", "m"]}
AGE = {
    "name": "age",
    "values": ["0", "1", "2"],
    "recode": [{"name": "band", "groups": {"young": ["0", "1"], "old": ["2"]}}],
}
COUNTS = {
    **COMMON,
    "table": {"name": "t", "kind": "counts", "counts": "person", "count": "n", "file": "x"},
    "privacy": {"unit": "person", "neighbours": "add-remove"},
    "attribute": [SEX, AGE],
    "constraints": {
        "zeros": [{"band": "old", "sex": "m"}],
        "bounds": [
            {"level": "county", "attributes": ["sex"], "where": {"sex": "f"}, "lower": 0, "upper": 60}
        ],
        "linear": [{"rule": "f <= 2 * m + 60", "level": "county"}],
    },
}
WIDE = {
    **COMMON,
    "table": {
        "name": "t",
        "kind": "counts",
        "counts": "person",
        "cell": [{"count": "a + b", "where": {"sex": "f"}}, {"count": "c", "where": {"sex": "m"}}],
    },
    "privacy": {"unit": "person", "neighbours": "add-remove"},
    "attribute": [{"name": "sex", "values": ["f", "m"]}],
    "constraints": {"bounds": [{"level": "all", "upper": 200}]},
}
RECORDS = {
    **COMMON,
    "table": {"name": "t", "kind": "records", "counts": "visit"},
    "privacy": {"unit": "person", "neighbours": "add-remove", "id": "pid", "contribution": {"records": 2}},
    "attribute": [SEX, AGE],
}
READ = {
    **COMMON,
    "table": {"name": "t", "kind": "records", "counts": "visit"},
    "privacy": {"unit": "visit", "neighbours": "add-remove"},
    "attribute": [
        {"name": "sex", "values": ["F", "M"], "fold": True, "missing": "none", "other": "odd"},
        {"name": "age", "column": "years", "bins": [0, 1, 2], "missing": "none", "other": "odd"},
        {"name": "day", "values": ["2019", "2020"], "date": "year", "missing": "none", "other": "odd"},
    ],
    "query": [
        {"name": "by sex", "attributes": ["sex"], "epsilon": {"block": "1/2"}},
        {"name": "by age", "attributes": ["age"], "epsilon": {"county": "1/2"}},
        {"name": "by day", "attributes": ["day"], "epsilon": {"all": "1/2"}},
    ],
}
POINTERS = {
    **COUNTS,
    "level": [{"name": "all"}, {"name": "county"}, {"name": "block"}],
    "parents": {"id": "block", "parent": "up"},
}
UNDER = pandas.DataFrame(
    {"block": ["top", "1", "2", "11", "12", "21"], "up": ["", "top", "top", "1", "1", "2"], "most": 9}
).assign(area=lambda t: t["block"].to_numpy()[::-1], number=lambda t: t["block"])
JOINED = {
    **linked_tables.document(),
    "level": COMMON["level"],
    "attribute": [
        {
            "name": "age",
            "values": ["child", "adult", "old"],
            "recode": [{"name": "band", "groups": {"young": ["child"], "grown": ["adult", "old"]}}],
        },
        {"name": "tenure", "of": "household", "values": ["own", "rent"]},
        {"name": "head", "of": "reference", "column": "sex", "values": ["f", "m"]},
        {"name": "size", "persons": {}},
        {"name": "children", "persons": {"band": "young"}},
        {"name": "lease", "of": "household", "values": ["own", "rent"]},
    ],
    "query": [
        linked_tables.gaussian(
            "households", "household", ["size", "children", "tenure", "head"], {"all": "1"}
        ),
        linked_tables.gaussian("persons", "person", ["age"], {"all": "1"}),
    ],
    "constraints": {"zeros": [{"size": "4", "tenure": "rent"}]},
}
WORDS = [
    "a + c",
    "f <= m",
    "households without persons",
    "persons without a household",
    "band",
    "county",
    "most",
]
WORDS += [
    "sex",
    "gender",
    "SEX",
    "age",
    "years",
    "block",
    "area",
    "n",
    "k",
    "a",
    "b",
    "c",
    "pid",
    "hid",
    "number",
]
WORDS += [
    "relation",
    "role",
    "tenure",
    "own",
    "rent",
    "f",
    "m",
    "month",
    "2019-03",
    "up",
    "0",
    "1",
    "2",
    "child",
    "adult",
    "old",
    "young",
    "x",
]


def mutants(document):
    """Every document in which one key has another value, lacks it, or holds less, more or in another order; with the key."""
    rng = np.random.default_rng(47)
    for path in _paths(document):
        for value in _others(_at(document, path), rng):
            changed = copy.deepcopy(document)
            *above, last = path
            holder = _at(changed, above)
            if value is None:
                del holder[last]
            else:
                holder[last] = value
            yield path, changed
            if isinstance(last, str) and isinstance(holder, dict) and value is None:
                yield path, _renamed(document, path)


def _renamed(document, path):
    """A key that is a name, such as a group of a recode, under another one."""
    changed = copy.deepcopy(document)
    holder = _at(changed, path[:-1])
    items = [(f"{k} too" if k == path[-1] else k, v) for k, v in holder.items()]
    holder.clear()
    holder.update(items)
    return changed


def _paths(part, path=()):
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, held in items:
        yield (*path, key)
        yield from _paths(held, (*path, key))


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def _others(value, rng):
    yield None
    if isinstance(value, str):
        yield from (word for word in rng.choice(WORDS, 5, replace=False).tolist() if word != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value - 1, value + 1, value + 40)
    elif isinstance(value, list):
        yield value[::-1]
        if value and isinstance(value[0], str):
            yield [*value, "x"]
            yield value[1:]
            yield ["f", *value[1:]]


ADDED = {
    "counts": [
        ("attribute", 0, "partition", False),
        ("constraints", "nonnegative", False),
        ("constraints", "bounds", 0, "upper", "most"),
        ("table", "keys", "public"),
        ("table", "place", ["block"]),
        ("table", "place", ["county", "block"]),
    ],
    "joined": [
        ("table", "join", "apart", ["households without persons"]),
        ("table", "join", "apart", ["persons without a household", "persons of unknown households"]),
        ("table", "join", "apart", ["households with several reference persons"]),
        ("attribute", 0, "column", "years"),
        ("attribute", 1, "column", "lease"),
        ("attribute", 5, "of", "person"),
        ("attribute", 5, "of", "reference"),
        ("attribute", 4, "persons", {"band": "grown"}),
    ],
    "wide": [],
    "records": [("attribute", 0, "partition", False)],
    "read": [
        ("attribute", 2, {"name": "day", "values": ["2019-01", "2019-02"], "date": "month", "other": "odd"}),
        ("attribute", 1, "bins", [0, 2]),
        ("attribute", 2, "form", "DD.MM.YYYY"),
    ],
    "pointers": [("parents", {"id": "number", "parent": "up"})],
}
MOST = {"counts": 45, "wide": 45, "records": 45, "read": 45, "pointers": 12, "joined": 25}
"""Specs of each kind that are compared with each other: 4,320 pairs; of linked tables 21 where that has to be fast."""
FEW = 7
BASES = {
    "counts": COUNTS, "wide": WIDE, "records": RECORDS, "read": READ, "pointers": POINTERS, "joined": JOINED,
}  # fmt: skip


@cache
def specs_of(name):
    """All specs that can be read of those with one key changed; and the keys that were changed in one of them."""
    found, keys = {}, set()
    added = []
    for *path, last, value in ADDED[name]:
        changed = copy.deepcopy(BASES[name])
        _at(changed, path)[last] = value
        added.append(((*path, last, *(value if isinstance(value, dict) else ())), changed))
    for path, document in [((), BASES[name]), *mutants(BASES[name]), *added]:
        try:
            spec = Spec.model_validate(document)
            cells = public_cells(spec, geography=UNDER if spec.parents else PLACES)
            build_constraints(spec, cells)
        except ValueError:
            continue
        if cells.n <= 4000:
            found.setdefault(spec.text(), (spec, cells))
            keys |= {key for key in path if isinstance(key, str)}
    order = np.random.default_rng(48).permutation(len(found))
    return [list(found.values())[i] for i in order[: MOST[name]]], keys


def tables_of(name, rng):
    """Tables in order, and some at fault, each with further columns that a changed spec may name."""
    if name == "joined":
        return [_linked(rng, fault) for fault in ("", "age", "sex", "hid", "twice", "vacant")]
    made = [_single(name, rng) for _ in range(5)]
    if name == "read":
        return [_odd(table, rng) if at else table for at, table in enumerate(made)]
    if name != "wide":
        made[1].loc[0, "sex"] = "x"
        made[2].loc[0, "age"] = "3"
    made[3].loc[0, "block"] = "99"
    if name == "records":
        made[4].loc[0, "pid"] = None
        for column in ("pid", "hid", "number"):  # of units with one record each
            made[0][column] = rng.permutation(len(made[0])).astype(str)
    return made


def _single(name, rng):
    keys = [(b, s, a) for b in PLACES["block"] for s in "fm" for a in "012" if (s, a) != ("m", "2")]
    if name == "pointers":
        keys = [(b, s, a) for b in ("11", "12", "21") for s in "fm" for a in "012" if (s, a) != ("m", "2")]
    if name == "wide":
        rows = [{"block": b, "area": a} for b, a in zip(PLACES["block"], PLACES["area"])]
    else:
        rows = [{"block": b, "sex": s, "age": a, "gender": s, "years": a, "area": b} for b, s, a in keys]
    table = pandas.DataFrame(rows * (3 if name in ("records", "read") else 1))
    table["day"] = rng.choice(["2019-01-05", "2019-02-07", "2020-03-01", "2019"], len(table))
    for column in ("n", "k", "a", "b", "c"):
        table[column] = rng.integers(0, 30, len(table))
    for column in ("pid", "hid", "number"):
        table[column] = rng.integers(0, 20, len(table)).astype(str)
    for column in {"gender", "years", "area"} & set(table) if name in ("records", "read") else ():
        table[column] = rng.permutation(table[column])
    return table


def _odd(table, rng):
    """Values of other case, that are missing, and that are listed nowhere."""
    for column, odd in (
        ("sex", ["F", " f ", "", "X"]),
        ("years", ["", "9", "-1", "x"]),
        ("day", ["", "2021-01-01", "May"]),
    ):
        at = rng.integers(0, len(table), 6)
        table.loc[at, column] = rng.choice(odd, len(at))
    return table


def _linked(rng, fault):
    tables = linked_tables.population(rng, 12, PLACES)
    persons, households = tables.persons.reset_index(drop=True), tables.households.copy()
    households["lease"] = households["tenure"].to_numpy()[::-1]
    households["area"], households["number"] = households["block"], households["hid"].to_numpy()[::-1]
    persons["years"], persons["gender"] = persons["age"].to_numpy()[::-1], persons["sex"].to_numpy()[::-1]
    persons["role"], persons["number"] = persons["relation"], persons["hid"]
    persons["role"] = persons["role"].replace({"other": "x"})
    if fault == "age":
        persons.loc[0, "age"] = "x"
    if fault == "sex":
        persons.loc[persons["relation"] == "ref", "sex"] = [
            "x",
            *persons.loc[persons["relation"] == "ref", "sex"],
        ][:12]
    if fault == "hid":
        persons.loc[0, "hid"] = "nowhere"
    if fault == "twice":
        persons.loc[:, "relation"] = "ref"
    if fault == "vacant":
        households.loc[len(households)] = {
            **households.iloc[0].to_dict(),
            "hid": "vacant",
            "number": "vacant",
        }
    return JoinedTables(persons, households)


def outcome(spec, cells, table):
    """What comes of a table: counts by what they count of which columns, or that it is refused, and what that is about."""
    limit = Limit.of(spec, lambda: b"\0" * 32)
    try:
        counts = read_confidential(spec, cells, table, limit, build_constraints(spec, cells))
    except (DataError, InfeasibleError) as error:
        return "refused", error.about
    except TrueupError as error:
        return "refused", type(error).__name__
    if limit is not None and limit.dropped:  # which ones is drawn anew in every run
        return "counted", {"all": int(counts.sum()), "dropped": limit.dropped}
    if isinstance(cells, FamilyCells):  # whose tables are sums of the whole cross, which is small here
        cells = cells.whole
        counts = read_confidential(spec, cells, table, limit, Constraints(cells, ()))
    names = _column_names(spec)
    places = list(zip(*(column.tolist() for column in cells.tree.keys[-1].values())))
    shape = cells.shape
    held = {}
    for at in np.flatnonzero(counts):
        place, *values = np.unravel_index(at, shape)
        labels = [f"{names.get(a.name, a.name)}={a.values[v]}" for a, v in zip(cells.attributes, values)]
        key = (places[place] if places else (), tuple(sorted(_by_columns(label, names) for label in labels)))
        held[key] = held.get(key, 0) + int(counts[at])
    return "counted", held


def _column_names(spec):
    """Attributes by the columns that they are read from: their own names are of no account."""
    if spec.table.join is None:
        return {a.name: (a.column or a.name) if not spec.table.cells else a.name for a in spec.attributes}
    linked = Reading.of(spec).kept["linked"]
    return {a.name: json.dumps(next(x for x in linked if stated(a).items() <= {**x, "persons": None}.items()
                                    or (x["column"] == (a.column or a.name) and x.get("of") == a.of)))
            for a in spec.table.join.attributes}  # fmt: skip


def _by_columns(label, names):
    head, colon, rest = label.partition(": ")
    if not colon or not head.startswith("record="):
        return label
    pairs = (pair.split("=", 1) for pair in re.split(r", (?=\w+=)", rest))
    return head + ": " + ", ".join(sorted(f"{names.get(name, name)}={value}" for name, value in pairs))


def digests(spec, cells):
    return frozenset(q.digest for q in questions(spec, cells)), json.dumps(
        [Reading.of(spec).plain(), cells.tree.digest], sort_keys=True, default=str
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("counts", 200),
        ("wide", 100),
        ("records", 200),
        ("read", 200),
        ("pointers", 10),
        pytest.param("joined", 100, marks=pytest.mark.slow),
    ],
)
def test_specs_whose_answers_differ_on_some_table_differ_in_digest(name, least, rng):
    """So many pairs of specs differ at least: 700 together, of which each one's digests differ too."""
    assert differing(specs_of(name)[0], tables_of(name, rng)) >= least


@pytest.mark.slow
def test_specs_of_linked_tables_whose_answers_differ_differ_in_digest(rng):
    assert differing(specs_of("joined")[0][:FEW], tables_of("joined", rng)) > 5


def differing(specs, tables):
    """How many pairs of specs differ on some table, after a look at their digests."""
    known = [(digests(s, c), [outcome(s, c, t) for t in tables]) for s, c in specs]
    compared = 0
    for (one, first), (other, second) in combinations(known, 2):
        both = [(a, b) for a, b in zip(first, second) if a != b]
        if any("refused" in (a[0], b[0]) for a, b in both):
            assert one[0] != other[0], "one is refused and the other is not, or for another reason"
        if any(a[0] == b[0] == "counted" for a, b in both):
            assert one[1] != other[1], "both are counted, otherwise"
        compared += bool(both)
    return compared


@pytest.mark.thorough
def test_every_key_of_a_spec_is_changed():
    """A new key of the parts that a tabulation reads has to be changed here too, and a new part has to be read or named here."""
    changed = set().union(*(specs_of(name)[1] for name in BASES))
    parts = {kind for kind in _parts(SpecPart) if kind.__module__ == "trueup.model.spec_table"}
    keys = {field.alias or key for kind in parts for key, field in kind.model_fields.items()}
    # By trueup; of no account; not by itself.
    written = {"views", "neighbours", "unit", "kind"}
    assert keys - changed <= written, keys - changed - written
    unread = {"format", "title", "queries", "left_out", "about", "reconcile", "infer"}
    assert set(SpecDocument.model_fields) == {f.name for f in fields(Reading)} | {"constraints"} | unread


def _parts(kind):
    for part in kind.__subclasses__():
        yield part
        yield from _parts(part)


@pytest.mark.thorough
def test_the_bar_is_able_to_fail(rng):
    """Digests that leave out who the reference person is, as they did, are found out."""
    other = copy.deepcopy(JOINED)
    other["table"]["join"]["reference"]["column"] = "role"
    pair = [Spec.model_validate(d) for d in (JOINED, other)]
    cells = [public_cells(s, geography=PLACES) for s in pair]
    differ = [
        outcome(pair[0], cells[0], t) != outcome(pair[1], cells[1], t) for t in tables_of("joined", rng)
    ]
    assert any(differ)
    without = [s.table.model_dump(include={"kind", "counts", "count", "cells"}) for s in pair]
    assert without[0] == without[1], "what a digest was made of"
