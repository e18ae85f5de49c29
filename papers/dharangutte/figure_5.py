"""Dharangutte et al., Figures 3 and 5: noise on 14 records that keeps three crossing sums."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.dharangutte.exact import as_stated
from papers.dharangutte.examples import DRAWS, PAPER, boxes, records
from papers.item import Found, Item, Setting
from papers.row import claim


class DharangutteFigure5(Item):
    """Entry-wise errors on the 14 records, both norms, drawn."""

    name: ClassVar[str] = "dharangutte-figure-5"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figures 3 and 5"
    shows: ClassVar[str] = (
        "40,000 exact draws of noise on 14 records that keeps three crossing sums, for the L1 and the L2 norm, "
        "epsilon 1/4: sums kept, every record's error unbiased, its variance the exact one."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)
    seconds: ClassVar[float] = 3.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 in place of 1/4",
        "epsilon 1/20 in place of 1/4",
        "epsilon 2 % off",
        "the other norm",
    )

    def run(self, setting: Setting) -> Found:
        rng, example = setting.rng(self), records()
        regions = len(np.unique(example.invariants, axis=1).T)
        rows = [claim("Regions where sets cross, all nonempty", "7", str(regions), regions == 7)]
        pictures = []
        for norm in (1, 2):
            errors = example.noise(norm, setting.runs(DRAWS), rng)
            rows += as_stated(example, errors, norm)
            pictures.append(
                boxes(errors, example.cells, f"L{norm} norm: every record's error is centred on zero.")
            )
        return Found(tuple(rows), tuple(pictures))
