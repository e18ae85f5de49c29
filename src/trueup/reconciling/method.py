"""The interface of reconciliation methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel import Status
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured


class Method(ABC):
    """A reconciliation method: a frozen dataclass with the parameters as fields.

    Attributes
    ----------
    name, title
        Its name in a spec, and one line that says what it solves.
    structures
        Structures of constraints it handles; see `Constraints.structure`.
    random
        True if the method adds randomness of its own, so that even counts that add up are changed.
    effort
        Time for a cell relative to a fast method: simulations of the method's errors are shortened by this factor.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    structures: ClassVar[frozenset[str]]
    random: ClassVar[bool] = False
    effort: ClassVar[int] = 1

    @property
    def integer(self) -> bool:
        """Return True if the method returns whole numbers."""
        return True

    @property
    def nonnegative(self) -> bool:
        """Return True if the method keeps counts nonnegative where constraints require it."""
        return True

    def refuses(self, constraints: Constraints) -> str | None:
        """Return why the method cannot handle constraints of this structure, or None if it can."""
        return None

    def refuses_noise(self, headers: Sequence[Measured]) -> str | None:
        """Return why the method cannot handle the noise of these measurements, or None if it can."""
        return None

    @abstractmethod
    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Return all that the method computes from constraints and laws, before any value is known.

        Raises
        ------
        SpecError
            If the measurements do not determine the counts.
        """

    @abstractmethod
    def apply(self, state: Any, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile measured values `(q,)` or `(b, q)` into cells `(n,)` or `(b, n)`.

        Raises
        ------
        InfeasibleError
            If invariants and bounds cannot hold together; it names them.
        """

    def refuses_parts(self) -> str | None:
        """Return why the method needs all places together, or None if it does not."""
        return "it solves for all places at once"

    def divide(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Return the plan that is shared by all segments into which the tree of places is divided.

        Raises
        ------
        SpecError
            If these constraints cannot be kept by parts.
        """
        raise NotImplementedError

    def errors(self, state: Any) -> dict[Margin, NDArray]:
        """Return the least-squares standard errors (counts) of the margins for which a formula exists."""
        return {}


@dataclass(frozen=True, eq=False)
class Solution:
    """The counts that a reconciliation method returns, with their status and figures on the solution.

    A count or a figure that is not finite is never solved, whatever status a method gives: this is checked here, where every
    solution is made.

    Attributes
    ----------
    values
        `(n,)` or `(b, n)` counts of the finest cells.
    status
        The outcome: solved, or the reason why not, in words for a user.
    stats
        Residuals, proved gaps, tolerances, passes.

    Examples
    --------
    >>> import numpy as np
    >>> Solution(np.array([1.0, np.nan])).status.name
    'NOT_FINITE'
    """

    values: NDArray
    status: Status = Status.SOLVED
    stats: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        figures = [v for v in self.stats.values() if isinstance(v, (int, float))]
        finite = np.isfinite(self.values).all() and np.isfinite(figures).all()
        if self.status is Status.SOLVED and not finite:
            object.__setattr__(self, "status", Status.NOT_FINITE)
