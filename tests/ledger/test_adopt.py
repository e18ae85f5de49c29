"""Ledgers of the version before: read, shown, and not charged before unit and relation are stated."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

from tests.command import run
from tests.ledger.helpers import PERSON, request, reserve
from trueup.errors import BudgetError
from trueup.ledger.account import Account
from trueup.ledger.entries import GENESIS, link
from trueup.ledger.ledger import Ledger
from trueup.ledger.publish import MANIFEST, published_manifest
from trueup.ledger.store import store_at
from trueup.ledger.summary import balances, history
from trueup.ledger.terms import Terms
from trueup.ledger.verify import verify_ledger
from trueup.privacy.accountant import Loss
from trueup.releasing import pipeline

GOLDEN = Path(__file__).parents[1] / "golden" / "ledger-0.1.0.db"
"""Written by version 0.1.0: a release of kind `dp` at 1/4, one of kind `invariant` at 1/4, an open reservation of 1/16."""


@pytest.fixture
def old(tmp_path):
    """A copy of the golden ledger; its path."""
    return Path(shutil.copy(GOLDEN, tmp_path / "ledger.db"))


def demo(amount, **more):
    return request(Loss(epsilon=Fraction(amount)), dataset="demo", **more)


def test_an_old_ledger_is_read_and_shown(old):
    state = Ledger.open(str(old)).state()
    rows = {(b.analyst, b.kind, b.currency): (b.cap, b.spent) for b in balances(state)}
    assert rows["", "dp", "epsilon"] == (1, Fraction(5, 16))
    assert rows["", "invariant", "epsilon"] == (Fraction(1, 2), Fraction(1, 4))
    assert rows["", "invariant", "rho"] == (3, Fraction(1, 32))
    assert rows["ana", "invariant", "epsilon"] == (1, Fraction(1, 4))
    assert [e.kind for e in history(state)] == ["dp", "invariant", "dp"]
    assert not verify_ledger(Ledger.open(str(old))).findings
    shown = run("budget", "show", old)
    assert shown.returncode == 0
    assert "budget adopt" in " ".join(shown.stdout.split())


def test_an_old_account_is_neither_charged_nor_added_to(old):
    ledger = Ledger.open(str(old))
    with pytest.raises(BudgetError, match="budget adopt"):
        ledger.reserve(demo("1/16"))
    with pytest.raises(BudgetError, match="budget adopt"):
        ledger.init("demo", {"rho": "1"}, terms=PERSON)
    ledger.init("another", {"epsilon": "1"}, terms=PERSON)  # a new account in the same file
    assert ledger.reserve(request(Loss(epsilon=Fraction(1)), dataset="another"))


def test_adoption_is_an_entry_and_adds_both_kinds_up(old):
    ledger = Ledger.open(str(old))
    adoption = ledger.adopt("demo", PERSON)
    assert ledger.entries()[-1].fields["action"] == "adopt"
    assert adoption.ended == {"epsilon": "1/2", "ana:epsilon": "1"}
    assert adoption.kept == {"rho": "3"}
    assert not adoption.exceeded
    assert len(adoption.open) == 1
    assert len(adoption.unread) + len(adoption.confirmed) == 2
    words = " ".join(adoption.sentences())
    for part in ("epsilon = 1/2, ends", "ana:epsilon = 1, ends", "rho = 3, goes on", "stay spent"):
        assert part in words
    state = Ledger.open(str(old)).state()
    assert state.caps["demo", None] == {"epsilon": 1, "rho": 3}
    assert state.spent["demo", None].epsilon == Fraction(9, 16)
    with pytest.raises(BudgetError, match="at most 7/16 of the cap 1"):
        ledger.reserve(demo("1/2"))
    ledger.reserve(demo("7/16"))
    with pytest.raises(BudgetError, match="is kept under its terms already"):
        ledger.adopt("demo", PERSON)


def test_an_account_that_was_spent_under_both_kinds_grants_nothing_more(tmp_path):
    caps = {kind: {"epsilon": "1"} for kind in ("dp", "invariant")}
    entries = [
        {"action": "open", "format": 1, "ledger": "old"},
        {"action": "caps", "dataset": "survey", "analyst": None, "caps": caps},
        *(reserved(kind, "3/4") for kind in caps),
    ]
    ledger = written(tmp_path / "ledger.db", entries)
    adoption = ledger.adopt("survey", PERSON)
    assert adoption.exceeded == ("epsilon",)
    assert "passes the cap epsilon: nothing more is granted" in " ".join(adoption.sentences())
    with pytest.raises(BudgetError, match="at most 0 of the cap 1"):
        reserve(ledger, "1/100")


def test_an_old_key_still_names_its_release_and_no_other(tmp_path):
    ledger = released(tmp_path, "add-remove", key="first")
    ledger.adopt("survey", PERSON)
    before = ledger.state().number
    account = Account(ledger, "ana", "first")
    again = pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=account)
    assert again.measurements.digest == published_manifest(tmp_path / "out" / MANIFEST)[1]["measurements"]
    (tmp_path / "spec.toml").write_text(SPEC.format(neighbours="add-remove").replace("Areas", "Others"))
    with pytest.raises(BudgetError, match="another spec"):
        pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=account)
    assert ledger.state().number == before


def test_the_command_says_what_becomes_of_everything(old):
    refused = run("budget", "adopt", old, "--dataset", "demo")
    assert refused.returncode == 2
    done = run("budget", "adopt", old, "--dataset", "demo", "--unit", "person", "--neighbours", "add-remove")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "of kind 'invariant', epsilon = 1/2, ends" in said
    assert "Open reservations stay spent" in said
    (row, *_) = json.loads(run("budget", "show", old, "--json").stdout)
    assert (row["spent"], row["account"]["unit"], row["account"]["neighbours"]) == (
        "9/16",
        "person",
        "add-remove",
    )


def test_the_write_ahead_log_of_old_ledgers_is_given_up(old):
    assert old.read_bytes()[18] == 2, "the golden file has a write-ahead log"
    Ledger.open(str(old)).adopt("demo", PERSON)
    assert old.read_bytes()[18] == 1
    assert [p.name for p in old.parent.iterdir()] == ["ledger.db"]


AREAS = pd.DataFrame({"area": ["a", "b"], "n": [3, 4]})
SPEC = """
format = 1
title = "Areas"
table = {{ name = "survey", kind = "counts", counts = "person", count = "n", keys = "public" }}
privacy = {{ unit = "person", neighbours = "{neighbours}" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}]
query = [{{ name = "total", epsilon = {{ all = "1/8", area = "1/8" }} }}]
"""


def released(folder, neighbours, kind="dp", key=None):
    """A ledger of format 1 with one release whose bundle stands in its place."""
    (folder / "spec.toml").write_text(SPEC.format(neighbours=neighbours))
    out = folder / "out"
    pipeline.release(folder / "spec.toml", AREAS, out)
    digest, manifest = published_manifest(out / MANIFEST)
    places = {"ready": str(folder / ".ready"), "final": str(out), "reservation": kind}
    entries = [
        {"action": "open", "format": 1, "ledger": "old"},
        {"action": "caps", "dataset": "survey", "analyst": None, "caps": {kind: {"epsilon": "1"}}},
        reserved(kind, "1/4", key),
        {"action": "commit", "manifest": digest, "measurements": manifest["measurements"], **places},
    ]
    return written(folder / "ledger.db", entries)


def reserved(kind, amount, key=None):
    """A reservation as entries of format 1 state it; it bears the name of its kind."""
    costs = [{"currency": "epsilon", "amount": amount, "delta": "0"}]
    charged = {"dataset": "survey", "analyst": "ana", "kind": kind, "key": key, "reservation": kind}
    return {"action": "reserve", "costs": costs, **charged}


def written(path, entries):
    """A ledger with these entries, chained."""
    store, head = store_at(str(path)), GENESIS
    store.create()
    with store.transaction(writing=True) as transaction:
        for number, fields in enumerate(entries, 1):
            entry = link(number, head, {"time": "then", **fields})
            transaction.append(entry)
            head = entry.hash
    return Ledger.open(str(path))


def test_releases_that_state_the_terms_are_confirmed(tmp_path):
    ledger = released(tmp_path, "add-remove")
    assert ledger.adopt("survey", PERSON).confirmed == (str(tmp_path / "out"),)
    assert reserve(ledger, "3/4")


@pytest.mark.parametrize("terms", [Terms("household", "add-remove"), Terms("person", "replace")])
def test_releases_that_state_other_terms_cannot_be_added_to(tmp_path, terms):
    ledger = released(tmp_path, "add-remove")
    with pytest.raises(BudgetError, match="was charged for one person, add-remove"):
        ledger.adopt("survey", terms)


def test_a_loss_of_kind_invariant_bounds_a_step_of_either_relation(tmp_path):
    ledger = released(tmp_path, "add-remove", kind="invariant")
    assert ledger.adopt("survey", Terms("person", "replace")).kept == {"epsilon": "1"}
