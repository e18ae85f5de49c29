"""Claims: the ledger is asked before data are read; what ends before drawing gives the loss back; one target, one charge."""

import signal
import subprocess
import sys
import time
from fractions import Fraction

import pandas as pd
import pytest

from tests.releasing.state import TERMS, write_state
from trueup.errors import BudgetError, DataError, TrueupError
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms
from trueup.measuring import entropy
from trueup.releasing import data as by_parts_data
from trueup.releasing import engine, pipeline
from trueup.releasing.pipeline import resume
from trueup.run.local import LocalPool

SPEC = """
format = 2
title = "Areas"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { all = "1/8", area = "1/8" } }]
"""
AREAS = pd.DataFrame({"area": ["a", "b"], "n": [300, 400]})
COST = Fraction(1, 4)


@pytest.fixture
def account(tmp_path):
    """An account of one epsilon; specs for it, and for another table."""
    ledger = Ledger.create(str(tmp_path / "ledger.db"))
    ledger.init("demo", {"epsilon": "1"}, terms=Terms("person", "add-remove", public=("area",)))
    (tmp_path / "spec.toml").write_text(SPEC)
    return Account(ledger, "ana")


def spent(account, dataset="demo"):
    loss = account.ledger.state().spent.get((dataset, None))
    return loss.epsilon + loss.rho if loss else 0


def actions(account):
    return [entry.fields["action"] for entry in account.ledger.entries()]


def test_data_are_read_after_the_loss_is_reserved_and_noise_drawn_after_that_is_recorded(
    account, tmp_path, monkeypatch
):
    order = []
    read, words = engine.read_confidential, entropy.words

    def reading(*given):
        order.append(("read", actions(account)[-1]))
        return read(*given)

    def drawing(count):
        order.append(("draw", actions(account)[-1]))
        return words(count)

    monkeypatch.setattr(engine, "read_confidential", reading)
    monkeypatch.setattr(entropy, "words", drawing)
    pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=account)
    assert order[0] == ("read", "reserve")
    assert set(order[1:]) == {("draw", "draw")}
    assert len(order) > 1


@pytest.mark.thorough
def test_by_parts_too(tmp_path, monkeypatch):
    ledger = Ledger.create(str(tmp_path / "ledger.db"))
    ledger.init("small", {"rho": "1"}, terms=TERMS)
    account, order = Account(ledger, "ana"), []
    for module, name in (
        (by_parts_data, "tabulate_by_parts"),
        (sys.modules["trueup.releasing.tasks"], "draw"),
    ):
        plain = getattr(module, name)

        def watched(*given, plain=plain, name=name, **more):
            order.append((name, actions(account)[-1]))
            return plain(*given, **more)

        monkeypatch.setattr(module, name, watched)
    pipeline.release(**write_state(tmp_path), out=tmp_path / "out", executor=LocalPool(1), account=account)
    assert order[0] == ("tabulate_by_parts", "reserve")
    assert set(order[1:]) == {("draw", "draw")}


@pytest.mark.parametrize("fault", [DataError("bad"), KeyboardInterrupt(), MemoryError()])
def test_what_ends_before_drawing_gives_the_loss_back_by_an_entry(account, tmp_path, monkeypatch, fault):
    def fails(*given):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(engine, "read_confidential", fails)
        with pytest.raises(type(fault)):
            pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=account)
    counted = not isinstance(fault, KeyboardInterrupt)  # all else may depend on the rows
    assert actions(account)[-2:] == ["reserve", "refuse" if counted else "return"]
    assert len(account.ledger.state().shown["demo"].counted) == counted
    assert not spent(account)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db", "ledger.db.keeper", "spec.toml"]


def test_what_ends_while_noise_is_drawn_stays_spent(account, tmp_path, monkeypatch):
    def fails(*given):
        raise MemoryError

    monkeypatch.setattr(engine, "draw", fails)
    with pytest.raises(MemoryError):
        pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=account)
    assert actions(account)[-1] == "draw"
    assert spent(account) == COST


def test_what_the_ledger_refuses_is_never_read(account, tmp_path):
    """A file that is not there would be an error of its own."""
    (tmp_path / "spec.toml").write_text(
        SPEC.replace("1/8", "1").replace('keys = "public"', 'keys = "confidential"')
    )
    with pytest.raises(BudgetError, match="more epsilon"):
        pipeline.release(
            tmp_path / "spec.toml",
            tmp_path / "absent.csv",
            tmp_path / "out",
            geography=AREAS,
            account=account,
        )


KILLED = """
import os, signal, sys
from tests.claims.test_ledger_first import AREAS
from trueup.ledger.account import Account
from trueup.releasing import engine, pipeline
account = Account.open(sys.argv[1] + "/ledger.db", "ana", None)
def die(*given): os.kill(os.getpid(), signal.SIGKILL)
setattr(engine, sys.argv[2], die)
pipeline.release(sys.argv[1] + "/spec.toml", AREAS, sys.argv[1] + "/killed", account=account)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("where", "left"), [("read_confidential", 0), ("draw", COST)])
def test_the_next_run_gives_back_what_a_killed_one_provably_did_not_draw(account, tmp_path, where, left):
    told = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), where], check=False)
    assert told.returncode == -signal.SIGKILL
    assert spent(account) == COST
    Account.open(str(tmp_path / "ledger.db"), "ana", None)
    assert spent(account) == left


RACER = """
import sys, time
from tests.claims.test_ledger_first import AREAS
from trueup.errors import TrueupError
from trueup.ledger.account import Account
from trueup.releasing import pipeline
place, start = sys.argv[1], float(sys.argv[2])
account = Account.open(place + "/ledger.db", "ana", None)
time.sleep(max(0, start - time.time()))
try:
    pipeline.release(place + "/spec.toml", AREAS, place + "/out", account=account)
    print("released")
except TrueupError as error:
    print(type(error).__name__)
"""


@pytest.mark.thorough
def test_a_race_to_one_target_has_one_winner_and_one_charge(account, tmp_path):
    command = [sys.executable, "-c", RACER, str(tmp_path), str(time.time() + 5)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [run.communicate(timeout=200)[0].strip() for run in runs]
    assert said.count("released") == 1
    assert set(said) <= {"released", "BundleError", "BusyError"}, (
        "the others see a target, or one that works on it"
    )
    assert actions(account).count("reserve") == 1
    assert spent(account) == COST
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.thorough
def test_a_run_by_parts_and_one_in_memory_do_not_race_either(tmp_path):
    """Each has its own working folder; the claim is on the target."""
    ledger = Ledger.create(str(tmp_path / "ledger.db"))
    ledger.init("small", {"rho": "1"}, terms=TERMS)
    account, paths = Account(ledger, "ana"), write_state(tmp_path)
    meant = []

    def meanwhile(what, *given):
        if what != "measuring":
            return
        with pytest.raises(TrueupError, match="another run writes to"):
            pipeline.release(**paths, out=tmp_path / "out", account=account)
        meant.append(True)

    pipeline.release(**paths, out=tmp_path / "out", executor=LocalPool(1), account=account, watch=meanwhile)
    assert meant
    assert actions(account).count("reserve") == 1


def test_a_key_draws_once_and_is_bound_to_its_spec(account, tmp_path):
    keyed = Account(account.ledger, "ana", "2026")
    assert not keyed.repeats
    pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=keyed)
    assert keyed.repeats
    before = actions(account)
    pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "out", account=keyed)
    with pytest.raises(BudgetError, match="nothing new is drawn"):
        pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / "elsewhere", account=keyed)
    (tmp_path / "spec.toml").write_text(SPEC + 'reconcile = { method = "multinomial-mode" }\n')
    for out in ("out", "third"):
        with pytest.raises(BudgetError, match="a release of another spec"):
            pipeline.release(tmp_path / "spec.toml", AREAS, tmp_path / out, account=keyed)
    assert actions(account) == before


@pytest.mark.thorough
def test_a_run_by_parts_that_was_returned_goes_on_and_is_charged_once(tmp_path, monkeypatch):
    ledger = Ledger.create(str(tmp_path / "ledger.db"))
    ledger.init("small", {"rho": "1"}, terms=TERMS)
    account = Account(ledger, "ana")

    def dies(*given, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(by_parts_data, "tabulate_by_parts", dies)
        with pytest.raises(KeyboardInterrupt):
            pipeline.release(
                **write_state(tmp_path), out=tmp_path / "out", executor=LocalPool(1), account=account
            )
    assert not spent(account, "small")
    released = resume(tmp_path / "out.run", executor=LocalPool(1), account=account)
    assert spent(account, "small") == released.guarantee.price("add-remove").rho
