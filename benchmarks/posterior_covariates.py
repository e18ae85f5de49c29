"""Small areas with two covariates: exact posterior under the hierarchical prior, and NumPyro's NUTS with counts summed out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Case, Harness, Picture, available
from trueup.inferring import infer
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.sdhc import PUBLISHED
from trueup.layouts.splits import SLOPE_SD
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.prior import Hierarchical
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise import law_named

EPSILON, DRAWS = "1/2", 1000
WARM_UP, FEWER = 200, 200
"""Steps of the chain: fewer draws than ours, which favours it."""
REACH = 20.0
"""Nats below its peak at which the noise of a count is cut off in the sums of the chain's likelihood."""


class Areas(NamedTuple):
    """Noisy counts of areas and their covariates `(areas, 2)`, standardised."""

    cells: Cells
    noisy: NDArray[np.int64]
    covariates: NDArray[np.float64]


class Answer(NamedTuple):
    """Posterior means and standard deviations of all counts, and the least effective draws of a hyperparameter, if any."""

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    effective: float


def cases(harness: Harness) -> Iterator[Case]:
    """Processor seconds of estimate and 1,000 draws; `difference` is in posterior standard deviations of a count."""
    for count in sizes(harness):
        problem = made(count)
        yield from harness.compare(
            f"{count:,} areas, two covariates, epsilon {EPSILON}",
            lambda p=problem: exact(p),
            {"NumPyro, NUTS": available("numpyro", lambda p=problem: by_numpyro(p))},
            difference=lambda ours, peer: float((np.abs(ours.mean - peer.mean) / peer.sd).max()),
            clock=time.process_time,
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    """How well the chain mixed: its draws are not as many independent ones, as ours are."""
    if not callable(available("numpyro", lambda: None)):
        return
    answer = by_numpyro(made(sizes(harness)[0]))
    yield Picture(
        title="NumPyro's chain",
        columns=["draws", "least effective draws"],
        rows=[[str(FEWER), f"{answer.effective:.0f}"]],
    )


def sizes(harness: Harness) -> tuple[int, ...]:
    """Numbers of areas."""
    return (1000, *([3000] if harness.full else []))


def made(count: int) -> Areas:
    """Counts of areas that vary with two covariates, measured by the discrete Laplace law."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((count, 2))
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    truth = rng.poisson(20 * rng.gamma(2.0, 0.5, count) * np.exp(z @ [0.6, -0.3]))
    law = law_named("discrete-laplace")(EPSILON)
    noisy = truth + law.quantile(rng.random(count)).astype(np.int64)
    names = [f"a{k:04d}" for k in range(count)]
    return Areas(Cells(Tree.from_columns(["all", "area"], [{}, {"area": names}])), noisy, z)


def exact(problem: Areas) -> Answer:
    """Ours."""
    cells = problem.cells
    headers = (Measured("count", cells.finest, law_named("discrete-laplace")(EPSILON)),)
    measured = Measurements(cells, headers, (problem.noisy,), PUBLISHED, simulation=True)
    prior = Hierarchical(covariates=tuple(tuple(z) for z in problem.covariates.T.tolist()))
    constraints = Constraints(cells, (Margin("all"), cells.finest))
    table = infer(measured, TreeExact(prior=prior), spec=constraints, draws=DRAWS).summary()
    return Answer(table["mean"], table["sd"], float(DRAWS))


def by_numpyro(problem: Areas) -> Answer:
    """The same model for gradients: counts are summed out of the likelihood, and drawn in the end.

    A Dirichlet-multinomial split of a total is one of independent negative binomial counts of sizes `alpha_c` and common odds,
    given their sum. Flat odds weighted by `A - 1` for `A = sum alpha_c` make the sum's law `Gamma(N + A) / (Gamma(A) N!)
    B(N + 1, A - 1) (A - 1) = 1`: a flat total, as ours is.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import gammaln, logsumexp
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    z, count = jnp.asarray(problem.covariates), len(problem.noisy)
    reach = int(REACH / float(Fraction(EPSILON)))
    x = jnp.asarray(np.maximum(problem.noisy, 0)[:, None] + np.arange(-reach, reach + 1), float)
    log_noise = jnp.where(x >= 0, -float(Fraction(EPSILON)) * jnp.abs(x - problem.noisy[:, None]), -jnp.inf)
    known = jnp.maximum(x, 0.0)

    def log_joint(log_a: Any, beta: Any, log_odds: Any) -> Any:
        alpha = (jnp.exp(log_a) * count * jax.nn.softmax(z @ beta))[:, None]
        log = gammaln(known + alpha) - gammaln(alpha) - gammaln(known + 1.0)
        return log + known * -jax.nn.softplus(-log_odds) - alpha * jax.nn.softplus(log_odds) + log_noise

    def model() -> None:
        log_a = numpyro.sample("log_a", dist.Logistic(0.0, 1.0))
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), SLOPE_SD))
        log_odds = numpyro.sample("log_odds", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("flat total", jnp.log(count * jnp.exp(log_a) - 1) + log_odds)
        numpyro.factor("noisy", logsumexp(log_joint(log_a, beta, log_odds), axis=1).sum())

    start = {"log_a": jnp.array(0.0), "beta": jnp.zeros(2), "log_odds": jnp.log(problem.noisy.mean())}
    chain = MCMC(NUTS(model), num_warmup=WARM_UP, num_samples=FEWER, progress_bar=False)
    chain.run(jax.random.PRNGKey(1), init_params=start)
    found = chain.get_samples()
    drawn = jax.jit(jax.vmap(lambda key, a, b, o: jax.random.categorical(key, log_joint(a, b, o), axis=1)))
    at = drawn(
        jax.random.split(jax.random.PRNGKey(2), FEWER), found["log_a"], found["beta"], found["log_odds"]
    )
    counts = np.take_along_axis(np.asarray(x)[None], np.asarray(at)[..., None], axis=2)[..., 0]
    chains = [np.asarray(v).reshape(FEWER, -1).T for v in found.values()]
    least = min(float(effective_sample_size(one[None])) for many in chains for one in many)
    return Answer(counts.mean(axis=0), counts.std(axis=0), least)
