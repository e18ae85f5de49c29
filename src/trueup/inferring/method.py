"""The interface of inference methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.prior import FACTORED, Estimated, Flat, Hierarchical, settle_priors
from trueup.model.problem import Problem
from trueup.model.records.drawn import Drawn
from trueup.model.records.measurements import Measurements
from trueup.model.verb import structural_misfit
from trueup.noise.law import Law
from trueup.run import Deadline

Progress = Callable[[int, int], None]
"""`progress(done, all)` after every finished block."""


FLAT_DOUBT = (
    "A flat prior takes all counts as equally probable, but in published tables small counts are far more frequent, so that "
    "intervals may contain fewer of the true counts than they claim"
)
FLAT_ROUNDED = ": on Rhode Island's blocks rounded to 10, those that claimed .971 contained .793"
ROUNDINGS = ("rounded", "random-rounding")
"""Laws of which `FLAT_ROUNDED` is an example."""
FLAT_OF_MANY = (
    "A flat prior takes all tables as equally probable, which makes sums of many small counts too large: their intervals may "
    "contain fewer of the true sums than they claim. On a made-up table of 56 cells with 2,992 counts, measured at epsilon 1/2, "
    "intervals of sums of 8 cells that claimed .91 contained .79; margins of error of released sums contained .95."
)
MANY_CELLS = 20
"""Finest cells from which `FLAT_OF_MANY` is said."""
VALUES_A_CLASS = 50
"""Published values of each class from which an estimate may be taken as known; see `FEW_DOUBT`."""
FEW_DOUBT = (
    "The prior was estimated from few published values of each combination of attributes. On made-up tables of 4 places, "
    "intervals that claimed .974 contained .935 of the true counts; of 10 places, .953 (claimed .972); of 100, .974 (.979)."
)


class InferenceMethod(ABC):
    """A method of inference; a frozen dataclass whose fields are its parameters.

    Attributes
    ----------
    name, title
        Its name in a spec, and one line that says what it solves.
    structures
        Structures of constraints it handles; see `Constraints.structure`.
    released
        True if its values are released counts `(n,)` of the finest cells, whose noisy originals
        are unknown, instead of the `q` measured values.
    priors
        The kinds of prior that it takes.
    parallel
        True if `apply` also takes an `executor`, which carries out its tasks.
    continues
        True if `apply` also takes a `checkpoint`, a folder from which a killed run goes on.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    structures: ClassVar[frozenset[str]]
    released: ClassVar[bool] = False
    priors: ClassVar[tuple[type, ...]] = FACTORED
    parallel: ClassVar[bool] = False
    continues: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settle_priors(self, self.priors)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return why the method cannot handle this problem despite its structure, or None if it can."""
        return None

    def refuses_release(self, method: Mapping[str, Any]) -> str | None:
        """Return why the method cannot handle counts released by this reconciliation, or None if it can."""
        return None

    @classmethod
    def defaults(cls, cells: Cells, headers: Sequence[Measured]) -> dict[str, Any]:
        """Return parameters that replace the method's own defaults for the given measurements.

        Perturbed tables have a prior that is estimated from them, where enough of their finest counts are published, else a
        flat one. Where noisy values below a threshold are not shown, parts are taken to be of one kind: small values are what
        tells two kinds apart.
        """
        noisy = any(header.law.additive and not header.exact for header in headers)
        perturbed = any(not header.law.additive for header in headers)
        if Hierarchical in cls.priors and any(map(_conceals_noisy, headers)):
            return {"prior": {"name": Hierarchical().name, "most_kinds": 1}}
        if noisy or not perturbed or Estimated not in cls.priors:
            return {}
        return {"prior": (Estimated if values_of_a_class(cells, headers) >= VALUES_A_CLASS else Flat)().name}

    def doubt(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the known objection to this method's intervals for given measurements, or None."""
        prior = getattr(self, "prior", None)
        if isinstance(prior, Estimated):
            return FEW_DOUBT if values_of_a_class(constraints.cells, headers) < VALUES_A_CLASS else None
        laws = [header.law for header in headers if not header.law.additive]
        if not isinstance(prior, Flat) or self.released:
            return None
        if not laws:
            return FLAT_OF_MANY if constraints.cells.n >= MANY_CELLS else None
        rounded = any(getattr(law, "law", law).name in ROUNDINGS for law in laws)
        return f"{FLAT_DOUBT}{FLAT_ROUNDED if rounded else ''}."

    @abstractmethod
    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Return all that the method computes from constraints and laws, before any value is known."""

    @abstractmethod
    def apply(
        self,
        state: Any,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Draw the true counts given measured values `(q,)`, within the deadline.

        Raises
        ------
        InfeasibleError
            If no counts fit; it names the labels that conflict.
        SpecError
            If the posterior is improper; it names the count that nothing bounds.
        """


def law_of_hidden(header: Measured) -> Law | None:
    """Return the law of the numbers that a code replaces, or None if the measurement has no codes."""
    if header.law.additive:
        return None
    from trueup.noise.perturbed.hidden_values import HiddenValues

    code = header.law
    return code.law if isinstance(code, HiddenValues) and code.published else None


def _conceals_noisy(header: Measured) -> bool:
    """Return True if a published code replaces values that are noisy."""
    hidden = law_of_hidden(header)
    return hidden is not None and hidden.additive and not hidden.exact


def inference_misfit(
    method: InferenceMethod, constraints: Constraints, measured: Measurements | Problem
) -> str | None:
    """Return why an inference method does not fit the constraints and measurements, or None if it fits."""
    return structural_misfit(method, constraints.structure()) or method.refuses(constraints, measured.headers)


def values_of_a_class(cells: Cells, headers: Sequence[Measured]) -> float:
    """Return the mean number of published finest values for each combination of attribute values."""
    each = cells.n // cells.shape[0]
    finest = (
        h for h in headers if canonical(cells, h.margin) == cells.finest and np.isfinite(h.law.variance)
    )
    known = (h for h in finest if h.exact or not h.law.additive)
    return sum(cells.n if h.groups is None else len(h.groups) for h in known) / each


def silent(done: int, of: int) -> None:
    """Ignore a report of progress."""


def announce(progress: Progress, stage: str) -> None:
    """Report the name of a stage that begins, if the progress function accepts one."""
    if (tell := getattr(progress, "stage", None)) is not None:
        tell(stage)


def in_blocks(
    draw: Callable[[int], NDArray],
    draws: int,
    size: int,
    progress: Progress,
    deadline: Deadline | None = None,
) -> tuple[NDArray, bool]:
    """Return draws `(..., draws, n)` made block by block, without unfinished blocks after an interruption.

    Returns
    -------
    draws, whole
        The draws, and whether all of them were made.

    Examples
    --------
    >>> values, whole = in_blocks(lambda k: np.zeros((k, 2)), 5, 2, lambda done, of: None)
    >>> values.shape, whole
    ((5, 2), True)
    """
    blocks: list[NDArray] = []
    done = 0
    try:
        while done < draws and not (blocks and deadline and deadline.passed):
            blocks.append(draw(min(size, draws - done)))
            done += blocks[-1].shape[-2]
            progress(done, draws)
    except KeyboardInterrupt:
        if not blocks:
            raise
    return np.concatenate(blocks, axis=-2), done == draws
