"""Several tables in one release: whole, agreeing, margins of one table of records, without their full cross."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse

import trueup as tu
from tests.families import CLINICS, DIAGNOSES, ministry, random_family, random_ring, visits
from trueup.checking.bundle import check
from trueup.errors import BundleError, SpecError
from trueup.kernel.histogram import cell_groups
from trueup.model import changes, family
from trueup.model.cells import Margin
from trueup.model.constraints import Bound, Constraints, violations
from trueup.model.family import FamilyCells
from trueup.model.header import simulate_many
from trueup.model.perturbed import parse_perturbed
from trueup.model.problem import Problem
from trueup.reconciling.family_tree import FamilyTree
from trueup.releasing.pipeline import release
from trueup.synth.own_places import made_up_counts

VISITS = {"unit": "visit", "neighbours": "add-remove"}
"""Invariants are of all records, not of those that a limit keeps."""


def truth_of(cells: FamilyCells, rng: np.random.Generator, mean: float = 3.0) -> np.ndarray:
    """Counts of all tables of random records."""
    whole = rng.poisson(mean * rng.gamma(0.5, 2, cells.whole.n))
    return cells.tally(np.flatnonzero(whole), whole[whole > 0])


def has_records(cells: FamilyCells, counts: np.ndarray) -> bool:
    """Whether a nonnegative table of the full cross has these tables as margins."""
    last = len(cells.tree.levels) - 1
    rows = []
    for table in cells.tables:
        combinations = cell_groups(cells.whole.marginal(table.attributes))
        each = int(combinations.max()) + 1
        group = np.add.outer(each * cells.tree.ancestors(last, cells.tree.level(table.level)), combinations)
        shape = (cells.size(table), group.size)
        rows.append(
            scipy.sparse.csr_array((np.ones(group.size), (group.ravel(), np.arange(group.size))), shape)
        )
    found = scipy.optimize.linprog(np.zeros(cells.whole.n), A_eq=scipy.sparse.vstack(rows), b_eq=counts)
    return found.status == 0


def test_one_table_may_stop_above_the_lowest_places_and_leave_attributes_out():
    towns = pd.DataFrame({"county": ["a", "a", "b", "b"], "town": ["a1", "a2", "b1", "b2"]})
    rows = pd.DataFrame({"town": ["a1", "b2", "b1", "b1"], "sex": ["f", "m", "f", "f"]})
    spec = tu.Spec.of(
        rows, ["county", "town"], {"sex": ["f", "m"]}, public=towns, tables=["county"], epsilon=50
    )
    with pytest.raises(SpecError, match=r"do not determine.*method = 'family-tree'"):
        tu.reconcile(tu.measure(Problem.of(spec.model_copy(update={"reconcile": {}}), towns), rows))
    problem = Problem.of(spec, towns)
    assert [str(table) for table in problem.cells.finest_tables] == ["county"]
    assert tu.reconcile(tu.measure(problem, rows)).counts.tolist() == [1, 3]  # another once in 10^21 releases


@pytest.mark.thorough
@pytest.mark.parametrize("estimates", ["posterior-means", "least-squares"])
def test_tables_are_whole_agree_and_are_margins_of_records(estimates, rng):
    method, places = FamilyTree(estimates=estimates), set()
    for _ in range(25):
        cells, headers = random_family(rng)
        places.add(len(cells.tree.levels))
        constraints = Constraints(cells, tuple(h.margin for h in headers))
        values = simulate_many(cells, truth_of(cells, rng), headers, rng, 3)
        solution = method.apply(method.prepare(constraints, headers), values, rng)
        assert solution.status.name == "SOLVED"
        for counts in solution.values:
            assert violations(constraints, counts) == []
            assert counts.dtype.kind == "i"
            for header in headers:
                for _, sums in cells.tables_holding(counts, header.margin):
                    np.testing.assert_array_equal(sums, cells.sum(counts, header.margin))
        assert has_records(cells, solution.values[0])
    assert places == {1, 2, 3}


def test_tables_that_disagree_are_found(rng):
    cells, headers = random_family(rng)
    counts = truth_of(cells, rng)
    constraints = Constraints(cells, tuple(h.margin for h in headers))
    assert violations(constraints, counts) == []
    counts[0] += 1
    assert any("agreement" in rule for rule in violations(constraints, counts))


def test_rows_of_values_are_reconciled_as_one_by_one(rng):
    cells, headers = random_family(rng)
    constraints = Constraints(cells, tuple(h.margin for h in headers))
    values = simulate_many(cells, truth_of(cells, rng), headers, rng, 4)
    state, method = FamilyTree().prepare(constraints, headers), FamilyTree()
    together = method.apply(state, values, np.random.default_rng(3)).values
    seeds = np.random.default_rng(3)
    one_by_one = [method.apply(state, row, seeds).values for row in values]
    np.testing.assert_array_equal(together, one_by_one)


def test_invariants_and_zeros_are_kept(rng):
    """An invariant on what two tables share, and a zero of one table that closes a cell of another."""
    cells = Problem.of(ministry(), CLINICS).cells
    fixed = (Margin("region"), Margin("clinic"))
    zeros = ({"chapter": "B"}, {"sex": "f", "age": "65+"})
    problem = Problem.of(
        ministry(
            privacy=VISITS,
            queries=[
                {"name": "people", "attributes": ["sex", "age"], "epsilon": {"district": "1"}},
                {"name": "diagnoses", "attributes": ["diagnosis"], "epsilon": {"region": "1"}},
                {"name": "chapters", "attributes": ["chapter", "month"], "epsilon": {"country": "1"}},
            ],
            constraints={
                "invariants": [{"level": m.level} for m in fixed],
                "zeros": [dict(zero) for zero in zeros],
            },
        ),
        CLINICS,
    )
    table = visits(rng)
    table = table[(table.diagnosis.str[0] != "B") & ~((table.sex == "f") & (table.age == "65+"))]
    assert isinstance(problem.cells, FamilyCells)
    assert cells.tables != problem.cells.tables
    released = tu.reconcile(tu.measure(problem, table))
    assert all(released.checks.values())
    kept = released.measurements.exact("clinic")
    assert kept.all()
    np.testing.assert_array_equal(released.sums("clinic"), released.measurements.shown("clinic"))
    assert released.sums("country x chapter x month").reshape(4, 12)[1].sum() == 0


def test_invariants_that_cross_what_tables_share_are_refused():
    spec = ministry(
        privacy=VISITS,
        queries=[
            {"name": "a", "attributes": ["sex", "age"], "epsilon": {"district": "1"}},
            {"name": "b", "attributes": ["sex", "month"], "epsilon": {"district": "1"}},
        ],
        constraints={
            "invariants": [
                {"level": "country", "attributes": ["age"]},
                {"level": "country", "attributes": ["month"]},
            ]
        },
    )
    with pytest.raises(SpecError, match="crosses another invariant"):
        tu.explain(Problem.of(spec, CLINICS), simulate=False)


def test_a_constraint_on_what_no_table_holds_is_refused():
    spec = ministry(constraints={"zeros": [{"sex": "f", "month": "01"}]})
    with pytest.raises(SpecError, match="no query measures"):
        tu.explain(Problem.of(spec, CLINICS), simulate=False)


@pytest.mark.thorough
@pytest.mark.parametrize("estimates", ["posterior-means", "least-squares"])
def test_bounds_within_one_table_are_kept(estimates, rng):
    """Bounds as tight as the truth bind almost always: without them some count of most families lies outside."""
    method, outside = FamilyTree(estimates=estimates), []
    for _ in range(15):
        cells, headers = random_family(rng)
        truth = truth_of(cells, rng)
        margin = headers[rng.integers(len(headers))].margin
        sums = cells.sum(truth, margin)
        upper = np.where(rng.random(len(sums)) < 0.3, np.inf, sums + rng.integers(0, 2, len(sums)))
        bound = Bound(margin, np.maximum(sums - rng.integers(0, 3, len(sums)), 0).astype(float), upper)
        free = Constraints(cells, tuple(h.margin for h in headers))
        constraints = replace(free, bounds=(bound,))
        assert method.refuses(constraints) is None
        values = simulate_many(cells, truth, headers, rng, 2)
        solution = method.apply(method.prepare(constraints, headers), values, rng)
        assert solution.status.name == "SOLVED"
        assert not [fault for counts in solution.values for fault in violations(constraints, counts)]
        assert has_records(cells, solution.values[0])
        unbounded = method.apply(method.prepare(free, headers), values, rng).values[0]
        outside.append(bool(violations(constraints, unbounded)))
    assert sum(outside) > 7


def test_bounds_that_do_not_bind_change_nothing(rng):
    cells, headers = random_family(rng)
    free = Constraints(cells, tuple(h.margin for h in headers))
    wide = replace(free, bounds=(Bound(headers[0].margin, 0, 10**6),))
    values = simulate_many(cells, truth_of(cells, rng, 30.0), headers, rng, 3)
    # the table with the bound is settled first, so that only least squares is the same for certain
    states = [FamilyTree(rounding="none").prepare(c, headers) for c in (free, wide)]
    found = [state.estimates(values, headers[-1].margin) for state in states]
    np.testing.assert_array_equal(*found)


def test_bounds_of_two_tables_are_refused(rng):
    bounds = [
        {"level": "district", "attributes": ["sex"], "upper": 9000},
        {"level": "region", "attributes": ["diagnosis"], "upper": 9000},
    ]
    with pytest.raises(SpecError, match="bounds that all lie within one table"):
        tu.explain(Problem.of(ministry(constraints={"bounds": bounds}), CLINICS), simulate=False)


@pytest.mark.thorough
def test_a_release_keeps_bounds_within_one_of_its_tables(tmp_path, rng):
    table = visits(rng)
    most = int(table.merge(CLINICS).groupby(["region", "diagnosis"]).size().max())
    given = {"bounds": [{"level": "region", "attributes": ["diagnosis"], "upper": most}]}
    released = release(ministry(constraints=given), table, tmp_path / "out", geography=CLINICS)
    assert released.sums("region x diagnosis").max() <= most
    assert all(finding.holds for finding in check(tmp_path / "out"))
    with pytest.raises(SpecError, match="cannot keep bounds on several tables"):
        tu.infer(released)


@pytest.mark.thorough
def test_a_release_of_four_tables(tmp_path, rng):
    """From records to a bundle that its own checker finds right, and tables that are added up from the files alone."""
    released = release(ministry(), visits(rng), tmp_path / "out", geography=CLINICS)
    assert released.problem.constraints.structure() == "family"
    assert released.cells.n == 12 + 4 * 20 + 12 * 6 + 24
    assert all(finding.holds for finding in check(tmp_path / "out"))
    tables = {p.stem: pd.read_parquet(p) for p in (tmp_path / "out" / "public" / "counts").glob("*.parquet")}
    assert {"clinic", "district-sex-age", "region-diagnosis", "country-month"} < set(tables)
    by_region = [
        tables[name].assign(region=lambda t: t.region).groupby("region")["count"].sum()
        for name in ("clinic", "district-sex-age", "region-diagnosis", "region")
    ]
    for other in by_region[1:]:
        pd.testing.assert_series_equal(by_region[0], other)
    assert len({int(table["count"].sum()) for table in tables.values()}) == 1
    again = tu.read_release(tmp_path / "out")
    np.testing.assert_array_equal(again.counts, released.counts)
    assert again.table("district", by=["sex"]).shape[0] == 24
    with pytest.raises(SpecError, match="no measured table determines"):
        again.table("clinic", by=["sex"])
    areas = CLINICS.assign(area=["east", "west"] * 12)
    tu.write_areas(tmp_path / "out", areas, tmp_path / "areas.csv", attributes=())
    sums = pd.read_csv(tmp_path / "areas.csv", index_col="area")["count"]
    assert sums["west"] == again.sums("clinic")[1::2].sum()
    with pytest.raises(BundleError, match="released table of the finest places: clinic"):
        tu.write_areas(tmp_path / "out", areas, tmp_path / "by.csv", attributes=["sex"])


@pytest.mark.thorough
def test_exported_records_have_every_released_table(tmp_path, rng):
    release(ministry(), visits(rng), tmp_path / "out", geography=CLINICS)
    released = tu.read_release(tmp_path / "out")
    tu.export(released, tmp_path / "rows", "records")
    rows = pd.read_csv(tmp_path / "rows" / "records.csv", dtype=str)
    assert len(rows) == released.sums("country")[0]
    for table in ("country x month", "region x diagnosis", "district x sex x age", "clinic"):
        own = released.table(table, backend="pandas")
        keys = [
            name for name in own.columns if name not in ("released", "noisy", "margin of error", "country")
        ]
        found = rows.groupby(keys).size()
        expected = own[own.released > 0].set_index(keys)["released"]
        pd.testing.assert_series_equal(found.sort_index(), expected.sort_index(), check_names=False)
    assert "Made up" in (tmp_path / "rows" / "about.csv").read_text()
    with pytest.raises(SpecError, match="released counts"):
        tu.export(released.measurements, tmp_path / "none", "records")


@pytest.mark.thorough
def test_a_checker_finds_tables_that_disagree(tmp_path, rng):
    release(ministry(), visits(rng), tmp_path / "out", geography=CLINICS)
    path = tmp_path / "out" / "public" / "counts" / "country-month.parquet"
    table = pd.read_parquet(path)
    table.loc[0, "count"] += 1
    table.to_parquet(path)
    broken = [finding.rule for finding in check(tmp_path / "out") if not finding.holds]
    assert "'country' is the sum of 'country x month'" in broken


def test_records_are_counted_in_every_table_at_once(rng):
    problem, table = Problem.of(ministry(), CLINICS), visits(rng)
    from trueup.measuring import read_confidential

    counts = read_confidential(problem.spec, problem.cells, table)
    held = table.groupby("patient").cumcount() < 5
    assert counts.sum() == 4 * held.sum()
    by = table[held].groupby(["region", "diagnosis"]).size()
    found = problem.cells.sum(counts, "region x diagnosis").reshape(4, 20)
    assert found.sum() == by.sum()
    assert found[1].tolist() == [by.get(("R1", d), 0) for d in problem.spec.attributes[2].values]


def test_the_loss_is_that_of_the_same_queries_beside_their_full_cross():
    tables = Problem.of(ministry(), CLINICS)
    full = Problem(tables.spec, tables.cells.whole)
    assert tables.guarantee == full.guarantee
    assert [h.law for h in tables.headers] == [h.law for h in full.headers]


@pytest.mark.thorough
def test_noise_that_adds_up_is_reconciled_and_inferred_with_other_tables(rng):
    """Noisy counts of regions are the sums of those of their clinics; people and diagnoses have noise of their own."""
    adding = {"name": "clinics", "noise": "add-up-laplace", "epsilon": {"region": "1", "clinic": "1"}}
    others = ministry().queries[1:3]
    problem = Problem.of(ministry(privacy=VISITS, queries=[adding, *others]), CLINICS)
    table = visits(rng)
    noisy = tu.measure(problem, table)
    values = {str(h.margin): v for h, v in zip(noisy.headers, noisy.values)}
    np.testing.assert_array_equal(values["region"], values["clinic"].reshape(4, 6).sum(axis=1))
    released = tu.reconcile(noisy)
    assert isinstance(problem.cells, FamilyCells)
    assert all(released.checks.values())
    true = table.groupby("clinic").size().to_numpy()
    for found in (released.sums("clinic"), tu.infer(noisy, draws=400).sums("clinic").mean(axis=(0, 1))):
        assert np.sqrt(np.mean((found - true) ** 2)) < 4  # a clinic has about 250 visits, and noise of 1.4


def test_noise_that_keeps_exact_sums_is_reconciled_with_other_tables(rng):
    keeping = {
        "name": "people",
        "attributes": ["sex", "age"],
        "noise": "lattice-laplace",
        "epsilon": {"region": "1"},
    }
    spec = ministry(
        privacy={"unit": "visit", "neighbours": "replace"},
        queries=[keeping, *ministry().queries[2:]],
        constraints={"invariants": [{"level": "region"}]},
    )
    table = visits(rng)
    noisy = tu.measure(Problem.of(spec, CLINICS), table)
    released = tu.reconcile(noisy)
    assert all(released.checks.values())
    exact = table.groupby("region").size().to_numpy()
    np.testing.assert_array_equal(noisy.values[0].reshape(4, -1).sum(axis=1), exact)
    np.testing.assert_array_equal(released.sums("region"), exact)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_the_loss_of_very_many_combinations_is_that_of_few(relation, monkeypatch):
    """Where all combinations are alike, two values of each attribute say what all do."""
    spec = ministry(privacy={"unit": "visit", "neighbours": relation})
    listed = Problem.of(spec, CLINICS).guarantee
    monkeypatch.setattr(changes, "MOST_COMBINATIONS", 10)
    assert Problem.of(spec, CLINICS).guarantee == listed
    ruled = ministry(
        privacy={"unit": "visit", "neighbours": relation}, constraints={"zeros": [{"sex": "f", "age": "65+"}]}
    )
    with pytest.raises(SpecError, match="1,440 combinations"):
        _ = Problem.of(ruled, CLINICS).guarantee


RING = [
    {"name": "a", "attributes": ["sex", "age"], "epsilon": {"district": "1"}},
    {"name": "b", "attributes": ["age", "month"], "epsilon": {"country": "1"}},
    {"name": "c", "attributes": ["sex", "month"], "epsilon": {"country": "1"}},
]


@pytest.mark.thorough
def test_a_ring_is_settled_as_sums_of_one_table_of_records(rng):
    """Tables are whole, agree in pairs and have records; their errors are no larger than those of their own noise."""
    errors = []
    for _ in range(20):
        cells, headers = random_ring(rng)
        assert cells.joint is not None
        truth = truth_of(cells, rng, mean=20.0)
        constraints = Constraints(cells, tuple(h.margin for h in headers))
        values = simulate_many(cells, truth, headers, rng, 8)
        method = FamilyTree()
        state = method.prepare(constraints, headers)
        solution = method.apply(state, values, rng)
        assert solution.status.name == "SOLVED"
        for counts in solution.values:
            assert violations(constraints, counts) == []
            assert counts.dtype.kind == "i"
        assert has_records(cells, solution.values[0])
        for header in headers:
            gaps = cells.sum(solution.values, header.margin) - cells.sum(truth, header.margin)
            errors.append((gaps**2).mean() / header.law.variance)
        stated = method.errors(state)
        assert set(stated) >= {*cells.tables, *cells.separators}
        assert all(margin in cells.tables or cells.holds(margin) for margin in stated)
    assert 0.3 < np.mean(errors) < 1.0


def test_least_squares_of_a_ring_is_that_of_what_is_measured(rng):
    """The unmeasured joint table moves no estimate of what is measured by a tenth of its standard error."""
    for _ in range(10):
        cells, headers = random_ring(rng)
        state = FamilyTree().prepare(Constraints(cells, tuple(h.margin for h in headers)), headers)
        values = simulate_many(cells, truth_of(cells, rng, mean=50.0), headers, rng, 3)
        assert state.joint is not None
        answers, at = [[] for _ in cells.tree.levels], 0
        for h in headers:
            level = cells.tree.level(h.margin.level)
            size = cells.size(h.margin)
            answers[level].append(
                values[:, at : at + size].reshape(3, cells.tree.sizes[level], -1).astype(float)
            )
            at += size
        alone = state.joint.measured
        fit = alone.fit(answers)
        for h in headers:
            level = cells.tree.level(h.margin.level)
            expected = alone.table(fit, level, state.marginal(h.margin)).reshape(3, -1)
            found = state.estimates(values, h.margin)
            assert np.abs(found - expected).max() < 0.1 * np.sqrt(h.law.variance)


@pytest.mark.thorough
def test_a_ring_is_released_without_the_table_that_closes_it(tmp_path, rng):
    released = release(ministry(queries=RING), visits(rng), tmp_path / "out", geography=CLINICS)
    assert str(released.cells.joint) == "country x sex x age x month"
    assert all(finding.holds for finding in check(tmp_path / "out"))
    names = {path.stem for path in (tmp_path / "out" / "public" / "counts").glob("*.parquet")}
    assert "country-sex-month" in names
    assert "country-sex-age-month" not in names
    again = tu.read_release(tmp_path / "out")
    np.testing.assert_array_equal(again.counts, released.counts)
    with pytest.raises(SpecError, match="no measured table determines"):
        again.sums("country x sex x age x month")
    with pytest.raises(SpecError, match="form a cycle"):
        tu.export(again, tmp_path / "rows", "records")


def test_a_ring_that_only_a_large_table_closes_is_refused_with_it(monkeypatch):
    """The advice, followed, is accepted; so is the other one."""
    monkeypatch.setattr(family, "MOST_JOINT", 71)
    with pytest.raises(SpecError) as refusal:
        tu.explain(Problem.of(ministry(queries=RING), CLINICS), simulate=False)
    assert "'country x sex x age x month' (72 cells)" in str(refusal.value)
    closing = {"name": "d", "attributes": ["sex", "age", "month"], "epsilon": {"country": "1/10"}}
    for queries in ([*RING, closing], RING[:2]):
        assert (
            tu.explain(Problem.of(ministry(queries=queries), CLINICS), simulate=False).structure == "family"
        )


def test_recodes_that_cross_are_never_one_family():
    groups = [{"under": DIAGNOSES[:k], "over": DIAGNOSES[k:]} for k in (5, 9)]
    attributes = [
        {
            "name": "diagnosis",
            "values": DIAGNOSES,
            "recode": [{"name": f"r{i}", "groups": g} for i, g in enumerate(groups)],
        },
        {"name": "sex", "values": ["f", "m"]},
    ]
    queries = [
        {"name": "a", "attributes": ["r0"], "epsilon": {"district": "1"}},
        {"name": "b", "attributes": ["r1", "sex"], "epsilon": {"region": "1"}},
    ]
    with pytest.raises(SpecError, match="group the values of 'diagnosis' in ways that cross"):
        tu.explain(Problem.of(ministry(attributes=attributes, queries=queries), CLINICS), simulate=False)
    queries.append({"name": "c", "attributes": ["diagnosis"], "epsilon": {"country": "1"}})
    queries[0]["epsilon"] = queries[1]["epsilon"] = {"country": "1"}
    spec = ministry(attributes=attributes, queries=queries)
    assert tu.explain(Problem.of(spec, CLINICS), simulate=False).structure == "family"


def test_a_spec_whose_finest_cells_are_measured_is_one_table():
    finest = {"name": "all", "attributes": ["sex", "age", "diagnosis", "month"], "epsilon": {"clinic": "1"}}
    assert Problem.of(ministry(queries=[finest]), CLINICS).constraints.structure() == "sum"
    others = [
        {"name": q.name, "attributes": list(q.attributes), "epsilon": dict(q.budgets)}
        for q in ministry().queries
    ]
    assert Problem.of(ministry(queries=[finest, *others]), CLINICS).constraints.structure() == "histogram"


def test_least_squares_pools_what_tables_share(rng):
    """The country's total is known better from four tables than from its own count; errors are those stated."""
    problem = Problem.of(ministry(), CLINICS)
    method = FamilyTree(rounding="none", estimates="least-squares")
    constraints = replace(problem.constraints, nonnegative=False)
    state = method.prepare(constraints, problem.headers)
    truth = truth_of(problem.cells, rng, mean=0.05)
    values = simulate_many(problem.cells, truth, problem.headers, rng, 1500)
    found = method.apply(state, values, rng).values
    own = next(float(np.sqrt(h.law.variance)) for h in problem.headers if h.margin == Margin("country"))
    errors = method.errors(state)
    assert errors[Margin("country")][0] < 0.75 * own
    for margin in errors:
        gaps = problem.cells.sum(found, margin) - problem.cells.sum(truth, margin)
        ratio = (gaps**2).mean(axis=0) / errors[margin] ** 2
        assert np.abs(ratio.mean() - 1) < 0.2
        assert np.abs(gaps.mean(axis=0) / errors[margin] * np.sqrt(len(gaps))).max() < 5.5
    for margin in (Margin("country"), *problem.cells.tables):
        np.testing.assert_allclose(
            problem.cells.sum(found, margin), state.estimates(values, margin), atol=1e-6
        )


def test_noisy_tables_that_others_published_are_reconciled_without_their_cross(rng):
    """Differences from what was published are below 1 % of the total, for every table of an acyclic set."""
    sizes, sets = dict(zip("abcd", (2, 3, 4, 5))), [("a", "b"), ("b", "c"), ("c", "d")]
    text = (
        'format = 1\ntitle = "t"\ntable = { name = "t", counts = "person" }\nlevel = [{ name = "total" }]\n'
    )
    for name, size in sizes.items():
        text += f'[[attribute]]\nname = "{name}"\nvalues = {[f"{i}" for i in range(size)]}\n'.replace(
            "'", '"'
        )
    whole, tables = rng.multinomial(10_000, rng.dirichlet(np.ones(120))).reshape(2, 3, 4, 5), []
    for i, names in enumerate(sets):
        text += f'[[published]]\nname = "q{i}"\nlevel = "total"\nattributes = {list(names)}\ncount = "n"\n'.replace(
            "'", '"'
        )
        text += 'law = { name = "gaussian", sigma2 = "4" }\n'
        table = whole.sum(axis=tuple(k for k, name in enumerate("abcd") if name not in names))
        at = np.indices(table.shape).reshape(2, -1)
        noisy = table.ravel() + np.rint(rng.normal(0, 2, table.size)).astype(int)
        tables.append(
            pd.DataFrame({name: values.astype(str) for name, values in zip(names, at)} | {"n": noisy})
        )
    released = tu.reconcile(tu.read_perturbed(parse_perturbed(text), tables))
    assert released.method["method"] == "family-tree"
    for names, table in zip(sets, tables):
        found = released.sums(" x ".join(("total", *names)))
        assert np.abs(found - table.n).sum() <= 0.01 * table.n.sum()


def test_populations_of_a_family_are_those_of_the_full_cross_tallied(monkeypatch):
    """They are made up without an array of the full cross, which may be too large for any memory."""
    problem = Problem.of(ministry(), CLINICS)
    whole = Problem(problem.spec, problem.cells.whole)
    counts = made_up_counts(whole, np.random.default_rng(3), persons=500)
    held = np.flatnonzero(counts)
    expected = problem.cells.tally(held, counts[held])
    zeros = np.zeros
    monkeypatch.setattr(
        np,
        "zeros",
        lambda shape, *a, **k: pytest.fail("large") if np.prod(shape) > 30_000 else zeros(shape, *a, **k),
    )
    found = made_up_counts(problem, np.random.default_rng(3), persons=500)
    np.testing.assert_array_equal(found, expected)
