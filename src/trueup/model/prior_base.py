"""Common code of the parameters of priors."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError

Reals = NDArray[np.float64]


class BasePrior:
    """Base of the priors: frozen dataclasses whose fields are their parameters."""

    name: Any
    per_cell: ClassVar[tuple[str, ...]] = ()
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    @property
    def varying(self) -> dict[str, tuple[float, ...]]:
        """Return the parameters that were given for each cell."""
        given = {name: getattr(self, name) for name in self.per_cell}
        return {name: values for name, values in given.items() if isinstance(values, tuple)}

    def refuse_other_than(self, cells: int) -> None:
        """Refuse parameters that were given for another number of cells."""
        for name, values in self.varying.items():
            if len(values) != cells:
                raise SpecError(
                    f"prior '{self.name}' has {len(values)} values of '{name}'",
                    needed=f"one value for all, or one for each of {cells} cells",
                )

    def refuse_varying(self) -> None:
        """Refuse parameters that were given for each cell."""
        if self.varying:
            raise SpecError(f"prior '{self.name}' has a parameter for each cell", needed="one for all cells")

    def at(self, cell: int) -> Self:
        """Return the prior of one cell."""
        own: Any = {name: values[cell] for name, values in self.varying.items()}
        return replace(self, **own) if own else self  # pyright: ignore[reportArgumentType]

    def _require(self, good: bool, parameter: str, needed: str) -> None:
        if not good:
            raise SpecError(f"prior '{self.name}': parameter '{parameter}' is out of range", needed=needed)

    def _require_whole(self, parameter: str) -> None:
        given = getattr(self, parameter)
        whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
        self._require(bool(whole and given >= 0), parameter, "a whole number, 0 or more")

    def _require_positive(self, parameter: str) -> None:
        given = self._numbers(parameter)
        self._require(bool(np.all(given > 0)), parameter, "above 0")

    def _numbers(self, parameter: str) -> Reals:
        """Read one number or more; refuse text that looks like a number."""
        given = getattr(self, parameter)
        each = tuple(given) if isinstance(given, tuple | list) else (given,)
        if not each or not all(map(_is_number, each)):
            raise SpecError(
                f"prior '{self.name}': parameter '{parameter}' is of the wrong kind",
                needed="a finite number, or a list of them, without quotes",
            )
        return np.asarray(each, float)

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass (up to a constant) of a count, for priors on single counts."""
        raise NotImplementedError

    def window(self) -> tuple[int, int] | None:
        """Return the window holding all but about 1e-18 of its mass (counts); None if it is unbounded."""
        raise NotImplementedError

    def tabled(self) -> Reals:
        """Return the log masses of the counts 0, 1, ... up to the end of its window."""
        if (window := self.window()) is None:
            raise SpecError(
                f"prior '{self.name}' has no finite window",
                needed="a prior with finite support, or one whose tails vanish",
            )
        return self.logpmf(np.arange(window[1] + 1))


def _is_number(given: Any) -> bool:
    return (
        isinstance(given, Real | np.integer | np.floating) and not isinstance(given, bool) and isfinite(given)
    )
