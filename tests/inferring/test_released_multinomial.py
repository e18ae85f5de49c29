"""Released counts through the verb: from a release to a posterior, and what it refuses."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas
import pytest

import trueup
from trueup.demo import AREAS
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring import infer, released_multinomial
from trueup.inferring.released_multinomial import AIMED_EFFECTIVE_SIZE, ReleasedMultinomial
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec_queries import Query
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace, Exact
from trueup.reconciling import describe
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample

ONE = DiscreteLaplace(Fraction(1))
MODE = {"method": "multinomial-mode"}


def released(counts, method=None, total_law=ONE, headers=None):
    """A release of counts as a data user has it: measured values unknown (here all zero)."""
    names = [f"{i:03d}" for i in range(len(counts))]
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": names}]))
    headers = headers or [Measured("q", Margin("all"), total_law), Measured("q", Margin("area"), ONE)]
    values = tuple(np.zeros(cells.size(h.margin), np.int64) for h in headers)
    guarantee = object.__new__(Guarantee)
    measurements = Measurements(cells, tuple(headers), values, guarantee)
    constraints = Constraints(cells, tuple(h.margin for h in headers if not h.exact))
    release = Release(measurements, np.array(counts), describe(method or MultinomialMode()), {}, {})
    return constraints, release


def test_two_parts_have_exact_marginals():
    constraints, release = released([250, 357])
    posterior = infer(release, ReleasedMultinomial(), spec=constraints, draws=20_000)
    summary, total = posterior.summary(), posterior.summary(Margin("all"))
    assert summary["mcse"].tolist() == [0, 0]
    drawn = posterior.draws[0]
    assert np.abs(drawn.mean(axis=0) - summary["mean"]).max() < 6 * summary["sd"].max() / 20_000**0.5
    assert abs(drawn.sum(axis=1).mean() - total["mean"][0]) < 6 * total["sd"][0] / 20_000**0.5
    assert abs(posterior.probability("'000' + '001' == 607") - 0.46) < 0.05
    assert posterior.drawn.independent


def test_many_parts_draw_independently():
    rng = np.random.default_rng(3)
    constraints, release = released(rng.poisson(30, 60))
    posterior = infer(release, ReleasedMultinomial(), spec=constraints, draws=300)
    assert posterior.draws.shape == (1, 300, 60)
    assert posterior.drawn.stats["dropped_mass"] < 1e-10
    assert np.abs(posterior.draws[0].mean(axis=0) - release.counts).max() < 3


def test_behind_a_draw_chains_are_checked():
    constraints, release = released([8, 0, 5], MultinomialSample())
    posterior = infer(release, ReleasedMultinomial(release="sample"), spec=constraints, draws=2000)
    assert not posterior.drawn.independent
    assert posterior.drawn.r_hat is not None
    assert posterior.drawn.ess is not None
    assert posterior.drawn.r_hat.max() < 1.01
    assert posterior.drawn.ess.min() > 400


def test_chains_that_did_not_mix_are_no_posterior(monkeypatch):
    constraints, release = released([800, 3, 0], MultinomialSample())
    few = infer(release, ReleasedMultinomial(release="sample"), spec=constraints, draws=20).drawn
    assert few.stats["smallest_ess"] >= AIMED_EFFECTIVE_SIZE  # the chains are longer than what is asked for
    monkeypatch.setattr(released_multinomial, "AIMED_EFFECTIVE_SIZE", 10**6)
    with pytest.raises(ConvergenceError, match="more draws"):
        infer(release, ReleasedMultinomial(release="sample"), spec=constraints, draws=20)


def test_an_invariant_total_is_kept():
    constraints, release = released([8, 0, 5], headers=[
        Measured("invariant", Margin("all"), Exact()), Measured("q", Margin("area"), ONE),
    ])  # fmt: skip
    posterior = infer(release, ReleasedMultinomial(), spec=constraints, draws=500)
    assert (posterior.draws.sum(axis=-1) == 13).all()


def test_an_unmeasured_total_is_the_sum_of_noisy_parts():
    constraints, release = released([8, 0, 5], headers=[Measured("q", Margin("area"), ONE)])
    posterior = infer(release, ReleasedMultinomial(), spec=constraints, draws=500)
    assert 10 < posterior.draws.sum(axis=-1).mean() < 16
    assert posterior.draws.sum(axis=-1).std() > 1.5


def test_priors_are_those_of_the_other_methods():
    constraints, release = released([8, 0, 5])
    means = {}
    for prior in ("flat", {"name": "poisson", "mean": 4.0}, {"name": "bounded", "upper": 6},
                  {"name": "flat-total", "upper": 30}):  # fmt: skip
        name = prior if isinstance(prior, str) else prior["name"]
        means[name] = infer(release, ReleasedMultinomial(prior=prior), spec=constraints, draws=3000).draws[0]
    assert means["bounded"].max() <= 6
    assert means["flat-total"].sum(axis=1).max() <= 30
    assert means["poisson"].mean(axis=0)[0] < means["flat"].mean(axis=0)[0]


@pytest.mark.parametrize("counts", [[8, 0, 5], [0, 0, 0]])
def test_multinomial_splits_pull_parts_to_their_probabilities(counts):
    constraints, release = released(counts)
    prior = {"name": "flat-total", "upper": 40, "split": "multinomial", "probabilities": [8, 1, 1]}
    drawn = infer(release, ReleasedMultinomial(prior=prior), spec=constraints, draws=2000).draws[0]
    even = infer(
        release, ReleasedMultinomial(prior=prior | {"probabilities": []}), spec=constraints, draws=2000
    )
    assert drawn.mean(axis=0)[0] > even.draws[0].mean(axis=0)[0] + 0.2
    assert drawn.mean(axis=0)[2] < even.draws[0].mean(axis=0)[2] - 0.05


@pytest.mark.parametrize(
    ("method", "by", "why"),
    [
        (ReleasedMultinomial(), MultinomialSample(), "multinomial-sample"),
        (ReleasedMultinomial(release="sample"), MultinomialMode(), "multinomial-mode"),
        (ReleasedMultinomial(total="summed"), MultinomialMode(), "total = 'independent'"),
        (ReleasedMultinomial(), MultinomialMode(ties="shuffled"), "shuffled"),
        (ReleasedMultinomial(release="sample"), MultinomialSample(algorithm=1), "algorithm = 1, not 2"),
    ],
)
def test_other_releases_are_refused(method, by, why):
    constraints, release = released([8, 0, 5], by)
    with pytest.raises(SpecError, match=why):
        infer(release, method, spec=constraints)


def test_mixed_releases_and_measurements_are_refused():
    constraints, release = released([8, 5])
    with pytest.raises(SpecError, match="a release"):
        infer(release.measurements, ReleasedMultinomial(), spec=constraints)
    twice = [Measured("q", Margin("all"), ONE), *[Measured("q", Margin("area"), ONE)] * 2]
    constraints, release = released([8, 5], headers=twice)
    with pytest.raises(SpecError, match="exactly one noisy value"):
        infer(release, ReleasedMultinomial(), spec=constraints)


def test_a_release_that_cannot_be_is_refused():
    constraints, release = released([500, 900])
    with pytest.raises(InfeasibleError, match="cannot have released"):
        infer(release, ReleasedMultinomial(prior={"name": "bounded", "upper": 0}), spec=constraints)


@pytest.mark.parametrize(
    ("method", "by"),
    [
        (ReleasedMultinomial(ties="shuffled"), MultinomialMode(ties="shuffled")),
        (ReleasedMultinomial(release="sample", algorithm=1), MultinomialSample(algorithm=1)),
        (ReleasedMultinomial(release="sample"), MultinomialSample()),
    ],
)
def test_every_release_of_one_sum_has_a_posterior(method, by):
    constraints, release = released([8, 3, 5], by)
    posterior = infer(release, method, spec=constraints, draws=2000)
    assert posterior.draws.min() >= 0
    assert 12 < posterior.draws.sum(axis=-1).mean() < 20


@pytest.mark.parametrize("release", ["mode", "sample"])
def test_a_total_of_zero_has_an_exact_posterior(release):
    by = MultinomialMode() if release == "mode" else MultinomialSample()
    constraints, zeros = released([0, 0, 0], by)
    posterior = infer(zeros, ReleasedMultinomial(release=release), spec=constraints, draws=4000)
    q = np.exp(-1.0)
    assert posterior.drawn.independent
    assert posterior.draws.sum(axis=-1).mean() == pytest.approx(3 * q / (1 - q), rel=0.12)


@pytest.mark.parametrize("total_law", [None, ONE])
def test_algorithm_1_may_draw_its_total_given_the_noisy_parts(total_law):
    headers = None if total_law else [Measured("q", Margin("area"), ONE)]
    constraints, release = released([8, 3], MultinomialSample(algorithm=1, total="summed"), headers=headers)
    method = ReleasedMultinomial(release="sample", algorithm=1, total="summed")
    posterior = infer(release, method, spec=constraints, draws=2000)
    assert posterior.draws.min() >= 0
    assert 8 < posterior.draws.sum(axis=-1).mean() < 16


def test_simulated_laws_of_sums_are_refused():
    constraints, release = released([8, 3], MultinomialMode(total="summed", monte_carlo=10_000))
    with pytest.raises(SpecError, match="monte_carlo = 10000"):
        infer(release, ReleasedMultinomial(total="summed"), spec=constraints)


def spec_of_a_release(**more):
    """How areas were released: noise of epsilon 1 and 2, then a mode of two parts."""
    query = {"name": "persons", "epsilon": {"all": 1, "area": 2}}
    return AREAS.model_copy(
        update={"queries": (Query(**query),), "reconcile": {"method": "multinomial-mode"} | more}
    )


def test_released_counts_without_a_bundle_have_the_posterior_of_their_release():
    published = pandas.DataFrame({"area": ["a", "b"], "released": [3, 5]})
    alone = infer(trueup.read_released(spec_of_a_release(), published), draws=500)
    headers = [
        Measured("q", Margin("all"), ONE), Measured("q", Margin("area"), DiscreteLaplace(Fraction(2))),
    ]  # fmt: skip
    constraints, release = released([3, 5], headers=headers)
    whole = infer(release, ReleasedMultinomial(), spec=constraints, draws=500)
    assert alone.method == whole.method
    assert np.array_equal(alone.summary()["mean"], whole.summary()["mean"])  # exact: two parts
    other = infer(trueup.read_released(AREAS.model_copy(update={"reconcile": MODE}), published), draws=500)
    assert not np.allclose(alone.summary()["mean"], other.summary()["mean"], atol=1e-6)  # epsilon 1/2 each


def test_released_counts_are_read_by_the_column_of_the_spec_too_and_missing_cells_are_zero():
    places = pandas.DataFrame({"area": ["a", "b", "c"]})
    read = trueup.read_released(
        spec_of_a_release(), pandas.DataFrame({"area": ["c", "a"], "n": [4, 1]}), places
    )
    assert read.counts.tolist() == [1, 0, 4]
    assert "no measurements" in repr(read)


@pytest.mark.parametrize(
    ("more", "asked", "why"),
    [
        (
            {"method": "tree-equality"},
            {},
            "released counts alone have no posterior under the method 'tree-equality'",
        ),
        ({}, {"method": "tree-exact"}, "needs noisy counts"),
        ({"total": "summed"}, {"method": ReleasedMultinomial()}, "total = 'summed'"),
        ({}, {"within": "all=all"}, "split from a count above"),
    ],
)
def test_what_released_counts_alone_do_not_answer_is_refused(more, asked, why):
    published = pandas.DataFrame({"area": ["a", "b"], "released": [3, 5]})
    with pytest.raises(SpecError, match=why):
        infer(trueup.read_released(spec_of_a_release(**more), published), **asked)


def test_released_counts_of_another_kind_of_table_are_read():
    published = pandas.DataFrame({"area": ["a", "b"], "released": [3, 5]})
    spec = spec_of_a_release(method="multinomial-sample", algorithm=1)
    posterior = infer(trueup.read_released(spec, published), draws=400)
    assert posterior.method["release"] == "sample"
    assert posterior.method["algorithm"] == 1
