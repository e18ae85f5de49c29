"""The only source of randomness that noise for a release is made from."""

from __future__ import annotations

import os

try:  # a Python built without OpenSSL still has the operating system's generator
    from ssl import RAND_bytes as _source
except ImportError:  # pragma: no cover
    _source = os.urandom


def words(count: int) -> bytes:
    """Return `count` fresh bytes from the cryptographic generator.

    Nothing is kept between calls: a pool would be copied by `fork`, and two workers with the same noise
    reveal the exact differences of their counts. OpenSSL's own generator reseeds itself after a fork.

    Examples
    --------
    >>> len(words(16)), words(16) == words(16)
    (16, False)
    """
    return _source(count)
