"""On a server, who may draw is not who may declare; on a file he is, and that is said."""

import uuid

import pytest

from tests.ledger.conftest import database
from tests.ledger.helpers import PERSON, epsilon, ledger_at, release, request
from trueup.errors import BudgetError, LedgerError
from trueup.ledger.entries import link
from trueup.ledger.ledger import Ledger


@pytest.fixture
def roles(server):
    """A keeper's ledger on a server, and the same as two analysts see it."""
    import psycopg

    url = database(server)
    ledger, found = ledger_at(url), {}
    with psycopg.connect(f"postgresql:///postgres?host={server}&user=tester") as connection:
        for name in (f"ana_{uuid.uuid4().hex[:8]}", f"bo_{uuid.uuid4().hex[:8]}"):
            connection.execute(f"CREATE ROLE {name} LOGIN")
            found[name] = None
    for name in found:
        ledger.grant(name)
        found[name] = Ledger.open(url.replace("user=tester", f"user={name}"))
    return ledger, found


@pytest.mark.thorough
@pytest.mark.server
def test_a_role_that_may_draw_releases_in_its_own_name(roles, tmp_path):
    keeper, analysts = roles
    (ana, ledger), _ = analysts.items()
    ledger.reserve(request(epsilon("1/4"), analyst=ana)).give_back()
    one = ledger.reserve(request(epsilon("1/4"), analyst=ana))
    one.begin()
    one.seal("seal")
    assert keeper.state().spent["survey", None].epsilon == epsilon("1/4").epsilon
    release(keeper, tmp_path)


@pytest.mark.server
def test_a_role_that_may_draw_declares_nothing_and_speaks_for_nobody_else(roles):
    keeper, analysts = roles
    (ana, ledger), (bo, other) = analysts.items()
    refused = {
        "an account": lambda: ledger.init("panel", {"epsilon": "9"}, terms=PERSON),
        "a cap": lambda: ledger.init("survey", {"epsilon": "1"}, {ana: {"epsilon": "1"}}),
        "another's name": lambda: ledger.reserve(request(epsilon("1/4"), analyst=bo)),
        "another's reservation": other.reserve(request(epsilon("1/4"), analyst=bo)).give_back,
    }
    theirs = other.reserve(request(epsilon("1/4"), analyst=bo))
    before = keeper.state().number
    for what, attempt in list(refused.items())[:3]:
        with pytest.raises(LedgerError, match=r"may draw and not declare|own name alone"):
            attempt()
        assert keeper.state().number == before, what
    with pytest.raises(LedgerError, match="another analyst"), ledger.writing() as locked:
        locked.append("return", {"reservation": theirs.name})
    with pytest.raises(LedgerError), ledger.writing() as locked:
        locked.append("data", {"dataset": "survey", "data": "x"})
    assert keeper.state().number == before
    ledger.recover()  # which leaves what is another's


@pytest.mark.server
def test_the_server_takes_no_entry_that_does_not_continue_the_chain(roles):
    keeper, analysts = roles
    (ana, ledger), _ = analysts.items()
    state = keeper.state()
    forged = [
        link(state.number + 2, state.head, {"action": "reserve", "analyst": ana}),
        link(state.number + 1, "0" * 64, {"action": "reserve", "analyst": ana}),
    ]
    for entry in forged:
        with (
            pytest.raises(LedgerError, match="does not continue"),
            ledger._store.transaction(writing=True) as t,
        ):
            t.append(entry)
    assert Ledger.open(ledger._store._url).state().number == state.number


def test_a_file_cannot_tell_analysts_apart_and_says_so(tmp_path):
    with pytest.raises(BudgetError, match=r"keep the ledger in PostgreSQL"):
        ledger_at(str(tmp_path / "ledger.db")).grant("ana")


@pytest.mark.server
@pytest.mark.parametrize("time", ["2040-01-01T00:00:00+00:00", "2020-01-01T00:00:00+00:00", None])
def test_a_role_that_may_draw_does_not_set_the_clock(roles, time):
    """A later year would renew the caps of an account whose terms say so."""
    keeper, analysts = roles
    (ana, ledger), _ = analysts.items()
    state = keeper.state()
    fields = {"action": "reserve", "analyst": ana} | ({} if time is None else {"time": time})
    entry = link(state.number + 1, state.head, fields)
    with (
        pytest.raises(LedgerError, match="clock of the server"),
        ledger._store.transaction(writing=True) as raw,
    ):
        raw.append(entry)
    assert keeper.state().number == state.number
