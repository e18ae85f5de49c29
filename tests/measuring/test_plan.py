"""Costs and guarantees of a spec, in exact fractions."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pandas
import pytest

from tests.areas import SPEC
from trueup.errors import SpecError
from trueup.model.guarantee import Change
from trueup.model.mechanism import plan_measurements
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.noise import DiscreteLaplace

PLACES = pandas.DataFrame({"state": ["01", "01", "02"], "county": ["001", "003", "001"]})
SEX = '[[attribute]]\nname = "sex"\nvalues = ["f", "m"]\n'


def _plan(text):
    spec = parse_spec(text)
    return plan_measurements(spec, public_cells(spec, geography=PLACES))


def test_a_partition_costs_its_budgets():
    headers, guarantee = _plan(SPEC)
    assert [h.law for h in headers] == [DiscreteLaplace(Fraction(1, d)) for d in (4, 4, 2)]
    assert (guarantee.kind, guarantee.currency, guarantee.amount) == ("dp", "epsilon", 1)


def test_ten_tenths_are_one():
    tenths = ", ".join(f'{{ name = "q{i}", levels = ["county"], epsilon = "0.1" }}' for i in range(10))
    text = SPEC.replace(SPEC.splitlines()[6], f"query = [{tenths}]")
    assert _plan(text)[1].amount == 1


def test_replace_halves_the_law_and_frees_the_fixed_total():
    headers, guarantee = _plan(SPEC.replace("add-remove", "replace"))
    assert [h.law for h in headers] == [
        DiscreteLaplace(e) for e in (Fraction(1, 4), Fraction(1, 8), Fraction(1, 4))
    ]
    assert [c.amount for c in guarantee.charges] == [0, Fraction(1, 4), Fraction(1, 2)]


def test_with_invariants_a_step_is_priced_and_the_smallest_change_is_told():
    text = SPEC.replace('{ all = "1/4", state = "1/4", county = "1/2" }', '{ county = "1/2" }')
    headers, guarantee = _plan(text + '[constraints]\ninvariants = [{ level = "state" }]\n')
    assert (guarantee.kind, guarantee.neighbours, guarantee.amount) == (
        "invariant",
        "add-remove",
        Fraction(1, 2),
    )
    assert [h.query for h in headers] == ["total", "invariant"]
    assert headers[1].exact
    assert guarantee.change == Change(1, 2, 2, Fraction(1), Fraction(0), True, True)
    told = " ".join(guarantee.sentences)
    assert "1 person leaves one cell for another, 2 steps; it costs exactly epsilon = 1" in told
    assert "'state' is published exactly" in told
    assert "not protected: 02/001" in told


def test_crossing_invariants_allow_an_exchange_of_two_units():
    text = SPEC.replace('{ all = "1/4", state = "1/4", county = "1/2" }', '{ county = "1/2" }')
    text = text.replace('name = "total"', 'name = "total", attributes = ["sex"]') + SEX
    text += '[constraints]\ninvariants = [{ level = "county" }, { level = "state", attributes = ["sex"] }]\n'
    _, guarantee = _plan(text)
    assert guarantee.change == Change(2, 4, 4, Fraction(2), Fraction(0), True, True)
    assert "2 persons leave one cell for another, 4 steps" in " ".join(guarantee.sentences)


def test_both_relations_are_priced_from_the_drawn_laws():
    """An exact total under `replace` costs an account of `add-remove` the whole epsilon of its noise."""
    text = SPEC.replace("add-remove", "replace").replace('all = "1/4"', 'all = "20"')
    _, guarantee = _plan(text)
    assert guarantee.price("replace").epsilon == guarantee.amount == Fraction(3, 4)
    assert guarantee.price("add-remove").epsilon == 20 + Fraction(3, 8)
    _, other = _plan(SPEC)
    assert (other.price("add-remove").epsilon, other.price("replace").epsilon) == (1, Fraction(3, 2))


def test_a_query_that_an_invariant_fixes_is_refused():
    with pytest.raises(SpecError, match=r"'all'.*invariant 'state'"):
        _plan(SPEC + '[constraints]\ninvariants = [{ level = "state" }]\n')


def test_a_unit_that_is_not_what_is_counted_needs_a_bound():
    household = SPEC.replace('unit = "person"', 'unit = "household"')
    with pytest.raises(SpecError, match="how many counts one unit affects"):
        _plan(household)
    bound = household.replace('name = "total"', 'name = "total", contribution = { cells = 1, each = 10 }')
    headers, guarantee = _plan(bound)
    assert headers[0].law == DiscreteLaplace(Fraction(1, 40))
    assert guarantee.amount == 1
    assert any("declared by the agency, not verified" in s for s in guarantee.sentences)


def test_values_that_overlap_need_a_bound():
    text = (
        SPEC.replace('name = "total"', 'name = "total", attributes = ["sex"]') + SEX + "partition = false\n"
    )
    with pytest.raises(SpecError, match="attribute 'sex' overlaps"):
        _plan(text)


def test_the_currency_must_be_the_law_s():
    with pytest.raises(SpecError, match="noise is given in epsilon"):
        _plan(SPEC.replace("epsilon = {", "rho = {"))
    gaussian = SPEC.replace('name = "total"', 'name = "total", noise = "discrete-gaussian"')
    with pytest.raises(SpecError, match="noise is given in rho"):
        _plan(gaussian)
    _, guarantee = _plan(gaussian.replace("epsilon = {", "rho = {"))
    assert (guarantee.currency, guarantee.amount) == ("rho", 1)
    assert any("delta" in s for s in guarantee.sentences)


def test_laws_for_analysis_are_no_mechanisms():
    from trueup.errors import TrueupError

    with pytest.raises(TrueupError, match="for analysing data of others"):
        _plan(SPEC.replace('name = "total"', 'name = "total", noise = "laplace"'))


@pytest.mark.parametrize(
    "epsilon", ["250", "740", "1000"]
)  # a variance of 5e-109, one in denormal numbers, 0
def test_noise_that_vanishes_is_refused(epsilon):
    with pytest.raises(SpecError, match=r"'total'.*noise vanishes"):
        _plan(SPEC.replace('county = "1/2"', f'county = "{epsilon}"'))


def test_planning_without_lattice_noise_loads_none_of_its_code():
    code = (
        "import sys, trueup.model.mechanism; "
        "print([m for m in sys.modules if 'kernel.lattice' in m or m.startswith(('scipy', 'numba', 'flint', "
        "'trueup.model.mechanism_on_lattice', 'trueup.noise.lattice.')) and m != 'trueup.noise.lattice'])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "[]\n"
