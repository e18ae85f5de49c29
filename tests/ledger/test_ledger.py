"""The ledger grants what the caps allow, once, on every store."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.helpers import epsilon, ledger_at, release, rho, stage
from trueup.errors import BudgetError, BundleError, SpecError
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Request
from trueup.ledger.state import State
from trueup.ledger.verify import verify
from trueup.noise.cost import Cost
from trueup.privacy.accountant import Loss

DP = ("survey", "ana", "dp")


def test_ten_tenths_fill_a_cap_of_one_exactly(url):
    ledger = ledger_at(url)
    for _ in range(10):
        ledger.reserve(*DP, epsilon("1/10"))
    with pytest.raises(BudgetError, match="at most 0 of the cap 1"):
        ledger.reserve(*DP, epsilon(Fraction(1, 10**30)))
    assert ledger.state().spent[("survey", None), "dp"].epsilon == 1


def test_unfinished_reservations_stay_spent(url):
    ledger_at(url).reserve(*DP, epsilon("3/4"))
    with pytest.raises(BudgetError, match="at most 1/4"):
        Ledger.open(url).reserve(*DP, epsilon("1/2"))


def test_caps_of_analysts_bind_beside_the_dataset(url):
    ledger = Ledger.create(url)
    ledger.init(
        "survey",
        {"dp": {"epsilon": "1"}},
        {"ana": {"dp": {"epsilon": "3/4"}}, "bo": {"dp": {"epsilon": "3/4"}}},
    )
    ledger.reserve(*DP, epsilon("3/4"))
    with pytest.raises(BudgetError, match="analyst 'ana'"):
        ledger.reserve(*DP, epsilon("1/100"))
    with pytest.raises(BudgetError, match="dataset 'survey' for more"):
        ledger.reserve("survey", "bo", "dp", epsilon("1/2"))
    ledger.reserve("survey", "bo", "dp", epsilon("1/4"))
    with pytest.raises(BudgetError, match="analyst 'cy' has no cap"):
        ledger.reserve("survey", "cy", "dp", epsilon("1/100"))


def test_datasets_do_not_share_a_cap(url):
    ledger = ledger_at(url)
    ledger.init("census", {"dp": {"epsilon": "1"}})
    ledger.reserve(*DP, epsilon(1))
    ledger.reserve("census", "ana", "dp", epsilon(1))
    with pytest.raises(BudgetError, match="dataset 'panel' has no cap"):
        ledger.reserve("panel", "ana", "dp", epsilon(1))


def test_an_invariant_does_not_avoid_a_cap(url):
    ledger = ledger_at(url)
    with pytest.raises(BudgetError, match="kind 'invariant'"):
        ledger.reserve("survey", "ana", "invariant", epsilon("1/2"))
    with pytest.raises(BudgetError, match="does not avoid a cap"):
        ledger.reserve("survey", "ana", "invariant", epsilon(0))
    ledger.init("survey", {"invariant": {"epsilon": "1/2"}})
    ledger.reserve("survey", "ana", "invariant", epsilon("1/2"))
    spent = ledger.state().spent
    assert ("survey", None) not in {owner for owner, kind in spent if kind == "dp"}


def test_a_rho_cap_bounds_pure_epsilon_too(url):
    ledger = Ledger.create(url)
    ledger.init("survey", {"dp": {"rho": "1"}})
    ledger.reserve(*DP, epsilon(1))
    ledger.reserve(*DP, rho("1/2"))
    with pytest.raises(BudgetError, match="more rho"):
        ledger.reserve(*DP, epsilon("1/10"))


def test_what_does_not_convert_needs_its_own_cap(url):
    ledger = ledger_at(url)
    with pytest.raises(BudgetError, match="no cap in rho"):
        ledger.reserve(*DP, rho("1/100"))
    with pytest.raises(BudgetError, match="no cap in delta"):
        ledger.reserve(*DP, [Cost("epsilon", Fraction(1, 2), Fraction(1, 10**9))])
    ledger.init("survey", {"dp": {"delta": "1e-9"}})
    ledger.reserve(*DP, [Cost("epsilon", Fraction(1, 2), Fraction(1, 10**9))])
    with pytest.raises(BudgetError, match="more delta"):
        ledger.reserve(*DP, [Cost("epsilon", Fraction(1, 4), Fraction(1, 10**9))])


def test_caps_are_added_and_never_changed(url):
    ledger = ledger_at(url)
    before = ledger.state().number
    ledger.init("survey", {"dp": {"epsilon": "1"}})
    assert ledger.state().number == before
    with pytest.raises(BudgetError, match="never changed"):
        ledger.init("survey", {"dp": {"epsilon": "2"}})
    with pytest.raises(BudgetError, match="never changed"):
        Ledger.open(url).init("survey", {"dp": {"rho": "1", "epsilon": "2"}})
    assert Ledger.open(url).state().caps[("survey", None), "dp"] == {"epsilon": 1}


def test_a_key_draws_once(url, tmp_path):
    ledger = ledger_at(url)
    done = release(ledger, tmp_path, key="2026")
    again = Ledger.open(url).reserve(*DP, epsilon("1/10"), "2026")
    assert again.committed == done
    assert again.stamp == done.stamp
    assert ledger.finished(*DP, epsilon("1/10"), "2026") == done
    assert ledger.finished(*DP, epsilon("1/10"), "2027") is None
    assert ledger.state().spent[("survey", None), "dp"].epsilon == Fraction(1, 10)
    with pytest.raises(BudgetError, match="belongs to another release"):
        ledger.reserve(*DP, epsilon("1/5"), "2026")


def test_an_attempt_that_died_is_paid_for_twice_and_published_once(url, tmp_path):
    ledger = ledger_at(url)
    lost, second = (ledger.reserve(*DP, epsilon("1/4"), "2026") for _ in range(2))
    second.commit(stage(tmp_path / "s2", second), tmp_path / "out")
    with pytest.raises(BudgetError, match="committed by another run"):
        lost.commit(stage(tmp_path / "s1", lost), tmp_path / "late")
    assert not (tmp_path / "late").exists()
    assert (tmp_path / "s1").exists()
    assert ledger.state().spent[("survey", None), "dp"].epsilon == Fraction(1, 2)
    assert not verify(ledger, tmp_path / "out").findings


def test_a_reservation_is_committed_once(url, tmp_path):
    ledger = ledger_at(url)
    one = ledger.reserve(*DP, epsilon("1/4"))
    one.commit(stage(tmp_path / "s1", one), tmp_path / "out")
    with pytest.raises(BudgetError, match="committed by another run"):
        one.commit(stage(tmp_path / "s2", one), tmp_path / "other")


def test_a_second_draw_of_a_committed_reservation_is_never_recovered(url, tmp_path):
    """It must not bear the name under which a crash leaves a committed bundle."""
    ledger = ledger_at(url)
    one = ledger.reserve(*DP, epsilon("1/4"))
    one.commit(stage(tmp_path / "s1", one), tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "published")
    with pytest.raises(BudgetError, match="committed by another run"):
        one.commit(stage(tmp_path / "s2", one), tmp_path / "out")
    assert (tmp_path / "s2").exists()
    assert not Ledger.open(url).recover()
    assert not (tmp_path / "out").exists()


def test_an_occupied_target_is_refused_and_the_staged_bundle_left_alone(url, tmp_path):
    ledger = ledger_at(url)
    release(ledger, tmp_path)
    late = ledger.reserve(*DP, epsilon("1/10"))
    with pytest.raises(BundleError, match="already holds something"):
        late.commit(stage(tmp_path / "late", late), tmp_path / "out")
    assert (tmp_path / "late" / "public" / "manifest.json").is_file()
    assert len(ledger.state().commits) == 1


def test_a_bundle_must_carry_its_reservation(url, tmp_path):
    ledger = ledger_at(url)
    one, other = (ledger.reserve(*DP, epsilon("1/10")) for _ in range(2))
    with pytest.raises(BundleError, match="does not carry"):
        one.commit(stage(tmp_path / "s", other), tmp_path / "out")
    with pytest.raises(BundleError, match="no readable"):
        one.commit(tmp_path, tmp_path / "out")


def test_recovery_finishes_a_rename(url, tmp_path, monkeypatch):
    ledger = ledger_at(url)
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.publish.finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            release(ledger, tmp_path, key="2026")
    assert not (tmp_path / "out").exists()
    restarted = Ledger.open(url)
    assert [c.final for c in restarted.recover()] == [str(tmp_path / "out")]
    assert restarted.recover() == []
    assert not verify(restarted, tmp_path / "out").findings
    assert restarted.finished(*DP, epsilon("1/10"), "2026")


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_target_that_waits_for_recovery_is_not_given_away(url, tmp_path, monkeypatch):
    ledger = ledger_at(url)
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.publish.finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            release(ledger, tmp_path)
    late = ledger.reserve(*DP, epsilon("1/10"))
    staged = stage(tmp_path / "late", late)
    with pytest.raises(BundleError, match="about to hold another release"):
        late.commit(staged, tmp_path / "out")


def test_eight_processes_are_granted_exactly_the_cap(url):
    ledger_at(url)
    command = [sys.executable, "-m", "tests.ledger.worker", url, "reserve", "50"]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    granted = [int(w.communicate(timeout=300)[0]) for w in workers]
    assert sum(granted) == 100
    state = Ledger.open(url).state()
    assert len(state.reserved) == 100
    assert state.spent[("survey", None), "dp"].epsilon == 1


def test_threads_share_a_ledger(url):
    ledger = ledger_at(url)

    def attempt(_):
        try:
            return bool(ledger.reserve(*DP, epsilon("1/20")).stamp)
        except BudgetError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(40))) == 20
    assert Ledger.open(url).state().head == ledger.state().head


def test_four_processes_make_one_ledger(url):
    command = [sys.executable, "-m", "tests.ledger.worker", url, "create"]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({w.communicate(timeout=120)[0] for w in workers}) == 1
    assert Ledger.open(url).state().number == 2


@pytest.mark.parametrize("name", ["", "  ", None, 3, "x" * 300, "a\nb"])
def test_names_are_needed(tmp_path, name):
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    with pytest.raises(SpecError, match=r"the dataset|dataset is too long"):
        ledger.reserve(name, "ana", "dp", epsilon(1))
    with pytest.raises(SpecError, match=r"the analyst|analyst is too long"):
        ledger.reserve("survey", name, "dp", epsilon(1))
    assert len(ledger.state().reserved) == 0


def test_a_missing_ledger_is_not_made_by_the_way(url):
    with pytest.raises(BudgetError, match="no ledger"):
        Ledger.open(url)
    with pytest.raises(BudgetError, match="no ledger"):
        Ledger.open(url)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.fractions(0, 1, max_denominator=20)), max_size=30))
def test_no_sequence_of_requests_passes_a_cap(requests):
    state = State(
        caps={(("d", None), "dp"): {"epsilon": Fraction(1)}, (("d", "a"), "dp"): {"epsilon": Fraction(1, 2)}}
    )
    state.caps[("d", "b"), "dp"] = {"epsilon": Fraction(3, 4)}
    for analyst, amount in requests:
        request = Request("d", analyst, "dp", tuple(epsilon(amount)))
        try:
            state.admit(request)
        except BudgetError:
            assert any(
                state.spent.get((o, "dp"), Loss()).epsilon + amount > state.caps[o, "dp"]["epsilon"]
                for o in request.owners
            )
            continue
        for owner in request.owners:
            state.spent[owner, "dp"] = state.spent.get((owner, "dp"), Loss()) + request.loss
    for owner, loss in state.spent.items():
        assert loss.epsilon <= state.caps[owner]["epsilon"]


def test_a_reservation_by_name_is_charged_once_and_for_one_request(url):
    ledger = ledger_at(url)
    first = ledger.reserve("survey", "ana", "dp", epsilon("1/4"), name="run 1")
    again = ledger.reserve("survey", "ana", "dp", epsilon("1/4"), name="run 1")
    assert (again.name, again.stamp, again.committed) == (first.name, first.stamp, None)
    assert ledger.state().spent[("survey", None), "dp"].epsilon == Fraction(1, 4)
    with pytest.raises(BudgetError, match="for another release"):
        ledger.reserve("survey", "ana", "dp", epsilon("1/2"), name="run 1")


def test_the_next_commit_sweeps_what_a_killed_one_left_ready(url, tmp_path):
    ledger = ledger_at(url)
    killed = ledger.reserve("survey", "ana", "dp", epsilon("1/4"))
    left, other = tmp_path / f".out.ready-{killed.name}", tmp_path / ".out.ready-unknown"
    left.mkdir()
    other.mkdir()
    release(ledger, tmp_path, "out", "1/4")
    assert not left.exists()
    assert other.exists(), "another ledger may have committed it"
