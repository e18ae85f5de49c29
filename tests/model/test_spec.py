"""The spec: what is read, and what is refused with its place and a remedy."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from tests.model.bad_input import SPEC
from trueup.errors import SpecError
from trueup.model.build import build_cells, build_constraints
from trueup.model.constraints import violations
from trueup.model.spec import load_spec, parse_spec
from trueup.model.spec_table import AttributePart
from trueup.model.tree import Tree

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def test_budgets_are_exact():
    spec = parse_spec(SPEC)
    assert spec.queries[0].budgets == {"all": Fraction(1, 10), "area": Fraction(1, 3)}
    assert spec.queries[1].budgets == {"area": Fraction(1)}


MISTAKES = [
    ('neighbours = "add-remove"', "", "privacy.neighbours is missing"),
    ('neighbours = "add-remove"', 'neighbours = "add_remove"', "privacy.neighbours"),
    ('all = "0.1"', 'all = "0"', "above zero"),
    ('all = "0.1"', 'all = "-1/2"', "above zero"),
    ('all = "0.1"', 'all = "inf"', "epsilon"),
    ('all = "0.1"', 'all = "nan"', "epsilon"),
    ('all = "0.1"', 'all = "half"', "epsilon"),
    ('all = "0.1"', "all = 0.1", "float"),
    ('all = "0.1"', "all = inf", "finite, exact"),
    ('all = "0.1"', "all = true", "epsilon"),
    ('all = "0.1"', 'nation = "0.1"', "unknown level 'nation'"),
    ('all = "0.1"', 'ara = "0.1"', "did you mean 'area'"),
    ('attributes = ["sex"]', 'attributes = ["sez"]', "did you mean 'sex'"),
    ('levels = ["area"]\nepsilon = 1', 'levels = ["area"]', "no budget is given"),
    ('levels = ["area"]\nepsilon = 1', "epsilon = 1", "the levels are named twice"),
    ('name = "by sex"', 'name = "by sex"\nnoise = "discrete-laplac"', "discrete-laplace"),
    ('name = "by sex"', 'name = "total"', "query 'total' is declared twice"),
    ('values = ["female", "male"]', 'values = ["male", "male"]', "declared twice"),
    ('values = ["female", "male"]', "values = []", "values"),
    ('name = "area"\ncolumn = "area"', 'name = "area"', "level 'area' has no column"),
    ("format = 2", "format = 1", "format"),
    ('title = "Areas"', 'title = "Areas"\ncolour = "red"', "colour is not a key"),
    ('count = "n"\n', "", "is given neither `count`"),
    ('kind = "counts"', 'kind = "records"', "is given `count` or"),
    ('title = "Areas"', "title = ", "not TOML"),
    ("[privacy]", '[constraints]\nlinear = ["female + >= male"]\n[privacy]', "position"),
    ('name = "sex"\n', 'name = "noisy"\n', "attribute 'noisy' has the name of a column of figures"),
    ('name = "sex"\n', 'name = "Area"\n', "published column 'area' is declared twice"),
    ('column = "area"', 'column = "n"', "column 'n' holds counts, so it cannot hold keys"),
    ('name = "area"\ncolumn', 'name = "ALL"\ncolumn', "'all' and 'ALL' differ only in case or punctuation"),
    ('name = "area"\ncolumn', 'name = "all.area"\ncolumn', "consists of the name of level 'all', a dot"),
    (
        "[privacy]",
        '[parents]\nid = "id"\nparent = "up"\n[privacy]',
        "'area' names columns, but `parents` already says",
    ),
    ("[privacy]", '[constraints]\nzeros = [{ sex = "other" }]\n[privacy]', "unknown value of 'sex'"),
]
AGE = 'values = ["0-17", "18-64", "65+"]'
RECODE = SPEC.replace(
    'name = "sex"\nvalues = ["female", "male"]',
    f"""name = "age"
{AGE}
[[attribute.recode]]
name = "adult"
groups = {{ no = ["0-17"], yes = ["18-64", "65+"] }}""",
).replace('["sex"]', '["adult"]')
MISGROUPED = [
    ('["18-64", "65+"] }', '["18-64"] }', "recode 'adult' has no group for the value '65\\+'"),
    ('["18-64", "65+"] }', '["18-64", "0-17", "65+"] }', "lists the value '0-17' twice"),
    ('["18-64", "65+"] }', '["18-64", "65"] }', "unknown value of 'age' '65'; did you mean '65\\+'"),
    ('["18-64", "65+"] }', '["18-64", "65+"], maybe = [] }', "the group 'maybe' of"),
    ('no = ["0-17"], yes = [', 'all = ["0-17", ', "leave the recode out"),
    ('yes = ["18-64", "65+"] }', 'yes = ["18-64"], old = ["65+"] }', "leave the recode out"),
    ('name = "adult"', 'name = "age"', "attribute 'age' is declared twice"),
    ('name = "adult"', 'name = "area"', "published column 'area' is declared twice"),
    (AGE, AGE + "\npartition = false", "recode 'adult' sums values of 'age', which overlap"),
    ('attributes = ["adult"]', 'attributes = ["adult", "age"]', "'age' and 'adult', but may name 'age'"),
    ('attributes = ["adult"]', 'attributes = ["adlt"]', "did you mean 'adult'"),
    ("[privacy]", '[constraints]\nzeros = [{ adult = "65+" }]\n[privacy]', "unknown value of 'adult'"),
    (
        "[privacy]",
        '[constraints]\nzeros = [{ adult = "no", age = "65+" }]\n[privacy]',
        "may name 'age' or a recode of it only once",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[m[2][:30] + m[1][:12] for m in MISTAKES])
def test_mistakes_are_named(old, new, message):
    assert old in SPEC
    with pytest.raises(SpecError, match=message):
        parse_spec(SPEC.replace(old, new, 1))


@pytest.mark.parametrize(("old", "new", "message"), MISGROUPED, ids=[m[2][:40] for m in MISGROUPED])
def test_mistakes_in_recodes_are_named(old, new, message):
    assert old in RECODE
    with pytest.raises(SpecError, match=message):
        parse_spec(RECODE.replace(old, new, 1))


AGES = f"""{AGE}
[[attribute.recode]]
name = "adult"
groups = {{ no = ["0-17"], yes = ["18-64", "65+"] }}
[[attribute.recode]]
name = "retired"
groups = {{ no = ["0-17", "18-64"], yes = ["65+"] }}"""


@pytest.mark.parametrize(
    ("ages", "named"),
    [
        (AGES, "name 'age' alone, which tells apart all that they tell apart together"),
        (AGES.replace('"0-17"', '"0-4", "5-17"'), "name one recode of 'age' with groups = "
         '{ "no no" = ["0-4", "5-17"], "yes no" = ["18-64"], "yes yes" = ["65+"] }'),
        (AGES.replace('"0-17"', '"0-4", "5-17"') + """
[[attribute.recode]]
name = "stage"
groups = { child = ["0-4", "5-17"], adult = ["18-64"], old = ["65+"] }""", "name 'stage' alone"),
    ],
)  # fmt: skip
def test_two_recodes_of_one_attribute_are_told_how_to_be_one(ages, named):
    attribute = 'name = "sex"\nvalues = ["female", "male"]'
    assert attribute in SPEC
    spec = SPEC.replace(attribute, f'name = "age"\n{ages}').replace('["sex"]', '["adult", "retired"]')
    with pytest.raises(SpecError, match=r"'adult' and 'retired'.*only once") as caught:
        parse_spec(spec)
    assert named in str(caught.value)


def test_the_cross_of_two_recodes_of_many_values_is_not_spelt_out():
    values = [f"v{i}" for i in range(30)]
    recodes = [_in_threes("a", values, 0), _in_threes("b", values, 1)]
    whole = AttributePart.model_validate({"name": "age", "values": values, "recode": recodes})
    assert whole.crossed("a", "b").endswith("a group for each of the 20 pairs of groups that overlap")


def _in_threes(name, values, start):
    """Values three by three from a start, what comes before by itself."""
    held = [values[:start], *(values[i : i + 3] for i in range(start, len(values), 3))]
    return {"name": name, "groups": {f"g{i}": group for i, group in enumerate(held) if group}}


def test_a_recode_may_stand_for_its_attribute():
    rules = """
[constraints]
invariants = [{ level = "all", attributes = ["adult"] }]
bounds = [{ level = "area", attributes = ["age"], where = { adult = "no" }, upper = 9 }]
linear = ["yes >= no"]
"""
    spec = parse_spec(RECODE + rules)
    cells = build_cells(spec, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    constraints = build_constraints(spec, cells)
    assert constraints.bound_values(constraints.bounds[0])[1].tolist() == [9, np.inf, np.inf] * 2
    broken = violations(constraints, np.array([10, 3, 4, 5, 9, 9]))
    assert broken == ["bound at a, age=0-17", "'yes >= no' at a"]
    attribute = rules.replace('["age"], where = { adult = "no" }', '["adult"], where = { age = "0-17" }')
    with pytest.raises(SpecError, match="has a condition on 'age'"):
        build_constraints(parse_spec(RECODE + attribute), cells)


def test_rules_hold_for_real_counts_to_within_their_accuracy_and_for_whole_ones_exactly():
    spec = parse_spec(RECODE + '[constraints]\nlinear = ["2 * yes <= 3 * no"]\n')
    cells = build_cells(spec, Tree.from_columns(["all", "area"], [{}, {"area": ["a"]}]))
    constraints = build_constraints(spec, cells)
    broken = ["'2 * yes <= 3 * no' at a"]
    assert violations(constraints, np.array([1.0, 0.9, 0.9])) == broken  # 3.6 > 3; truncated: 2 <= 3
    assert not violations(constraints, np.array([1.9, 1.0, 1.85 + 1e-9]))  # 5.7 = 5.7; truncated: 4 > 3
    assert violations(constraints, np.array([2**53, 0, 3 * 2**52 + 1])) == broken
    assert not violations(constraints, np.array([2**53, 0, 3 * 2**52]))


@pytest.mark.parametrize("wrong", ["1", "1.5", "true", '"x"', "[]", "[1]", "{}", "{ x = 1 }", "1979-05-27"])
@pytest.mark.parametrize("key", ["table", "privacy", "level", "query", "attribute", "constraints", "title"])
def test_no_message_is_in_the_words_of_the_library(key, wrong):
    parts = {"format": "1", "title": '"T"', "table": "3", "privacy": "3", "level": "3", "query": "3"}
    text = "\n".join(f"{k} = {v}" for k, v in {**parts, key: wrong}.items())
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert not re.search(r"Input|instance|valid|dict|tuple|\bstr\b", str(caught.value))


@pytest.mark.parametrize("part", ["[infer]", '[reconcile]\nmethod = "multinomial-mode"'])
def test_a_quoted_number_in_a_prior_is_refused_by_the_parser(part):
    parse_spec(f'{SPEC}\n{part}\nprior = {{ name = "poisson", mean = 3 }}\n')
    with pytest.raises(SpecError, match="'mean' of prior 'poisson' is not a number"):
        parse_spec(f'{SPEC}\n{part}\nprior = {{ name = "poisson", mean = "3" }}\n')


def test_all_mistakes_are_told_at_once():
    with pytest.raises(SpecError) as caught:
        parse_spec(SPEC.replace('unit = "person"', "").replace('all = "0.1"', 'all = "0"'))
    assert "privacy.unit is missing" in str(caught.value)
    assert "above zero" in str(caught.value)
    assert "at least 1 item" not in str(caught.value), "a fault inside a query is no missing query"


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(SpecError, match="cannot read the spec"):
        load_spec(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="is not text"):
        load_spec(tmp_path / "binary.toml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_valid_by_parser_and_schema(path):
    import tomllib

    load_spec(path)
    schema = json.loads((ROOT / "docs" / "spec.schema.json").read_text())
    jsonschema.validate(tomllib.loads(path.read_text()), schema)


@pytest.mark.parametrize(
    ("verb", "entry", "good"),
    [
        ("reconcile", {"method": "multinomial-mode", "prior": {"name": "poisson", "mean": [1, 2]}}, True),
        ("reconcile", {"method": "multinomial-mode", "prior": {"name": "poisson", "mean": "many"}}, False),
        ("infer", {}, True),
        ("infer", {"method": "tree-exact", "prior": {"name": "flat-total", "upper": 9}}, True),
        ("infer", {"method": "tree-exact", "quantity": [{"name": "r", "numerator": "a"}]}, True),
        ("infer", {"method": "tree-exact", "prior": "jeffreys"}, False),
        ("infer", {"method": "tree-exact", "quantity": [{"name": "r"}]}, False),
        ("infer", {"method": "gibbs"}, False),
    ],
)
def test_the_schema_knows_the_methods_of_both_verbs(verb, entry, good):
    from trueup.schema import spec_schema

    schema = spec_schema()
    part = {**schema["properties"][verb], "$defs": schema["$defs"]}
    assert jsonschema.Draft202012Validator(part).is_valid(entry) == good


def test_the_committed_schema_is_current():
    from trueup.schema import spec_schema

    committed = json.loads((ROOT / "docs" / "spec.schema.json").read_text())
    assert committed == json.loads(json.dumps(spec_schema())), "run: trueup schema > docs/spec.schema.json"
