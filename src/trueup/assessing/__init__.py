"""Assessment: bias, error and coverage of a spec's methods, simulated on true or pseudo-true counts.

Replicates of measure (simulated), reconcile and infer are made in blocks and summed up as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from trueup.assessing.comparators import comparators as make_comparators
from trueup.assessing.replicate import Done, Progress, Simulation, carry_out, ratio_of, replicate_blocks
from trueup.assessing.scenarios import Compared, compare
from trueup.assessing.summary import find_flags, rows, single_counts
from trueup.assessing.tally import MAX_RANKED_COUNTS, Strata, stratify
from trueup.assessing.truth import Truth, read_truth
from trueup.errors import SpecError
from trueup.inferring.method import silent
from trueup.kernel.statistics.streaming import BINS_A_DOUBLING
from trueup.measuring import read_confidential
from trueup.model.cells import Margin
from trueup.model.problem import Problem
from trueup.model.records.assessment import FIELDS, Assessment
from trueup.model.records.expected_errors import SIZES
from trueup.model.spec import Spec
from trueup.model.tables import probability_of
from trueup.model.verb import takes_records
from trueup.reconciling import published

MIN_REPLICATES = 40
"""Replicates below which Monte Carlo errors cannot be estimated."""
MAX_KEPT_ERRORS = 2**23
"""Most errors kept for quantiles of single counts, for each method and table (32 MB)."""


class AssessmentOptions(TypedDict, total=False):
    """Rarely needed arguments of an assessment."""

    intervals: Any
    infer_replicates: int
    draws: int
    level: float | str
    released: Any
    thresholds: Mapping[str, float] | None
    sizes: Sequence[int]
    seed: int
    workers: int
    progress: Progress | None


@takes_records
def assess(
    spec: Spec | Problem | str | Path,
    truth: Any,
    geography: Any = None,
    *,
    replicates: int = 1000,
    methods: Any = (),
    budgets: Any = (1,),
    infer: Any = None,
    comparators: Any = (),
    public_truth: bool = False,
    **options: Unpack[AssessmentOptions],
) -> Assessment:
    """Estimate bias, error and coverage of methods and budgets, by simulating measurements many times.

    Parameters
    ----------
    spec
        The spec of the release: a spec, the path of one, or a Problem; its own method and budgets are the defaults.
    truth
        True or pseudo-true counts: a table (a path, a dataframe, a DuckDB relation) or a Release.
    geography
        The public list of places; not needed with a Problem, with a release, or where the spec declares the table's keys
        public.
    replicates
        Number of times that noise is drawn; every method and budget sees the same draws.
    methods
        Methods of reconciliation: names, `(name, parameters)` or methods. The first one is what the others are
        compared with; by default the spec's alone. Of these and the lists below, one may be given as it is.
    budgets
        Multiples of the spec's budgets, exact: `1`, `"1/2"`.
    infer
        A method of inference, its name, or True for the spec's: its posterior means and intervals are assessed too.
    comparators
        Methods of agencies without a formal guarantee: `cell-key`, `random-rounding`, `rounded`, `suppressed`,
        `swapping`, each `(name, parameters)`; every table is made apart, and how far parts miss it is told.
    public_truth
        Declares the truth public. Otherwise the assessment is confidential: all its figures are functions of it.

    Other Parameters
    ----------------
    intervals
        Interval rules whose coverage is assessed: `least-squares` (the default), `by-size`, `noise`, or rules.
    infer_replicates, draws
        Number of replicates that inference sees (200 by default, as it is slow), and of draws that it makes where it has
        no exact marginals (500).
    level
        Probability that intervals claim, as a number or as text: `"90%"`, the default.
    released
        Somebody's released counts, a table in the layout of the truth: its errors are told beside the methods'.
    thresholds
        Limits (counts) by table, `{"county": 50000}`: how often a count falls on the wrong side.
    sizes
        Lower ends of the classes of the true count.
    seed
        Seed of the simulated noise, 0 by default; equal arguments give equal figures, whatever `workers`.
    workers
        Number of processes, 1 by default.
    progress
        Called as `progress(done, replicates)`; an interruption keeps the blocks that are finished.

    Returns
    -------
    Assessment
        Every figure with its Monte Carlo error.

    Raises
    ------
    TrueupError
        For everything that `release` refuses, too few replicates, a method that does not fit, or a
        threshold on a table that is not published. No message holds a count.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> areas = pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})
    >>> found = assess(AREAS, areas, replicates=4000, public_truth=True)
    >>> found
    Assessment: Two areas
      methods: tree-topdown; 1 budgets, 4,000 replicates
      public truth
    >>> value, error = found.figure("rmse", "area")
    >>> abs(value - 2.29) < 6 * error, found.flags
    (True, ())
    """
    infer_replicates, workers = options.get("infer_replicates", 200), options.get("workers", 1)
    seed, released = options.get("seed", 0), options.get("released")
    _refuse_unusable(replicates=replicates, infer_replicates=infer_replicates, workers=workers, seed=seed)
    sizes = _increasing(options.get("sizes", SIZES))
    level = probability_of(options.get("level", 0.9))
    problem, known = read_truth(spec, truth, geography, public=public_truth)
    constraints = problem.constraints
    theirs = (
        None
        if released is None
        else read_confidential(problem.spec, known.cells, released, constraints=constraints)
    )
    others = make_comparators(_as_list(comparators), known.counts, theirs, level)
    compared = compare(
        problem.spec,
        constraints,
        _as_list(methods),
        _as_list(budgets),
        _as_list(options.get("intervals", "least-squares")),
        infer,
        draws=options.get("draws", 500),
        level=level,
        others=others,
    )
    strata = [stratify(known.cells, known.counts, margin, sizes) for margin in published(constraints)]
    fitting = {s.margin: min(replicates, MAX_KEPT_ERRORS // len(s.truth)) for s in strata}
    simulation = Simulation(
        known.cells,
        known.counts,
        [
            (scenario.headers, estimators)
            for scenario, estimators in zip(compared.scenarios, compared.estimators)
        ],
        strata,
        _limits(options.get("thresholds") or {}, strata),
        seed,
        {margin: number if number >= MIN_REPLICATES else 0 for margin, number in fitting.items()},
        [min(1.0, infer_replicates / replicates) if m.verb == "infer" else 1.0 for m in compared.methods],
        additivity=bool(others),
        linked=ratio_of(constraints),
    )
    blocks = replicate_blocks(replicates, known.cells.n)
    done = carry_out(simulation, blocks, workers, options.get("progress") or silent)
    return _record(problem, known, compared, simulation, done, replicates)


def _as_list(given: Any) -> list[Any]:
    """Return an argument as a list, in which a single name, budget, method or rule is the only element."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _increasing(sizes: Sequence[int]) -> Sequence[int]:
    """Return the lower ends of size classes, or refuse them if they do not increase from 1 upwards."""
    if list(sizes) != sorted(set(sizes)) or min(sizes, default=0) < 1:
        raise SpecError(
            "the size classes are not in increasing order",
            needed="lower ends from 1 upwards, such as 1, 10, 100",
        )
    return sizes


def _refuse_unusable(**numbers: int) -> None:
    """Refuse numbers of replicates, workers or seeds that are too small."""
    least = {"workers": 1, "seed": 0}
    for name, number in numbers.items():
        lowest = least.get(name, MIN_REPLICATES)
        if isinstance(number, bool) or not isinstance(number, int) or number < lowest:
            shown = str(number) if isinstance(number, int) else f"a {type(number).__name__}"
            why = ": Monte Carlo errors cannot be told from fewer" if lowest == MIN_REPLICATES else ""
            raise SpecError(f"{name} is {shown}", needed=f"a whole number from {lowest}{why}")


def _limits(thresholds: Mapping[str, float], strata: Sequence[Strata]) -> dict[Margin, dict[str, float]]:
    """Return the threshold (counts) of each table for which a threshold is given."""
    margins = {str(s.margin): s.margin for s in strata}
    found: dict[Margin, dict[str, float]] = {}
    for name, limit in thresholds.items():
        if name not in margins:
            raise SpecError(
                f"a threshold is given for '{name}'", needed=f"a published table: {', '.join(margins)}"
            )
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not isfinite(limit):
            raise SpecError(f"the threshold for '{name}' is not a number", needed="a finite count")
        found[margins[name]] = {f"{limit:,g}": limit}
    return found


def _record(
    problem: Problem,
    known: Truth,
    compared: Compared,
    simulation: Simulation,
    done: Done,
    replicates: int,
) -> Assessment:
    table = list(_figure_rows(compared, simulation.strata, done))
    kept = simulation.kept
    return Assessment(
        problem.spec.title,
        known.cells,
        known.public,
        known.sentence,
        compared.methods,
        tuple(s.budget for s in compared.scenarios),
        tuple(s.margin for s in simulation.strata),
        compared.intervals,
        done.replicates,
        replicates,
        simulation.seed,
        {name: np.array([row[name] for row in table]) for name in FIELDS},
        {
            (compared.methods[method].label, compared.scenarios[budget].budget.label, margin): single_counts(
                tally, kept[margin]
            )
            for (budget, method, margin), tally in done.sums.items()
        },
        find_flags(table, compared.methods, compared.intervals, problem.constraints.nonnegative),
        {
            "blocks": done.blocks,
            "replicates behind quantiles of single counts": {str(m): kept[m] for m in kept},
            "quantiles of classes": f"cut towards zero by at most 1/{BINS_A_DOUBLING} of their size",
            "ranks": f"compared in tables of at most {MAX_RANKED_COUNTS:,} counts",
            **known.truncation,
        },
        spec=problem.spec,
    )


def _figure_rows(compared: Compared, strata: Sequence[Strata], done: Done) -> Iterator[dict[str, Any]]:
    sorted_by = {s.margin: s for s in strata}
    for (budget, method, margin), tally in done.sums.items():
        place = {
            "level": str(margin),
            "method": compared.methods[method].label,
            "budget": compared.scenarios[budget].budget.label,
        }
        versus = done.versus.get((budget, method, margin), {})
        for row in rows(sorted_by[margin], tally, versus, compared.methods[0].label):
            yield place | row
