"""Codes of places by level: how wide each is, and how many children fit.

Every column of a spec that names places holds digits. Levels that take prefixes of one column share it (2 digits of state,
3 of county, ...); any other level has a column of its own, which numbers the children of each place.
"""

from __future__ import annotations

from dataclasses import dataclass

from trueup.errors import SpecError
from trueup.model.geography import is_whole
from trueup.model.spec import Spec

_MOST_DIGITS = 18  # of a 64-bit integer


@dataclass(frozen=True)
class Digits:
    """The digits of a level's places.

    Attributes
    ----------
    column
        The column in which its digits stand.
    start, width
        How many digits stand before them, and how many there are.
    unique
        Whether its number is one for the whole country instead of one below its parent: where the column begins with
        this level although others are above it.
    label
        The column of readable names, or None.
    """

    column: str
    start: int
    width: int
    unique: bool
    label: str | None

    @property
    def most(self) -> int:
        """Return how many places can be told apart."""
        return 10**self.width - 1

    @property
    def end(self) -> int:
        """Return the digits of a code down to this level."""
        return self.start + self.width


def region_level(spec: Spec) -> int:
    """Return the level of stated totals: the one called `state` if it is the first below the root, else the root."""
    return int(len(spec.levels) > 1 and spec.levels[1].name.casefold() == "state")


def synth_layout(spec: Spec, sizes: list[int], region_digits: int) -> list[Digits]:
    """Determine the codes of all levels below the root.

    Parameters
    ----------
    spec
        Levels with their columns and prefixes, or with parent pointers.
    sizes
        Places of every level, root first; free codes are made wide enough for uneven numbers of children.
    region_digits
        Digits of the regions' own codes.
    """
    found: list[Digits] = []
    for at, level in enumerate(spec.levels[1:], 1):
        column = spec.parents.id if spec.parents is not None else level.column
        assert column is not None
        shared = spec.parents is not None or level.prefix is not None or is_whole(spec, level)
        start = max([d.end for d in found if d.column == column and shared], default=0)
        unique = shared and not start and at > 1
        free = (
            region_digits
            if at == region_level(spec)
            else _roomy(sizes[at] // (1 if unique else sizes[at - 1]))
        )
        width = level.prefix - start if level.prefix is not None else free
        digits = Digits(column, start, width, unique, level.label)
        if width < 1 or digits.end > _MOST_DIGITS:
            raise SpecError(
                f"level '{level.name}' leaves {width} digits of '{column}' to tell its places apart",
                needed=f"prefixes that grow from level to level, up to {_MOST_DIGITS} digits",
            )
        found.append(digits)
    return found


def _roomy(children: int) -> int:
    """Return digits enough for a place with many more children than most."""
    return max(3, len(str(8 * children)))
