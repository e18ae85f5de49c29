"""Questions that lead to a first spec of a confidential table; only column names are read from it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from trueup.cli.options import names_in
from trueup.errors import SpecError

if TYPE_CHECKING:
    from trueup.model.spec import Spec

MAX_CELLS_TRIED_OUT = 1_000_000
"""Cells up to which a draft is tried out."""


class Given(NamedTuple):
    """Answers given by options; None where the user is asked or, with `yes`, the proposal is accepted."""

    title: str | None
    unit: str | None
    count: str | None
    identifier: str | None
    most: int | None
    levels: str | None
    public_places: bool | None
    attribute: list[str] | None
    tables: list[str] | None
    matters: str | None
    epsilon: str | None
    yes: bool

    def ask(self, given: str | None, question: str, proposed: str) -> str:
        if given is not None:
            return given
        return proposed if self.yes else _answer(question, proposed)

    @property
    def beside_title(self) -> dict[str, Any]:
        """Return the answers that a spec of published tables does not take, by their options."""
        names = [
            "unit",
            "count",
            "id",
            "most",
            "levels",
            "public-places",
            "attribute",
            "table",
            "matters",
            "epsilon",
        ]
        return {f"--{name}": value for name, value in zip(names, self[1:-1], strict=True)}


def _answer(question: str, proposed: Any) -> Any:
    """Ask a question, to which True and False are answered by yes or no; refuse where nobody can answer."""
    ask = typer.confirm if isinstance(proposed, bool) else typer.prompt
    try:
        return ask(question, default=proposed)
    except typer.Abort:
        if sys.stdin.isatty():  # the user left
            raise
        raise SpecError(
            f"'{question}' is asked, and no answer is read",
            needed="a terminal, or the answers as options",
            remedy="add --yes, which takes what is proposed where no option answers",
        ) from None


def drafted_spec(given: Given, name: str, table: Any, places: Any) -> tuple[Spec, Any]:
    """Ask for missing answers; return the spec of a confidential table, and its public places or None."""
    from trueup.files.source import open_table
    from trueup.model.columns_recognised import attributes_of
    from trueup.model.draft import measured_tables
    from trueup.model.spec import Spec

    header = open_table(table).columns()
    who = given.ask(given.unit, "Who is protected", "person")
    values = attributes_of(given.attribute or [])
    counted = _count_column(given, who, header, [each["name"] for each in values])
    limit = _limit(given, who, counts=bool(counted))
    listed = places is not None
    others = [name for name in header if name not in {counted, *(each["name"] for each in values)}]
    if not counted and (places is table or given.public_places):
        raise _uncounted(who, given=given)
    if places is None and counted:
        places = table if _public(given) else None
        _refuse_places_left_out(header, places)
    named = _named_levels(given, places, others if listed else None)
    values = values or attributes_of([] if given.yes else _asked_attributes())
    drafted: dict[str, Any] = {
        "public": places,
        "title": given.ask(given.title, "What the release is called", name),
        "name": name,
        "unit": who,
        "count": counted or None,
        "keys": "public" if places is table else None,
        "tables": given.tables or (),
        "epsilon": given.ask(given.epsilon, "Privacy loss (epsilon) of the whole release", "1"),
        **limit,
    }
    first = Spec.of(table, named, values, **drafted)
    tables = ", ".join(measured_tables(first.queries))
    wanted = given.ask(given.matters, f"What matters most ({tables}; empty: all alike)", "").strip()
    return Spec.of(table, named, values, **drafted, matters=wanted) if wanted else first, places


def _uncounted(who: str, *, given: Given) -> SpecError:
    """Return the error for public places that are those of the table, where no column of counts is named."""
    option = "--public-places" if given.public_places else "--geography with the table itself"
    return SpecError(
        f"{option} is given without a column of counts, so that each row would count as one {who}",
        needed="--count COLUMN; or, where each row is one of those protected, a list of places as a file of its own",
        remedy="add --count COLUMN; where counts stand in one column for each value, write the spec with one `[[table.cell]]` "
        "for each of them, as docs/spec.md shows",
    )


def _count_column(given: Given, who: str, header: list[str], attributes: list[str]) -> str:
    """Ask for the column of counts; it is empty if each row is one record."""
    from trueup.model.columns_recognised import count_among

    other = {*attributes, *(_listed(given.levels) if given.levels else [])}
    proposed = (not given.identifier and count_among([name for name in header if name not in other])) or ""
    question = f"Column that holds counts (empty: each row is one record of a {who})"
    return given.ask(given.count, question, proposed).strip()


def _limit(given: Given, who: str, *, counts: bool) -> dict[str, Any]:
    """Ask whether a unit may have several rows, which column identifies the unit, and how many rows to keep."""
    most = given.most
    if counts:
        if given.identifier or most:
            raise SpecError(
                "--id and --most apply to a table of records, but this table holds counts",
                remedy="leave them out; in the spec, state by `contribution` in each query how many counts one unit affects",
            )
        return {}
    column = given.ask(
        given.identifier,
        f"Column that says which {who} a row is about, if one {who} may stand in several rows (empty: each row is another {who})",
        "",
    ).strip()
    if column and most is None:
        kept = given.ask(None, f"Rows of one {who} that are kept at most (noise grows with it)", "")
        if kept.strip() and not (kept.strip().isascii() and kept.strip().isdigit()):
            raise SpecError(
                f"'{kept}' is given as the number of rows to keep", needed="a whole number above zero"
            )
        most = int(kept) if kept.strip() else None
    return {"id": column or None, "records": most}


def _public(given: Given) -> bool:
    """Return True if the user says that the places of a table of counts are public, which is never assumed."""
    if given.public_places is not None or given.yes:
        return bool(given.public_places)
    return _answer("Are the places in the table a public list, the same whoever is counted", False)


def _refuse_places_left_out(header: list[str], places: Any) -> None:
    """Refuse a choice that leaves out the places of a table of counts, because several rows would name one cell."""
    from trueup.model.columns_recognised import is_place

    if places is None and (left := next(filter(is_place, header), None)):
        raise SpecError(
            f"the table of counts has a column '{left}' of places, but no public list of places is given",
            needed="the list of all possible places",
            remedy="give the list (--geography FILE), or say that the places in the table are public (--public-places)",
        )


def _named_levels(given: Given, places: Any, header: list[str] | None) -> list[Any] | None:
    """Ask which of the levels that the public places suggest to use; return None if there are no public places."""
    from trueup.files import require
    from trueup.files.source import open_table
    from trueup.model.columns_recognised import is_place, propose_levels, written_values

    levels = _listed(given.levels) if given.levels is not None else None
    if places is None:
        return levels
    held = open_table(places)
    columns = held.columns()
    if header is None and levels and (set(levels) <= {*columns} or not any(map(is_place, columns))):
        require(held, levels)
        header = levels
    proposed = {str(level["name"]): level for level in propose_levels(held, header)}
    asked = levels or _listed(
        given.ask(None, "Columns of places, from large to small", written_values(proposed))
    )
    return [proposed.get(name, name) for name in asked]


def refuse_what_does_not_run(spec: Any, places: Any) -> None:
    """Refuse a drafted spec that `explain` would refuse, before it is written; no count is read."""
    from trueup.model.problem import Problem
    from trueup.releasing.explain import explain

    problem = Problem.of(spec, places)
    if problem.cells.n <= MAX_CELLS_TRIED_OUT:
        explain(problem, simulate=False)


def _asked_attributes() -> list[str]:
    """Ask for attributes until the user gives no more; the header is not shown, because it may be a row of data."""
    found: list[str] = []
    while text := _answer(
        "A column to count by, with all its values, such as sex=f,m or age=bins 0,15,65 (empty: no more)", ""
    ):
        found.append(text)
    return found


def _listed(text: str) -> list[str]:
    names = names_in(text)
    if not names:
        raise SpecError("no column of places is given", needed="at least one column, such as county,town")
    return names
