"""Checks of the arguments of `infer`, and defaults for those that are missing.

Cells with the same records are perturbed equally by cell keys; their value is used once.
If only one part of a count is not zero, the count has that part's records, hence the same key and published value. It adds
no information, and would be taken for a second measurement. Which parts are zero is not published. So the whole is left out
if all parts but one are published as zero, and that part has the value of the whole. If another part is not zero in truth,
the information in the value of the whole is left unused.

One file: each argument is checked against the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files.memory import machine_bytes, memory_text
from trueup.inferring.method import VALUES_A_CLASS, InferenceMethod, inference_misfit, values_of_a_class
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.prior import Estimated, Flat, Hierarchical
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.quantity import Ratio
from trueup.model.records.release import Release, ReleasedCounts
from trueup.model.records.together import link_periods, read_with_rules
from trueup.model.spec import Spec
from trueup.run import Executor


def refuse_fractions(measured: Measurements) -> None:
    """Refuse fractions if the method needs whole numbers; nothing is rounded silently."""
    for header, values in zip(measured.headers, measured.values):
        whole = np.asarray(values, float) == np.rint(values)
        if (header.exact or header.law.discrete) and not whole.all():
            at = int(np.argmin(whole))
            label = measured.cells.margin_label(
                header.margin, at if header.groups is None else int(header.groups[at])
            )
            needs = "an invariant is" if header.exact else f"counts with noise of law '{header.law.name}' are"
            raise DataError(
                f"the published value {float(values[at]):g} of '{label}' is not whole, and {needs} whole",
                remedy="give the values as they were published, or the law that made them ('laplace', 'gaussian')",
            )


def refuse_draws(draws: int) -> None:
    """Refuse a number of draws below one."""
    if not isinstance(draws, int | np.integer) or draws < 1:
        raise SpecError(f"{draws!r} draws are requested", needed="a whole number, at least 1")


def refuse_vast(draws: int, counts: int) -> None:
    """Refuse a number of draws that does not fit in this machine's memory."""
    needed, held = draws * counts * np.dtype(np.int64).itemsize, machine_bytes()
    if needed > held:
        raise SpecError(
            f"{draws:,} draws of {counts:,} counts need {memory_text(needed)} of memory, but this machine has "
            f"{memory_text(held)}",
            remedy="ask for fewer draws, or infer one place (`within`)",
        )


def refuse_workers(method: InferenceMethod, workers: int | Executor) -> None:
    """Refuse a number of worker processes that the method cannot use."""
    if isinstance(workers, int) and workers < 1:
        raise SpecError(f"{workers} workers are requested", needed="at least 1")
    if workers != 1 and not method.parallel:
        raise SpecError(
            f"method '{method.name}' runs in one process",
            needed="one worker",
            remedy="leave out --workers, in Python workers=",
        )


Given = (
    Measurements | Release | ReleasedCounts | Sequence[Measurements] | Mapping[str, Measurements | Release]
)
"""Sources that `infer` takes."""


def read_given(
    source: Given, spec: Spec | Problem | Constraints | None
) -> tuple[Measurements, Constraints, dict[str, Any]]:
    """Return all measurements as one record, the constraints, and the spec's entry `[infer]`."""
    if isinstance(source, ReleasedCounts):
        measured = _in_place_of_noisy(source)
        if isinstance(spec, Constraints):
            return measured, spec, description_of(source.method)
        problem = measured.by(spec)
        entry = dict(problem.spec.infer)
        described = {} if "method" in entry else description_of(source.method)
        return measured, problem.constraints, described | entry
    if isinstance(source, Mapping):
        return _read_periods(source, spec)
    measured, constraints, problem = read_with_rules(source, spec)
    return measured, constraints, dict(problem.spec.infer) if problem else {}


def _read_periods(
    source: Mapping[str, Measurements | Release], spec: Spec | Problem | Constraints | None
) -> tuple[Measurements, Constraints, dict[str, Any]]:
    """Return the measurements of several periods as one record, the constraints, and the allowed minutes."""
    if spec is not None:
        raise SpecError(
            "a spec is given together with periods",
            needed="the periods alone, which hold their own spec",
            remedy="leave out spec=",
        )
    measured, constraints = link_periods(source)
    entry = dict(measured.spec.infer) if measured.spec else {}
    if "prior" in entry:
        raise SpecError(
            "the spec names a prior, but periods that are inferred together can use only the default prior",
            needed="a spec without a prior",
            remedy="leave out the prior under [infer]; or infer each period alone, and compare them with `trueup change`",
        )
    return measured, constraints, {name: held for name, held in entry.items() if name == "minutes"}


def _in_place_of_noisy(source: ReleasedCounts) -> Measurements:
    """Return released sums in the form of measurements, for methods that infer from released counts."""
    problem = source.problem
    values = tuple(header.sums(problem.cells, source.counts) for header in problem.headers)
    return Measurements(problem.cells, problem.headers, values, problem.guarantee).of(problem, None)


def values_for(
    method: InferenceMethod, source: Given, measured: Measurements, within: str | None = None
) -> NDArray:
    """Return the values from which a method infers: the measured ones, or the released counts."""
    if not method.released:
        if isinstance(source, ReleasedCounts):
            raise SpecError(
                f"method '{method.name}' needs noisy counts, but only released counts are given",
                needed="method 'released-multinomial', or no method",
            )
        return measured.flat
    if not isinstance(source, Release | ReleasedCounts):
        raise SpecError(
            f"method '{method.name}' needs released counts, but measurements are given",
            needed="a release, or a method that works on noisy counts; `trueup methods` lists them",
        )
    if why := method.refuses_release(source.method):
        raise SpecError(
            f"method '{method.name}' does not fit: {why}",
            remedy="name no method, so that the noisy measurements of the release are used"
            if isinstance(source, Release)
            else "set the parameters that the release used; if no setting fits, give its noisy measurements instead",
        )
    if within is not None:
        raise SpecError(
            f"the release is to be inferred within '{within}' alone, but its total was split from a count above it",
            needed="all places together",
            remedy="leave out --within",
        )
    return source.counts


def description_of(method: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inference method and its parameters that suit counts released by a reconciliation method."""
    shared = ("total", "empty", "ties" if method["method"] == "multinomial-mode" else "algorithm")
    release = method["method"].removeprefix("multinomial-")
    said = {name: method[name] for name in shared if name in method}
    return {"method": "released-multinomial", "release": release} | said


def finest_values(measured: Measurements) -> tuple[NDArray, NDArray] | None:
    """Return noisy value and variance of each finest cell (NaN if not measured); None for a family."""
    cells = measured.cells
    if cells.is_family:
        return None
    values, variances = np.full(cells.n, np.nan), np.full(cells.n, np.nan)
    for header, part in zip(measured.headers, measured.values):
        if canonical(cells, header.margin) == cells.finest:
            at = slice(None) if header.groups is None else header.groups
            law: Any = header.law
            number = True if law.numeric else law.numeral(part)
            better = (
                ~(variances[at] <= header.law.variance) & number
            )  # what was measured twice keeps its best value
            values[at] = np.where(better, part, values[at])
            variances[at] = np.where(better, header.law.variance, variances[at])
    return values, variances


def read_quantity(part: Mapping[str, Any]) -> Ratio:
    """Read an entry `[[infer.quantity]]`."""
    known = [field.name for field in fields(Ratio)]
    if not {"name", "numerator"} <= set(part) <= set(known):
        raise SpecError(
            f"an entry [[infer.quantity]] has the keys {sorted(part)}",
            needed="the keys name and numerator, and optionally denominator",
        )
    return Ratio(**part)


_ASSUMED = {
    "flat": "Before anything was published, all tables of counts that the rules allow were taken to be equally probable",
    "estimated": "How large counts usually are was estimated from the published values",
}


def prior_instead(
    method: InferenceMethod, constraints: Constraints, measured: Measurements
) -> dict[str, str]:
    """Return sentences that state which prior replaces the hierarchical one, and why."""
    prior = getattr(method, "prior", None) or Flat()
    if isinstance(prior, Hierarchical):
        return {}
    why, reason = _why(method, constraints, measured)
    assumed = _ASSUMED.get(prior.name, f"The prior is '{prior.name}'")
    said = f"{assumed}: {why}." if why and not isinstance(prior, Estimated) else f"{assumed}."
    return {"prior_instead": said} | ({"prior_reason": reason} if reason else {})


def remarks(
    method: InferenceMethod,
    constraints: Constraints,
    used: Measurements,
    repeated: int,
    instead: dict[str, str],
) -> dict[str, Any]:
    """Return what a posterior's record says of its values, its prior, and the doubts about its intervals."""
    doubts = method.doubt(constraints, used.headers), *getattr(used.spec, "noted", ())
    more = {"repeated_values": repeated, "doubt": " ".join(filter(None, doubts)), **instead}
    return {name: said for name, said in more.items() if said}


def _why(method: InferenceMethod, constraints: Constraints, measured: Measurements) -> tuple[str, str]:
    """Return why a method does not support the hierarchical prior, once as a short text and once in full."""
    if method.released:
        return "only released counts are known here, and the noisy counts would tell more", ""
    if any(not header.law.additive for header in measured.headers):
        few = values_of_a_class(constraints.cells, measured.headers) < VALUES_A_CLASS
        why = f"fewer than {VALUES_A_CLASS} values of each combination of attributes are published, too few to estimate a prior"
        return (why if few else f"the method '{method.name}' estimates no prior"), ""
    # The method may be another, and these are slow to import.
    from trueup.inferring.histogram_gibbs import HistogramGibbs
    from trueup.inferring.tree_exact import TreeExact

    misfits = {k.name: inference_misfit(k(), constraints, measured) for k in (TreeExact, HistogramGibbs)}
    if all(misfits.values()):
        reason = "; ".join(f"'{name}' does not fit: {misfit}" for name, misfit in misfits.items())
        return "the methods that estimate the hierarchical prior do not fit these tables", reason
    return f"the method '{method.name}' does not estimate the hierarchical prior", ""


def measured_once(measured: Measurements) -> tuple[Measurements, int]:
    """Return measurements without values that merely repeat the value of a part, and the number left out.

    Examples
    --------
    See `tests/inferring/test_same_records.py`.
    """
    keys = {part.name: part.key for part in getattr(measured.spec, "published", ())}
    every = [
        (header, values)
        for header, values in zip(measured.headers, measured.values)
        if header.law.same_records
    ]
    headers, found, left_out = [], [], 0
    for header, values in zip(measured.headers, measured.values):
        keyed = [pair for pair in every if keys.get(pair[0].query) == keys.get(header.query)]
        keep = ~_repeated(measured.cells, header, values, keyed)
        left_out += len(keep) - int(keep.sum())
        if not keep.all():
            groups = np.arange(len(keep)) if header.groups is None else header.groups
            header, values = replace(header, groups=groups[keep]), values[keep]
        if len(values):
            headers.append(header)
            found.append(values)
    if not left_out:
        return measured, 0
    return replace(measured, headers=tuple(headers), values=tuple(found)), left_out


def _repeated(
    cells: Cells, header: Measured, values: NDArray, keyed: list[tuple[Measured, NDArray]]
) -> NDArray[np.bool_]:
    """Return a mask of values that only repeat the value of a finer table's single nonzero part."""
    repeated, size = np.zeros(len(values), bool), cells.size(header.margin)
    at = slice(None) if header.groups is None else header.groups
    for parts, shown in _finer(cells, header, keyed):
        every = cells.groups(canonical(cells, parts.margin), canonical(cells, header.margin))
        of = every if parts.groups is None else every[parts.groups]
        all_shown = np.bincount(of, minlength=size) == np.bincount(every, minlength=size)
        same = (np.bincount(of, shown != 0, size) == 1) & all_shown
        repeated |= same[at] & (np.bincount(of, shown, size)[at] == values)
    return repeated


def _finer(
    cells: Cells, header: Measured, keyed: list[tuple[Measured, NDArray]]
) -> Iterator[tuple[Measured, NDArray]]:
    coarse = canonical(cells, header.margin)
    for other, shown in keyed:
        fine = canonical(cells, other.margin)
        if _drawn_by(other.law) == _drawn_by(header.law) and fine != coarse and cells.contains(coarse, fine):
            yield other, shown


def _drawn_by(law: Any) -> Any:
    """Return the law of the perturbation alone, without a rule that hides some counts before it."""
    return getattr(law, "law", law)
