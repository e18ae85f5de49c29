"""Inference: the posterior of true counts, computed from published counts.

A method is a frozen dataclass in a file of its own, listed once in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueup.errors import InfeasibleError, SpecError
from trueup.inferring.conflict import conflicts
from trueup.inferring.given import (
    Given,
    finest_values,
    measured_once,
    prior_instead,
    read_given,
    read_quantity,
    refuse_draws,
    refuse_fractions,
    refuse_vast,
    refuse_workers,
    remarks,
    values_for,
)
from trueup.inferring.method import InferenceMethod, Progress, announce, inference_misfit, silent
from trueup.model.constraints import Constraints
from trueup.model.nested import reported_margins
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.release import Release, ReleasedCounts
from trueup.model.spec import Spec
from trueup.model.tables import probability_of
from trueup.model.verb import describe, entry_of, make, refuse_method, takes_records
from trueup.registry import Registry
from trueup.run import Deadline, Executor

if TYPE_CHECKING:
    from trueup.run.local import LocalPool

METHODS: Registry[InferenceMethod] = Registry(
    "trueup.inferring",
    {
        "tree-exact": "tree_exact.TreeExact: sum, tree",
        "linear-inequalities": "inequalities.LinearInequalities: general",
        "histogram-gibbs": "histogram_gibbs.HistogramGibbs",
        "linked-gibbs": "linked_gibbs.LinkedGibbs",
        "family-moves": "family_moves.FamilyMoves",
        "lattice-moves": "lattice_moves.LatticeMoves",
        "released-multinomial": "released_multinomial.ReleasedMultinomial",
    },
)
"""Every method; the first that fits is the default."""


@takes_records
def infer(
    source: Measurements
    | Release
    | ReleasedCounts
    | Sequence[Measurements]
    | Mapping[str, Measurements | Release],
    method: InferenceMethod | str | None = None,
    *,
    spec: Spec | Problem | Constraints | None = None,
    draws: int = 1000,
    level: float | str = 0.9,
    within: str | None = None,
    progress: Progress | None = None,
    workers: int | Executor = 1,
    checkpoint: str | Path | None = None,
    minutes: float | None = None,
) -> Posterior:
    """Infer the true counts from measurements (or a release made from them).

    Parameters
    ----------
    source
        Measurements, several of the same counts, or a Release: its measurements hold all that its counts do. Where released
        counts alone are known, what `read_released` returned. Or a mapping of the names of periods to what was measured in each:
        their counts are inferred together, told apart by an attribute `period`, under a prior that links them.
    method
        A method with its parameters, or its name; by default the spec's, or the first that fits.
    spec
        Constraints, and with `[infer]` the method, its prior and ratios; or the constraints alone. By default the spec that
        the source was measured by.
    draws
        Number of draws `d` of the `n` finest cells.
    level
        Probability of the intervals in the tables, as a number or as text: `"90%"`.
    within
        A place with all below it, as `"county=44001"`: what was measured elsewhere or above it is left out. That conditions
        on less, so that intervals are wider, and takes little time where the whole would take long.
    progress
        Called as `progress(done, draws)`; an interruption keeps finished blocks of draws.
    workers
        Processes that share the work on a large tree, or what carries it out in their place, such as a
        `trueup.run.spark.SparkCluster`; `tree-exact` alone takes more than one.
    checkpoint
        A folder where Markov chains of `histogram-gibbs` that are predicted to take five minutes or more leave checkpoints, from
        which the same call goes on after the process was killed; remove it once the posterior is written.
    minutes
        Wall time until an answer or a refusal stands, at least 1; by default the spec's, or 10.

    Returns
    -------
    Posterior
        Equal sources give equal draws of one tier, whatever the workers, unless time ends `approximate` early. Where none is
        named, time decides which tier runs, and so does the machine: the record says which it was.

    Raises
    ------
    SpecError
        If the method does not fit, the posterior is improper, the level is no probability, nothing is to be drawn, or several
        measurements are not of the same cells.
    DataError
        If a value that only whole numbers can give is none.
    InfeasibleError
        If no counts satisfy the constraints; it names labels.
    ConvergenceError
        If Markov chains disagree or are too short: such draws are not called a posterior.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> from trueup.measuring import measure
    >>> noisy = measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> posterior = infer(noisy)
    >>> posterior.draws.shape, bool(abs(posterior.summary("all")["mean"][0] - 700) < 100)
    ((1, 1000, 2), True)
    """
    level = probability_of(level)
    measured, constraints, entry = read_given(source, spec)
    asked_minutes = entry.pop("minutes", None)
    deadline = Deadline.of(minutes if minutes is not None else asked_minutes)
    refuse_draws(draws)
    refuse_fractions(measured)
    released = source.counts if isinstance(source, Release | ReleasedCounts) else None
    if within is not None:
        from trueup.inferring.recast import within as cut_within

        measured, constraints, kept = cut_within(measured, constraints, within)
        released = None if released is None else released[kept]
    refuse_vast(draws, measured.cells.n)
    ratios = tuple(read_quantity(part) for part in entry.pop("quantity", ()))
    chosen = (
        inference_method(method, {}, measured)
        if isinstance(method, str)
        else method or choose_inference(entry, constraints, measured)
    )
    refuse_method(chosen, inference_misfit(chosen, constraints, measured))
    refuse_workers(chosen, workers)
    asked = isinstance(method, InferenceMethod) or "prior" in entry
    instead = {} if asked else prior_instead(chosen, constraints, measured)
    tell = progress or silent
    if instead:
        announce(tell, instead["prior_instead"])
    used, repeated = measured_once(measured)
    state = chosen.prepare(constraints, used.headers)
    values = values_for(chosen, source, used, within)
    with _executor_of(workers) if isinstance(workers, int) else nullcontext(workers) as engine:
        more: dict[str, Any] = {"deadline": deadline} | ({"executor": engine} if chosen.parallel else {})
        if chosen.continues and checkpoint is not None:
            more["checkpoint"] = Path(checkpoint)
        try:
            drawn = chosen.apply(state, values, draws, measured.rng(), tell, **more).accepted(chosen.name)
        except InfeasibleError as error:
            raise _with_named_values(error, measured, constraints) from None
    told = (*drawn.tables, *(header.margin for header in measured.headers))
    drawn = replace(drawn, tables=reported_margins(measured.cells, told))
    more = remarks(chosen, constraints, used, repeated, instead)
    drawn = replace(drawn, stats={**drawn.stats, **more})
    noisy = None if chosen.released else finest_values(measured)
    checked = None if chosen.released else conflicts(measured, drawn)
    return Posterior(
        measured.cells,
        drawn,
        describe(chosen) | ({"within": within} if within is not None else {}),
        measured.digest,
        level,
        ratios,
        noisy,
        released,
        conflicts=checked,
        frame=measured.frame,
        spec=measured.spec if spec is None or isinstance(spec, Constraints) else measured.by(spec).spec,
    )


def _executor_of(workers: int) -> LocalPool:
    """Return an executor: threads of this process, or the requested number of worker processes."""
    from trueup.run.local import LocalPool, LocalThreads

    return LocalPool(workers) if workers > 1 else LocalThreads()


def _with_named_values(
    error: InfeasibleError, measured: Measurements, constraints: Constraints
) -> InfeasibleError:
    """Return an error that names the contradictory published values, if these can be named."""
    if getattr(measured.guarantee, "kind", "") == "none" or not all(
        header.law.additive for header in measured.headers
    ):
        from trueup.inferring.contradictions import contradicting_values  # slow to import

        return contradicting_values(measured, constraints) or error
    return error


def choose_inference(
    entry: Mapping[str, Any], constraints: Constraints, measured: Measurements | Problem
) -> InferenceMethod:
    """Return the method that a spec names, or else the first method that fits the constraints and measurements."""
    name, parameters = entry_of(entry)
    if name is not None:
        return inference_method(name, parameters, measured)
    wrong: SpecError | None = None
    for kind in METHODS.handling(
        constraints.structure()
    ):  # one that does not take the prior that is asked for leaves it to the next
        if kind.released or inference_misfit(kind(), constraints, measured) is not None:
            continue
        try:
            made = inference_method(kind.name, parameters, measured)
        except SpecError as error:
            wrong = wrong or error
            continue
        if (misfit := inference_misfit(made, constraints, measured)) is None:
            return made
        wrong = wrong or SpecError(
            f"method '{kind.name}' cannot be used with the parameters {', '.join(parameters)}: {misfit}",
            needed="parameters under [infer] that the method supports for these tables",
            remedy="change these parameters, or leave them out",
        )
    if wrong:
        raise wrong
    raise SpecError(
        "no method infers these counts from these measurements",
        needed="what one method needs: "
        + "; ".join(f"'{k.name}': {inference_misfit(k(), constraints, measured)}" for k in METHODS),
    )


def tiered(source: Given, spec: Spec | None, tier: str) -> InferenceMethod:
    """Return the inference method of a spec, or else the first that fits, with its accuracy tier set."""
    measured, constraints, entry = read_given(source, spec)
    asked = {name: value for name, value in entry.items() if name not in ("quantity", "tier", "minutes")}
    chosen = choose_inference(asked, constraints, measured)
    if not hasattr(chosen, "tier"):
        raise SpecError(
            f"the tier '{tier}' is given, but method '{chosen.name}' has no tiers",
            remedy="leave out --tier",
        )
    return inference_method(chosen.name, entry_of(asked)[1] | {"tier": tier}, measured)


def refuse_asked(problem: Problem) -> None:
    """Refuse an `[infer]` entry that does not fit the spec's own measurements, before they are made.

    Raises
    ------
    SpecError
        If the method or a parameter is unknown, the method does not fit, a ratio has wrong keys, or less than a minute is given.
    """
    entry = dict(problem.spec.infer)
    for part in entry.pop("quantity", ()):
        read_quantity(part)
    Deadline.of(entry.pop("minutes", None))
    if entry:
        chosen = choose_inference(entry, problem.constraints, problem)
        refuse_method(chosen, inference_misfit(chosen, problem.constraints, problem))


def inference_method(
    name: str, parameters: Mapping[str, Any], measured: Measurements | Problem | None = None
) -> InferenceMethod:
    """Make an inference method from its name and parameters, with defaults that suit the measurements."""
    made = make(METHODS, "inference", name, parameters)
    if measured is None or not (asked := type(made).defaults(measured.cells, measured.headers)):
        return made
    return make(METHODS, "inference", name, {**asked, **parameters})
