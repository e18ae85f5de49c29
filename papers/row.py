"""One figure of a paper beside ours: the tolerance that the two errors allow, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, hypot, inf, isfinite, log10, sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from trueup.errors import SpecError

Verdict = Literal["agrees", "differs", "shown only", "cannot match"]

CANNOT_FAIL = "No figure that ours could be is further from the printed one than the tolerance."
NOTHING_WOULD_PASS = "The tolerance is as wide as the printed figure: 0 would pass, too."
ERRORS = 5.0
"""Standard errors that a difference may reach by chance: 5.7e-7 for one figure, both sides together."""
CHANCE = 5.7e-7
"""That probability."""


@dataclass(frozen=True)
class Row:
    """A published figure, ours, and whether they can be the same number.

    Make rows with `compare`, `held`, `shown`, `corrected`, `likely` and `claim`, which work the verdict out.

    Attributes
    ----------
    label
        What the figure is, with its unit if it has one.
    paper
        The figure as printed, `""` where the paper prints none.
    ours
        Our figure.
    tolerance
        Largest difference that passes; None where nothing is asserted.
    verdict
        `agrees` and `differs` are asserted. `shown only`: nothing follows from a difference.
        `cannot match`: the printed figure is not what its stated setting gives, and ours is what does.
    note
        Why, where a reader would ask.
    """

    label: str
    paper: str
    ours: float | str
    tolerance: float | None
    verdict: Verdict
    note: str = ""

    @property
    def text(self) -> str:
        """Ours with one decimal more than the paper printed, up to three more where ours is small."""
        if isinstance(self.ours, str):
            return self.ours
        if not self.paper:
            return f"{self.ours:,.4g}"
        small = 2 - floor(log10(abs(self.ours))) if 0 < abs(self.ours) < 1 else 0  # three digits that count
        least, most = decimals(self.paper) + 1, decimals(self.paper) + 3
        return f"{self.ours:,.{min(max(small, least), most)}f}"


def compare(
    label: str,
    paper: str,
    ours: float,
    *,
    ours_error: float = 0.0,
    paper_error: float = 0.0,
    slack: float = 0.0,
    possible: tuple[float, float] = (-inf, inf),
    note: str = "",
) -> Row:
    """Assert that a printed figure and ours differ by no more than chance and rounding explain.

    Where no possible figure of ours could differ by more, or 0 would pass for a printed figure that is not 0, nothing is
    asserted: the row is shown only.

    Parameters
    ----------
    label
        What the figure is.
    paper
        The figure as printed: the number of its decimals says how it was rounded.
    ours
        Our figure.
    ours_error, paper_error
        Standard errors of the two, 0 for what was computed without simulation. A paper's error follows
        from its number of runs: see `mean_error`, `variance_error`, `share_error`.
    slack
        Room for what the paper leaves open, such as counts it describes without printing; `note` says what.
    possible
        Least and greatest figure that ours could be, whatever is right or wrong with how it was computed.
    note
        What a reader should know.

    Raises
    ------
    SpecError
        If the printed figure is no number.

    Examples
    --------
    >>> compare("variance", "186.88", 186.4, ours_error=1.4, paper_error=1.4).verdict
    'agrees'
    >>> compare("probability", ".214", 0.2157).verdict
    'differs'
    >>> compare("share", "0.5", 0.4, ours_error=0.2, possible=(0, 1)).verdict
    'shown only'
    >>> compare("average", "0.01", 0.012, paper_error=0.01).verdict
    'shown only'
    """
    tolerance = ERRORS * hypot(ours_error, paper_error) + rounding(paper) + slack
    if isfinite(ours) and max(abs(end - printed(paper)) for end in possible) <= tolerance:
        return shown(label, paper, float(ours), " ".join(filter(None, (note, CANNOT_FAIL))))
    agrees = isfinite(ours) and abs(ours - printed(paper)) <= tolerance * (1 + 1e-9)
    if agrees and printed(paper) and tolerance >= abs(printed(paper)):
        return shown(label, paper, float(ours), " ".join(filter(None, (note, NOTHING_WOULD_PASS))))
    return Row(label, paper, float(ours), tolerance, "agrees" if agrees else "differs", note)


def shown(label: str, paper: str, ours: float | str, note: str = "") -> Row:
    """Show a figure of which nothing is asserted; the note says why."""
    return Row(label, paper, ours, None, "shown only", note)


def corrected(
    label: str,
    paper: str,
    ours: float,
    right: float,
    note: str,
    *,
    ours_error: float = 0.0,
    right_error: float = 0.0,
) -> Row:
    """Show a printed figure that its stated setting does not give, and assert the one it does give.

    Parameters
    ----------
    label, paper, ours
        As in `compare`.
    right
        What the stated setting gives, from another source than `ours` (a formula, an oracle, a sum).
    note
        What is wrong with the printed figure, and what is right.
    ours_error, right_error
        Standard errors of the two.

    Examples
    --------
    >>> corrected("total of the row", "35", 25, 25, "the printed cells add up to 25").verdict
    'cannot match'
    """
    tolerance = ERRORS * hypot(ours_error, right_error) + 1e-9 * max(1.0, abs(right))
    right_one = isfinite(ours) and abs(ours - right) <= tolerance
    return Row(label, paper, float(ours), tolerance, "cannot match" if right_one else "differs", note)


def held(
    label: str,
    ours: float,
    right: float,
    *,
    ours_error: float = 0.0,
    right_error: float = 0.0,
    note: str = "",
) -> Row:
    """Assert a figure that the paper does not print against its exact value, or an independently computed one.

    Shown only where 0 would pass for a value that is not 0, as in `compare`.

    Parameters
    ----------
    label, ours, note
        As in `compare`.
    right
        What it should be, from another source than `ours`: a formula, an inversion, other code.
    ours_error, right_error
        Standard errors of the two; of `right`, an error that is known to be no larger may stand in.

    Examples
    --------
    >>> held("variance", 1.86, 1.8413, ours_error=0.01).text
    '1.86 (should be 1.841)'
    """
    tolerance = ERRORS * hypot(ours_error, right_error) + 1e-9 * max(1.0, abs(right))
    text = f"{ours:,.4g} (should be {right:,.4g})"
    if not (isfinite(ours) and abs(ours - right) <= tolerance):
        return Row(label, "", text, tolerance, "differs", note)
    if right and tolerance >= abs(right):
        return shown(label, "", text, " ".join(filter(None, (note, NOTHING_WOULD_PASS))))
    return Row(label, "", text, tolerance, "agrees", note)


def likely(
    label: str, paper: str, ours: str, probability: float, note: str = "", *, least: float = CHANCE
) -> Row:
    """Assert that what was found is no more extreme than chance allows: its probability is at least `least`.

    Where the paper's own single draw is judged, no run of ours can be unlucky, and `least` may be a thousandth.

    Examples
    --------
    >>> likely("norm of the printed draw", "44", "2.1 % are as large", 0.042).verdict
    'agrees'
    """
    return claim(label, paper, ours, bool(probability >= least), note)


def limit(number: int) -> float:
    """Standard errors that the largest of so many normal deviations exceeds with probability `CHANCE`.

    Examples
    --------
    >>> round(limit(1), 2), round(limit(100), 2)
    (5.0, 5.83)
    """
    return -NormalDist().inv_cdf(CHANCE / (2 * number))


def furthest(label: str, ours: Any, right: Any, errors: Any, note: str = "") -> Row:
    """Assert many figures `(k,)` against their right values at once: the largest deviation, in standard errors.

    Examples
    --------
    >>> row = furthest("means", [0.1, 2.0], 0.0, 0.2)
    >>> row.text, row.verdict
    ('10.0 errors (2 should be 0)', 'differs')
    """
    ours, right, errors = np.broadcast_arrays(*(np.asarray(each, float) for each in (ours, right, errors)))
    scores = np.abs(ours - right) / errors
    worst = int(np.argmax(scores))
    text = f"{scores[worst]:.1f} errors ({ours[worst]:.4g} should be {right[worst]:.4g})"
    name = f"{label}: largest deviation of {ours.size:,}, in standard errors"
    return claim(name, "", text, bool(scores[worst] < limit(ours.size)), note)


def claim(label: str, paper: str, ours: str, holds: bool, note: str = "") -> Row:
    """Assert a statement of the paper that is no figure: an order, an inequality, a shape.

    Examples
    --------
    >>> claim("bias as counts are shifted up", "disappears", "0.1 counts at 500", True).verdict
    'agrees'
    """
    return Row(label, paper, ours, None, "agrees" if holds else "differs", note)


def printed(paper: str) -> float:
    """Read a printed figure.

    Examples
    --------
    >>> printed("21,249"), printed(".03"), printed("-1.4 %")
    (21249.0, 0.03, -1.4)
    """
    try:
        return float(paper.replace(",", "").replace("−", "-").rstrip("% "))
    except ValueError:
        raise SpecError(
            f"the printed figure '{paper}' is no number", needed="a figure as the paper prints it"
        ) from None


def decimals(paper: str) -> int:
    """Count the decimals that a paper printed.

    Examples
    --------
    >>> decimals("21,249"), decimals(".0154")
    (0, 4)
    """
    return len(paper.rstrip("% ").partition(".")[2])


def rounding(paper: str) -> float:
    """Half a unit of the last printed decimal.

    Examples
    --------
    >>> rounding("0.7")
    0.05
    """
    return 0.5 * 10.0 ** -decimals(paper)


def mean_error(variance: float, runs: int) -> float:
    """Standard error of a mean of `runs` draws of that variance.

    Examples
    --------
    >>> mean_error(4.0, 100)
    0.2
    """
    return sqrt(variance / runs)


def variance_error(variance: float, runs: int, kurtosis: float = 3.0) -> float:
    """Standard error of a variance over `runs` draws: `variance sqrt((kurtosis - 1) / runs)`.

    The kurtosis is 3 for normal draws, 6 for Laplace draws; the simulated one is safest.

    Examples
    --------
    >>> round(variance_error(200.0, 80_000, 6.0), 2)
    1.58
    """
    return variance * sqrt((kurtosis - 1) / runs)


def share_error(share: float, runs: int) -> float:
    """Standard error of a share of `runs` trials; never below that of one single success.

    Examples
    --------
    >>> share_error(0.5, 100), share_error(0.0, 100)
    (0.05, 0.01)
    """
    return max(sqrt(share * (1 - share) / runs), 1 / runs)
