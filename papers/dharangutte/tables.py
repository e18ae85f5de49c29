"""Dharangutte et al., Tables 1 to 3: the table of delinquent children, and noise that keeps its margins."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.dharangutte.exact import as_stated
from papers.dharangutte.examples import CHILDREN, COUNTIES, DRAWS, EDUCATION, PAPER, children, keeps
from papers.item import Found, Item, Setting
from papers.row import Row, compare, corrected, likely
from trueup.reporting.drawing import Column, Table

PRINTED_ROWS, PRINTED_COLUMNS, PRINTED_TOTAL = ("20", "55", "35", "35"), ("50", "35", "30", "20"), "135"

NOISE = {
    1: np.array([[-1, -1, 0, 2], [5, 4, -2, -7], [-5, -3, 5, 3], [1, 0, -3, 2]]),
    2: np.array([[-11, 1, 10, 0], [-3, -6, 1, 8], [-6, -5, 13, -2], [20, 10, -24, -6]]),
}
"""Printed noise by norm: Tables 1 and 3."""

GAMMA = "The printed total of Gamma is wrong: its cells, and the printed grand total less the other counties', give 25."
RARE = 1e-3
"""A printed draw that is rarer is not from the stated law. It is fixed: no run of ours makes it so by chance."""
FITS = (
    "The paper's epsilon is not stated in words; 1/4 is taken from the size of the printed draws. Their norms added have "
    "a gamma law of shape 18, nearly, with a rate of epsilon: probabilities of a thousandth allow 0.09 to 0.41."
)


class DharangutteTables(Item):
    """The table's margins, and the printed noise beside ours."""

    name: ClassVar[str] = "dharangutte-tables"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Tables 1, 2 and 3"
    shows: ClassVar[str] = (
        "Margins of the table of delinquent children, and exact draws of noise that keeps them, for the L1 and the L2 "
        "norm, epsilon 1/4."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint",)
    seconds: ClassVar[float] = 2.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 in place of 1/4",
        "epsilon 1/20 in place of 1/4",
        "epsilon 2 % off",
        "the other norm",
        "a printed cell 1 too high",
    )

    def run(self, setting: Setting) -> Found:
        rng, example = setting.rng(self), children()
        rows, pictures = margins(), [_table("Table 2: delinquent children (fictitious)", CHILDREN)]
        sizes = {}
        for norm, printed in NOISE.items():
            noise = example.noise(norm, setting.runs(DRAWS), rng)
            sizes[norm] = np.linalg.norm(printed.ravel(), norm), np.linalg.norm(noise, norm, axis=1)
            rows += [
                keeps(example, printed.reshape(1, -1), f"L{norm}, as printed"),
                *as_stated(example, noise, norm),
                _size(f"L{norm} norm of the printed draw", *sizes[norm]),
            ]
            pictures += [
                _table(f"Noise for the L{norm} norm, as printed", printed),
                _table(f"Noise for the L{norm} norm, one of our draws", noise[0].reshape(4, 4)),
            ]
        (first, ours), (second, theirs) = sizes.values()
        rows.append(_size("Norms of both printed draws, added", first + second, ours + theirs))
        return Found(tuple(rows), tuple(pictures), (FITS,))


def margins() -> list[Row]:
    """Printed totals beside the sums of the printed cells."""
    rows = []
    for county, figure, total in zip(COUNTIES, PRINTED_ROWS, CHILDREN.sum(axis=1)):
        label = f"Total of {county}"
        if county == "Gamma":
            others = sum(int(f) for c, f in zip(COUNTIES, PRINTED_ROWS) if c != county)
            rows.append(corrected(label, figure, float(total), int(PRINTED_TOTAL) - others, GAMMA))
        else:
            rows.append(compare(label, figure, float(total)))
    for level, figure, total in zip(EDUCATION, PRINTED_COLUMNS, CHILDREN.sum(axis=0)):
        rows.append(compare(f"Total of {level}", figure, float(total)))
    return [*rows, compare("Grand total", PRINTED_TOTAL, float(CHILDREN.sum()))]


def _size(label: str, printed: float, sizes: NDArray) -> Row:
    """How extreme a printed norm is among those of our draws."""
    larger, smaller = float(np.mean(sizes >= printed)), float(np.mean(sizes <= printed))
    text = f"{sizes.mean():.1f} on average, {larger:.1%} as large, {smaller:.1%} as small"
    return likely(label, f"{printed:.1f}", text, 2 * min(larger, smaller), least=RARE)


def _table(caption: str, cells: NDArray) -> Table:
    """A table with its margins."""
    whole = np.vstack([np.c_[cells, cells.sum(axis=1)], [*cells.sum(axis=0), cells.sum()]])
    columns = [
        Column(name, [str(v) for v in whole[:, j]], numeric=True)
        for j, name in enumerate((*EDUCATION, "Total"))
    ]
    return Table(caption, (Column("County", [*COUNTIES, "Total"]), *columns))
