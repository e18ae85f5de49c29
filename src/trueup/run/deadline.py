"""Deadlines in wall time, which verbs and methods check before they begin something long."""

from __future__ import annotations

import time
from dataclasses import dataclass

from trueup.errors import ConvergenceError, SpecError

MINUTES = 10.0
"""Wall time that `infer` may take where nothing else is asked for."""
FEWEST_MINUTES = 1.0


@dataclass(frozen=True)
class Deadline:
    """A point in wall time, and the time allowed until then.

    Attributes
    ----------
    ends
        Reading of `time.monotonic` (seconds).
    allowed
        Seconds from the beginning.

    Examples
    --------
    >>> Deadline.of(2).allowed
    120.0
    >>> Deadline.of(2).left() > 100, Deadline.of(2).passed
    (True, False)
    """

    ends: float
    allowed: float

    @classmethod
    def of(cls, minutes: float | None = None, *, began: float | None = None) -> Deadline:
        """Return the deadline of a command that began at a reading of `time.monotonic`; now if none is given.

        Raises
        ------
        SpecError
            If less than one minute is given.
        """
        minutes = MINUTES if minutes is None else minutes
        if not minutes >= FEWEST_MINUTES:
            raise SpecError(f"{minutes:g} minutes are given", needed="at least 1")
        return cls((time.monotonic() if began is None else began) + 60 * minutes, 60.0 * minutes)

    def left(self, share: float = 1.0) -> float:
        """Return the seconds until a share of the time allowed is spent; negative once it is."""
        return self.ends - (1 - share) * self.allowed - time.monotonic()

    def sooner(self, share: float) -> Deadline:
        """Return the deadline of what may take a share of the time allowed, and leaves the rest to something else.

        Examples
        --------
        >>> Deadline.of(2).sooner(0.5).allowed, Deadline.of(2).sooner(0.5).left() < 61
        (60.0, True)
        """
        return Deadline(self.ends - (1 - share) * self.allowed, share * self.allowed)

    def spent(self, method: str, done: str, remedy: str) -> ConvergenceError:
        """Return the error for a deadline that passed before a method had any result.

        Examples
        --------
        >>> str(Deadline.of(2).spent("some-method", "3 sweeps", "allow more minutes"))
        "method 'some-method' had 2 minutes, which were spent after 3 sweeps. To do: allow more minutes."
        """
        given = f"method '{method}' had {self.allowed / 60:g} minutes, which were spent after {done}"
        return ConvergenceError(given, remedy=remedy)

    @property
    def passed(self) -> bool:
        """Return True if the time is spent."""
        return self.left() <= 0
