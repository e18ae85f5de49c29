"""Figures of an assessment with Monte Carlo errors, and flags for claims that the figures contradict.

A figure is flagged only if it is beyond what is material by more than its Monte Carlo error explains; the chance
that any of all figures of an assessment is flagged wrongly is below `FALSE_ALARM_PROBABILITY`.

One file: a flag is a statement about the figures that stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.assessing.tally import (
    ABSOLUTE,
    ERROR,
    LEVEL,
    QUANTILES,
    SIZE,
    SQUARE,
    Classing,
    Key,
    Strata,
    Tally,
    quantiles,
)
from trueup.digits import to_digits
from trueup.kernel.statistics.streaming import Moments, Scatter
from trueup.model.records.assessment import COMPARATOR, Assessed, Figures, Flag

FALSE_ALARM_PROBABILITY = 1e-6
MATERIAL_BIAS_DEVIATIONS = 0.25
"""Bias in standard deviations above which it is material.

An interval of 95 % still holds 94.3 % there, and 93.2 % at 0.4 (after Cochran 1977, "Sampling Techniques", table 1.1).
"""
MIN_MATERIAL_BIAS = 0.1
"""Bias (counts) below which it is not material whatever the noise."""
MATERIAL_COVERAGE_SHORTFALL = 0.02
"""Shortfall of coverage from the claimed one that is no fault: counts are whole, so no interval hits it exactly."""
NEAR_ZERO_RMSES = 4.0
"""A class of counts is within reach of zero if its lower end is less than so many root mean squared errors.

Nonnegative counts are too high on average there; that is the cost of
nonnegativity and no defect of a method.
"""


def find_flags(
    rows: Sequence[Mapping], methods: Sequence[Assessed], intervals: Mapping[str, float], nonnegative: bool
) -> tuple[Flag, ...]:
    """Return a flag for each claim of a method that the figures of some class of counts contradict."""
    claiming = {m.label for m in methods if m.verb != COMPARATOR}
    rows = [row for row in rows if row["method"] in claiming]
    kept = {m.label: nonnegative and m.nonnegative for m in methods}
    tested = [*_bias(list(_tested(rows)), kept), *_coverage(list(_tested(rows)), intervals)]
    return tuple(
        flag for flag, excess, count in tested if excess > _margin(count, len(tested)) * flag.mc_error
    )


def _tested(rows: Sequence[Mapping]) -> Iterator[Mapping]:
    """Yield the figures on which claims are tested: those of levels and of size classes."""
    whole = {r["level"]: r["units"] for r in rows if r["by"] == "level"}
    for row in rows:
        if row["by"] == "level" or (row["by"] == "size" and row["units"] < whole[row["level"]]):
            yield row


def _margin(replicates: int, tests: int) -> float:
    """Return how many Monte Carlo errors a deviation must exceed for a flag, given the number of tests."""
    from scipy.special import stdtrit

    return float(stdtrit(replicates - 1, 1 - FALSE_ALARM_PROBABILITY / tests))


def _bias(rows: Sequence[Mapping], kept: Mapping[str, bool]) -> Iterator[tuple[Flag, float, int]]:
    variances = {_place(r): r["value"] for r in rows if r["statistic"] == "variance"}
    errors = {_place(r): r["value"] for r in rows if r["statistic"] == "rmse"}
    for row in rows:
        place = _place(row)
        if row["statistic"] != "bias":
            continue
        if kept[row["method"]] and row["by"] == "size" and row["lowest"] < NEAR_ZERO_RMSES * errors[place]:
            continue
        limit = max(MATERIAL_BIAS_DEVIATIONS * float(np.sqrt(variances[place])), MIN_MATERIAL_BIAS)
        yield (
            _flag("bias", row, limit, _bias_sentence(row, limit)),
            abs(row["value"]) - limit,
            row["replicates"],
        )


def _coverage(rows: Sequence[Mapping], intervals: Mapping[str, float]) -> Iterator[tuple[Flag, float, int]]:
    for row in rows:
        if row["statistic"] == "coverage":
            limit = intervals[row["about"]] - MATERIAL_COVERAGE_SHORTFALL
            sentence = _coverage_sentence(row, intervals[row["about"]])
            yield _flag("coverage", row, limit, sentence), limit - row["value"], row["replicates"]


def _place(row: Mapping) -> tuple:
    return tuple(row[name] for name in ("method", "budget", "level", "by", "unit"))


def _flag(what: str, row: Mapping, limit: float, sentence: str) -> Flag:
    place = {name: row[name] for name in ("method", "budget", "level", "by", "unit", "about")}
    return Flag(what, **place, value=row["value"], mc_error=row["mc_error"], limit=limit, sentence=sentence)


def _where(row: Mapping) -> str:
    of = "" if row["by"] == "level" else f" with a true count of {row['unit']}"
    return f"at level '{row['level']}'{of}"


def _bias_sentence(row: Mapping, limit: float) -> str:
    way = "too high" if row["value"] > 0 else "too low"
    return (
        f"Method '{row['method']}' at {row['budget']}: counts {_where(row)} are {way} by {to_digits(abs(row['value']), 3)} on "
        f"average (Monte Carlo error {to_digits(row['mc_error'], 2)}); up to {to_digits(limit, 3)} would not be material."
    )


def _coverage_sentence(row: Mapping, claimed: float) -> str:
    return (
        f"Intervals '{row['about']}' of method '{row['method']}' at {row['budget']}: {_where(row)} they contain the true "
        f"count in {100 * row['value']:.1f} % of cases (Monte Carlo error {to_digits(100 * row['mc_error'], 2)} points), and "
        f"claim {100 * claimed:g} %."
    )


Row = dict[str, Any]
SHARES = {"coverage", "wrong side", "wrong rank"}
"""Statistics that are probabilities."""


def rows(strata: Strata, tally: Tally, versus: Mapping[Key, Scatter], first: str) -> Iterator[Row]:
    """Yield the figures of one method on one margin, for each class of counts.

    Parameters
    ----------
    strata, tally
        The margin's classes and sums.
    versus
        Differences to the first method; empty for that method itself.
    first
        Its label.
    """
    begin = 0
    variance = strata.average(tally.cells[ERROR].variance[None])[0]
    for classing in strata.classings:
        at = slice(begin, begin + len(classing.labels))
        yield from _of_classes(classing, at, tally, variance)
        yield from _against(classing, at, versus, first)
        if classing.by not in (LEVEL, SIZE):
            yield from _dispersion(classing, at, tally, variance)
        begin = at.stop
    yield from _of_quantiles(strata, tally)


def _of_classes(classing: Classing, at: slice, tally: Tally, variance: NDArray) -> Iterator[Row]:
    names = {ERROR: "bias", ABSOLUTE: "mean absolute error"}
    for key, scatter in tally.classes.items():
        value, error = scatter.mean[at], scatter.error[at]
        if key == SQUARE:
            yield from _class_rows(classing, ("rmse", ""), *_root(value, error), tally.replicates)
            continue
        if key[0] in SHARES:
            error = np.where(
                error > 0, error, 1 / (scatter.count + 2)
            )  # at least about one over all replicates
        yield from _class_rows(classing, (names.get(key, key[0]), key[1]), value, error, tally.replicates)
    error = tally.blocks["variance", ""].error
    yield from _class_rows(classing, ("variance", ""), variance[at], error[at], tally.replicates)


def _against(classing: Classing, at: slice, versus: Mapping[Key, Scatter], first: str) -> Iterator[Row]:
    names = {ERROR: "bias difference", SQUARE: "mean squared error difference"}
    for key, scatter in versus.items():
        found = scatter.mean[at], scatter.error[at]
        yield from _class_rows(classing, (names[key], first), *found, scatter.count)


def _of_quantiles(strata: Strata, tally: Tally) -> Iterator[Row]:
    values, errors = quantiles(tally)
    for p, probability in enumerate(QUANTILES):
        key = f"quantile {probability:g} of the error", ""
        yield from _class_rows(strata.classings[0], key, values[:1, p], errors[:1, p], tally.replicates)
        yield from _class_rows(strata.size, key, values[1:, p], errors[1:, p], tally.replicates)


def _class_rows(
    classing: Classing, key: Key, values: NDArray, errors: NDArray, replicates: int
) -> Iterator[Row]:
    lowest = classing.lowest or (-1,) * len(classing.labels)
    for label, units, low, value, error in zip(classing.labels, classing.units, lowest, values, errors):
        yield _figure_row(classing.by, label, int(units), key, float(value), float(error), replicates, low)


def _figure_row(
    by, unit, units: int, key: Key, value: float, error: float, replicates: int, lowest: int = -1
) -> Row:
    return {
        "by": by,
        "unit": unit,
        "units": units,
        "statistic": key[0],
        "about": key[1],
        "value": value,
        "mc_error": error,
        "replicates": replicates,
        "lowest": lowest,
    }


def _dispersion(classing: Classing, at: slice, tally: Tally, variance: NDArray) -> Iterator[Row]:
    """Yield the standard deviation, between classes of counts, of bias and of variance.

    With class figures v, weights w (shares of the units) and centred v' = v - w.v, the spread is D^2 = w.v'^2. Noise
    in v with covariance S adds w.diag(C S C'), with C the centring, which is taken off; to first order the
    variance of D^2 is g'Sg with g = 2 w v'.
    """
    share = classing.units / classing.units.sum()
    centre = np.eye(len(share)) - share
    biases, variances = tally.classes[ERROR], tally.blocks["variance", ""]
    for name, found, scatter in (("bias", biases.mean, biases), ("variance", variance, variances)):
        values, noise = centre @ found[at], scatter.error_covariance[at, at]
        bias = float(share @ np.diag(centre @ noise @ centre.T))
        square = max(float(share @ values**2) - bias, 0.0)
        slope = 2 * share * values
        # Where there is no spread the slope vanishes, and the noise itself is what could be mistaken for one.
        spread = np.sqrt(max(float(slope @ noise @ slope), 2 * bias**2))
        root, error = np.sqrt(square), np.sqrt(bias)
        if square > 0:
            error = min(error, spread / (2 * root))
        units, key = int(classing.units.sum()), (f"dispersion of {name}", "")
        yield _figure_row(classing.by, "between all", units, key, float(root), float(error), tally.replicates)


def _root(square: NDArray, error: NDArray) -> tuple[NDArray, NDArray]:
    """Return the square root of a mean square, with its Monte Carlo error by the delta method."""
    root = np.sqrt(square)
    return root, np.divide(error, 2 * root, out=np.zeros_like(root), where=root > 0)


# --- single counts --------------------------------------------------------------------------------


def single_counts(tally: Tally, kept: int) -> Figures:
    """Return the figures of every single count of a margin.

    Parameters
    ----------
    kept
        Number of first replicates from which quantiles are taken; 0 for none.
    """
    found: dict[Key, tuple[NDArray, NDArray]] = {}
    for key, moments in tally.cells.items():
        if key == ERROR:
            found.update(_of_errors(moments))
        elif key[0] in SHARES:
            found[key] = _share(moments)
        else:
            found[key] = moments.mean, moments.error
    if kept:
        found.update(_order_statistics(np.concatenate(tally.kept)[:kept]))
    return found


def _of_errors(moments: Moments) -> dict[Key, tuple[NDArray, NDArray]]:
    """Return bias, variance and root mean squared error, with Monte Carlo errors."""
    n, bias = moments.count, moments.mean
    two, three, four = moments.powers / n
    variance = moments.variance
    # Var(s^2) = (mu4 - sigma^4 (n - 3) / (n - 1)) / n; and e^2 has the variance E e^4 - (E e^2)^2.
    of_variance = np.sqrt(np.maximum(four - variance**2 * (n - 3) / (n - 1), 0) / n)
    square = two + bias**2
    fourth = four + 4 * bias * three + 6 * bias**2 * two + bias**4
    of_square = np.sqrt(np.maximum(fourth - square**2, 0) / n)
    return {
        ("bias", ""): (bias, moments.error),
        ("variance", ""): (variance, of_variance),
        ("rmse", ""): _root(square, of_square),
    }


def _share(moments: Moments) -> tuple[NDArray, NDArray]:
    """Return a share of replicates and its Monte Carlo error, which is never zero."""
    n, share = moments.count, moments.mean
    likely = (n * share + 1) / (n + 2)
    return share, np.sqrt(likely * (1 - likely) / n)


def _order_statistics(errors: NDArray) -> dict[Key, tuple[NDArray, NDArray]]:
    """Return quantiles of the errors `(k, groups)` of `k` replicates, with Monte Carlo errors.

    The error is half the distance of the order statistics one standard error of the rank to either side.
    """
    ordered, k = np.sort(errors, axis=0).astype(np.float64), len(errors)
    found = {}
    for p in QUANTILES:
        reach = np.sqrt(k * p * (1 - p))
        ranks = np.ceil([k * p, k * p - reach, k * p + reach]).astype(int) - 1
        value, low, high = ordered[np.clip(ranks, 0, k - 1)]
        found[f"quantile {p:g} of the error", ""] = value, (high - low) / 2
    return found
