"""Calibration from proper priors at every entry point, and named wrong versions that must fail."""

from __future__ import annotations

import numpy as np
import pytest

from tests.inferring.calibration import FALSE_ALARM, coverage_z, pit, pit_of_draws, uniform_p
from tests.inferring.problems import (
    FAMILY_RULES,
    draw,
    families,
    family_constraints,
    laplace_tree,
    noisy,
    star,
    tree_constraints,
)
from trueup.inferring import infer
from trueup.inferring.inequalities import LinearInequalities
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Margin
from trueup.model.constraints import Bound
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.noise import law_named

PRIORS = {
    "poisson": ({"name": "poisson", "mean": 3}, lambda rng: rng.poisson(3, 4)),
    "negative-binomial": (
        {"name": "negative-binomial", "mean": 6, "size": 1},
        lambda rng: rng.negative_binomial(1, 1 / 7, 4),
    ),
    "bounded": ({"name": "bounded", "upper": 20}, lambda rng: rng.integers(0, 21, 4)),
    "masses": ({"name": "masses", "masses": [0.7, 0.1, 0.1, 0.1]}, lambda rng: rng.choice(4, 4, p=[0.7, 0.1, 0.1, 0.1])),
    "flat-total": (
        {"name": "flat-total", "upper": 30, "split": "multinomial"},
        lambda rng: rng.multinomial(rng.integers(0, 31), [0.25] * 4),
    ),
}  # fmt: skip


def replicate(rng, prior, truth_of, laws=None, wrong=None, replicates=300):
    """Transforms of the total and of the first part, and coverage of the part's interval."""
    cells = star(4)
    laws = laws or laplace_tree(cells, "1/2")
    root, leaf = Margin("all"), Margin("part")
    total, part, covered, mass = [], [], [], []
    for _ in range(replicates):
        truth = truth_of(rng)
        measured = noisy(cells, truth, laws, rng)
        if wrong:
            measured = wrong(measured)
        posterior = infer(measured, TreeExact(prior=prior), spec=tree_constraints(cells), draws=1)
        total.append(pit(posterior, 0, root, truth.sum(), rng))
        part.append(pit(posterior, 0, leaf, truth[0], rng))
        table = posterior.summary()
        covered.append(table["low"][0] <= truth[0] <= table["high"][0])
        mass.append(table["mass"][0])
    return total, part, coverage_z(covered, mass)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
def test_tree_posteriors_are_calibrated(name, rng):
    total, part, z = replicate(rng, *PRIORS[name])
    assert uniform_p(total) > FALSE_ALARM
    assert uniform_p(part) > FALSE_ALARM
    assert abs(z) < 4.9


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("law", ["discrete-laplace:1/4", "discrete-gaussian:9", "truncated-geometric:1/2"])
def test_tree_posteriors_are_calibrated_at_length(name, law, rng):
    kind, parameter = law.split(":")
    laws = dict.fromkeys((Margin("all"), Margin("part")), law_named(kind)(parameter))
    total, part, z = replicate(rng, *PRIORS[name], laws=laws, replicates=4000)
    assert min(uniform_p(total), uniform_p(part)) > FALSE_ALARM
    assert abs(z) < 4.9


def wider(measured):
    """Pretend that the noise was half as wide."""
    law = law_named("discrete-laplace")("1")
    headers = tuple(Measured(h.query, h.margin, law) for h in measured.headers)
    return Measurements(measured.cells, headers, measured.values, PUBLISHED)


def shifted(measured):
    """Add three to every noisy part."""
    return Measurements(
        measured.cells, measured.headers, (measured.values[0], measured.values[1] + 3), PUBLISHED
    )


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [wider, shifted])
def test_calibration_rejects_wrong_measurements(wrong, rng):
    total, part, _ = replicate(rng, *PRIORS["bounded"], wrong=wrong, replicates=500)
    assert min(uniform_p(total), uniform_p(part)) < FALSE_ALARM


@pytest.mark.thorough
def test_calibration_rejects_a_wrong_prior(rng):
    _, truth_of = PRIORS["poisson"]
    total, part, _ = replicate(rng, {"name": "poisson", "mean": 9}, truth_of)
    assert min(uniform_p(total), uniform_p(part)) < FALSE_ALARM


TOP = 12


def whole_families(places, rng):
    """Truths `(places, 3)` uniform on the whole numbers that satisfy the rules."""
    every = np.array([(u, o, f) for u in range(TOP + 1) for o in range(TOP + 1) for f in range(1, TOP + 1)
                      if 2 * f <= u + o <= 10 * f])  # fmt: skip
    return every[rng.integers(0, len(every), places)]


def real_families(places, rng):
    """Truths `(places, 3)` uniform on the polytope that the rules cut from a cube: rejection."""
    u, o, f = rng.uniform(0, TOP, (10 * places, 3)).T
    good = (f >= 1) & (2 * f <= u + o) & (u + o <= 10 * f)
    return np.column_stack([u, o, f])[good][:places]


def family_replicates(rng, law, *, believed=None, rules=FAMILY_RULES, places=600):
    """Transforms of the three counts under a flat prior on what the rules allow; all places in one run."""
    cells = families(places)
    truth = (whole_families if law.discrete else real_families)(places, rng)
    values = truth.ravel() + draw(law, cells.n, rng)
    headers = (Measured("counts", cells.finest, believed or law),)
    bound = (Bound(cells.finest, lower=0, upper=TOP),)
    measured = Measurements(cells, headers, (values,), PUBLISHED)
    constraints = family_constraints(cells, rules, bounds=bound)
    posterior = infer(measured, LinearInequalities(), spec=constraints, draws=200)
    draws = posterior.draws[0].reshape(200, places, 3)
    return [[pit_of_draws(draws[:, p, i], truth[p, i], rng) for p in range(places)] for i in range(3)]


INEQUALITY_LAWS = [
    law_named("discrete-gaussian")("16"),
    law_named("discrete-laplace")("1/3"),
    law_named("gaussian")("16"),
    law_named("laplace")("3"),
]


@pytest.mark.parametrize("law", INEQUALITY_LAWS, ids=repr)
def test_inequality_posteriors_are_calibrated(law, rng):
    assert min(map(uniform_p, family_replicates(rng, law))) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("law", INEQUALITY_LAWS, ids=repr)
def test_inequality_posteriors_are_calibrated_at_length(law, rng):
    assert min(map(uniform_p, family_replicates(rng, law, places=10_000))) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("law", "believed"),
    [
        (law_named("discrete-gaussian")("16"), law_named("discrete-gaussian")("4")),
        (law_named("gaussian")("16"), law_named("gaussian")("4")),
        (law_named("laplace")("3"), law_named("laplace")("1")),
    ],
    ids=repr,
)
def test_calibration_rejects_noise_believed_too_narrow(law, believed, rng):
    assert min(map(uniform_p, family_replicates(rng, law, believed=believed))) < FALSE_ALARM


@pytest.mark.parametrize("law", INEQUALITY_LAWS, ids=repr)
def test_calibration_rejects_an_ignored_inequality(law, rng):
    believed = tuple(rule for rule in FAMILY_RULES if ">= 2" not in rule)
    assert min(map(uniform_p, family_replicates(rng, law, rules=believed))) < FALSE_ALARM
