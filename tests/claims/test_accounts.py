"""Claims: an account adds only losses of one step of one unit, and says what all its releases allow together."""

from fractions import Fraction

import pandas as pd
import pytest

from trueup.errors import BudgetError
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.questions import invariants
from trueup.ledger.request import Terms
from trueup.ledger.summary import picture
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.releasing import pipeline

TOTAL = """
format = 2
title = "Areas"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }}
privacy = {{ unit = "{unit}", neighbours = "{neighbours}" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}]
query = [{{ name = "total", {contribution} epsilon = {{ all = "20", area = "1/1000" }} }}]
"""
AREAS = pd.DataFrame({"area": ["a", "b"], "n": [300, 400]})


def account_of(folder, **terms):
    ledger = Ledger.create(str(folder / "ledger.db"))
    given = {"unit": "person", "neighbours": "add-remove", "public": ("area",)} | terms
    ledger.init("demo", {"epsilon": "100"}, terms=Terms(**given))
    return Account(ledger, "ana")


def release(folder, account, text, data, name="out"):
    path = folder / f"{name}.toml"
    path.write_text(text)
    return pipeline.release(path, data, folder / name, account=account)


def spent(account):
    loss = account.ledger.state().spent.get(("demo", None))
    return loss.epsilon if loss else 0


@pytest.mark.parametrize(
    ("kept", "stated", "cost"),
    [
        ("add-remove", "replace", 20 + Fraction(1, 2000)),  # its own sentence says 1/1000
        ("replace", "replace", Fraction(1, 1000)),
        ("replace", "add-remove", Fraction(1, 500)),
        ("add-remove", "add-remove", 20 + Fraction(1, 1000)),
    ],
)
def test_a_release_is_priced_under_the_accounts_relation(tmp_path, kept, stated, cost):
    account = account_of(tmp_path, neighbours=kept)
    text = TOTAL.format(unit="person", neighbours=stated, contribution="")
    released = release(tmp_path, account, text, AREAS)
    assert spent(account) == cost
    assert released.measurements.guarantee.price(stated).epsilon == released.measurements.guarantee.amount


def test_another_unit_is_refused_by_name_and_costs_nothing(tmp_path):
    account = account_of(tmp_path)
    household = TOTAL.format(
        unit="household", neighbours="replace", contribution="contribution = { cells = 1, each = 9 },"
    )
    with pytest.raises(BudgetError, match=r"one household.*one person"):
        release(tmp_path, account, household, AREAS)
    assert not account.ledger.state().reserved


TABLE = """
format = 2
title = "A table"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }}
privacy = {{ unit = "person", neighbours = "{neighbours}" }}
level = [{{ name = "all" }}]
attribute = [{{ name = "a", values = ["1", "2", "3"] }}, {{ name = "b", values = ["1", "2", "3"] }}]
query = [{{ name = "whole", attributes = ["a", "b"], noise = "{noise}", epsilon = {{ all = "{epsilon}" }} }}]
constraints = {{ invariants = [{invariants}] }}
{reconcile}
"""
A, B = '{ level = "all", attributes = ["a"] }', '{ level = "all", attributes = ["b"] }'
DATA = pd.DataFrame([(a, b, 5) for a in "123" for b in "123"], columns=["a", "b", "n"])


def table(invariants, epsilon, noise="discrete-laplace", neighbours="add-remove"):
    return TABLE.format(
        invariants=invariants, epsilon=epsilon, noise=noise, neighbours=neighbours, reconcile=""
    )


def meant(*margins):
    """Invariants by name, with the digest of what they mean."""
    spec = parse_spec(table(", ".join(margins), "1"))
    return {q.text: q.digest for q in invariants(spec, public_cells(spec))}


@pytest.mark.parametrize("noise", ["discrete-laplace", "lattice-laplace"])
def test_one_margin_then_both_lose_3_together_and_never_2(tmp_path, noise):
    """Law parameters 1/2 and 1/4, which the version before charged as 1 for a move and 1 for a swap."""
    account = account_of(tmp_path, invariants=meant(A, B))
    for name, margins, epsilon in (("one", A, "1/2"), ("both", f"{A}, {B}", "1/4")):
        path = tmp_path / f"{name}.toml"
        path.write_text(table(margins, epsilon, noise))
        pipeline.measure_only(path, DATA, tmp_path / name, account=account)
    assert spent(account) == Fraction(3, 4)
    shown = picture(account.ledger.state(), "demo")
    assert shown["joint"]["steps"] == 4
    said = " ".join(shown["sentences"])
    assert "lose at most epsilon = 3 for that change" in said
    assert "4 steps" in said


def test_the_joint_change_is_that_of_all_published_invariants(tmp_path):
    """One margin each allows a move; together they allow an exchange alone."""
    account = account_of(tmp_path, invariants=meant(A, B))
    steps = []
    for name, invariant in (("one", A), ("other", B)):
        path = tmp_path / f"{name}.toml"
        path.write_text(table(invariant, "1/4"))
        pipeline.measure_only(path, DATA, tmp_path / name, account=account)
        steps.append(picture(account.ledger.state(), "demo")["joint"]["steps"])
    assert steps == [2, 4]


def test_the_counts_that_all_invariants_determine_are_named(tmp_path):
    """Two structural zeros in a row leave its third count, which is the row's sum."""
    account = account_of(tmp_path, invariants=meant(A, B))
    zeros = f'[{A}, {B}], zeros = [{{ a = "1", b = "1" }}, {{ a = "1", b = "2" }}]'
    path = tmp_path / "spec.toml"
    path.write_text(table(f"{A}, {B}", "1/4").replace(f"[{A}, {B}]", zeros))
    data = DATA[(DATA.a != "1") | (DATA.b == "3")]
    pipeline.measure_only(path, data, tmp_path / "out", account=account)
    said = picture(account.ledger.state(), "demo")["sentences"]
    (determined,) = (sentence for sentence in said if "determine these counts" in sentence)
    assert "a=1, b=3" in determined
    assert "a=2" not in determined


def test_invariants_that_were_not_declared_are_refused_before_data_are_read(tmp_path):
    account = account_of(tmp_path, invariants=meant(A))
    path = tmp_path / "spec.toml"
    path.write_text(table(f"{A}, {B}", "1/4"))
    with pytest.raises(BudgetError, match="the invariant 'all x b' is not declared"):
        pipeline.measure_only(path, DATA, tmp_path / "out", account=account)
    assert not account.ledger.state().reserved
