"""Wang (2020), Table 4: the true counts behind Algorithm 2, a multinomial draw."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.curves import Curve, Plot, plot
from papers.item import Found, Item, Setting
from papers.row import Row, claim, compare, corrected, printed
from papers.wang.posterior import RELEASED, WINDOW, Pair, Posterior, likelihoods, posterior, same_pairs

PRINTED = {
    (250, 357): "0.03",
    (251, 356): "0.03",
    (249, 358): "0.03",
    (252, 355): "0.03",
    (248, 359): "0.03",
    (253, 354): "0.02",
    (247, 360): "0.02",
    (254, 353): "0.02",
    (246, 361): "0.02",
    (255, 352): "0.02",
}
WHY = (
    "The printed probabilities do not follow from the stated setting: summing over all noisy counts up to 30 from the "
    "true ones, and normalising over true counts up to 30 from the released ones, gives ours."
)
NARROW = 10


class WangTable4(Item):
    """Ten highest posterior probabilities of two true counts behind Algorithm 2."""

    name: ClassVar[str] = "wang-table-4"
    paper: ClassVar[str] = "Wang (2020, draft)"
    place: ClassVar[str] = "Table 4"
    shows: ClassVar[str] = (
        "Posterior of the true counts behind released parts 250 and 357, a multinomial draw given counts with noise "
        "of epsilon 1, under flat priors on true counts up to 30 from the released ones."
    )

    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 % off",
        "a prior that falls by 1 % a count",
        "modes in place of draws",
    )

    def run(self, setting: Setting) -> Found:
        whole = posterior(drawn=True)
        stated, narrow, right = whole.within(WINDOW), whole.within(NARROW), enumerated()
        rows = [
            *(
                corrected(_name(pair), figure, stated.of(pair), right.of(pair), WHY)
                for pair, figure in PRINTED.items()
            ),
            same_pairs(stated, list(PRINTED)),
            _without_window(whole, right),
            *(
                compare(f"{_name(pair)} with a window of {NARROW}", figure, narrow.of(pair))
                for pair, figure in PRINTED.items()
            ),
            _counted_twice(stated),
        ]
        cut = 1 - whole.of(RELEASED) / stated.of(RELEASED)
        notes = (
            f"A window of {NARROW} in place of {WINDOW} gives every printed figure, which is probably how they came "
            f"about. The window of {WINDOW} cuts off {cut:.1%} of the posterior.",
        )
        return Found(tuple(rows), (_picture(whole, stated, narrow),), notes)


def enumerated() -> Posterior:
    """The draft's own procedure: every noisy pair up to 30 from every true pair up to 30 from the released one."""
    from scipy.stats import binom  # slow to load

    true = [released + np.arange(-WINDOW, WINDOW + 1) for released in RELEASED]
    noisy = [released + np.arange(-2 * WINDOW, 2 * WINDOW + 1) for released in RELEASED]
    given = [likelihoods(n[:, None] - k[None, :]) for n, k in zip(true, noisy)]
    share = noisy[0][:, None] / (noisy[0][:, None] + noisy[1][None, :])
    drawn = binom.pmf(RELEASED[0], sum(RELEASED), share)
    total = likelihoods(true[0][:, None] + true[1][None, :] - sum(RELEASED), sum(RELEASED))
    mass = given[0] @ drawn @ given[1].T * total
    return Posterior(true[0], true[1], mass / mass.sum())


def _without_window(whole: Posterior, right: Posterior) -> Row:
    """Within the window the posterior without one has the same proportions."""
    gap = max(abs(whole.of(p) / whole.of(RELEASED) - right.of(p) / right.of(RELEASED)) for p in PRINTED)
    text = f"{whole.of(RELEASED):.4f} to {min(map(whole.of, PRINTED)):.4f}"
    return claim("The ten probabilities without a window: in the same proportions", "", text, gap < 1e-9)


def _counted_twice(stated: Posterior) -> Row:
    """Whether counting the total's likelihood twice, another slip that was thought of, gives the printed figures."""
    apart = stated.first[:, None] + stated.second[None, :] - sum(RELEASED)
    twice = stated.weighted(np.exp(-np.abs(apart)))
    right = sum(abs(twice.of(pair) - printed(figure)) <= 0.005 for pair, figure in PRINTED.items())
    label = "Printed figures that counting the total's likelihood twice would give: not all"
    return claim(label, "", f"{right} of {len(PRINTED)}", right < len(PRINTED))


def _name(pair: Pair) -> str:
    return f"P({pair[0]}, {pair[1]})"


def _picture(whole: Posterior, stated: Posterior, narrow: Posterior) -> Plot:
    """Probabilities of the ten pairs, in their printed order, in three settings and as printed."""
    order = list(range(1, 1 + len(PRINTED)))
    settings = {
        "as printed": [printed(figure) for figure in PRINTED.values()],
        f"stated setting (window of {WINDOW})": [stated.of(pair) for pair in PRINTED],
        "no window": [whole.of(pair) for pair in PRINTED],
        f"window of {NARROW}": [narrow.of(pair) for pair in PRINTED],
    }
    return plot(
        [Curve(name, order, masses, "points") for name, masses in settings.items()],
        "pair of true counts, in the order of the table",
        "posterior probability",
        "The printed probabilities are those of a window of 10 around the released counts, rounded.",
        "Posterior probabilities of the ten pairs. The stated setting and no window at all nearly coincide.",
    )
