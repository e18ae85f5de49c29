"""What the noise benchmarks share: peers' samplers, and the distance of draws from the exact law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.harness import Case, Harness, available
from trueup.measuring.entropy import words

VECTOR = 1_000_000
OPENDP_DRAWS = 50_000
"""OpenDP needs some ten seconds for 1e6 draws; it is timed on these and scaled (`--full` times them all).
Its time per draw falls by a few per cent from 5e4 to 1e6."""


def distance(law) -> Callable[[Any, Any], float]:
    """Return the largest gap between the empirical cdf of our draws and the exact cdf (Kolmogorov)."""

    def gap(ours, peer) -> float:
        values, counts = np.unique(ours, return_counts=True)
        return float(np.max(np.abs(np.cumsum(counts) / len(ours) - law.cdf(values))))

    return gap


def opendp_vector(maker: str, scale: float):
    """Return OpenDP's measurement of a vector of integers with noise of that scale."""
    dp = _opendp()
    metric = dp.l1_distance(T="i64") if maker == "make_laplace" else dp.l2_distance(T="f64")
    return getattr(dp.m, maker)(dp.vector_domain(dp.atom_domain(T="i64")), metric, scale=scale)


def opendp_scalar(maker: str, scale: float):
    """Return OpenDP's measurement of one integer with noise of that scale."""
    dp = _opendp()
    metric = dp.absolute_distance(T="i64" if maker == "make_laplace" else "f64")
    return getattr(dp.m, maker)(dp.atom_domain(T="i64"), metric, scale=scale)


def _opendp() -> Any:
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    return dp


def vectors(
    harness: Harness, case: str, law, maker: str, scale: float, insecure: dict[str, Callable[[], Any]]
) -> Iterator[Case]:
    """Compare vectors of 1e6 draws with OpenDP (secure) and NumPy (not secure)."""
    draws = VECTOR if harness.full else OPENDP_DRAWS
    zeros = [0] * draws
    secure = f"opendp ({draws:,} draws, time x {VECTOR // draws})"
    measured: list[Any] = []

    def opendp():
        measured[:] = measured or [opendp_vector(maker, scale)]
        return measured[0](zeros)

    peers: dict[str, Any] = {secure: available("opendp", opendp), **insecure}
    for line in harness.compare(case, lambda: law.sample(VECTOR, words), peers, difference=distance(law)):
        yield scaled(line, VECTOR // draws) if line["peer"] == secure else line


def scaled(line: Case, factor: int) -> Case:
    """Scale a peer that was timed on fewer draws."""
    times = {key: value and value * factor for key in ("peer_s", "ratio") if (value := line[key]) is not None}
    return Case(**(line | times))  # type: ignore[typeddict-item]
