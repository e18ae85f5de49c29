"""The randomness of the noise in releases, read from the operating system in this module alone."""

from __future__ import annotations

import os

from trueup.errors import TrueupError


def words(count: int) -> bytes:
    """Return `count` new random bytes from the operating system's kernel, read in one call.

    Nothing is kept in this process between calls: two processes with the same state would draw the same noise, and
    the difference of their answers is then that of the counts. A generator in user space (OpenSSL's, or any other
    library's) keeps a state, and detects a fork by the process number alone, which a child in a new PID namespace or
    with a recycled number shares with its parent.

    Raises
    ------
    TrueupError
        If the system gives none, or fewer than asked for.

    Examples
    --------
    >>> len(words(16)), words(16) == words(16)
    (16, False)
    """
    try:
        fresh = os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise _failed(getattr(error, "strerror", None) or "the system has none") from None
    if len(fresh) != count:
        raise _failed(f"it gave {len(fresh)} of {count} bytes")
    return fresh


def _failed(why: str) -> TrueupError:
    return TrueupError(
        f"the operating system's source of randomness failed: {why}",
        needed="os.urandom, the only source of all noise",
        remedy="repair the system's source (getrandom or /dev/urandom), then run again",
    )
