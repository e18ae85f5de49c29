"""Refusals under a ledger: whoever runs a spec sees which rule failed, and only its keeper sees where.

A row number in a message is some 17 bits of confidential data, for an answer that is counted as one. So what is raised while
confidential rows are read is written to the keeper's private log, and the analyst is told the rule that was counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trueup.errors import BudgetError, BusyError, DataError, ResourceError, TrueupError
from trueup.releasing.log import Log, Watch

if TYPE_CHECKING:
    from trueup.ledger.account import Account
    from trueup.ledger.questions import Question
    from trueup.ledger.reservation import Reservation

PRIVATE = ("input", "contribution")
"""What a run notes of its data that is for the keeper alone."""


def read_under(account: Account, reservation: Reservation, log: Log, read: Callable[[], None]) -> None:
    """Read confidential rows, count a refusal, and reveal the rule alone.

    Raises
    ------
    TrueupError
        Naming the rule that does not hold, or that one does not.
    """
    seen, log.watch = log.watch, _in_one(log.watch)
    found: Exception | None = None
    try:
        read()
    except (BudgetError, BusyError):
        raise
    except Exception as error:  # whatever it is, that it was raised depends on the rows
        found = error
    finally:
        log.watch = seen
    if found is not None:
        raise _counted(found, account, reservation)  # outside the clause: with no context that quotes a row
    facts = {name: log.notes.pop(name) for name in PRIVATE if name in log.notes}
    if facts:
        account.note(reservation.name, **facts)


def _in_one(watch: Watch) -> Watch:
    """Announce the stage without the number of its parts, since the failing part would reveal where the fault is."""
    return lambda what, done, of: None if done else watch(what, 0, 1)


def _counted(error: Exception, account: Account, reservation: Reservation) -> Exception:
    """Count a refusal, note it for the keeper, and return what the analyst may see of it."""
    known = error if isinstance(error, TrueupError) else None
    named = reservation.refuse(known.about if known else "")
    account.note(reservation.name, refused=str(error) if known else type(error).__name__)
    if isinstance(
        error, MemoryError | ResourceError | OSError
    ):  # says nothing of the rows but that they are many
        return error
    if known is not None and named is not None and named.is_rule and not named.rule:
        return known  # it names rules alone
    return _told(named)


def _told(named: Question | None) -> DataError:
    if named is None:
        return DataError(
            "the confidential table is not what the spec says, or cannot be read; what is at fault is not named",
            needed="a table and a spec that agree; that they do not counts as a check",
            remedy="whoever keeps the ledger finds in the private log (refusals.jsonl) what is at fault",
        )
    return DataError(
        f"of the confidential table it does not hold that {named.text}",
        needed="a table and a spec that agree; this answer counts as a check",
        remedy="correct the table or the spec: whoever keeps the ledger finds in the private log (refusals.jsonl) where",
    )
