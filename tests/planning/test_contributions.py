"""Bounds on the records of one unit: what they leave out, the noise that they ask for, and where that is said."""

from __future__ import annotations

import re

import numpy as np
import pandas
import pytest

import trueup as tu
from tests.command import run
from trueup.assessing import assess
from trueup.errors import SpecError
from trueup.io.microdata.truncate import Limit, truncated
from trueup.model.problem import Problem
from trueup.planning.contributions import RecordsOfUnits, least_typical, weigh_bounds
from trueup.privacy.contribution import records_left_out
from trueup.reporting import report
from trueup.run.local import LocalPool

CLINICS = pandas.DataFrame({"clinic": [f"c{k}" for k in range(4)]})


def visits(rng, patients: int) -> pandas.DataFrame:
    """Visits of patients, of whom few have many."""
    many = np.minimum(rng.geometric(0.35, patients), 12)
    who = np.repeat(np.arange(patients), many)
    return pandas.DataFrame({"who": who, "clinic": rng.choice(CLINICS["clinic"], len(who))})


def spec_of(table, records: int, **more):
    given = {"id": "who", "records": records, "unit": "patient", "counts": "visit", "epsilon": 2}
    return tu.Spec.of(table, ["clinic"], public=CLINICS, **{**given, **more})


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 12, 50])
def test_what_a_bound_leaves_out_is_what_truncation_drops(bound, rng):
    table = visits(rng, 500)
    unit, count = np.unique(table["who"], return_counts=True)
    limit = Limit("who", bound, "00")
    truncated(
        limit, table["who"].to_numpy(object), np.zeros(len(table), np.int64), np.ones(len(table), np.int64)
    )
    assert limit.units == dict(zip(*np.unique(count, return_counts=True)))
    held = RecordsOfUnits({many: units / len(unit) for many, units in limit.units.items()})
    assert held.dropped(bound, len(unit)) == limit.dropped
    assert held.left_out(bound) * len(table) == pytest.approx(limit.dropped)


def test_the_noise_of_each_bound_is_that_of_the_spec_with_it(rng):
    table = visits(rng, 10)
    weighed = weigh_bounds(Problem.of(spec_of(table, 3), CLINICS), RecordsOfUnits.read("1=1, 10=1"), 100)
    assert [each.records for each in weighed] == [1, 2, 3, 5, 10]
    for each in weighed:
        headers = Problem.of(spec_of(table, each.records), CLINICS).headers
        assert each.noise == {str(h.margin): pytest.approx(float(h.law.variance) ** 0.5) for h in headers}
        assert each.left_out["all"] == pytest.approx(4 * each.left_out["clinic"])
    assert [round(each.left_out["all"]) for each in weighed] == [450, 400, 350, 250, 0]


def test_many_units_ask_for_a_high_bound_and_few_for_a_low_one(rng):
    problem = Problem.of(spec_of(visits(rng, 10), 3), CLINICS)
    stated = RecordsOfUnits.read("1=90, 10=10")
    best = [least_typical(weigh_bounds(problem, stated, units), "clinic").records for units in (4, 4_000)]
    assert best == [1, 10]


@pytest.mark.parametrize("text", ["", "1", "1=", "0=3", "1=2, 1=3", "1=0", "a=2", "1=2;2=3", "-1=2", "1=2,"])
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(SpecError, match="does not say how many records"):
        RecordsOfUnits.read(text)


def test_a_spec_without_a_limit_has_none_to_weigh(rng):
    table = visits(rng, 10)
    free = tu.Spec.of(table, ["clinic"], public=CLINICS)
    with pytest.raises(SpecError, match="sets no limit"):
        weigh_bounds(Problem.of(free, CLINICS), RecordsOfUnits.read("1=1"), 10)


def test_explain_weighs_bounds_by_what_is_stated(tmp_path, rng):
    spec_of(visits(rng, 10), 3).write(tmp_path / "spec.toml")
    CLINICS.to_csv(tmp_path / "clinics.csv", index=False)
    given = ["explain", tmp_path / "spec.toml", "--geography", tmp_path / "clinics.csv", "--quick"]
    said = run(*given, "--records-of-one", "1=90,10=10", "--persons", "4000").stdout
    assert re.search(r"3 +37 % +-2,800 ± ", said), said
    assert "(--persons says how many), counts err least at a bound of 10 (all), 10 (clinic)." in said
    assert "leave out" not in run(*given).stdout
    assert run(*given, "--records-of-one", "many").returncode == 2


def test_the_headline_says_what_is_counted_and_that_the_rest_is_left_out(rng, tmp_path):
    """A margin of error of 80 beside a total that misses 1,410 visits is no margin of error of all visits."""
    table = visits(rng, 400)
    made = tu.release(spec_of(table, 2), table, tmp_path / "r", geography=CLINICS)
    text = (tmp_path / "r" / "public" / "report.html").read_text()
    opening = " ".join(re.search(r'<div class="opening">(.*?)</div>', text, re.DOTALL)[1].split())
    assert "numbers of visits (at most 2 of each patient) in all and by clinic" in opening
    assert "leaves out all others" in opening
    assert "from the true one of visits (at most 2 of each patient)" in opening
    assert "visits (at most 2 of each patient); others are left out" in text
    assert "at most 2 of each patient" in report(made.measurements, made.spec)
    free = tu.release(tu.Spec.of(table, ["clinic"], public=CLINICS), table, tmp_path / "f", geography=CLINICS)
    assert "left out" not in report(free, free.spec)


def test_an_assessment_says_how_many_records_each_bound_would_drop(rng):
    table = visits(rng, 300)
    many = table["who"].value_counts().to_numpy()
    record = assess(spec_of(table, 2), table, geography=CLINICS, replicates=40)
    found = record.stats["records that bounds drop"]
    assert found["2"] == record.stats["records dropped"]
    assert {int(bound): dropped for bound, dropped in found.items()} == {
        int(bound): int(np.maximum(many - int(bound), 0).sum()) for bound in found
    }
    assert f"at most 5: {np.maximum(many - 5, 0).sum():,}" in report(record, record.spec)


LEFT_OUT = '\n[left_out]\nmost = 4\nepsilon = "1/2"\n'


def with_left_out(table, folder, text=LEFT_OUT, records=2):
    (folder / "spec.toml").write_text(spec_of(table, records).text() + text)
    return folder / "spec.toml"


@pytest.mark.thorough
def test_records_left_out_are_measured_at_a_budget_of_their_own(rng, tmp_path):
    table = visits(rng, 4_000)
    spec = with_left_out(table, tmp_path)
    made = tu.release(spec, table, tmp_path / "r", geography=CLINICS)
    assert made.guarantee.amount == 2 + tu.Spec.read(spec).left_out.budget
    assert "one patient can change it by" in " ".join(made.guarantee.sentences)
    beyond = np.minimum(np.maximum(table["who"].value_counts() - 2, 0), 4).sum()
    alone = made.measurements.left_out
    assert abs(alone.value - beyond) <= alone.law.tail(1e-12).counts
    assert str(alone.value) not in repr(alone)
    again = tu.read_release(tmp_path / "r")
    assert (again.measurements.left_out, again.digest) == (alone, made.digest)
    assert run("check", tmp_path / "r").returncode == 0
    assert run("check", tmp_path / "r", "--memory", "500MB").returncode == 0
    page = " ".join((tmp_path / "r" / "public" / "report.html").read_text().split())
    assert f"About {alone.value:,} visits were left out (± {alone.margin_of_error()}" in page
    assert run("export", tmp_path / "r", "--to", "csv", "--out", tmp_path / "x").returncode == 0
    done = run("reconcile", tmp_path / "r", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert tu.read_release(tmp_path / "again").measurements.left_out == alone


def test_a_changed_number_is_seen_by_the_digest(rng):
    import dataclasses

    table = visits(rng, 100)
    spec = tu.parse_spec(spec_of(table, 2).text() + LEFT_OUT)
    noisy = tu.measure(spec, table, CLINICS)
    other = dataclasses.replace(
        noisy, left_out=dataclasses.replace(noisy.left_out, value=noisy.left_out.value + 1)
    )
    assert other.digest != noisy.digest


def held(many, bound, most):
    """How many records units leave out, of each at most so many."""
    return sum(min(max(m - bound, 0), most) for m in many)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(("bound", "most"), [(1, 1), (2, 3), (3, 2)])
def test_the_sensitivity_is_the_largest_change_over_all_neighbours(relation, bound, most):
    """Enumerated over units of up to nine records beside others; a unit of none is one that is not there."""
    stated = records_left_out(most).sensitivity(relation, cells=1)
    changes = set()
    for others in [(), (5,), (1, 9, 2)]:
        for many in range(10):
            for instead in range(10) if relation == "replace" else (0,):
                changes.add(abs(held((*others, many), bound, most) - held((*others, instead), bound, most)))
    assert max(changes) == stated.l1 == most
    assert max(change**2 for change in changes) == stated.l2_squared


def test_a_number_without_a_limit_on_each_unit_would_have_no_bound():
    """The wrong version: all records left out, of whoever has how many."""
    changes = [held((many,), 2, 10**9) for many in (3, 30, 3_000)]
    assert changes == [1, 28, 2_998]
    assert max(changes) > records_left_out(4).sensitivity("add-remove", cells=1).l1


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(
    ("noise", "budget"), [("discrete-laplace", 'epsilon = "1/3"'), ("discrete-gaussian", 'rho = "1/8"')]
)
def test_the_noise_is_scaled_to_what_one_unit_adds(relation, noise, budget, rng):
    text = f'\n[left_out]\nmost = 7\nnoise = "{noise}"\n{budget}\n'
    spec = tu.parse_spec(spec_of(visits(rng, 10), 2, neighbours=relation).text() + text)
    problem = Problem.of(spec, CLINICS)
    charge = next(c for c in problem.guarantee.charges if c.query == "records left out")
    assert charge.amount == spec.left_out.budget
    assert all(cost.amount == charge.amount for _, cost in charge.prices)
    sensitivity = records_left_out(7).sensitivity(relation, cells=1)
    assert problem.left_out.cost(sensitivity).amount == spec.left_out.budget
    assert tu.parse_spec(spec.text()) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[left_out]\nmost = 4\n", "no budget is given"),
        ('\n[left_out]\nmost = 0\nepsilon = "1"\n', "above 0"),
        ('\n[left_out]\nepsilon = "1"\n', "most is missing"),
        ('\n[left_out]\nmost = 4\nepsilon = "1"\nnoise = "discrete-gaussian"\n', "noise is given in rho"),
        ('\n[left_out]\nmost = 4\nepsilon = "1"\nnoise = "lattice-laplace"\n', "a single count"),
    ],
)
def test_what_cannot_be_measured_of_it_is_refused(text, said, rng):
    with pytest.raises(SpecError, match=said):
        _ = Problem.of(tu.parse_spec(spec_of(visits(rng, 10), 2).text() + text), CLINICS).guarantee


def test_a_limit_that_is_not_enforced_leaves_nothing_out(rng):
    with pytest.raises(SpecError, match="sets no limit"):
        tu.parse_spec(spec_of(visits(rng, 10), 2, id=None).text() + LEFT_OUT)


@pytest.mark.thorough
def test_by_parts_the_number_left_out_is_measured_once_with_the_root(rng, tmp_path):
    places = CLINICS.assign(region=[f"r{i // 2}" for i in range(len(CLINICS))])
    table = visits(rng, 4_000).assign(sex="f").merge(places)
    spec = tu.Spec.of(table, ["region", "clinic"], {"sex": ["f", "m"]}, public=places, id="who", records=2)
    (tmp_path / "spec.toml").write_text(spec.text() + LEFT_OUT)
    settings = {"geography": places, "executor": LocalPool(1), "places": 3}
    made = tu.release(tmp_path / "spec.toml", table, tmp_path / "r", **settings)
    assert made.parts > 1
    beyond = np.minimum(np.maximum(table["who"].value_counts() - 2, 0), 4).sum()
    assert abs(made.left_out.value - beyond) <= made.left_out.law.tail(1e-12).counts
    assert tu.read_release(tmp_path / "r").measurements.left_out == made.left_out
    assert run("check", tmp_path / "r").returncode == 0
    page = " ".join((tmp_path / "r" / "public" / "report.html").read_text().split())
    assert f"About {made.left_out.value:,} records were left out (± {made.left_out.margin_of_error()}" in page
