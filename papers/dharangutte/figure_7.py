"""Dharangutte et al., Figure 7: noise on the table of delinquent children, cell by cell."""

from __future__ import annotations

from typing import ClassVar

from papers.dharangutte.exact import as_stated
from papers.dharangutte.examples import DRAWS, PAPER, boxes, children
from papers.item import Found, Item, Setting


class DharangutteFigure7(Item):
    """Errors of the 16 cells, both norms, drawn."""

    name: ClassVar[str] = "dharangutte-figure-7"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 7"
    shows: ClassVar[str] = (
        "40,000 exact draws of noise on a 4 x 4 table that keeps both margins, for the L1 and the L2 norm, epsilon 1/4: "
        "margins kept, every cell's error unbiased, its variance the exact one."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)
    seconds: ClassVar[float] = 2.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 in place of 1/4",
        "epsilon 1/20 in place of 1/4",
        "epsilon 2 % off",
        "the other norm",
    )

    def run(self, setting: Setting) -> Found:
        rng, example = setting.rng(self), children()
        rows, pictures = [], []
        for norm in (1, 2):
            errors = example.noise(norm, setting.runs(DRAWS), rng)
            rows += as_stated(example, errors, norm)
            pictures.append(
                boxes(errors, example.cells, f"L{norm} norm: every cell's error is centred on zero.")
            )
        return Found(tuple(rows), tuple(pictures))
