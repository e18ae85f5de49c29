"""Zhu et al., Figure 1: projection with nonnegativity biases places, small ones most."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.census import BLOCKS, block_counts
from papers.item import Found, Item, Setting
from papers.row import Row, claim, furthest, held, variance_error
from papers.zhu.exact import biases, noise_masses
from papers.zhu.residuals import (
    EPSILON,
    GROUP,
    PAPER,
    RUNS,
    SETTING,
    Errors,
    Integers,
    Reals,
    errors,
    mean,
    residuals,
)


class ZhuFigure1(Item):
    """Errors of small places before and after program (P+)."""

    name: ClassVar[str] = "zhu-figure-1"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 1"
    shows: ClassVar[str] = (
        f"Errors of 25 blocks over {RUNS:,} runs of two-sided geometric noise of epsilon {EPSILON} on every block, before "
        "and after projection on their known total and on counts that are not negative: every block's bias beside its exact "
        "value."
    )
    files: ClassVar[tuple[str, ...]] = (BLOCKS,)
    seconds: ClassVar[float] = 4.0
    catches: ClassVar[tuple[str, ...]] = (
        "clip and scale in place of the projection",
        "epsilon 2 % off",
        "every place 0.02 counts too high",
    )

    def run(self, setting: Setting) -> Found:
        counts = block_counts(setting, GROUP)
        found = errors(counts, setting.runs(RUNS), setting.rng(self))
        kinds, of = np.unique(counts, return_inverse=True)
        exact = biases(counts, EPSILON, np.unique(of, return_index=True)[1])[of]
        small, large = 0, counts.size - 1
        bias, rest = found.bias(small), found.bias(large)
        total = float(np.abs(found.projected.sum(axis=1)).max())
        rows = (
            _unbiased(found),
            _spread(found.raw),
            claim("smallest block, after projection: mean error", "biased up", bias.text, bias.positive),
            held("smallest block: bias", bias.value, exact[small], ours_error=bias.error),
            claim("largest block, after projection: mean error", "biased down", rest.text, rest.negative,
                  "What the small places gain, the others lose: the total is known. Mean errors after projection are "
                  "measured from those of the projection without bounds, whose bias is zero."),
            held("largest block: bias", rest.value, exact[large], ours_error=rest.error),
            _every(found, counts, exact),
            claim("total after projection: largest error", "none", f"{total:.1g}", total < 1e-8),
        )  # fmt: skip
        pictures = tuple(
            residuals(
                found.raw[:, i],
                found.projected[:, i],
                f"the {name} block of {counts[i]} ({len(kinds)} sizes)",
            )
            for i, name in ((small, "smallest"), (large, "largest"))
        )
        return Found(rows, pictures, (SETTING,))


def _unbiased(found: Errors) -> Row:
    noise = mean(found.raw)
    return held("noisy counts: mean error", noise.value, 0.0, ours_error=noise.error)


def _spread(raw: Reals) -> Row:
    values, masses = noise_masses(EPSILON)
    variance, fourth = (float(masses @ values**k) for k in (2, 4))
    error = variance_error(variance, raw.size, fourth / variance**2)
    return held("noisy counts: variance", float(np.mean(raw**2)), variance, ours_error=error)


def _every(found: Errors, counts: Integers, exact: Reals) -> Row:
    """Hold all places' biases at once."""
    each = [found.bias(i) for i in range(counts.size)]
    return furthest("biases of all blocks", [m.value for m in each], exact, [m.error for m in each])
