"""Claims that the replicates contradict: zero bias where promised, and intervals that cover.

A figure is flagged only if it is beyond what is material by more than its Monte Carlo error explains; the chance
that any of all figures of an assessment is flagged wrongly is below `ALARM`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trueup.digits import to_digits
from trueup.model.records.assessment import COMPARATOR, Assessed, Flag

ALARM = 1e-6
MATERIAL = 0.25
"""Bias in standard deviations above which it is material.

An interval of 95 % still holds 94.3 % there, and 93.2 % at 0.4 (after Cochran 1977, "Sampling Techniques", table 1.1).
"""
MIN_MATERIAL_BIAS = 0.1
"""Bias (counts) below which it is not material whatever the noise."""
SHORT = 0.02
"""By how much coverage may fall short of what is claimed: counts are whole, so no interval hits it exactly."""
NEAR_ZERO_RMSES = 4.0
"""A class of counts is within reach of zero if its lower end is less than so many root mean squared errors.

Nonnegative counts are too high on average there; that is the cost of
nonnegativity and no defect of a method.
"""


def find_flags(
    rows: Sequence[Mapping], methods: Sequence[Assessed], intervals: Mapping[str, float], nonnegative: bool
) -> tuple[Flag, ...]:
    """Flag contradicted claims among the long table's rows of levels and size classes; comparators claim nothing."""
    claiming = {m.label for m in methods if m.verb != COMPARATOR}
    rows = [row for row in rows if row["method"] in claiming]
    kept = {m.label: nonnegative and m.nonnegative for m in methods}
    tested = [*_bias(list(_tested(rows)), kept), *_coverage(list(_tested(rows)), intervals)]
    return tuple(
        flag for flag, excess, count in tested if excess > _margin(count, len(tested)) * flag.mc_error
    )


def _tested(rows: Sequence[Mapping]) -> Iterator[Mapping]:
    """Yield rows of levels and of size classes; a level with a single class stands for it."""
    whole = {r["level"]: r["units"] for r in rows if r["by"] == "level"}
    for row in rows:
        if row["by"] == "level" or (row["by"] == "size" and row["units"] < whole[row["level"]]):
            yield row


def _margin(replicates: int, tests: int) -> float:
    """Return how many Monte Carlo errors chance alone exceeds with probability `ALARM` in any of the tests."""
    from scipy.special import stdtrit

    return float(stdtrit(replicates - 1, 1 - ALARM / tests))


def _bias(rows: Sequence[Mapping], kept: Mapping[str, bool]) -> Iterator[tuple[Flag, float, int]]:
    variances = {_place(r): r["value"] for r in rows if r["statistic"] == "variance"}
    errors = {_place(r): r["value"] for r in rows if r["statistic"] == "rmse"}
    for row in rows:
        place = _place(row)
        if row["statistic"] != "bias":
            continue
        if kept[row["method"]] and row["by"] == "size" and row["lowest"] < NEAR_ZERO_RMSES * errors[place]:
            continue
        limit = max(MATERIAL * float(np.sqrt(variances[place])), MIN_MATERIAL_BIAS)
        yield (
            _flag("bias", row, limit, _bias_sentence(row, limit)),
            abs(row["value"]) - limit,
            row["replicates"],
        )


def _coverage(rows: Sequence[Mapping], intervals: Mapping[str, float]) -> Iterator[tuple[Flag, float, int]]:
    for row in rows:
        if row["statistic"] == "coverage":
            limit = intervals[row["about"]] - SHORT
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
        f"Intervals '{row['about']}' of method '{row['method']}' at {row['budget']}: {_where(row)} they hold the true "
        f"count in {100 * row['value']:.1f} % of cases (Monte Carlo error {to_digits(100 * row['mc_error'], 2)} points), and "
        f"claim {100 * claimed:g} %."
    )
