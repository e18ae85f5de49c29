"""Check before anything is charged that every law of a spec can be drawn."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import shake_256
from typing import Any

from trueup.model.header import Measured
from trueup.noise.law import Law, Words


def rehearse(headers: Iterable[Measured], more: Law | None = None) -> None:
    """Draw once from every law with public words, and discard the draws.

    Tables, walks and compiled kernels are made ready on the way, on public things alone: what fails here fails before a
    confidential count is read and before a budget is charged.

    Raises
    ------
    TrueupError
        A law cannot be drawn.

    Examples
    --------
    >>> from trueup.model.cells import Margin
    >>> from trueup.noise import DiscreteLaplace
    >>> rehearse([Measured("total", Margin("all"), DiscreteLaplace("1/2"))])
    """
    headers = tuple(headers)
    alone = {header.law: None for header in headers if not header.law.joint} | (
        {} if more is None else {more: None}
    )
    for header in headers:
        law: Any = header.law
        if law.joint:
            law.sample(law.bound.n, public_words())
    for law in alone:
        law.sample(1, public_words())


def public_words() -> Words:
    """Return a source of public words for discarded draws.

    Examples
    --------
    >>> len(public_words()(5))
    5
    """
    taken = 0

    def words(count: int) -> bytes:
        nonlocal taken
        taken += 1
        return shake_256(taken.to_bytes(8, "little")).digest(count)

    return words
