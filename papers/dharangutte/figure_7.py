"""Dharangutte et al., Figure 7: noise on the table of delinquent children, cell by cell."""

from __future__ import annotations

from typing import ClassVar

from papers.dharangutte.examples import PAPER, RUNS, boxes, children, keeps, unbiased
from papers.item import Found, Item, Setting


class DharangutteFigure7(Item):
    """Errors of the 16 cells, both norms, drawn."""

    name: ClassVar[str] = "dharangutte-figure-7"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 7"
    shows: ClassVar[str] = (
        "1,000 exact draws of noise on a 4 x 4 table that keeps both margins, for the L1 and the L2 norm, epsilon 1/4: "
        "margins kept, and every cell's error unbiased."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)

    def run(self, setting: Setting) -> Found:
        rng, example = setting.rng(self), children()
        rows, pictures = [], []
        for norm in (1, 2):
            errors = example.noise(norm, setting.runs(RUNS), rng)
            rows += [keeps(example, errors, f"L{norm}"), unbiased(errors, f"L{norm}")]
            pictures.append(
                boxes(errors, example.cells, f"L{norm} norm: every cell's error is centred on zero.")
            )
        return Found(tuple(rows), tuple(pictures))
