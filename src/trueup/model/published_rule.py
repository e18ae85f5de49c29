"""Rules of publication: a law of values, the counts hidden before it, and the values hidden after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from trueup.errors import SpecError, did_you_mean
from trueup.model.published_codes import CodeMeaning
from trueup.noise import OF_VARIANCE, law_named, law_of_variance
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import READ, CellKey, CountInterval, HiddenValues, ShownCounts, Suppressed
from trueup.noise.perturbed.after_noise import AT_RANDOM, AfterNoise
from trueup.noise.perturbed.ranges import Range
from trueup.noise.perturbed.rounding import RandomRounding, Rounded

_PARAMETERS = {
    ("sigma2", 1, Fraction(1)): "variance var sigma_squared sigma^2 noise_variance",
    ("sigma2", 2, Fraction(1)): "sigma sd std stddev se standard_deviation standard_error",
    ("sigma2", 2, Fraction(1000, 1645)): "moe margin_of_error moe90",
    ("scale", 1, Fraction(1)): "b lambda",
    ("scale", -1, Fraction(1)): "epsilon eps",
    ("epsilon", 1, Fraction(1)): "eps",
    ("epsilon", -1, Fraction(1)): "b scale lambda",
    ("base", 1, Fraction(1)): "rounding multiple nearest to n b round_to",
    ("below", 1, Fraction(1)): "threshold until up_to smaller_than under",
    ("threshold", 1, Fraction(1)): "below minimum min cutoff cut_off limit shown_from",
    ("maximum", 1, Fraction(1)): "max d max_change largest",
    ("change_variance", 1, Fraction(1)): "variance var v",
}
"""Other words for parameters, by the parameter, and the power of what they give, times a factor, that it is."""


def law_by_its_names(law: str, given: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return advice on a law's parameters for a law that was given others.

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


NONNEGATIVE = "nonnegative"
"""The name by which a spec says that negative noisy numbers are published as 0."""


@dataclass(frozen=True)
class PublishingRule:
    """The rule by which a table was published: true counts hidden first, a law of noise, and values hidden after it.

    Attributes
    ----------
    law
        The law of the values; its name if every row gives a variance.
    hidden
        Ranges of true counts that are not shown.
    concealed
        Ranges of published values that are not shown.
    after
        Parameters of `AfterNoise`, where every row gives the variance of its noise.

    Examples
    --------
    >>> rule = read_rule([{"name": "suppressed", "threshold": 5}, {"name": "random-rounding", "base": 3}], "t")
    >>> rule.law, rule.hidden, rule.concealed
    (RandomRounding(base=3, below=None), ((1, 4),), ())
    """

    law: Any
    hidden: tuple[Range, ...] = ()
    concealed: tuple[Range, ...] = ()
    after: tuple[tuple[str, Any], ...] = ()

    @property
    def noisy(self) -> bool:
        """Return True if noise was added, so that published numbers may be negative."""
        return isinstance(self.law, str) or _is_noise(self.law)

    @property
    def whole(self) -> bool:
        """Return True if the published values are whole numbers."""
        discrete = self.law.startswith("discrete") if isinstance(self.law, str) else self.law.discrete
        return discrete or "base" in dict(self.after)

    def of_variance(self, variance: Fraction) -> Any:
        """Return the law of values with the given variance (counts squared); variance 0 means exact values."""
        noise = law_of_variance(str(self.law), variance)
        return AfterNoise(noise, **dict(self.after)) if self.after and variance else noise

    def with_code(self, meaning: CodeMeaning) -> PublishingRule:
        """Return the rule extended by one more code for hidden counts or hidden values."""
        ends = self._ends(meaning)
        if meaning.of == "count" and meaning.every and not any(_range_contains(ends, r) for r in self.hidden):
            return replace(self, hidden=(*self.hidden, ends))
        if meaning.of == "published" and not any(_range_contains(ends, each) for each in self.concealed):
            return replace(self, concealed=(*self.concealed, ends))
        return self

    def _ends(self, meaning: CodeMeaning) -> Range:
        return meaning.low, meaning.high + (meaning.below and not self.whole)

    def of_code(self, meaning: CodeMeaning) -> Any:
        """Return the law of a code's true count, or None if nothing is known about the code."""
        if meaning.of == "unknown":
            return None
        if meaning.of == "count":
            return meaning.interval
        if meaning.of == "published":
            return HiddenValues(self.law, (self._ends(meaning),), self.hidden)
        if not self.concealed and len(self.hidden) == 1:
            return CountInterval(*(int(end) for end in self.hidden[0]))
        return HiddenValues(self.law, self.concealed, self.hidden, self.hidden)

    def of_values(self) -> Any:
        """Return the law of the values that are published as numbers."""
        if self.law.exact or not self.hidden or isinstance(self.law, Suppressed):
            return self.law
        return ShownCounts(self.law, self.hidden)


def _range_contains(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def read_rule(
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]], table: str, *, by_variance: bool = False
) -> PublishingRule:
    """Return the rule of publication that one law, or several laws applied in turn, describe."""
    entries = [given] if isinstance(given, Mapping) else list(given)
    if by_variance:
        noise = law_of_variance(name := _named_alone(entries, table), Fraction(1))
        return PublishingRule(name, after=_done_after(noise, entries[1:], table))
    if len(entries) == 1:
        law = read_law(entries[0], table)
        return PublishingRule(law, ((law.least, law.threshold - 1),) if isinstance(law, Suppressed) else ())
    if (
        len(entries) == 3
        and entries[1].get("name") == Suppressed.name
        and _is_noise(read_law(entries[0], table))
    ):
        return _shown_then_rounded(entries, table)
    before, made, after = _in_order(entries, table)
    law = _after_noise(made, table)
    return PublishingRule(
        law,
        tuple((own.least, own.threshold - 1) for own in (read_law(entry, table) for entry in before)),
        tuple(_concealed(entry, law, table) for entry in after),
    )


def _shown_then_rounded(entries: list[Mapping[str, Any]], table: str) -> PublishingRule:
    """Return the rule of publication that hides noisy numbers below a threshold and rounds the others."""
    least = read_law(entries[1], table).threshold
    law = replace(_after_noise([entries[0], entries[2]], table), shown_from=least)
    base = law.base or 1
    below = np.arange(-(-least // base)) * base
    if law.nonnegative or np.isfinite(law.log_mass(below, least)).any():
        raise SpecError(
            f"table '{table}' hides noisy numbers below {least}, but rounding can turn {least} into a smaller number",
            needed=f"a threshold that is not rounded down, such as a multiple of {base}",
        )
    return PublishingRule(law, concealed=((-np.inf, least - 1),))


def _in_order(
    entries: list[Mapping[str, Any]], table: str
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split laws in order into those that hide counts, those that make values, and those that hide values."""
    others = [k for k, entry in enumerate(entries) if entry.get("name") != Suppressed.name]
    first, last = (others[0], others[-1] + 1) if others else (0, 0)
    if not others or len(others) < last - first or first > 1 or len(entries) - last > 1:
        raise SpecError(
            f"table '{table}' has {len(entries)} laws one after the other, of which {len(others)} make values",
            needed=f"one law of values, or noise and a rounding of it, and '{Suppressed.name}' before or after it, or both",
        )
    return entries[:first], entries[first:last], entries[last:]


def _after_noise(made: list[Mapping[str, Any]], table: str) -> Any:
    """Return the law of published values: one law, or noise followed by rounding and the like."""
    law = read_law(made[0], table)
    return AfterNoise(law, **dict(_done_after(law, made[1:], table))) if len(made) > 1 else law


def _done_after(law: Any, entries: Sequence[Mapping[str, Any]], table: str) -> tuple[tuple[str, Any], ...]:
    """Return the steps applied to noisy numbers, as parameters of `AfterNoise`."""
    given: dict[str, Any] = {}
    for entry in entries:
        name, said = entry.get("name"), {key: value for key, value in entry.items() if key != "name"}
        if name == NONNEGATIVE and not said:
            given["nonnegative"] = True
        elif (
            name == Rounded.name
            and "base" not in given
            and "base" in said
            and not said.keys() - {"base", "ties"}
        ):
            given |= said
        elif name == RandomRounding.name and "base" not in given and list(said) == ["base"]:
            given |= {**said, "ties": AT_RANDOM}
        else:
            name = None
        if name is None or not _is_noise(law) or sum(each.get("name") == name for each in entries) > 1:
            raise SpecError(
                f"table '{table}' applies the law '{entry.get('name')}' after '{law.name}'",
                needed=f"noise first; then '{Rounded.name}' or '{RandomRounding.name}' with a base, or '{NONNEGATIVE}' if "
                "negative numbers are published as 0, or both",
            )
    return tuple(given.items())


def _is_noise(law: Any) -> bool:
    return isinstance(law, AfterNoise) or bool(law.additive and not law.exact)


def _named_alone(entries: list[Mapping[str, Any]], table: str) -> str:
    if list(entries[0]) != ["name"] or entries[0]["name"] not in OF_VARIANCE:
        raise SpecError(
            f"table '{table}' has a column of variances together with other parameters of its law",
            needed=f'law = {{ name = "..." }}, one of {", ".join(OF_VARIANCE)}, after which may be listed what was done to '
            f'noisy numbers: law = [{{ name = "..." }}, {{ name = "rounded", base = 1 }}, {{ name = "{NONNEGATIVE}" }}]',
        )
    return str(entries[0]["name"])


def _concealed(entry: Mapping[str, Any], law: Any, table: str) -> Range:
    """Return the range of published values that are hidden; for noise, it starts below zero unless `least` is given."""
    made = read_law(entry, table)
    return -np.inf if _is_noise(law) and "least" not in entry else made.least, made.threshold - 1


def read_law(entry: Mapping[str, Any], table: str) -> Any:
    """Return the law of a table with the given name and parameters.

    Examples
    --------
    >>> read_law({"name": "cell-key", "maximum": 2, "change_variance": "1"}, "t").period
    1
    """
    given = dict(entry)
    if "name" not in given:
        raise SpecError(
            f"the law of table '{table}' has no name",
            needed='a law such as { name = "random-rounding", base = 3 }',
        )
    kind: Any = law_named(given.pop("name"))
    if kind.name in READ:
        raise SpecError(
            f"table '{table}' has the law '{kind.name}', which only describes codes",
            needed="a law of published numbers; describe the code under `codes`",
        )
    if not kind.factors:
        raise SpecError(
            f"table '{table}' has the law '{kind.name}', which perturbs a whole table together",
            needed="a law that perturbs each count by itself",
        )
    try:
        made: Any = kind() if kind is Exact and not given else kind(**given)
    except TypeError:
        parameters = fields(kind) if hasattr(kind, "__dataclass_fields__") else ()
        names = [each.name for each in parameters]
        shown = ", ".join(map(repr, given)) or "no parameter"
        raise SpecError(
            f"law '{kind.name}' of table '{table}' is given the parameters {shown}",
            needed=", ".join(map(repr, names)) or "no parameter",
            remedy=law_by_its_names(kind.name, given, names),
        ) from None
    if isinstance(made, CellKey) and made.keeps_large and not made.variance > 0:
        raise SpecError(
            f"the law of table '{table}' changes no count",
            needed="transitions that change some count",
            remedy='where values are exact, write law = { name = "exact" }',
        )
    return made
