"""The choice of samplers on a lattice, piece by piece, stated before the first word is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from trueup.errors import PrivacyError
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.law import Words

Arithmetic = Literal["integer", "bounded", "double"]
_HOW = {
    "integer": "integer arithmetic only",
    "bounded": "doubles with proven bounds, and integers where these do not decide",
    "double": "exact up to the rounding of doubles",
}


@dataclass(frozen=True)
class Choice:
    """The sampler chosen for one piece of the lattice.

    Attributes
    ----------
    sampler
        `composition`, `rows`, `basis`, `free`, `klein`, `path` or `mixture`.
    arithmetic
        `integer`: decisions on proven integer thresholds. `bounded`: on proven bounds of doubles, too, and exact like these.
        `double`: exact but for the rounding of doubles.
    tries
        Expected proposals for one vector.
    seconds
        Rough expected time for one vector.
    draw
        `draw(count, words) -> Drawn`, vectors over the piece's cells in flat order.
    rounding
        Upper limit of the total variation between what is drawn in doubles and the law; 0 where it is not derived, or nothing
        rounds.
    beyond
        What of its set-up is beyond a limit of the sampler, and the limit; empty if nothing is.
    """

    sampler: str
    arithmetic: Arithmetic
    tries: float
    seconds: float
    draw: Callable[[int, Words], Any]
    rounding: float = 0.0
    beyond: str = ""

    def sentence(self) -> str:
        """Return the choice in words."""
        if self.beyond:
            return f"sampler '{self.sampler}' would need {self.beyond}"
        about = f"about {self.tries:.3g} tries, {self.seconds:.2g} s a vector"
        told = f"sampler '{self.sampler}' ({_HOW[self.arithmetic]}), {about}"
        return f"{told}, within total variation {self.rounding:.3g} of the law" if self.rounding else told


@dataclass(frozen=True)
class BoundSampler:
    """A law bound to a lattice: one choice for each piece.

    Attributes
    ----------
    lattice
        The lattice.
    pieces
        `(cells, choice)` for each.
    """

    lattice: Lattice
    pieces: tuple[tuple[np.ndarray, Choice], ...]

    @property
    def n(self) -> int:
        """Return the number of cells."""
        return self.lattice.n

    @property
    def dimension(self) -> int:
        """Return the dimension of the lattice."""
        return self.lattice.dimension

    @cached_property
    def exact_in_integers(self) -> bool:
        """Return True if no decision depends on the rounding of doubles."""
        return all(choice.arithmetic != "double" for _, choice in self.pieces)

    @property
    def rounding(self) -> float:
        """Return an upper limit of the total variation between what is drawn in doubles and the law, if it is derived."""
        return sum(choice.rounding for _, choice in self.pieces)

    def draw(self, count: int, words: Words):
        """Draw `count` noise vectors `(count, n)`; pinned cells get zero."""
        from trueup.kernel.lattice_samplers.tape import TapeDraws

        vectors, tries = np.zeros((count, self.n), np.int64), 0
        for cells, choice in self.pieces:
            drawn = choice.draw(count, words)
            vectors[:, cells] = drawn.vectors
            tries += drawn.tries
        return TapeDraws(vectors, tries)

    def explain(self) -> list[str]:
        """Return, for each kind of piece, how many there are and how they are drawn."""
        alike: dict[tuple[str, str], list[Choice]] = {}
        for _, choice in self.pieces:
            alike.setdefault((choice.sampler, choice.arithmetic), []).append(choice)
        return [f"{len(found)} x {max(found, key=_seconds).sentence()}" for found in alike.values()]


def _seconds(choice: Choice) -> float:
    return choice.seconds


def nothing_drawn(*_) -> Any:
    """Refuse to draw by a sampler that was refused."""
    raise PrivacyError("a sampler that was refused is asked to draw", remedy="report this")
