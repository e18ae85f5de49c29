"""Claim: any count of units in a set of cells can be an invariant: published as enumerated, and kept by every release.

Sets are given by values, recodes and places, and by unions of these; the twin counts the records that a condition meets one
by one. Broken on purpose: a released count, an enumerated value and the condition that it is said to count.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.io.nmf_writer import write_nmf
from trueup import infer, measure, reconcile, release
from trueup.checking.bundle import check as check_bundle
from trueup.errors import InfeasibleError, SpecError, TrueupError
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.io.bundle.manifest import digest
from trueup.io.bundle.read import read_measurements
from trueup.ledger.questions import invariants
from trueup.model.build import build_constraints
from trueup.model.cells import Margin
from trueup.model.mechanism_on_lattice import invariant_matrix, invariants_over
from trueup.model.problem import Problem, public_cells
from trueup.model.spec import load_spec, parse_spec
from trueup.model.spec_queries import BoundPart
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.margins_projection import MarginsProjection
from trueup.reconciling.tree_topdown import TreeTopDown
from trueup.releasing.engine import plan_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SEXES, AGES, COUNTIES = ("f", "m"), ("young", "middle", "old"), ("A", "B", "C")
HEAD = """
format = 2
title = "Counting invariants"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "all" }, { name = "county", column = "c" }]
[[attribute]]
name = "sex"
values = ["f", "m"]
[[attribute]]
name = "age"
values = ["young", "middle", "old"]
recode = [{ name = "adult", groups = { no = ["young"], yes = ["middle", "old"] } }]
"""
LISTED = """
format = 2
title = "Few tables"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "all" }]
attribute = [{ name = "sex", values = ["f", "m"] }, { name = "age", values = ["young", "middle", "old"] }]
query = [{ name = "q", attributes = ["sex", "age"], epsilon = { all = "1/2" } }]
constraints = { invariants = [{ level = "all", where = { sex = "f" } }, { level = "all", attributes = ["age"] }] }
"""
CASES = {
    "{ level = 'county', where = { sex = 'f' } }": lambda c, s, a: s == "f",
    "{ level = 'all', where = { adult = 'yes', sex = 'm' } }": lambda c, s, a: s == "m" and a != "young",
    "{ level = 'all', where = { county = 'B' } }": lambda c, s, a: c == "B",
    "{ level = 'all', where = [{ county = 'A', sex = 'f' }, { county = 'C' }, { age = 'old' }] }": lambda c, s, a: (
        (c == "A" and s == "f") or c == "C" or a == "old"
    ),
    "{ level = 'county', attributes = ['age'], where = [{ county = 'A' }, { sex = 'm' }] }": lambda c, s, a: (
        c == "A" or s == "m"
    ),
    "{ level = 'county', where = { county = 'A' } }": lambda c, s, a: c == "A",
    "{ level = 'county', where = [{ age = 'middle' }, { age = 'old' }, { age = 'young' }], weights = [2, 5, 1] }": (
        lambda c, s, a: {"young": 1, "middle": 2, "old": 5}[a]
    ),
    "{ level = 'all', where = [{ sex = 'f' }, { county = 'B', adult = 'yes' }], weights = [1, -2] }": lambda c, s, a: (
        (s == "f") - 2 * (c == "B" and a != "young")
    ),
}
"""Invariants, and how often each counts a record."""


def frame(rng):
    rows = [{"c": c, "sex": s, "age": a} for c, s, a in product(COUNTIES, SEXES, AGES)]
    return pandas.DataFrame(rows).assign(n=rng.integers(0, 60, len(rows)))


def spec_of(invariants, noise="discrete-laplace", budget="epsilon", more=""):
    query = f"query = [{{ name = 'q', attributes = ['sex', 'age'], noise = '{noise}', {budget} = {{ county = '1/2' }} }}]"
    top, attributes = HEAD.split("[[attribute]]", 1)
    held = f"constraints = {{ invariants = [{', '.join(invariants)}] }}"
    return parse_spec(f"{top}\n{query}\n{held}\n{more}\n[[attribute]]{attributes}")


def twin(invariant, holds, data):
    """The invariant's values, record by record."""
    groups = ["c"] if "level = 'county'" in invariant else []
    groups += ["age"] if "['age']" in invariant else []
    times = np.array([int(holds(row.c, row.sex, row.age)) for row in data.itertuples()])
    met = data.assign(n=data["n"] * times)[times != 0]
    if not groups:
        return [int(met["n"].sum())]
    order = [list(product(COUNTIES, AGES)) if "age" in groups else [(c,) for c in COUNTIES]][0]
    sums = met.groupby(groups)["n"].sum()
    present = {key if isinstance(key, tuple) else (key,): int(value) for key, value in sums.items()}
    return [present[key] for key in order if key in present]


@pytest.mark.parametrize("invariant", CASES)
def test_an_invariant_counts_the_units_that_meet_its_condition(invariant, rng):
    data = frame(rng)
    spec = spec_of([invariant])
    noisy = measure(spec, data)
    assert noisy.values[-1].tolist() == twin(invariant, CASES[invariant], data)
    rows = invariant_matrix(build_constraints(spec, noisy.cells)).toarray()
    assert (rows @ data["n"].to_numpy()).tolist() == noisy.values[-1].tolist()


@pytest.mark.parametrize("invariant", CASES)
@pytest.mark.parametrize(
    "noise", ["discrete-laplace", "discrete-gaussian", "lattice-laplace", "lattice-gaussian"]
)
def test_every_noise_keeps_every_invariant(invariant, noise, rng):
    data = frame(rng)
    spec = spec_of([invariant], noise, "rho" if "gaussian" in noise else "epsilon")
    noisy = measure(spec, data)
    rows = invariant_matrix(build_constraints(spec, noisy.cells))
    fixed = (rows @ data["n"].to_numpy()).tolist()
    if noise.startswith("lattice"):
        assert (rows @ noisy.values[0]).tolist() == fixed
    released = reconcile(noisy, spec=spec)
    assert all(released.checks.values())
    assert (rows @ released.counts).tolist() == fixed


def test_several_invariants_that_cross(rng):
    data, crossing = frame(rng), list(CASES)[:4]
    for noise in ("discrete-laplace", "lattice-laplace"):
        spec = spec_of(crossing, noise)
        noisy = measure(spec, data)
        rows = invariant_matrix(build_constraints(spec, noisy.cells))
        assert (rows @ reconcile(noisy, spec=spec).counts).tolist() == (rows @ data["n"].to_numpy()).tolist()


def test_the_rows_over_a_coarser_table_are_those_that_sum_its_groups(rng):
    spec = spec_of(
        ["{ level = 'all', where = { adult = 'yes' } }", "{ level = 'all', where = { sex = 'f' } }"]
    )
    cells = public_cells(spec, frame(rng))
    constraints = build_constraints(spec, cells)
    over = invariants_over(constraints, Margin("county", ("age",)))
    assert over.toarray().tolist() == [[0, 1, 1] * 3]
    assert invariants_over(constraints, Margin("county", ("adult",))).toarray().tolist() == [[0, 1] * 3]
    assert invariants_over(constraints, Margin("county")).shape == (0, 3)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The paper's example, released end to end with noise that keeps its three sums."""
    folder = tmp_path_factory.mktemp("crossing") / "out"
    release(EXAMPLES / "crossing-sums.toml", EXAMPLES / "crossing-sums.csv", folder)
    return folder


@pytest.mark.thorough
def test_the_papers_example_is_released_and_verified(bundle):
    found = {finding.rule: finding.holds for finding in check_bundle(bundle)}
    assert all(found.values())
    assert [f"the invariant 'all where in {name}=yes' is as enumerated" in found for name in "ABC"] == [
        True
    ] * 3
    manifest = json.loads((bundle / "public/manifest.json").read_text())
    enumerated = [entry for entry in manifest["headers"] if entry["query"] == "invariant"]
    assert [entry["where"] for entry in enumerated] == [[{f"in {name}": "yes"}] for name in "ABC"]
    assert {entry["status"] for entry in enumerated} == {"published exactly as enumerated"}
    data = pandas.read_csv(EXAMPLES / "crossing-sums.csv")
    measured = pandas.read_parquet(bundle / "public/measurements/part-0-00000.parquet").set_index("query")
    for name in "ABC":
        row = measured.loc[f"invariant where in {name}=yes"]
        assert row["exact"]
        assert row["value"].tolist() == [
            int(data["n"][data["kind"].str.split().str[0].str.contains(name)].sum())
        ]


def broken(bundle, tmp_path, change):
    """A copy of the bundle with something changed and all digests made to fit."""
    from shutil import copytree

    folder = tmp_path / "broken"
    copytree(bundle, folder)
    path = folder / "public/manifest.json"
    manifest = json.loads(path.read_text())
    change(folder / "public", manifest)
    manifest["files"] = {name: digest(folder / "public" / name) for name in manifest["files"]}
    path.write_text(json.dumps(manifest))
    try:
        return [finding.rule for finding in check_bundle(folder) if not finding.holds]
    except TrueupError as error:
        return [str(error)]


def test_a_count_that_breaks_an_invariant_is_found(bundle, tmp_path):
    def change(public, manifest):
        path = public / "counts/all-kind.parquet"
        table = pandas.read_parquet(path)
        table.loc[0, "count"] += 1
        table.loc[2, "count"] -= 1  # the total stays
        table.to_parquet(path)

    found = broken(bundle, tmp_path, change)
    assert any("in A=yes" in rule for rule in found)
    assert any("in B=yes" in rule for rule in found)
    assert not any("in C=yes" in rule for rule in found)


def test_an_enumerated_value_that_was_altered_is_found(bundle, tmp_path):
    def change(public, manifest):
        path = public / "measurements/part-0-00000.parquet"
        table = pandas.read_parquet(path)
        table.loc[table["exact"], "value"] = table.loc[table["exact"], "value"].map(lambda values: values + 1)
        table.to_parquet(path)

    assert broken(bundle, tmp_path, change)


def test_a_condition_that_was_altered_is_found(bundle, tmp_path):
    def change(public, manifest):
        manifest["headers"][1]["where"] = [{"in A": "no"}]

    assert broken(bundle, tmp_path, change)


@pytest.mark.slow
def test_the_posterior_of_the_papers_example(bundle):

    measured = read_measurements(bundle)
    spec = load_spec(EXAMPLES / "crossing-sums.toml")
    posterior = infer(measured, spec=spec, draws=200)
    rows = invariant_matrix(build_constraints(spec, measured.cells))
    draws = posterior.draws.reshape(-1, measured.cells.n)
    fixed = np.concatenate(measured.values[1:])
    assert (np.asarray((rows @ draws.T).T) == fixed).all()
    assert draws.min() >= 0


def test_a_posterior_that_is_listed_states_no_table_of_some_units_alone(rng, tmp_path):
    """Its tables are named by level and attributes: a count of some units would stand in the place of the count of all."""
    data = frame(rng).query("c == 'A'").assign(n=3)
    spec = parse_spec(LISTED)
    posterior = infer(measure(spec, data), LatticeMoves(enumerate=10**6), spec=spec, draws=20)
    assert posterior.drawn.marginals
    assert not any(margin.where for margin in posterior.drawn.marginals)


def test_a_noisy_measurement_file_refuses_conditions(rng, tmp_path):
    spec = spec_of(["{ level = 'all', where = { sex = 'f' } }"])
    with pytest.raises(SpecError, match="meet a condition"):
        write_nmf(tmp_path, spec, measure(spec, frame(rng)))


def test_methods_that_do_not_know_conditions_refuse_by_name(rng):
    spec = spec_of(["{ level = 'all', where = { sex = 'f' } }"])
    noisy = measure(spec, frame(rng))
    for method in (TreeTopDown(), HistogramTree(), MarginsProjection(rounding="none")):
        with pytest.raises(SpecError, match="general"):
            reconcile(noisy, method, spec=spec)
    with pytest.raises(SpecError, match="general"):
        infer(noisy, TreeExact(), spec=spec)


def test_a_release_by_parts_refuses_by_name(rng):
    spec = spec_of(["{ level = 'all', where = { county = 'A' } }"])
    with pytest.raises(SpecError, match="has a condition"):
        plan_of(Problem.of(spec, data=frame(rng)))


@pytest.mark.parametrize(
    ("invariant", "message"),
    [
        ("{ level = 'all', where = { sex = 'x' } }", "unknown value of 'sex' 'x'"),
        ("{ level = 'all', where = { sek = 'f' } }", "unknown attribute 'sek'"),
        ("{ level = 'all', where = { county = 'Z' } }", "'Z', which is not a place of level 'county'"),
        ("{ level = 'all', where = [{ sex = 'f' }, {}] }", "where"),
        ("{ level = 'all', where = { age = 'young', adult = 'yes' } }", "a recode of it only once"),
        ("{ level = 'all', where = { sex = 'f' }, weights = [1, 2] }", "2 weights for 1 conditions"),
        ("{ level = 'all', weights = [2] }", "1 weights for 0 conditions"),
        ("{ level = 'all', where = { sex = 'f' }, weights = [0] }", "other than zero"),
        ("{ level = 'all', where = { sex = 'f' }, weights = [0.5] }", "weights"),
        ("{ level = 'all', where = [{ sex = 'f' }, { sex = 'f' }], weights = [1, -1] }", "counts no cell"),
        ("{ level = 'all', where = { county = 'A', all = 'B' } }", "not a place of level 'all'"),
    ],
)
def test_what_is_refused_in_a_condition(invariant, message, rng):
    with pytest.raises(SpecError, match=message):
        build_constraints(spec := spec_of([invariant]), public_cells(spec, frame(rng)))


def test_invariants_that_contradict_a_rule_are_named(rng):
    """All women are published, and a bound says that there are fewer: no counts hold both."""
    spec = spec_of(["{ level = 'all', where = { sex = 'f' } }"])
    noisy = measure(spec, frame(rng).assign(n=5))
    few = BoundPart(level="all", attributes=("sex",), upper=3, where={"sex": "f"})
    rules = spec.constraints.model_copy(update={"bounds": (few,)})
    with pytest.raises(InfeasibleError, match="where sex=f"):
        reconcile(noisy, spec=spec.model_copy(update={"constraints": rules}))


def test_the_smallest_change_that_keeps_a_weighted_sum(rng):
    """Persons in households of 1, 2 and 3: three change for others, or one of 1 and one of 3 for two of 2."""
    attribute = "[[attribute]]\nname = 'size'\nvalues = ['1', '2', '3']\n"
    persons = (
        "{ level = 'all', where = [{ size = '1' }, { size = '2' }, { size = '3' }], weights = [1, 2, 3] }"
    )
    head = HEAD.split("[[attribute]]", 1)[0].replace("person", "household")
    query = "query = [{ name = 'q', attributes = ['size'], noise = 'lattice-laplace', epsilon = { all = '1/2' } }]"
    data = pandas.DataFrame({"c": "A", "size": ["1", "2", "3"], "n": [30, 20, 10]})
    for relation, steps, norm in (("add-remove", 3, 3), ("replace", 2, 4)):
        spec = parse_spec(
            f"{head}\n{query}\nconstraints = {{ invariants = [{persons}] }}\n{attribute}".replace(
                "replace", relation
            )
        )
        problem = Problem.of(spec, data=data)
        change = problem.guarantee.change
        assert change is not None
        assert (change.steps, change.norm) == (steps, norm)
        assert measure(problem, data).values[0] @ [1, 2, 3] == 100


@pytest.mark.thorough
def test_a_weighted_sum_is_released_verified_and_inferred(rng, tmp_path):
    data = frame(rng).query("c == 'A'")
    weighted = [name.replace("'B'", "'A'") for name in CASES if "weights" in name]
    text = tmp_path / "spec.toml"
    source = tmp_path / "data.csv"
    data.to_csv(source, index=False)
    top, attributes = HEAD.split("[[attribute]]", 1)
    query = "query = [{ name = 'q', attributes = ['sex', 'age'], epsilon = { county = '1/2' } }]"
    text.write_text(
        f"{top}{query}\nconstraints = {{ invariants = [{', '.join(weighted)}] }}\n[[attribute]]{attributes}"
    )
    release(text, source, tmp_path / "out")
    found = {finding.rule: finding.holds for finding in check_bundle(tmp_path / "out")}
    assert all(found.values())
    assert sum("x age=old" in rule or "-2 x" in rule for rule in found) == 2
    measured = read_measurements(tmp_path / "out")
    rows = invariant_matrix(build_constraints(load_spec(text), measured.cells))
    draws = infer(measured, spec=load_spec(text), draws=50).draws.reshape(-1, measured.cells.n)
    assert (np.asarray((rows @ draws.T).T) == np.concatenate(measured.values[1:])).all()

    def change(public, manifest):
        manifest["headers"][1]["weights"] = [-3, 1]

    assert broken(tmp_path / "out", tmp_path, change)


def test_weights_are_part_of_what_an_account_remembers(rng):
    where = "where = [{ sex = 'f' }, { age = 'old' }]"
    specs = [
        spec_of([f"{{ level = 'all', {where}{more} }}"])
        for more in ("", ", weights = [1, 2]", ", weights = [2, 1]")
    ]
    asked = [invariants(spec, public_cells(spec, frame(rng)))[0] for spec in specs]
    assert len({question.digest for question in asked}) == len({question.text for question in asked}) == 3
