"""The ledger grants what the caps allow, once, on every store."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.helpers import PERSON, begin, epsilon, ledger_at, release, request, reserve, rho, stage
from trueup.errors import BudgetError, BundleError, SpecError
from trueup.files.target import claimed
from trueup.ledger.admission import admit
from trueup.ledger.ledger import Ledger
from trueup.ledger.questions import Question
from trueup.ledger.request import Request, Terms
from trueup.ledger.state import State
from trueup.ledger.totals import Shown
from trueup.ledger.verify import verify_ledger
from trueup.noise.law import Cost
from trueup.privacy import Loss, compose


def test_ten_tenths_fill_a_cap_of_one_exactly(url):
    ledger = ledger_at(url)
    for _ in range(10):
        reserve(ledger, "1/10")
    with pytest.raises(BudgetError, match="at most 0 of the cap 1"):
        reserve(ledger, Fraction(1, 10**30))
    assert ledger.state().spent["survey", None].epsilon == 1


def test_unfinished_reservations_stay_spent(url):
    reserve(ledger_at(url), "3/4")
    with pytest.raises(BudgetError, match="at most 1/4"):
        reserve(Ledger.open(url), "1/2")


def test_caps_of_analysts_bind_beside_the_dataset(url):
    ledger = Ledger.create(url)
    ledger.init(
        "survey",
        {"epsilon": "1"},
        {"ana": {"epsilon": "3/4"}, "bo": {"epsilon": "3/4"}},
        terms=PERSON,
    )
    reserve(ledger, "3/4")
    with pytest.raises(BudgetError, match="analyst 'ana'"):
        reserve(ledger, "1/100")
    with pytest.raises(BudgetError, match="dataset 'survey' for more"):
        reserve(ledger, "1/2", analyst="bo")
    reserve(ledger, "1/4", analyst="bo")
    with pytest.raises(BudgetError, match="analyst 'cy' has no cap"):
        reserve(ledger, "1/100", analyst="cy")


def test_datasets_do_not_share_a_cap(url):
    ledger = ledger_at(url)
    ledger.init("census", {"epsilon": "1"}, terms=PERSON)
    reserve(ledger, 1)
    reserve(ledger, 1, dataset="census")
    with pytest.raises(BudgetError, match="dataset 'panel' has no cap"):
        reserve(ledger, 1, dataset="panel")


def test_a_release_with_invariants_is_charged_to_the_same_caps(url):
    county = Question.of("county", "what it means")
    ledger = ledger_at(url, terms=Terms("person", "add-remove", {"county": county.digest}))
    reserve(ledger, "1/2", invariants=(county,))
    reserve(ledger, "1/2")
    with pytest.raises(BudgetError, match="more epsilon"):
        reserve(ledger, "1/10", invariants=(county,))


def test_a_rho_cap_bounds_pure_epsilon_too(url):
    ledger = Ledger.create(url)
    ledger.init("survey", {"rho": "1"}, terms=PERSON)
    reserve(ledger, 1)
    ledger.reserve(request(rho("1/2")))
    with pytest.raises(BudgetError, match="more rho"):
        reserve(ledger, "1/10")


def test_what_does_not_convert_needs_its_own_cap(url):
    ledger = ledger_at(url, delta="1e-9")
    with pytest.raises(BudgetError, match="no cap in rho"):
        ledger.reserve(request(rho("1/100")))
    with_delta = compose([Cost("epsilon", Fraction(1, 4), Fraction(1, 10**9))])
    ledger.reserve(request(with_delta))
    with pytest.raises(BudgetError, match="more delta"):
        ledger.reserve(request(with_delta))
    ledger.init("census", {"epsilon": "1"}, terms=PERSON)
    with pytest.raises(BudgetError, match="no cap in delta"):
        ledger.reserve(request(with_delta, dataset="census"))


def test_a_cap_of_another_currency_is_not_added_to_an_account_that_has_one(url):
    ledger = ledger_at(url)
    for currency in ("rho", "delta"):
        with pytest.raises(BudgetError, match="other currencies"):
            ledger.init("survey", {currency: "1"})
    ledger.init("survey", {"epsilon": "1"}, {"ana": {"epsilon": "1"}})
    with pytest.raises(BudgetError, match="other currencies"):
        ledger.init("survey", {"epsilon": "1"}, {"ana": {"rho": "1"}})


def test_caps_are_added_and_never_changed(url):
    ledger = ledger_at(url)
    before = ledger.state().number
    ledger.init("survey", {"epsilon": "1"})
    assert ledger.state().number == before
    with pytest.raises(BudgetError, match="never change"):
        ledger.init("survey", {"epsilon": "2"})
    with pytest.raises(BudgetError, match="never change"):
        Ledger.open(url).init("survey", {"epsilon": "2", "rho": "1"})
    assert Ledger.open(url).state().caps["survey", None] == {"epsilon": 1}


def test_a_key_draws_once(url, tmp_path):
    ledger = ledger_at(url)
    done = release(ledger, tmp_path, key="2026")
    again = reserve(Ledger.open(url), "1/10", "2026")
    assert again.committed == done
    assert again.stamp == done.stamp
    assert ledger.finished(request(epsilon("1/10"), "2026")) == done
    assert ledger.finished(request(epsilon("1/10"), "2027")) is None
    assert ledger.state().spent["survey", None].epsilon == Fraction(1, 10)
    with pytest.raises(BudgetError, match="belongs to another release"):
        reserve(ledger, "1/5", "2026")


def test_an_attempt_that_died_is_paid_for_twice_and_published_once(url, tmp_path):
    ledger = ledger_at(url)
    lost, second = (begin(ledger, "1/4", "2026") for _ in range(2))
    second.commit(stage(tmp_path / "s2", second), tmp_path / "out")
    with pytest.raises(BudgetError, match="already published the release"):
        lost.commit(stage(tmp_path / "s1", lost), tmp_path / "late")
    assert not (tmp_path / "late").exists()
    assert (tmp_path / "s1").exists()
    assert ledger.state().spent["survey", None].epsilon == Fraction(1, 2)
    assert not verify_ledger(ledger, tmp_path / "out").findings


def test_a_reservation_is_committed_once(url, tmp_path):
    ledger = ledger_at(url)
    one = begin(ledger, "1/4")
    one.commit(stage(tmp_path / "s1", one), tmp_path / "out")
    with pytest.raises(BudgetError, match="already published the release"):
        one.commit(stage(tmp_path / "s2", one), tmp_path / "other")


def test_a_second_draw_of_a_committed_reservation_is_never_recovered(url, tmp_path):
    """It must not bear the name under which a crash leaves a committed bundle."""
    ledger = ledger_at(url)
    one = begin(ledger, "1/4")
    one.commit(stage(tmp_path / "s1", one), tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "published")
    with pytest.raises(BudgetError, match="already published the release"):
        one.commit(stage(tmp_path / "s2", one), tmp_path / "out")
    assert (tmp_path / "s2").exists()
    assert not Ledger.open(url).recover()
    assert not (tmp_path / "out").exists()


def test_an_occupied_target_is_refused_and_the_staged_bundle_left_alone(url, tmp_path):
    ledger = ledger_at(url)
    release(ledger, tmp_path)
    late = begin(ledger, "1/10")
    with pytest.raises(BundleError, match="is not empty"):
        late.commit(stage(tmp_path / "late", late), tmp_path / "out")
    assert (tmp_path / "late" / "public" / "manifest.json").is_file()
    assert len(ledger.state().commits) == 1


def test_a_bundle_must_carry_its_reservation(url, tmp_path):
    ledger = ledger_at(url)
    one, other = (begin(ledger, "1/10") for _ in range(2))
    with pytest.raises(BundleError, match="does not state the reservation"):
        one.commit(stage(tmp_path / "s", other), tmp_path / "out")
    with pytest.raises(BundleError, match="no readable"):
        one.commit(tmp_path, tmp_path / "out")


def test_recovery_finishes_a_rename(url, tmp_path, monkeypatch):
    ledger = ledger_at(url)
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.reservation.finish_publishing", interrupt)
        with pytest.raises(KeyboardInterrupt):
            release(ledger, tmp_path, key="2026")
    assert not (tmp_path / "out").exists()
    restarted = Ledger.open(url)
    assert [c.final for c in restarted.recover()] == [str(tmp_path / "out")]
    assert restarted.recover() == []
    assert not verify_ledger(restarted, tmp_path / "out").findings
    assert restarted.finished(request(epsilon("1/10"), "2026"))


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_target_that_waits_for_recovery_is_not_given_away(url, tmp_path, monkeypatch):
    ledger = ledger_at(url)
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.reservation.finish_publishing", interrupt)
        with pytest.raises(KeyboardInterrupt):
            release(ledger, tmp_path)
    late = begin(ledger, "1/10")
    staged = stage(tmp_path / "late", late)
    with pytest.raises(BundleError, match="another release is about to be written"):
        late.commit(staged, tmp_path / "out")


@pytest.mark.thorough
def test_eight_processes_are_granted_exactly_the_cap(url):
    ledger_at(url)
    command = [sys.executable, "-m", "tests.ledger.worker", url, "reserve", "50"]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    granted = [int(w.communicate(timeout=300)[0]) for w in workers]
    assert sum(granted) == 100
    state = Ledger.open(url).state()
    assert len(state.reserved) == 100
    assert state.spent["survey", None].epsilon == 1


def test_threads_share_a_ledger(url):
    ledger = ledger_at(url)

    def attempt(_):
        try:
            return bool(reserve(ledger, "1/20").stamp)
        except BudgetError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(40))) == 20
    assert Ledger.open(url).state().head == ledger.state().head


@pytest.mark.thorough
def test_four_processes_make_one_ledger(url):
    command = [sys.executable, "-m", "tests.ledger.worker", url, "create"]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({w.communicate(timeout=120)[0] for w in workers}) == 1
    assert Ledger.open(url).state().number == 3


@pytest.mark.parametrize("name", ["", "  ", None, 3, "x" * 300, "a\nb"])
def test_names_are_needed(tmp_path, name):
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    with pytest.raises(SpecError, match=r"the dataset|dataset is"):
        reserve(ledger, 1, dataset=name)
    with pytest.raises(SpecError, match=r"the analyst|analyst is"):
        reserve(ledger, 1, analyst=name)
    assert len(ledger.state().reserved) == 0


def test_a_missing_ledger_is_not_made_by_the_way(url):
    with pytest.raises(BudgetError, match="no ledger"):
        Ledger.open(url)
    with pytest.raises(BudgetError, match="no ledger"):
        Ledger.open(url)


@pytest.mark.thorough
@given(st.lists(st.tuples(st.sampled_from("ab"), st.fractions(0, 1, max_denominator=20)), max_size=30))
def test_no_sequence_of_requests_passes_a_cap(requests):
    state = State(
        terms={"d": PERSON},
        shown={"d": Shown()},
        caps={("d", None): {"epsilon": Fraction(1)}, ("d", "a"): {"epsilon": Fraction(1, 2)}},
    )
    state.caps["d", "b"] = {"epsilon": Fraction(3, 4)}
    for analyst, amount in requests:
        asked = Request("d", analyst, epsilon(amount))
        try:
            admit(state, asked, "2025-01-01")
        except BudgetError:
            assert any(
                state.spent.get(o, Loss()).epsilon + amount > state.caps[o]["epsilon"] for o in asked.owners
            )
            continue
        for owner in asked.owners:
            state.spent[owner] = state.spent.get(owner, Loss()) + asked.loss
    for owner, loss in state.spent.items():
        assert loss.epsilon <= state.caps[owner]["epsilon"]


def test_a_reservation_by_name_is_charged_once_and_for_one_request(url):
    ledger = ledger_at(url)
    first = ledger.reserve(request(epsilon("1/4")), "run 1")
    again = ledger.reserve(request(epsilon("1/4")), "run 1")
    assert (again.name, again.stamp, again.committed) == (first.name, first.stamp, None)
    assert ledger.state().spent["survey", None].epsilon == Fraction(1, 4)
    with pytest.raises(BudgetError, match="for another release"):
        ledger.reserve(request(epsilon("1/2")), "run 1")


def test_the_next_commit_sweeps_what_a_killed_one_left_ready(url, tmp_path):
    ledger = ledger_at(url)
    killed = begin(ledger, "1/4")
    left, other = tmp_path / f".out.ready-{killed.name}", tmp_path / ".out.ready-unknown"
    left.mkdir()
    other.mkdir()
    release(ledger, tmp_path, "out", "1/4")
    assert not left.exists()
    assert other.exists(), "another ledger may have committed it"


def test_nothing_is_committed_under_a_reservation_that_never_began_to_draw(url, tmp_path):
    reservation = reserve(ledger_at(url), "1/4")
    with pytest.raises(BudgetError, match="no record that this release was drawn"):
        reservation.commit(stage(tmp_path / "s", reservation), tmp_path / "out")


def test_a_reservation_is_returned_until_drawing_begins_and_never_after(url):
    ledger = ledger_at(url)
    given, kept = reserve(ledger, "1/4"), begin(ledger, "1/4")
    given.give_back()
    given.give_back()
    kept.give_back()
    assert ledger.state().spent["survey", None].epsilon == Fraction(1, 4)
    with pytest.raises(BudgetError, match="was returned"):
        given.begin()
    assert Ledger.open(url).state().returned == {given.name}


def test_a_block_that_fails_before_drawing_returns_the_loss_and_one_that_fails_after_does_not(url):
    ledger = ledger_at(url)
    for reservation in (reserve(ledger, "1/4"), begin(ledger, "1/4")):
        with pytest.raises(KeyboardInterrupt), reservation.returning():
            interrupt()
    assert Ledger.open(url).state().spent["survey", None].epsilon == Fraction(1, 4)


def test_a_run_that_goes_on_reserves_again_what_was_returned(url):
    ledger = ledger_at(url)
    ledger.reserve(request(epsilon("1/4")), "run 1").give_back()
    assert not ledger.state().spent["survey", None].epsilon
    again = ledger.reserve(request(epsilon("1/4")), "run 1")
    again.begin()
    again.begin()
    assert ledger.state().spent["survey", None].epsilon == Fraction(1, 4)
    assert not ledger.state().returned


def test_recovery_returns_what_ended_before_drawing_and_nothing_that_lives(url, tmp_path):
    ledger = ledger_at(url)
    dead = reserve(ledger, "1/8", target=str(tmp_path / "dead"))
    drawn = begin(ledger, "1/8", target=str(tmp_path / "drawn"))
    reserve(ledger, "1/8")  # nobody can tell where it runs
    with claimed(tmp_path / "alive"):
        alive = reserve(ledger, "1/8", target=str(tmp_path / "alive"))
        Ledger.open(url).recover()
        alive.begin()
    assert Ledger.open(url).state().returned == {dead.name}
    assert drawn.name in ledger.state().drawn


def test_recovery_leaves_what_runs_on_another_machine(url, tmp_path, monkeypatch):
    ledger = ledger_at(url)
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.ledger.this_host", lambda: "elsewhere")
        reserve(ledger, "1/8", target=str(tmp_path / "out"))
    Ledger.open(url).recover()
    assert not ledger.state().returned


def test_a_key_is_bound_to_the_spec_under_which_it_was_drawn(url, tmp_path):
    ledger = ledger_at(url)
    reserve(ledger, "1/8", "2026", spec="a").give_back()  # a fault of the data: nothing was drawn
    begin(ledger, "1/8", "2026", spec="b")
    with pytest.raises(BudgetError, match="a release of another spec"):
        reserve(ledger, "1/8", "2026", spec="a")


def test_terms_are_stated_once(url):
    ledger = Ledger.create(url)
    with pytest.raises(BudgetError, match="the unit and the neighbour relation"):
        ledger.init("survey", {"epsilon": "1"})
    ledger.init("survey", {"epsilon": "1"}, terms=PERSON)
    before = ledger.state().number
    ledger.init("survey", {"epsilon": "1"}, terms=PERSON)
    assert ledger.state().number == before
    for other in (
        Terms("household", "add-remove"),
        Terms("person", "replace"),
        Terms("person", "add-remove", {"county": "digest"}),
        Terms("person", "add-remove", checks=4),
    ):
        with pytest.raises(BudgetError, match="other terms"):
            ledger.init("survey", {"epsilon": "1"}, terms=other)
    assert Ledger.open(url).state().terms["survey"] == PERSON


COUNTY, OTHER = Question.of("county", 1), Question.of("county", 2)


def test_invariants_that_were_not_declared_are_refused(url):
    with pytest.raises(BudgetError, match="the invariant 'county' is not declared"):
        reserve(ledger_at(url), "1/8", invariants=(COUNTY,))


def test_the_first_publication_of_an_invariant_is_an_entry(url):
    ledger = ledger_at(url, terms=Terms("person", "add-remove", {"county": COUNTY.digest}))
    reserve(ledger, "1/8", invariants=(COUNTY,))
    assert not ledger.state().shown["survey"].published, "nothing is published before drawing begins"
    for _ in range(2):
        begin(ledger, "1/8", invariants=(COUNTY,))
    assert [e.fields["action"] for e in ledger.entries()].count("invariants") == 1


def test_an_invariant_is_declared_by_its_meaning(url):
    with pytest.raises(SpecError, match="without its meaning"):
        Terms("person", "add-remove", {"county": ""})


def test_an_invariant_that_was_declared_by_its_meaning_is_bound_before_its_publication(url):
    ledger = ledger_at(url, terms=Terms("person", "add-remove", {"county": COUNTY.digest}))
    with pytest.raises(BudgetError, match="declared under this name"):
        reserve(ledger, "1/8", invariants=(OTHER,))


def test_distinct_checks_count_held_or_not_and_listed_ones_do_not(url):
    rules = [Question.of(f"a <= {i}", i) for i in range(5)]
    described = Question.of("2 values", "sex", "column sex"), Question.of("3 values", "sex 2", "column sex")
    ledger = ledger_at(url, terms=Terms("person", "add-remove", listed=(rules[4],)))
    asked = {"data": "2026"}
    reserve(ledger, "1/8", questions=(described[0], rules[0], rules[4]), **asked).give_back()
    begin(ledger, "1/8", questions=(described[0], rules[0], rules[1]), **asked)
    begin(ledger, "1/8", questions=(described[1], rules[1]), **asked)
    shown = Ledger.open(url).state().shown["survey"]
    assert shown.answers["2026"].counted == {rules[0].digest, rules[1].digest, described[1].digest}
    assert {q.text for q in shown.held.values() if q.is_rule} == {"a <= 0", "a <= 1"}
    with pytest.raises(BudgetError, match=r"a <= 2.*at most 0 new checks \(of 3\)"):
        reserve(ledger, "1/8", questions=(rules[2],), **asked)
    begin(ledger, "1/8", questions=(rules[0], rules[4]), **asked)
