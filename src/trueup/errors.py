"""Exceptions that trueup raises on purpose.

One rule: an error says what was given (labels and types, never a count that came from
confidential data), what is needed, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


class TrueupError(ValueError):
    """An error that says in the user's words what was given, what is needed, and what to do.

    Attributes
    ----------
    exit_code
        The exit code of the command; each kind of error that calls for another reaction has its own.

    Parameters
    ----------
    given
        Words for what was given, by its label.
    needed
        Words for what is needed instead.
    remedy
        Words for what to do about it.
    about
        The topic of the question that refusing a confidential table answers; see `trueup.ledger.questions`.

    Examples
    --------
    >>> raise TrueupError("level 'tract' is not declared", remedy="add it to [[level]]")
    Traceback (most recent call last):
    trueup.errors.TrueupError: level 'tract' is not declared. To do: add it to [[level]].
    """

    exit_code = 2

    def __init__(self, given: str, *, needed: str = "", remedy: str = "", about: str = "") -> None:
        self.given, self.needed, self.remedy, self.about = given, needed, remedy, about
        parts = (given, needed and f"Needed: {needed}", remedy and f"To do: {remedy}")
        super().__init__(
            " ".join(part if part.endswith((".", "?")) else f"{part}." for part in parts if part)
        )

    def __reduce__(self):
        return _rebuild, (type(self), self.given, self.needed, self.remedy, self.about)


def _rebuild(kind: type[TrueupError], given: str, needed: str, remedy: str, about: str) -> TrueupError:
    return kind(given, needed=needed, remedy=remedy, about=about)


class SpecError(TrueupError):
    """A spec or an argument that cannot be read or that contradicts itself."""


class DataError(TrueupError):
    """A table, geography or measurement file that is not as the spec describes it."""


class InfeasibleError(TrueupError):
    """Constraints that no counts satisfy; the message names a conflicting set of them."""


class PrivacyError(TrueupError):
    """A request to publish or draw something that the privacy guarantee does not allow."""


class BudgetError(TrueupError):
    """A privacy loss that the ledger does not grant."""

    exit_code = 3


class LedgerError(BudgetError):
    """A ledger that cannot be reached, read or written, so that nothing was granted or refused."""

    exit_code = 1


class BundleError(TrueupError):
    """A bundle on disk that is missing, damaged or of another kind, or a path that is occupied."""


class BusyError(BundleError):
    """A folder on which another process works; the command can be repeated once that process has ended."""

    exit_code = 4


class ResourceError(BundleError):
    """Disk space, memory, a permission or a worker that the system did not provide, although the input is valid."""

    exit_code = 1


class ConvergenceError(TrueupError):
    """A solver or a Markov chain that stopped before its result was reliable."""

    exit_code = 5


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return a question that suggests the nearest known name, ignoring case; empty if none is near.

    Examples
    --------
    >>> did_you_mean("titel", ["title", "table"]), did_you_mean("xyz", ["title"])
    ("did you mean 'title'?", '')
    >>> did_you_mean("male", ["Female", "Male"])
    "did you mean 'Male'?"
    """
    known = {each.casefold(): each for each in names}
    close = get_close_matches(str(name)[:60].casefold(), list(known), 1)
    return f"did you mean '{known[close[0]]}'?" if close else ""


def load_extra(module: str, extra: str) -> Any:
    """Import and return a package that an optional extra installs; raise an error that names the extra otherwise.

    Examples
    --------
    >>> load_extra("no_such_package", "excel")
    Traceback (most recent call last):
    trueup.errors.TrueupError: the package 'no_such_package' is not installed. To do: pip install 'trueup[excel]'.
    """
    try:
        return import_module(module)
    except ImportError:
        raise TrueupError(
            f"the package '{module}' is not installed", remedy=f"pip install 'trueup[{extra}]'"
        ) from None


def place_of(error: BaseException) -> str:
    """Return the file and line at which an unforeseen error was raised; its message is left out, because it may quote data.

    Examples
    --------
    >>> place_of(KeyError())
    'unknown place'
    """
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "unknown place"
