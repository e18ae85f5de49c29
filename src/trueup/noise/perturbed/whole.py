"""Whole-number parameters of perturbations."""

from __future__ import annotations

from trueup.errors import SpecError
from trueup.noise.perturbed.base import MAX_PARAMETER


def whole_number(value: object, what: str, least: int, most: int = MAX_PARAMETER) -> int:
    """Read a whole number from a number or text.

    Examples
    --------
    >>> whole_number("3", "the base", 2)
    3
    """
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 20:
        text = int(text)
    if isinstance(text, bool) or not isinstance(text, int) or not least <= text <= most:
        shown = (
            repr(value)
            if isinstance(value, int | float | str) and len(str(value)) < 30
            else type(value).__name__
        )
        raise SpecError(f"{what} is {shown}", needed=f"a whole number from {least:,} to {most:,}")
    return int(text)
