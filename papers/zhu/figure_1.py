"""Zhu et al., Figure 1: projection with nonnegativity biases counties, small ones most."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.counties import COUNTIES, county_counts
from papers.item import Found, Item, Setting
from papers.row import claim
from papers.zhu.residuals import LARGE, PAPER, RUNS, SCALE, SETTING, STATE, errors, mean, residuals


class ZhuFigure1(Item):
    """Errors of a state's smallest and largest county before and after program (P+)."""

    name: ClassVar[str] = "zhu-figure-1"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 1"
    shows: ClassVar[str] = (
        f"Errors of {STATE}'s smallest and largest county over {RUNS:,} runs of Laplace noise of scale {SCALE:g} on "
        "every county, before and after projection on the state's known total and on counts that are not negative."
    )
    files: ClassVar[tuple[str, ...]] = (COUNTIES,)
    seconds: ClassVar[float] = 2.0

    def run(self, setting: Setting) -> Found:
        counts = county_counts(setting, STATE).astype(float)
        found = errors(counts, setting.runs(RUNS), setting.rng(self))
        small, large = int(np.argmin(counts)), int(np.argmax(counts))
        noise, bias, rest = mean(found.raw[:, small]), found.bias(small), found.bias(counts >= LARGE)
        total = np.abs(found.projected.sum(axis=1)).max()
        rows = (
            claim("smallest county, noisy count: mean error", "none", noise.text, not noise.positive),
            claim("smallest county, after projection: mean error", "biased up", bias.text, bias.positive),
            claim(
                f"counties of at least {LARGE:,}, after projection: mean error",
                "biased down",
                rest.text,
                rest.negative,
                "What the small counties gain, the others lose: the total is known. Mean errors after projection are "
                "measured from those of the projection without bounds, whose bias is zero.",
            ),
            claim("state after projection: largest error", "none", f"{total:.1g}", bool(total < 1e-4)),
        )
        pictures = (
            residuals(
                found.raw[:, small], found.projected[:, small], f"the smallest county of {counts[small]:,.0f}"
            ),
            residuals(
                found.raw[:, large], found.projected[:, large], f"the largest county of {counts[large]:,.0f}"
            ),
        )
        return Found(rows, pictures, (SETTING,))
