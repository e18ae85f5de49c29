"""Dharangutte et al., Figures 3 and 5: noise on 14 records that keeps three crossing sums."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.dharangutte.examples import PAPER, RUNS, boxes, keeps, records, unbiased
from papers.item import Found, Item, Setting
from papers.row import claim


class DharangutteFigure5(Item):
    """Entry-wise errors on the 14 records, both norms, drawn."""

    name: ClassVar[str] = "dharangutte-figure-5"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figures 3 and 5"
    shows: ClassVar[str] = (
        "1,000 exact draws of noise on 14 records that keeps three crossing sums, for the L1 and the L2 norm, "
        "epsilon 1/4: sums kept, and every record's error unbiased."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)

    def run(self, setting: Setting) -> Found:
        rng, example = setting.rng(self), records()
        regions = len(np.unique(example.invariants, axis=1).T)
        rows = [claim("Regions where sets cross, all nonempty", "7", str(regions), regions == 7)]
        pictures = []
        for norm in (1, 2):
            errors = example.noise(norm, setting.runs(RUNS), rng)
            rows += [keeps(example, errors, f"L{norm}"), unbiased(errors, f"L{norm}")]
            pictures.append(
                boxes(errors, example.cells, f"L{norm} norm: every record's error is centred on zero.")
            )
        return Found(tuple(rows), tuple(pictures))
