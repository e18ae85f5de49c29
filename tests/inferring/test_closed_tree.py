"""Trees that are summed part by part: the numbers of the tree in one, whatever is published and wherever it is cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.inferring.perturbed_problems import published_tables
from tests.inferring.problems import star
from trueup.inferring import closed_tree, infer
from trueup.inferring.tree_exact import TreeExact
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.prior import FLAT, Estimated
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise.perturbed import CellKey, RandomRounding, Rounded, Suppressed


def places(rng, order):
    """Regions, districts and places by sex, their keys in this order."""
    districts = [(f"r{k % 3}", f"d{k}") for k in range(9)]
    rows = [(*districts[k % 9], f"p{k}") for k in range(40)]
    rows = [rows[k] for k in order(rng, len(rows))]
    keys = [{}, {"region": [r for r, _, _ in rows]}, {"district": [d for _, d, _ in rows]}]
    keys.append({"place": [p for *_, p in rows]})
    tree = Tree.from_columns(["all", "region", "district", "place"], keys)
    return Cells(tree, (Attribute("sex", ("f", "m")),))


def partly(measured, rng):
    """Leave half of the finest values out, the others in any order."""
    last = measured.headers[-1]
    groups = rng.permutation(measured.cells.n)[: measured.cells.n // 2]
    headers = (*measured.headers[:-1], Measured("t", last.margin, last.law, groups))
    return Measurements(
        measured.cells, headers, (*measured.values[:-1], measured.values[-1][groups]), NO_GUARANTEE
    )


@pytest.mark.parametrize("prior", [FLAT, Estimated()], ids=["flat", "estimated"])
@pytest.mark.parametrize("seed", range(6))
def test_parts_are_the_whole(seed, prior, monkeypatch):
    rng = np.random.default_rng([20, seed])
    cells = places(rng, (lambda _, n: range(n)) if seed % 2 else (lambda r, n: r.permutation(n)))
    law = (RandomRounding(3), CellKey(2, "1", 2), Rounded(4), Suppressed(4, 0))[seed % 4]
    measured, constraints = published_tables(cells, rng.poisson(3, cells.n), law, rng)
    if seed > 2:
        measured = partly(measured, rng)
    kept: list = [None, None]
    for k, size in enumerate((1 << 18, 12)):
        monkeypatch.setattr(closed_tree, "MAX_PART_NODES", size)
        monkeypatch.setattr("trueup.inferring.estimated.MAX_REFITS", 0)
        monkeypatch.setattr("trueup.inferring.estimated.MAX_REFITS", 0)
        kept[k] = infer(measured, TreeExact(prior=prior), spec=constraints, draws=400)
    one, many = kept
    assert one.drawn.stats == many.drawn.stats
    for margin, exact in one.drawn.marginals.items():
        other = many.drawn.marginals[margin]
        low = np.minimum(exact.offset, other.offset).min()
        for count in range(int(low), int((other.offset + np.diff(other.start)).max())):
            assert np.abs(exact.cdf(count) - other.cdf(count)).max() < 1e-12
        draws = many.sums(margin)[0]
        spread = np.sqrt(np.maximum(exact.sd**2, 1e-30) / len(draws))
        assert np.abs(draws.mean(axis=0) - exact.mean).max() <= 6 * spread.max() + 1e-9


def test_the_prior_is_estimated_from_parts_as_from_the_whole(monkeypatch):
    rng = np.random.default_rng(21)
    cells = places(rng, lambda _, n: range(n))
    measured, constraints = published_tables(cells, rng.poisson(3, cells.n), Rounded(10), rng)
    means = []
    for refitted in (0, 5):
        monkeypatch.setattr("trueup.inferring.estimated.MAX_REFITS", refitted)
        means.append(infer(measured, TreeExact(prior=Estimated()), spec=constraints, draws=1).drawn)
    finest = [drawn.marginals[cells.finest].mean for drawn in means]
    assert np.abs(finest[0] - finest[1]).max() > 1e-3


@pytest.mark.parametrize("groups", [1, 7, 1 << 18])
def test_marginals_say_the_same_however_many_are_asked_at_a_time(groups, monkeypatch, rng):
    from trueup.model.records import drawn as records

    size = rng.integers(1, 9, 50)
    start = np.concatenate([[0], np.cumsum(size)])
    masses = rng.random(start[-1])
    masses /= np.repeat(np.add.reduceat(masses, start[:-1]), size)
    monkeypatch.setattr(records, "GROUPS_EVALUATED_AT_ONCE", groups)
    found = records.Marginals(start, rng.integers(-5, 50, 50), masses)
    for k in range(50):
        counts, mass = found.pmf(k)
        mean = counts @ mass
        assert found.mean[k] == pytest.approx(mean)
        assert found.sd[k] == pytest.approx(np.sqrt((counts - mean) ** 2 @ mass))
        for probability in (0.05, 0.5, 0.95):
            reached = counts[np.flatnonzero(np.cumsum(mass) >= probability * (1 - 1e-12))[0]]
            assert found.quantile(probability)[k] == reached
        assert found.cdf(counts[0])[k] == pytest.approx(mass[0])
    assert found.mass(-100, 100) == pytest.approx(np.ones(50))


def test_margins_of_the_top_alone_are_parts_too(monkeypatch):
    """A tree cut right below the root."""
    rng = np.random.default_rng(22)
    cells = places(rng, lambda _, n: range(n))
    margins = [Margin("all"), cells.finest]
    truth = rng.poisson(2, cells.n)
    headers = tuple(Measured("t", m, RandomRounding(3)) for m in margins)
    values = tuple(
        h.law.publish(cells.sum(truth, h.margin), rng.random(cells.size(h.margin))) for h in headers
    )
    measured = Measurements(cells, headers, values, NO_GUARANTEE)
    monkeypatch.setattr(closed_tree, "MAX_PART_NODES", 12)
    posterior = infer(measured, TreeExact(prior=FLAT), spec=Constraints(cells, tuple(margins)), draws=3)
    assert (posterior.sums(Margin("all"))[0, :, 0] >= values[0][0] - 2).all()


def test_a_sum_far_from_what_its_parts_make_probable():
    """A thousand counts of 0 to 4 whose sum is 5 to 14: none of their probable sums is near."""
    law, cells = Rounded(10), star(1000)
    measured = Measurements(
        cells,
        (Measured("t", Margin("all"), law), Measured("t", cells.finest, law)),
        (np.array([10]), np.zeros(cells.n, np.int64)),
        NO_GUARANTEE,
    )
    posterior = infer(
        measured, TreeExact(prior=FLAT), spec=Constraints(cells, (Margin("all"), cells.finest)), draws=50
    )
    assert posterior.drawn.stats["dropped_mass"] == 0  # summed in full, not cut off by tilts
    ways = [[1]]  # tables of whole counts 0 to 4 by their sum, in whole numbers
    for _ in range(cells.n):
        before = [*ways[-1], 0, 0, 0, 0]
        ways.append([sum(before[max(s - 4, 0) : s + 1]) for s in range(min(len(before), 15))])
    sums = np.array([ways[-1][s] for s in range(15)], dtype=object)
    want = [float(Fraction(n, sum(sums[5:]))) for n in sums[5:]]
    found = posterior.drawn.marginals[Margin("all")]
    assert found.offset[0] == 5
    assert np.abs(found.masses - want).max() < 1e-12
    cell = posterior.drawn.marginals[cells.finest]
    whole = sum(int(n) * s for s, n in enumerate(sums) if s >= 5)
    assert np.abs(cell.mean - float(Fraction(whole, cells.n * int(sum(sums[5:]))))).max() < 1e-12
    assert np.isin(posterior.draws.sum(axis=2), np.arange(5, 15)).all()
