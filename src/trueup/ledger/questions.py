"""Exact answers that a run gives about confidential counts, so that a ledger can count them.

Whether a rule holds on the confidential counts is an exact answer, and so is whether a column holds other values than
those that a spec lists. Whoever may choose the question finds an exact count with a few dozen of them: each halves
what is left. So every question is known before data are read, by what it *means*, not by its words: a recode or a list of
places that is written otherwise makes another question of the same rule.

What a question means is taken from the `Reading` that the tabulation itself is given, so that nothing can decide an answer
and be missing from its digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trueup.errors import SpecError
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.linear import parse_linear
from trueup.model.reading import Reading, stated, topic_of
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart

COUNTS = "counts"
"""The topic of a refusal of counts that break a rule; it names the rules."""


@dataclass(frozen=True)
class Question:
    """A fact about confidential counts that a run finds out exactly, and reveals by continuing or stopping.

    Attributes
    ----------
    text
        A sentence that holds if the answer is yes, for people.
    digest
        SHA-256 of what it means.
    first
        Its topic, where the first question about that costs nothing if the answer is yes: an account's table, columns and
        places have to be described somehow. Empty for a rule.
    rule
        The topic of a rule that is checked while rows are read; empty for one that is checked on the counts.
    """

    text: str
    digest: str
    first: str = ""
    rule: str = ""

    @classmethod
    def of(cls, text: str, meaning: Any, first: str = "") -> Question:
        """Make a question from its text and its meaning, which is given as JSON values.

        Examples
        --------
        >>> Question.of("3 rows", {"rows": 3}) == Question.of("3 rows", {"rows": 3})
        True
        """
        plain = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return cls(text, hashlib.sha256(plain.encode()).hexdigest(), first)

    @property
    def is_rule(self) -> bool:
        """Return True if the question is a rule rather than a description of the table."""
        return not self.first

    def answers(self, topic: str) -> bool:
        """Return True if a refusal with this topic (`TrueupError.about`) answers the question with no."""
        return topic == (self.first or self.rule or COUNTS)


def questions(spec: Spec, cells: Cells, rows: int | None = None) -> tuple[Question, ...]:
    """List the questions that a run of a spec answers exactly: descriptions of the table, then rules.

    Parameters
    ----------
    spec, cells
        The declared spec, and the public cells with their places.
    rows
        Number of rows that the table must hold; each number is a rule of its own.
    """
    return (*_descriptions(spec, cells, rows), *_rule_questions(spec, cells, rows))


def invariants(spec: Spec, cells: Cells) -> tuple[Question, ...]:
    """List the invariants that a release of a spec publishes, by name and meaning."""
    return tuple(invariant_question(spec, cells, m) for m in build_constraints(spec, cells).invariants)


def invariant_question(spec: Spec, cells: Cells, margin: Margin) -> Question:
    """Return the meaning of an invariant: the table that it sums, its places and values, and whom it counts."""
    levels = [level.name for level in spec.levels]
    if margin.level not in levels:
        raise SpecError(f"there is no level '{margin.level}'", needed=f"one of {', '.join(levels)}")
    whose = [
        sorted(
            [name, [value]] if name in levels else _chosen(_owner(spec, name), name, value)
            for name, value in each
        )
        for each in margin.where
    ]
    if margin.weights:
        whose = [[str(weight), *each] for weight, each in zip(margin.weights, whose)]
    by = [_view(spec, name) for name in margin.attributes]
    described = _described(spec, cells)
    return Question.of(str(margin), {**described, "level": margin.level, "by": by, "whose": sorted(whose)})


def _described(spec: Spec, cells: Cells) -> dict[str, Any]:
    """Return the part of a rule's meaning that states which records are counted at which places."""
    reading = Reading.of(spec)
    return {"source": reading.source, "kept": reading.kept, "places": _places(reading, cells)}


def _places(reading: Reading, cells: Cells) -> dict[str, Any]:
    return {**reading.places, "tree": cells.tree.digest}


def _descriptions(spec: Spec, cells: Cells, rows: int | None) -> Iterator[Question]:
    """Yield the questions that are answered by reading the rows, such as whether they name only listed places."""
    reading = Reading.of(spec)
    source = reading.source
    if spec.table.join is not None:
        text = "every record of one table is linked to the other as the spec says"
        yield Question.of(text, {"source": source, "links": "all"}, "links")
    places = {"source": source, "places": _places(reading, cells)}
    yield Question.of("rows name no other place than those listed", places, "places")
    for part in reading.columns:
        text = f"column '{part.column or part.name}' is there and holds no other value than the {len(part.values)} listed"
        yield Question.of(text, {"source": source, "attribute": stated(part)}, topic_of(part))
    if column := spec.privacy.id:
        yield Question.of(
            f"column '{column}' has a value in every row", {"source": source, "ids": column}, "ids"
        )
    if spec.table.kind == "records" and rows is None:
        yield Question.of("the table has a row", {"source": source, "rows": "some"}, "rows")
    # A table of counts is refused where two rows name one cell, and the columns say what a cell is.
    counted = reading.columns if spec.table.kind == "counts" else ()
    columns = sorted(part.column or part.name for part in counted)
    table = {"source": source, "columns": columns, "places": reading.places}
    yield Question.of("the table can be read: whole numbers from 0, one row for each cell", table, "table")


def _rule_questions(spec: Spec, cells: Cells, rows: int | None) -> Iterator[Question]:
    described, part = _described(spec, cells), spec.constraints
    if rows is not None:
        asked = Question.of(f"the table has {rows:,} rows", {"source": described["source"], "rows": rows})
        yield replace(asked, rule="rows")
    for zero in part.zeros:
        text = ", ".join(f"{name} = {value}" for name, value in zero.items())
        yield Question.of(f"no unit has {text}", {**described, "zero": _condition(spec, zero)})
    for bound in part.bounds:
        by, where = [_view(spec, name) for name in bound.attributes], _condition(spec, bound.where)
        limits = [bound.level, bound.lower, bound.upper]
        yield Question.of(_bound_text(bound), {**described, "bound": limits, "by": by, "where": where})
    for rule in part.linear:
        linear, level = parse_linear(rule.rule), rule.level or spec.levels[-1].name
        terms = sorted((_rule_names(spec, name), str(c)) for name, c in linear.coefficients.items())
        whole = {**described, "terms": terms, "sense": linear.sense, "bound": str(linear.bound)}
        yield Question.of(f"{linear.text} at every {level}", {**whole, "level": level})


def _bound_text(bound: Any) -> str:
    where = "".join(f", {name} = {value}" for name, value in bound.where.items())
    low = f"{bound.lower} <= " if bound.lower is not None else ""
    high = f" <= {bound.upper}" if bound.upper is not None else ""
    return f"{low}{' x '.join((bound.level, *bound.attributes))}{where}{high}"


def _condition(spec: Spec, where: Any) -> list[Any]:
    """Return the meaning of a condition: its columns, and the values that each may have."""
    return sorted(_chosen(_owner(spec, name), name, value) for name, value in where.items())


def _rule_names(spec: Spec, text: str) -> str:
    """Return, as JSON text, the meaning of a name in a linear rule: `value`, `attribute=value`, or several joined."""
    found = []
    for part in text.split(","):
        view, _, value = part.strip().rpartition("=")
        owners = ((a, name) for a in spec.attributes for name, held in a.views.items() if value in held)
        owner, name = next((a, n) for a, n in owners if view in ("", n))
        found.append(_chosen(owner, name, value))
    return json.dumps(sorted(found))


def _view(spec: Spec, name: str) -> list[Any]:
    """Return the column behind an attribute or recode, and the groups of values that the name distinguishes."""
    owner = _owner(spec, name)
    return [_column(owner), sorted(_chosen(owner, name, v)[1] for v in owner.views[name])]


def _owner(spec: Spec, name: str) -> AttributePart:
    found = next((a for a in spec.attributes if name in a.views), None)
    if found is None:
        raise SpecError(
            f"there is no attribute '{name}'",
            needed=f"one of: {', '.join(name for a in spec.attributes for name in a.views) or 'none'}",
        )
    return found


def _chosen(owner: AttributePart, view: str, value: str) -> list[Any]:
    groups = next((r.groups for r in owner.recodes if r.name == view), None)
    if value not in owner.views[view]:
        raise SpecError(
            f"'{view}' has no value '{value}'", needed=f"one of: {', '.join(map(str, owner.views[view]))}"
        )
    return [_column(owner), sorted(groups[value]) if groups else [value]]


def _column(part: AttributePart) -> str:
    return part.column or part.name
