"""A spec with `noise = "lattice-..."`: the noise itself keeps the invariants, through every verb."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.reference.lattice import law_of, p_value, points, table_margins
from trueup import measure, reconcile, simulate
from trueup.errors import PrivacyError, SpecError
from trueup.model.guarantee import Change
from trueup.model.problem import Problem
from trueup.model.spec import load_spec, parse_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNTS = "table = { name = 'demo', kind = 'counts', counts = 'person', count = 'n', keys = 'public' }"
HEAD = f"format = 2\ntitle = 'Demo'\n{COUNTS}\nprivacy = {{ unit = 'person', neighbours = 'replace' }}\n"
TREE = HEAD + (
    "level = [{ name = 'all' }, { name = 'state', column = 's' }, { name = 'county', column = 'c' },"
    " { name = 'tract', column = 't' }]\n"
)
GRID = HEAD + (
    "level = [{ name = 'all' }, { name = 'county', column = 'c' }]\n"
    "attribute = [{ name = 'edu', values = ['low', 'medium', 'high'] }]\n"
)
PLACES = pandas.DataFrame(
    {
        "s": list("AAAAAABBBB"),
        "c": list("1122333344"),
        "t": [f"{i}" for i in range(10)],
        "n": [5, 0, 9, 9, 2, 30, 1, 2, 3, 4],
    }
)


def plan(text, frame):
    problem = Problem.of(parse_spec(text), data=frame)
    return problem, problem.headers, problem.guarantee


def lattice_spec(head, level, invariants, noise="lattice-laplace", budget="epsilon", attributes=()):
    attributes = ", ".join(repr(a) for a in attributes)
    return (
        f"{head}query = [{{ name = 'q', attributes = [{attributes}], noise = '{noise}', "
        f"{budget} = {{ {level} = '1/2' }} }}]\nconstraints = {{ invariants = [{invariants}] }}\n"
    )


def test_invariants_at_two_levels_of_a_tree(rng):
    text = lattice_spec(TREE, "tract", "{ level = 'state' }, { level = 'county' }")
    problem, headers, guarantee = plan(text, PLACES)
    assert guarantee.amount == Fraction(1, 2)
    assert headers[0].law.epsilon == Fraction(1, 4)
    for _ in range(50):
        noisy = simulate(problem, np.array(PLACES["n"]), rng)
        sums = pandas.Series(noisy.values[0]).groupby([PLACES["s"], PLACES["c"]]).sum()
        assert sums.tolist() == PLACES["n"].groupby([PLACES["s"], PLACES["c"]]).sum().tolist()


def test_a_released_table_keeps_its_invariants():
    spec = parse_spec(lattice_spec(TREE, "tract", "{ level = 'state' }, { level = 'county' }"))
    released = reconcile(measure(spec, PLACES))
    assert all(released.checks.values())


def test_both_margins_of_a_table_cost_a_swap_of_two_steps(rng):
    frame = pandas.DataFrame(
        [{"c": c, "edu": e, "n": n} for c, row in zip("xyz", [[5, 1, 3], [20, 10, 10], [3, 10, 2]])
         for e, n in zip(["low", "medium", "high"], row)]
    )  # fmt: skip
    invariants = "{ level = 'county' }, { level = 'all', attributes = ['edu'] }"
    text = lattice_spec(GRID, "county", invariants, attributes=("edu",)).replace("1/2", "3")
    problem, headers, guarantee = plan(text, frame)
    assert (headers[0].law.epsilon, guarantee.amount, guarantee.neighbours) == (Fraction(3, 2), 3, "replace")
    assert guarantee.change == Change(2, 4, 2, Fraction(6), Fraction(0), True, True)
    counts = frame["n"].to_numpy()
    drawn = headers[0].law.bound.draw(50_000, rng.bytes).vectors
    vectors = points(table_margins(3, 3), [2, 5, 6, 7, 8], 6)
    assert p_value(drawn, vectors, law_of(vectors, lambda v: -1.5 * np.abs(v).sum(axis=1))) > 1e-6
    noisy = simulate(problem, counts, rng).values[0].reshape(3, 3)
    assert noisy.sum(axis=0).tolist() == counts.reshape(3, 3).sum(axis=0).tolist()
    assert noisy.sum(axis=1).tolist() == counts.reshape(3, 3).sum(axis=1).tolist()


def test_the_price_of_a_step_does_not_depend_on_the_invariants():
    """County totals alone see one sum; that other invariants cross makes the smallest change larger, not a step."""
    frame = pandas.DataFrame([{"c": c, "edu": e, "n": 1} for c in "vwxyz" for e in ("low", "medium", "high")])
    invariants = "{ level = 'all', attributes = ['edu'] }, { level = 'all' }"
    _, headers, guarantee = plan(lattice_spec(GRID, "county", invariants), frame)
    assert (guarantee.amount, headers[0].law.epsilon) == (Fraction(1, 2), Fraction(1, 4))
    assert guarantee.change == Change(1, 2, 1, Fraction(1, 2), Fraction(0), True, True)
    two = GRID.replace("attribute = [", "attribute = [{ name = 'sex', values = ['f', 'm'] }, ")
    frame = frame.merge(pandas.DataFrame({"sex": ["f", "m"]}), how="cross")
    crossing = "{ level = 'county' }, { level = 'all', attributes = ['edu', 'sex'] }"
    _, headers, guarantee = plan(lattice_spec(two, "county", crossing, attributes=("edu",)), frame)
    assert (guarantee.amount, headers[0].law.epsilon) == (Fraction(1, 2), Fraction(1, 4))
    assert guarantee.change == Change(2, 4, 2, Fraction(1), Fraction(0), True, True)


def test_gaussian_noise_is_priced_in_rho():
    text = lattice_spec(TREE, "tract", "{ level = 'county' }", "lattice-gaussian", "rho")
    _, headers, guarantee = plan(text, PLACES)
    assert headers[0].law.sigma2 == 2
    assert (guarantee.currency, guarantee.amount) == ("rho", Fraction(1, 2))


@pytest.mark.parametrize("options", ["weights = [1]", "slowest = nan", "slowest = 'long'"])
def test_options_that_would_change_the_price_or_mean_nothing_are_refused(options):
    """Precisions of cells given in a spec once drew other noise than was priced."""
    text = lattice_spec(TREE, "tract", "{ level = 'county' }")
    with pytest.raises(SpecError, match="option"):
        plan(text.replace("name = 'q'", f"name = 'q', options = {{ {options} }}"), PLACES)


def test_pinned_counts_and_the_sampler_are_told():
    places = PLACES.iloc[[0, 2, 3, 4, 5]]
    _, _, guarantee = plan(lattice_spec(TREE, "tract", "{ level = 'county' }"), places)
    told = " ".join(guarantee.sentences)
    assert "published exactly and not protected: A/1/0" in told
    assert "'composition' (integer arithmetic only)" in told


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (lattice_spec(TREE, "tract", ""), SpecError, "no invariant concerns"),
        (lattice_spec(TREE, "tract", "{ level = 'county' }", "lattice-gaussian"), SpecError, "noise is given in rho"),
        (
            lattice_spec(TREE, "tract", "{ level = 'county' }").replace("'replace'", "'replace'").replace(
                "name = 'q'", "name = 'q', contribution = { cells = 3 }"
            ),
            SpecError,
            "may be counted in several of its counts, or in none",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(text, kind, message):
    with pytest.raises(kind, match=message):
        plan(text, PLACES)


def test_invariants_that_leave_nothing_to_protect():
    places = PLACES.iloc[[0, 2]]
    with pytest.raises(PrivacyError, match="determine every cell"):
        plan(lattice_spec(TREE, "tract", "{ level = 'county' }"), places)


@pytest.mark.thorough
def test_a_table_too_large_says_what_it_would_cost():
    head = (
        HEAD
        + "level = [{ name = 'all' }, { name = 'county', column = 'c' }]\n"
        + (f"attribute = [{{ name = 'edu', values = {[str(i) for i in range(90)]} }}]\n")
    )
    frame = pandas.DataFrame([{"c": f"{c:02}", "edu": str(e), "n": 1} for c in range(90) for e in range(90)])
    invariants = "{ level = 'county' }, { level = 'all', attributes = ['edu'] }"
    with pytest.raises(SpecError, match=r"90 x 90 cells .* set-up of about .*lattice-gaussian"):
        plan(lattice_spec(head, "county", invariants, attributes=("edu",)), frame)


def test_all_51_state_totals_as_enumerated(data_dir):
    spec = load_spec(EXAMPLES / "us-counties-lattice.toml")
    path = data_dir / "us_counties_2010.csv"
    noisy = measure(spec, path)
    truth = pandas.read_csv(path, dtype={"state": str, "county": str}).sort_values(["state", "county"])
    counts, states = noisy.values
    assert states.tolist() == truth.groupby("state")["pop"].sum().tolist()
    assert pandas.Series(counts).groupby(truth["state"].to_numpy()).sum().tolist() == states.tolist()
    assert (counts != truth["pop"].to_numpy()).mean() > 0.5
    assert "11/001" in " ".join(noisy.guarantee.sentences)


def test_county_and_tract_totals_of_all_blocks_as_enumerated(data_dir):
    spec = load_spec(EXAMPLES / "blocks-lattice.toml")
    path = data_dir / "ri_blocks_2010.csv.gz"
    counts, *totals = measure(spec, path).values
    truth = pandas.read_csv(path, dtype={"GEOID": str}).sort_values("GEOID")
    noisy = pandas.Series(counts)
    for digits, total in zip((5, 11), totals):
        keys = truth["GEOID"].str[:digits].to_numpy()
        assert total.tolist() == truth.groupby(keys)["pop"].sum().tolist()
        assert noisy.groupby(keys).sum().tolist() == total.tolist()
