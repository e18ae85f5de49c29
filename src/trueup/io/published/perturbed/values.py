"""Meanings of the texts in a published table, which are values under a noise law, or codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.published.perturbed.margins import ShownMargin
from trueup.io.published.perturbed.numbers import Numbers, numbers_of, without_mark
from trueup.io.published.perturbed.under_law import ValuesUnderLaw, by_variance, codes_with, refuse_text
from trueup.model.cells import Cells
from trueup.model.perturbed import PublishedTable
from trueup.model.published_codes import HIDDEN, CodeMeaning, plain_meaning, read_meaning
from trueup.model.published_rule import PublishingRule
from trueup.model.published_table import NO_ROW
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import ByChange, CountInterval, HiddenValues, ShownCounts
from trueup.noise.perturbed.ranges import in_ranges, range_text


class _Reading(NamedTuple):
    """The texts of one table read as numbers or codes, with the publishing rule of the table."""

    rule: PublishingRule
    codes: dict[str, CodeMeaning]
    numbers: Numbers
    known: dict[str, int | float | None]
    noted: list[str]


def values_under_laws(
    cells: Cells, part: PublishedTable, margins: Sequence[ShownMargin]
) -> tuple[list[ValuesUnderLaw], list[str]]:
    """Return the values of a table under its noise law, those that its codes state, and notes."""
    texts = sorted({text for shown in margins for text in np.unique(shown.texts).tolist()})
    reading = _read_texts(cells, part, margins, texts)
    result = []
    for shown in margins:
        result += _of_margin(cells, part, reading, shown)
    return result, reading.noted


def _read_texts(
    cells: Cells, part: PublishedTable, margins: Sequence[ShownMargin], texts: Sequence[str]
) -> _Reading:
    no_row = {NO_ROW: HIDDEN} if part.unlisted == "hidden" else {}
    declared = {code.strip(): read_meaning(said) for code, said in (part.codes | no_row).items()}
    codes = {code: said for code, said in declared.items() if said is not None}
    rule = part.rule
    for code, said in codes.items():
        rule = _agreeing(part, rule, code, said)
    stated = [shown.variances for shown in margins if shown.variances is not None]
    variances = {text for each in stated for text in np.unique(each).tolist()}
    numbers = numbers_of(
        part, [text for text in texts if text not in codes], sorted(variances - {*codes}), whole=rule.whole
    )
    known = {text: numbers.read(text) for text in texts if text not in codes}
    known |= {text: int(codes[text].low) for text in texts if text in codes and codes[text].of == "value"}
    for text in [text for text in texts if text not in codes and known[text] is None]:
        said = plain_meaning(text, noisy=rule.noisy)
        if said is None:
            refuse_text(cells, part, margins, text, reads=rule.whole)
        values = np.array([value for value in known.values() if value is not None])
        codes[text] = _settled(part, rule, text, said, values)
        rule = rule.with_code(codes[text])
    return _Reading(rule, codes, numbers, known, _marks(part, texts, codes))


def _marks(part: PublishedTable, texts: Sequence[str], codes: Mapping[str, CodeMeaning]) -> list[str]:
    """Return a note on marks after numbers, which are not read."""
    marked = [text for text in texts if text not in codes and without_mark(text) != text]
    if not marked:
        return []
    code = codes_with(part, marked[0][:30], "unknown")
    return [
        f"Table '{part.name}' has marks behind {len(marked)} different numbers, such as '{marked[0][:30]}', which are read "
        f"without them. If a mark says that a number is not what the law gives, write {code} in the entry of '{part.name}'."
    ]


def _agreeing(part: PublishedTable, rule: PublishingRule, code: str, said: CodeMeaning) -> PublishingRule:
    """Return the publishing rule extended by a declared code; refuse a code that contradicts the rule."""
    own = part.rule
    hidden = any(a <= said.low and said.high <= b for a, b in own.hidden)
    if said.of == "count" and said.every and own.hidden and not hidden:
        some = f"some {said.low:g}" + ("+" if np.isinf(said.high) else f"-{said.high:g}")
        raise DataError(
            f"code '{code}' of table '{part.name}' says a count {range_text([(said.low, said.high)])}, but its law "
            f"hides counts {range_text(own.hidden)}",
            needed="a code that agrees with the law",
            remedy=f"correct the law; write {codes_with(part, code, 'hidden')} if the code is for all that the law hides; "
            f"write {codes_with(part, code, some)} if it is for some of it only",
        )
    return rule.with_code(said)


def _settled(
    part: PublishedTable, rule: PublishingRule, text: str, said: CodeMeaning, values: NDArray
) -> CodeMeaning:
    """Return the meaning of a code that the spec does not declare, given what the publishing rule hides."""
    own = part.rule
    if said.of == "count" and said.low == 0:
        for low, high in own.hidden:
            if said.high == high:  # '<5' where the law hides counts from 1 to 4
                return replace(said, low=low)
        if not own.hidden and own.concealed and any(said.high == high for _, high in own.concealed):
            return CodeMeaning("hidden")  # '<5' where published values below 5 are hidden
        if not own.hidden and said.high >= 1 and not isinstance(rule.law, str):
            from_one = replace(said, low=1)
            if (
                not _possible(rule.with_code(said), values).all()
                and _possible(rule.with_code(from_one), values).all()
            ):
                return from_one
    _agreeing(part, rule, text, said)
    return said


def _possible(rule: PublishingRule, values: NDArray) -> NDArray[np.bool_]:
    """Return a mask of the values that the publishing rule can give for a count that it shows."""
    if not len(values) or isinstance(rule.law, str):
        return np.ones(len(values), bool)
    found = rule.law.possible(values) & ~in_ranges(values, rule.concealed)
    if rule.hidden and rule.law.exact:
        return found & ~in_ranges(values, rule.hidden)
    return found & rule.of_values().possible(values) if rule.hidden else found


def _of_margin(
    cells: Cells, part: PublishedTable, reading: _Reading, shown: ShownMargin
) -> list[ValuesUnderLaw]:
    order = np.argsort(shown.groups, kind="stable")
    groups, texts = shown.groups[order], shown.texts[order]
    every, which = np.unique(texts, return_inverse=True)
    held = [reading.known.get(text) for text in every.tolist()]
    numeric = np.array([value is not None for value in held], bool)[which]
    kind = np.int64 if reading.rule.whole else np.float64
    counts = np.array([0 if value is None else value for value in held], kind)[which]
    result = []
    if numeric.any():
        values = ValuesUnderLaw(part, shown.margin, None, groups[numeric], counts[numeric])
        if shown.variances is not None:
            variances, by = shown.variances[order][numeric], reading.numbers.by
            result += by_variance(cells, values, variances, reading.rule, by, reading.codes)
            for each in result if reading.rule.after else ():
                _refuse_impossible(cells, each)
        else:
            result += _under_rule(cells, values, reading)
    meanings = {text: reading.codes[text] for text, value in zip(every.tolist(), held) if value is None}
    for said in dict.fromkeys(meanings.values()):
        law = reading.rule.of_code(said)
        if law is None:
            continue
        _refuse_code_of_nothing(part, law, next(text for text, one in meanings.items() if one == said))
        at = np.array([meanings.get(text) == said for text in every.tolist()], bool)[which]
        exact = isinstance(law, CountInterval) and law.low == law.high
        value = np.full(int(at.sum()), law.centre)
        result.append(ValuesUnderLaw(part, shown.margin, Exact() if exact else law, groups[at], value))
    return result


def _refuse_code_of_nothing(part: PublishedTable, law: Any, text: str) -> None:
    if isinstance(law, HiddenValues) and (law.bounds(0)[0] > law.bounds(0)[1]).any():
        raise DataError(
            f"code '{text}' of table '{part.name}' stands for published values {range_text(law.published)}, none of "
            "which its law can produce",
            needed="the range of the published numbers that are hidden",
            remedy=f"correct the range, or write {codes_with(part, text, 'unknown')} if nothing is known of it",
        )


def _under_rule(cells: Cells, v: ValuesUnderLaw, reading: _Reading) -> list[ValuesUnderLaw]:
    """Split values into those that only shown counts can give and those that hidden counts can give, too.

    A value that a code says is not shown stands there all the same: it is noted, and read by the law alone.
    """
    rule = reading.rule
    _refuse_impossible(cells, replace(v, law=rule.law))
    alone = ~_possible(rule, v.values)
    if alone.any():
        reading.noted.append(_contradiction(cells, v, reading, np.flatnonzero(alone)))
    if not isinstance(law := rule.of_values(), ShownCounts):
        return _known_apart(replace(v, law=law))
    others = _touched(rule, v.values) & ~alone
    if rule.law.same_records and others.any():  # one header, so that values of the same records are found
        others = ~alone
    parts = ((others, law), (~others, rule.law))
    return [part for some, by in parts if some.any() for part in _known_apart(replace(v.among(some), law=by))]


def _known_apart(v: ValuesUnderLaw) -> list[ValuesUnderLaw]:
    """Split off, under the law 'exact', the values that only one true count can have given."""
    law = v.law.law if isinstance(v.law, ShownCounts) else v.law
    if not isinstance(law, ByChange) or not law.keeps_large:
        return [v]
    low, high = v.law.bounds(v.values)
    known = low == high
    parts = (replace(v, law=Exact(), values=low).among(known), v.among(~known))
    return [part for part in parts if len(part.groups)]


def _touched(rule: PublishingRule, values: NDArray) -> NDArray[np.bool_]:
    """Return a mask of the values that hidden counts could have given as well."""
    if rule.law.additive:
        first, log = rule.law.table(0, 700.0)
        low, high = np.floor(values) + first, np.floor(values) + first + len(log)
    else:
        low, high = rule.law.bounds(values)
    found = np.zeros(len(values), bool)
    for least, most in rule.hidden:
        found |= (low <= most) & (high >= least)
    return found


def _refuse_impossible(cells: Cells, v: ValuesUnderLaw) -> None:
    """Refuse values that the noise law cannot give for any count that is shown."""
    law, own = v.law, v.part.rule
    if (bad := np.flatnonzero(~law.possible(v.values) | ~_possible(own, v.values))).size:
        label, value = cells.margin_label(v.margin, int(v.groups[bad[0]])), v.values[bad[0]]
        told = ", ".join(f"{name} {value}" for name, value in law.parameters().items() if value != "None")
        hides = [f"counts {range_text(own.hidden)}"] if own.hidden else []
        hides += [f"values {range_text(own.concealed)}"] if own.concealed else []
        raise DataError(
            f"table '{v.part.name}' has {value} for '{label}', which its law '{law.name}'"
            f"{f' ({told[:80]})' if told else ''} gives for no count"
            + (
                f" that is shown; {' and '.join(hides)} are hidden"
                if law.possible(v.values[bad[:1]]).all()
                else ""
            ),
            needed="values as they were published, under the law that made them",
            remedy=f"correct the law in the entry of '{v.part.name}', or the value in a copy of the file",
        )


def _contradiction(cells: Cells, v: ValuesUnderLaw, reading: _Reading, bad: NDArray[np.int64]) -> str:
    """Return a note on values that are shown although a code says that they never are."""
    rule, part = reading.rule, v.part
    label, value = cells.margin_label(v.margin, int(v.groups[bad[0]])), v.values[bad[0]]
    kind = "published" if in_ranges(value, rule.concealed) else "count"
    named = [(text, said) for text, said in reading.codes.items() if said.of == kind]
    text, said = next((pair for pair in named if pair[1].low <= value <= pair[1].high), named[0])
    shown = f"{said.low:g}+" if np.isinf(said.high) else f"{said.low:g}-{said.high:g}"
    other = kind == "published" or rule.law.exact
    return (
        f"Table '{part.name}' shows {value} for '{label}'"
        + (f" and such values {len(bad) - 1} times more" if len(bad) > 1 else "")
        + f", and its code '{text}' says that {'published values' if kind == 'published' else 'counts'} "
        f"{range_text([(said.low, said.high)])} are not shown"
        + ("" if other else f", and its law gives {value} for no other count")
        + ". What is shown is read by the law alone, all else as the code says. If "
        + (
            f"not every such count is hidden, write {codes_with(part, text, f'some {shown}')}"
            if kind == "count"
            else f"nothing is known of the code, write {codes_with(part, text, 'unknown')}"
        )
        + f" in the entry of '{part.name}'."
    )
