"""Words by which offices describe the parameters of a law, and the law's own parameter for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from trueup.errors import did_you_mean

_PARAMETERS = {
    ("sigma2", 1, Fraction(1)): "variance var sigma_squared sigma^2 noise_variance",
    ("sigma2", 2, Fraction(1)): "sigma sd std stddev se standard_deviation standard_error",
    ("sigma2", 2, Fraction(1000, 1645)): "moe margin_of_error moe90",
    ("scale", 1, Fraction(1)): "b lambda",
    ("scale", -1, Fraction(1)): "epsilon eps",
    ("epsilon", 1, Fraction(1)): "eps",
    ("epsilon", -1, Fraction(1)): "b scale lambda",
    ("base", 1, Fraction(1)): "rounding multiple nearest to n b round_to",
    ("threshold", 1, Fraction(1)): "below minimum min cutoff cut_off limit shown_from",
    ("maximum", 1, Fraction(1)): "max d max_change largest",
    ("change_variance", 1, Fraction(1)): "variance var v",
}
"""Other words for parameters, by the parameter, and the power of what they give, times a factor, that it is."""


def law_by_its_names(law: str, given: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what to write for a law whose parameters are called otherwise.

    Examples
    --------
    >>> law_by_its_names("gaussian", {"sd": 5}, ["sigma2"])
    'write law = { name = "gaussian", sigma2 = "25" }'
    """
    if set(given) <= set(names):
        return f"give '{names[0]}'" if names else ""
    found: dict[str, Any] = {"name": law}
    for word, value in given.items():
        ways = (
            way for way, words in _PARAMETERS.items() if way[0] in names and word.casefold() in words.split()
        )
        own, power, factor = (word, 1, Fraction(1)) if word in names else next(ways, ("", 1, Fraction(1)))
        held = value if power == factor == 1 else _changed(value, factor, power)
        if not own or held is None:
            return did_you_mean(word, names) or f"leave '{word}' out"
        found[own] = held
    return f"write law = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in found.items())} }}"


def _changed(value: Any, factor: Fraction, power: int) -> str | None:
    try:
        return str(((Fraction(str(value)) * factor) ** power).limit_denominator(10**6))
    except (ValueError, ZeroDivisionError):
        return None
