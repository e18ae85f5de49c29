"""Caps that renew every year, data that come every month, and entries that are signed."""

import json
import sqlite3

import pytest

from tests.ledger.helpers import begin, ledger_at, reserve
from trueup.errors import BudgetError, SpecError
from trueup.ledger import account, entries, ledger, stored, verify
from trueup.ledger.keeper import Keeper
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms
from trueup.ledger.summary import picture
from trueup.ledger.verify import verify_ledger


@pytest.fixture
def clock(monkeypatch):
    """Set the time of all entries."""

    def at(time):
        for module in (account, ledger, stored, verify):
            monkeypatch.setattr(module, "this_time", lambda: f"{time}T12:00:00+00:00")

    return at


YEARLY = Terms("person", "add-remove", renews="yearly")
MONTHLY = Terms("person", "add-remove", series="monthly")


def spent(held):
    return held.state().spent["survey", None].epsilon


def test_caps_renew_with_the_year_and_losses_of_all_years_are_shown(tmp_path, clock):
    clock("2024-06-01")
    held = ledger_at(str(tmp_path / "t.db"), "1", YEARLY)
    begin(held, "1")
    with pytest.raises(BudgetError, match="more epsilon than is left"):
        reserve(held, "1/10")
    clock("2025-01-01")
    begin(held, "3/4")
    assert spent(held) == spent(Ledger.open(str(tmp_path / "t.db"))) == 3 / 4
    assert held.state().earlier["survey", None].epsilon == 1
    with pytest.raises(BudgetError, match="more epsilon than is left"):
        reserve(held, "1/2")
    said = " ".join(picture(held.state(), "survey")["sentences"])
    assert "the loss of 2025" in said
    assert "Before: epsilon = 1; it adds up" in said


def test_a_clock_that_goes_back_renews_nothing_and_is_found(tmp_path, clock):
    clock("2025-06-01")
    held = ledger_at(str(tmp_path / "t.db"), "1", YEARLY)
    begin(held, "1")
    for earlier in ("2024-12-31", "2025-01-01"):
        clock(earlier)
        with pytest.raises(BudgetError, match="more epsilon than is left"):
            reserve(held, "1/10")
    clock("2031-01-01")
    begin(held, "1")
    clock("2025-07-01")
    with pytest.raises(BudgetError, match="more epsilon than is left"):
        reserve(held, "1/10")
    assert "dated 2031-01" in " ".join(verify_ledger(held).findings)


def test_what_was_reserved_in_a_year_is_given_back_to_that_year(tmp_path, clock):
    clock("2024-12-31")
    held = ledger_at(str(tmp_path / "t.db"), "1", YEARLY)
    old = reserve(held, "1/2")
    clock("2025-01-01")
    begin(held, "3/4")
    old.give_back()
    assert spent(held) == spent(Ledger.open(str(tmp_path / "t.db"))) == 3 / 4
    assert held.state().earlier["survey", None].epsilon == 0


def test_caps_without_a_term_do_not_renew(tmp_path, clock):
    clock("2024-06-01")
    held = ledger_at(str(tmp_path / "t.db"), "1")
    begin(held, "1")
    clock("2026-01-01")
    with pytest.raises(BudgetError, match="more epsilon than is left"):
        reserve(held, "1/10")


def test_a_monthly_series_is_one_declaration(tmp_path, clock):
    clock("2025-01-10")
    held = ledger_at(str(tmp_path / "t.db"), "1", MONTHLY)
    begin(held, "1/100", data="january")
    with pytest.raises(BudgetError, match="differ from those of the account"):
        reserve(held, "1/100", data="made up")
    for month, data in (("02", "february"), ("03", "march"), ("12", "december")):
        clock(f"2025-{month}-10")
        begin(held, "1/100", data=data)
        begin(held, "1/100", data="january")
        with pytest.raises(BudgetError, match="differ from those of the account"):
            reserve(held, "1/100", data=f"{data} made up")
    clock("2025-05-01")
    with pytest.raises(BudgetError, match="differ from those of the account"):
        reserve(held, "1/100", data="a clock set back")
    again = Ledger.open(str(tmp_path / "t.db")).state()
    assert again.shown["survey"].data == ["january", "february", "march", "december"]


@pytest.mark.parametrize("wrong", [{"renews": "monthly"}, {"series": "yearly"}, {"renews": None}])
def test_other_terms_are_refused(wrong):
    with pytest.raises(SpecError, match="Needed: '"):
        Terms("person", "add-remove", **wrong)


def forge(path, fields, key=None):
    """Add an entry as whoever can write the file can: with a right chain."""
    with sqlite3.connect(path) as connection:
        number, head = connection.execute(
            "SELECT number, hash FROM trueup_ledger ORDER BY number DESC LIMIT 1"
        ).fetchone()
        entry = entries.link(number + 1, head, fields, key)
        connection.execute(
            "INSERT INTO trueup_ledger VALUES (?, ?, ?)", (entry.number, entry.body, entry.hash)
        )
    connection.close()


@pytest.mark.parametrize("key", [None, b"another"])
def test_an_entry_without_the_keepers_signature_is_refused_by_number(tmp_path, key):
    path = str(tmp_path / "t.db")
    held = ledger_at(path)
    held.sign()
    begin(held, "1/4")
    assert not verify_ledger(Ledger.open(path)).findings
    assert all("signed" in e.body for e in held.entries()[3:])
    number = len(held.entries()) + 1
    more = {"dataset": "survey", "analyst": None, "caps": {"rho": "1000"}}
    forge(path, {"action": "caps", "time": entries.this_time(), **more}, key)
    for _ in range(2):
        with pytest.raises(BudgetError, match=f"entry {number} of the ledger is not signed"):
            reserve(held, "1/10")
    with pytest.raises(BudgetError, match=f"entry {number} of the ledger is not signed"):
        Ledger.open(path)
    assert "is not signed" in verify_ledger(Ledger.at(path)).findings[0]


def test_without_the_key_nothing_is_added_to_a_signed_ledger(tmp_path):
    path = str(tmp_path / "t.db")
    held = ledger_at(path)
    held.sign()
    begin(held, "1/4")
    (tmp_path / "t.db.keeper").rename(tmp_path / "elsewhere")
    without = Ledger.open(path)
    with pytest.raises(BudgetError, match="the key that verifies them"):
        reserve(without, "1/10")
    begin(Ledger.open(path, tmp_path / "elsewhere"), "1/10")


def test_the_key_of_signatures_stays_and_is_in_no_ledger(tmp_path):
    path = str(tmp_path / "t.db")
    held = ledger_at(path)
    held.sign()
    keeper = Keeper.at(tmp_path / "t.db.keeper")
    key = keeper.signing
    held.sign()
    begin(held, "1/4")
    assert keeper.signing == key
    assert key[0].hex() not in json.dumps([e.body for e in held.entries()])
    assert (tmp_path / "t.db.keeper" / "signing").stat().st_mode & 0o077 == 0
