"""Claim: no noise law fails after a budget was charged for a reason that was knowable before.

Every law on every size at every budget either is refused while it is planned, by an error of ours, or draws, at most a
thousand times, whatever the words. What refuses is seen to be needed: with a limit taken away the set-up does fail.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pandas
import pytest

from tests.parameters import one_in
from tests.reference.lattice import table_margins, three_crossing_sums
from trueup import infer, read_measurements, reconcile, release
from trueup.checking.bundle import check as check_bundle
from trueup.errors import DataError, SpecError, TrueupError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.lattice_samplers import klein
from trueup.measuring import public_words, rehearse
from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.noise import DiscreteGaussian, DiscreteLaplace, TruncatedGeometric
from trueup.noise.lattice import LatticeGaussian, LatticeL2Laplace, LatticeLaplace, choice, integer
from trueup.releasing.again import reconcile_bundle
from trueup.releasing.engine import default_engine, plan_of
from trueup.releasing.pipeline import measure_only

PLAIN = """
format = 2
title = "Two places"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { area = "1/2" } }]
"""
SHAPES = {
    "sum of 2": np.ones((1, 2)),
    "sum of 30": np.ones((1, 30)),
    "sum of 400": np.ones((1, 400)),
    "2 x 30": table_margins(2, 30),
    "6 x 6": table_margins(6, 6),
    "14 x 14": table_margins(14, 14),
    "three crossing sums of 14": three_crossing_sums(2),
    "three crossing sums of 700": three_crossing_sums(100),
    "determinant 2": np.array([[1, 1, 1, 0], [1, -1, 0, 1]]),
    "a sum and a free cell": np.array([[1, 1, 1, 0]]),
}
BUDGETS = [Fraction(2) ** power for power in (-40, -28, -20, -12, -6, -2, 0, 3, 7, 12, 28, 40)]
JOINT = (LatticeLaplace, LatticeL2Laplace, LatticeGaussian)


@pytest.fixture(autouse=True)
def forget():
    """Choices are kept from call to call; those made under another limit must not be."""
    integer.composition.cache_clear()
    yield
    integer.composition.cache_clear()


def planned(kind, matrix, amount):
    """A law bound to its lattice, or None where planning refuses."""
    try:
        law = kind(amount).on(Lattice.of(matrix.shape[1], matrix.astype(np.int64)))
        Measured("q", Margin("all"), law)
    except TrueupError:
        return None
    return law


def worth_drawing(law) -> bool:
    """Slow samplers are let be here: each is one of those that are drawn, at another size."""
    return sum(choice.seconds for _, choice in law.bound.pieces) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shape"), list(product(JOINT, SHAPES)), ids=lambda p: getattr(p, "name", p))
def test_lattice_noise_is_refused_in_planning_or_drawn(kind, shape, rng, monkeypatch):
    monkeypatch.setattr(choice, "LARGEST_TABLE", 2**12)  # tests stay fast
    matrix = SHAPES[shape]
    drawn = 0
    for amount in BUDGETS:
        law = planned(kind, matrix, amount)
        if law is None or not worth_drawing(law):
            continue
        rehearse([Measured("q", Margin("all"), law)])
        size = 10 if matrix.shape[1] > 100 else 200
        vectors = law.bound.draw(size, rng.bytes).vectors
        assert not (vectors @ matrix.T.astype(np.int64)).any()
        drawn += 1
    assert drawn >= 1


@pytest.mark.parametrize(
    "kind", [DiscreteLaplace, DiscreteGaussian, TruncatedGeometric], ids=lambda k: k.name
)
def test_independent_noise_is_refused_in_planning_or_drawn(kind, rng):
    drawn = 0
    for amount in BUDGETS:
        try:
            header = Measured("q", Margin("all"), kind(amount))
        except TrueupError:
            continue
        rehearse([header])
        assert np.abs(header.law.sample(500, rng.bytes)).max() < 2**40
        drawn += 1
    assert drawn >= 5


def test_the_case_that_divided_by_zero_after_the_charge(rng):
    """6 x 6 and 30 cells of one sum at epsilon 1/4: a Gamma variable was asked for past the end of the words."""
    for matrix in (table_margins(6, 6), np.ones((1, 30), np.int64)):
        law = LatticeL2Laplace("1/4").on(Lattice.of(matrix.shape[1], matrix))
        vectors = law.bound.draw(2000, rng.bytes).vectors
        assert not (vectors @ matrix.T).any()


@pytest.mark.thorough
def test_l2_noise_stops_at_the_end_of_the_words_wherever_that_is(rng):
    """The kernel is given one word more at a time: it never fails, and what it draws at last is what it draws at once."""
    walk = klein.KleinWalk.of(Lattice.of(9, table_margins(3, 3)).pieces[0].basis)
    mixture = klein.Mixture.of(walk.norms, 0.25)
    words = np.frombuffer(rng.bytes(8 * 400), np.uint64)
    outcomes = []
    for length in range(0, len(words), 3):
        out, state = np.zeros((1, 9), np.int64), np.zeros(8, np.int64)
        done = klein.draw_l2_laplaces(
            words[:length], np.zeros((0, 2), np.int64), state, walk, 0.25, mixture, out, 0
        )
        outcomes += [tuple(out[0])] if done else []
    assert outcomes
    assert len(set(outcomes)) == 1


def test_without_its_limits_a_set_up_takes_what_nobody_has(monkeypatch):
    """The limits refuse what fails: at this epsilon the table of coins alone has 10^10 entries."""
    lattice, law = Lattice.of(4, np.ones((1, 4), np.int64)), LatticeLaplace(Fraction(1, 2**28))
    with pytest.raises(TrueupError, match=r"table of .* entries|compositions of"):
        law.on(lattice)
    integer.composition.cache_clear()
    monkeypatch.setattr(choice, "LARGEST_TABLE", np.inf)
    monkeypatch.setattr(integer, "LARGEST_COMPOSITION", np.inf)
    chosen = law.on(lattice).bound.pieces[0][1]
    assert choice.half_norm(4, law.epsilon)[1] > 1e9
    assert chosen.sampler == "composition"


@pytest.mark.parametrize(
    ("n", "epsilon"), [(2, "1/50"), (102, "0.192"), (1000, "1/4"), (20_000, "1/2"), (3, "4")]
)
def test_the_stated_size_of_a_table_is_never_too_small(n, epsilon):
    from trueup.noise.lattice.tables import Decisions, sizes

    end, entries = choice.half_norm(n, Fraction(epsilon))
    steps = sizes(Decisions(), n, Fraction(epsilon))
    assert steps.counts[0] <= entries
    assert steps.low[0] + steps.counts[0] <= end


def test_a_law_that_cannot_be_drawn_is_found_by_the_rehearsal():
    class Broken(DiscreteLaplace):
        def sample(self, size, words):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rehearse([Measured("q", Margin("all"), Broken("1"))])


def test_the_rehearsal_reads_no_entropy(monkeypatch):
    from trueup.measuring import entropy

    def refuse(count):
        raise AssertionError("entropy was read")

    monkeypatch.setattr(entropy, "words", refuse)
    rehearse([Measured("q", Margin("all"), DiscreteGaussian("3"))])
    assert public_words()(8) == public_words()(8)


def test_noise_of_whole_tables_is_refused_by_parts(rng):
    """Parts read the law from the run's plan, without its lattice: they failed after the charge, and so did every resume."""
    spec = parse_spec(
        """
format = 2
title = "Two places"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", attributes = ["sex"], noise = "lattice-laplace", epsilon = { area = "1/2" } }]
constraints = { invariants = [{ level = "area" }] }
"""
    )
    problem = Problem.of(spec, data=pandas.DataFrame({"area": ["a", "b"]}))
    with pytest.raises(SpecError, match="all places together"):
        plan_of(problem)
    with pytest.raises(SpecError, match=r"cannot be released by parts.*all places together"):
        default_engine(problem, 1)


def test_counts_leave_room_for_the_noise_before_they_are_charged(tmp_path):
    """A total just below 2^53 passed the check before the charge, and its noisy value failed the one after."""
    spec = tmp_path / "spec.toml"
    spec.write_text(PLAIN)
    with pytest.raises(DataError, match="below 2\\^52"):
        release(spec, pandas.DataFrame({"area": ["a", "b"], "n": [2**52, 2**52 - 1]}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_long_names_do_not_fail_where_files_are_written(tmp_path):
    """Names of attributes became names of files, which file systems stop at 255 bytes: after the charge."""
    spec = tmp_path / "spec.toml"
    spec.write_text(PLAIN.replace("total", "t" * 150).replace('area = "1/2"', 'all = "1/2", area = "1/2"'))
    released = release(spec, pandas.DataFrame({"area": ["a", "b"], "n": [5, 6]}), tmp_path / "out")
    assert all(released.checks.values())
    assert all(finding.holds for finding in check_bundle(tmp_path / "out"))


GRID = """
format = 2
title = "Two places"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", attributes = ["sex"], noise = "NOISE", BUDGET = { area = "1/2" } }]
constraints = { invariants = [INVARIANTS] }
"""
TREE, CROSSING = "{ level = 'area' }", "{ level = 'all', where = { sex = 'f' } }, { level = 'area' }"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", JOINT, ids=lambda k: k.name)
@pytest.mark.parametrize("invariants", one_in(2, [TREE, CROSSING]), ids=["tree", "crossing"])
def test_a_release_is_whole_under_every_lattice_law(kind, invariants, tmp_path):
    """The report asked the L2 norm's law for a quantile of one count, which it does not have: after the charge."""
    spec = tmp_path / "spec.toml"
    budget = "rho" if kind is LatticeGaussian else "epsilon"
    spec.write_text(
        GRID.replace("NOISE", kind.name).replace("BUDGET", budget).replace("INVARIANTS", invariants)
    )
    data = pandas.DataFrame([{"area": a, "sex": s, "n": 30} for a in "abc" for s in "fm"])
    assert all(release(spec, data, tmp_path / "out").checks.values())
    assert all(finding.holds for finding in check_bundle(tmp_path / "out"))
    assert "nan%" not in (tmp_path / "out/public/report.html").read_text()


ZEROS = GRID.replace('["f", "m"]', '["f", "m", "x"]').replace(
    "[INVARIANTS] }", "[INVARIANTS], zeros = [{ sex = 'x' }] }"
)


@pytest.mark.parametrize("kind", JOINT, ids=lambda k: k.name)
@pytest.mark.parametrize("text", one_in(2, [GRID, ZEROS]), ids=["full", "zeros"])
@pytest.mark.parametrize("invariants", [TREE, CROSSING], ids=["tree", "crossing"])
def test_measurements_read_from_files_are_reconciled_like_those_in_memory(kind, text, invariants, tmp_path):
    """The L2 norm's law was read without its lattice, so without a variance: the second verb failed after the charge."""
    spec = tmp_path / "spec.toml"
    budget = "rho" if kind is LatticeGaussian else "epsilon"
    spec.write_text(
        text.replace("NOISE", kind.name).replace("BUDGET", budget).replace("INVARIANTS", invariants)
    )
    data = pandas.DataFrame([{"area": a, "sex": s, "n": 30} for a in "abc" for s in "fm"])
    drawn = measure_only(spec, data, tmp_path / "measured")
    read = read_measurements(tmp_path / "measured")
    assert [h.law.variance for h in read.headers] == [h.law.variance for h in drawn.headers]
    counts = reconcile(drawn).counts
    for again in (reconcile(read), reconcile_bundle(tmp_path / "measured", tmp_path / "out")):
        assert (again.counts == counts).all()
    assert inferred(drawn) == inferred(read)


def inferred(measurements):
    """Draws of the posterior, or the words in which it is refused: the law of the L2 norm is no product over cells."""
    try:
        return infer(measurements, draws=20).draws.tolist()
    except SpecError as refused:
        return str(refused)
