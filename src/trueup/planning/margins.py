"""Margins of error of least-squares estimates under Laplace noise, measured in standard deviations.

The error is a weighted sum of noises, `sum_i a_i X_i`; a table of precision p gives the group g of node u the weight
`a = p (M Cov(x_u, estimate))_g`. Its characteristic function is the product of `p / (p + 1 - cos(a t))` (discrete
Laplace noise of variance 1 / p), and a Fourier series of it gives `P(|error| <= x)`. Weights are taken one by one
at the nodes from the root to the estimated one and at their children; what lies further down weighs little, and its
share of the variance is taken as normal. 1.96 standard deviations of one Laplace noise cover 93.7 %, not 95 %.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram import marginalise
from trueup.kernel.histogram.error_variances import ErrorVariances, Swept
from trueup.noise.law import Reals
from trueup.planning import Target
from trueup.planning.expected import Expected
from trueup.planning.optimum import epsilon_at

PERIOD, SMOOTHED, TERMS = 40.0, 1 / 100, 4_000
"""Period and smoothing of the Fourier series (standard deviations), and its number of terms; smoothing lets it converge."""
NORMAL_SHARE = 1e-5
"""Sum of squared shares of the variance that is taken as normal."""


def normal_ratio(confidence: float) -> float:
    """Return a normal error's margin of error, in standard deviations, at a confidence in per cent.

    Examples
    --------
    >>> round(normal_ratio(95), 3)
    1.96
    """
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 200))


def margin_ratio(expected: Expected, precisions: Reals, target: Target) -> float:
    """Return the margin of error, in standard deviations, of a target's worst count under Laplace noise.

    Examples
    --------
    >>> from trueup.model.cells import Cells, Margin
    >>> from trueup.model.tree import Tree
    >>> expected = Expected.of(Cells(Tree.from_columns(["all"], [{}])), [Margin("all")])
    >>> round(margin_ratio(expected, np.array([1e-4]), Target(Margin("all"), 10.0, 95.0)), 2)
    2.12
    """
    if target.mean:
        return normal_ratio(target.confidence)
    swept = expected.sweep(precisions)
    variance, context, kind = expected.worst(swept, target.margin)
    cell = list(expected.model.cells_of(expected.marginal(target.margin)))[kind]
    parts = list(noise_weights(expected, swept, precisions, target, cell, context))
    if not parts:  # nothing is measured nearer than two levels below: a sum of many noises
        return normal_ratio(target.confidence)
    weights, times, of = (
        np.concatenate([part[i] for part in parts]) / (np.sqrt(variance) if i == 0 else 1) for i in range(3)
    )
    leading = _leading_variance_terms(weights**2 * times / of, times)
    if len(leading) == 1 and times[leading][0] == 1:
        return _of_one(float(of[leading][0]), target.confidence) / float(np.sqrt(variance))
    return _quantile(weights[leading], times[leading], of[leading], variance, target.confidence / 100)


def _leading_variance_terms(shares: Reals, times: Reals) -> NDArray[np.int64]:
    """Return the positions of the least normal noise terms; the sum of the others is nearly normal."""
    kurtosis = shares**2 / times
    order = np.argsort(-kurtosis)
    left = kurtosis.sum() - np.cumsum(kurtosis[order])
    return order[: int(np.argmax(left <= NORMAL_SHARE)) + 1]


def noise_weights(
    expected: Expected, swept: Swept, precisions: Reals, target: Target, cell, context: int
) -> Iterator[tuple[Reals, Reals, Reals]]:
    """Yield the noise terms in a target's error, in groups of equal weight and precision."""
    model, marginal = expected.model, expected.marginal(target.margin)
    for level, times, x in _covariances(model, swept, expected.level(target.margin), marginal, cell, context):
        for (at, table), p in zip(model.tables, precisions):
            if at == level and np.isfinite(p) and p > 0:
                found, counts = np.unique(
                    np.round(p * (marginalise(x, table) if table else x), 12), return_counts=True
                )
                yield found, times * counts.astype(float), np.full(len(found), p)


def _covariances(model: ErrorVariances, swept: Swept, level: int, marginal, cell, context: int):
    """Yield the covariances (cells,) of an estimate with the counts that its error depends on."""
    path = [context]
    for above in range(level, 0, -1):
        path.insert(0, int(model.shapes.parent[above][path[0]]))
    shapes = [int(model.shapes.shape[at][c]) for at, c in enumerate(path)]
    found: dict[tuple[int, int, bool], tuple[float, Reals]] = {}
    for i, stack in enumerate(model.stacks):
        for c, members in enumerate(stack.members):
            for component in members:
                if not model.domain.informs(marginal, component):
                    continue
                row, contrast = model.row(marginal, cell, component)
                for key, times, k in _along(model, swept, i, c, shapes, row):
                    _, values = found.setdefault(key, (times, np.zeros(model.domain.cells)))
                    component.view(values)[...] = np.outer(model.rotation(component) @ k, contrast)
    for (at, _, _), (times, values) in found.items():
        yield at, times, model.domain.backward(values) if model.domain.axes else values


def _along(model: ErrorVariances, swept: Swept, i: int, c: int, shapes: list[int], row: Reals):
    """Yield the covariances (D,) of an estimate with the nodes on and beside its path, for one component."""
    v = [swept.subtree[i][at][:, c] for at in range(model.shapes.depth)]
    a = [inverse[:, c] for inverse in swept.inverse[i]]
    last = len(shapes) - 1
    z = [v[last][shapes[last]] @ row]
    for at in range(last - 1, -1, -1):
        z.insert(0, v[at][shapes[at]] @ a[at][shapes[at]] @ z[0])
    x = z[0]
    for at, shape in enumerate(shapes):
        yield (at, shape, True), 1.0, x
        if at == model.shapes.depth - 1:
            return
        pull = a[at][shape] @ (x - z[at + 1] if at < last else x)
        counts = model.shapes.counts[at][[shape]].tocoo()
        for child, number in zip(counts.coords[1], counts.data):
            others = number - (at < last and child == shapes[at + 1])
            if others:
                yield (at + 1, int(child), False), float(others), v[at + 1][child] @ pull
        if at < last:
            x = z[at + 1] + v[at + 1][shapes[at + 1]] @ pull


def _of_one(precision: float, confidence: float) -> float:
    """Return the smallest whole-number margin of error of a single discrete Laplace noise term."""
    epsilon = epsilon_at(precision)
    beyond = (1 - confidence / 100) * (1 + np.exp(-epsilon)) / 2
    return float(max(np.ceil(-np.log(beyond) / epsilon - 1 - 1e-9), 0.0))


def _quantile(weights: Reals, times: Reals, of: Reals, variance: float, probability: float) -> float:
    """Return the smallest x for which `P(|error| <= x)` reaches a given probability."""
    t = 2 * np.pi / PERIOD * np.arange(1, TERMS + 1)
    rest = max(0.0, 1 - float((weights**2 * times / of).sum()))
    log = -(rest + SMOOTHED**2) * t**2 / 2
    for weight, number, p in zip(weights, times, of):
        log -= number * np.log1p((1 - np.cos(weight * t)) / p)
    series = 4 / PERIOD * np.exp(log) / t

    low, high = 0.0, PERIOD / 2
    for _ in range(40):
        x = (low + high) / 2
        reached = 2 * x / PERIOD + float(series @ np.sin(t * x)) >= probability
        low, high = (low, x) if reached else (x, high)
    return high
