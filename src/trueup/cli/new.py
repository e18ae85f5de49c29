"""`trueup new`: a first spec from a few answers, the column names of a table and the public places."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli.options import INPUT, Encoding, argument, names_in, option, with_encoding
from trueup.cli.published import More, Published, draft_from_published, refuse_beside_published
from trueup.errors import SpecError

Data = Annotated[Path | None, option("--data", "The confidential table: CSV, Parquet, xlsx or ods.", INPUT)]
NewSpec = Annotated[Path, argument("The spec to write, a TOML file.")]
Places = Annotated[
    Path | None,
    option(
        "--geography",
        "The public list of places: CSV, Parquet, xlsx or ods; none for a table without places.",
    ),
]
PublicPlaces = Annotated[
    bool | None,
    option(
        "--public-places",
        "Of a table of counts: the places that it lists are public themselves, and are read from it.",
    ),
]
Identifier = Annotated[
    str | None,
    option(
        "--id",
        "The column that says whom a row is about, if one unit may stand in several rows; '' if each row is one unit.",
    ),
]
Most = Annotated[
    int | None,
    option(
        "--most",
        "Rows of one unit that are kept at most; noise grows with it, and rows beyond it are left out.",
        min=1,
    ),
]
Title = Annotated[str | None, option("--title", "What the release is called.")]
Unit = Annotated[str | None, option("--unit", "Who is protected: person, visitor.")]
Count = Annotated[str | None, option("--count", "The column of counts; '' if each row is one unit.")]
Levels = Annotated[str | None, option("--levels", "Columns of places, from large to small: county,town.")]
Attributes = Annotated[
    list[str] | None,
    option(
        "--attribute",
        "A column to count by with all values that it may have, sex=f,m; age=bins 0,15,65 for whole numbers, "
        "date=months 2026-01 to 2026-12 for dates. After semicolons, how it is read: missing unknown; other rest; "
        "form DD.MM.YYYY; fold. A value with a comma or a semicolon stands in double quotes; may be repeated.",
    ),
]
Tables = Annotated[
    list[str] | None,
    option(
        "--table",
        "A table to release, 'district x sex x age'; may be repeated. By default each adds an attribute to the one before.",
    ),
]
Matters = Annotated[str | None, option("--matters", "The table that matters most; it gets half of the loss.")]
Epsilon = Annotated[str | None, option("--epsilon", "Privacy loss of the release.")]
Yes = Annotated[bool, option("--yes", "Ask nothing: take what is proposed where nothing is given.")]


def new_command(
    spec: NewSpec,
    more: More = None,
    data: Data = None,
    geography: Places = None,
    published: Published = None,
    encoding: Encoding = None,
    title: Title = None,
    unit: Unit = None,
    count: Count = None,
    identifier: Identifier = None,
    most: Most = None,
    levels: Levels = None,
    public_places: PublicPlaces = None,
    attribute: Attributes = None,
    tables: Tables = None,
    matters: Matters = None,
    epsilon: Epsilon = None,
    yes: Yes = False,
) -> None:
    """Write a first spec from a few questions; only column names are read from a confidential table."""
    if published:
        own = {"--data": data, "--unit": unit, "--count": count, "--id": identifier, "--most": most}
        own |= {"--levels": levels, "--public-places": public_places, "--attribute": attribute}
        own |= {"--table": tables}
        refuse_beside_published(own | {"--matters": matters, "--epsilon": epsilon})
        draft_from_published(spec, [*published, *(more or [])], title, geography, encoding)
        return
    if more:
        raise SpecError(
            f"'{more[0]}' is given as a second spec without --published",
            needed="one path at which the spec is written",
        )
    if data is None:
        raise SpecError(
            "no table is given",
            needed="--data FILE for a confidential table, or --published FILE for published ones",
        )
    from trueup.files.source import open_table
    from trueup.files.target import refuse_file
    from trueup.model.columns_recognised import attributes_of, count_among
    from trueup.model.draft import measured_tables
    from trueup.model.spec import Spec

    def ask(given: str | None, question: str, proposed: str) -> str:
        return given if given is not None else proposed if yes else typer.prompt(question, default=proposed)

    refuse_file(spec, "name for the spec")
    table, places = with_encoding(data, encoding), with_encoding(geography, encoding)
    header = open_table(table).columns()
    who = ask(unit, "Who is protected", "person")
    values = attributes_of(attribute or [])
    other = {*(each["name"] for each in values), *(_listed(levels) if levels else [])}
    counts = (not identifier and count_among([name for name in header if name not in other])) or ""
    counted = ask(
        count,
        f"Column that holds counts (empty: each row is one record of a {who})",
        counts,
    ).strip()
    limit = _limit(ask, who, identifier, most, counts=bool(counted))
    if geography is None and counted:
        places = table if _public(public_places, yes=yes) else None
        _refuse_places_left_out(header, places)
    named = _named_levels(ask, levels, places, None if places is table else header)
    values = values or attributes_of([] if yes else _asked_attributes())
    drafted: dict[str, Any] = {
        "public": places,
        "title": ask(title, "What the release is called", spec.stem),
        "name": spec.stem,
        "unit": who,
        "count": counted or None,
        "keys": "public" if places is table else None,
        "tables": tables or (),
        "epsilon": ask(epsilon, "Privacy loss (epsilon) of the whole release", "1"),
        **limit,
    }
    first = Spec.of(table, named, values, **drafted)
    wanted = ask(
        matters, f"What matters most ({', '.join(measured_tables(first.queries))}; empty: all alike)", ""
    ).strip()
    made = Spec.of(table, named, values, **drafted, matters=wanted) if wanted else first
    _refuse_what_does_not_run(made, places)
    made.write(spec)
    print(made)
    for part, text in made.undecided.items():
        print(f"To decide, {part}: {text}.")
    _print_next_steps(spec, data, geography, encoding, own_places=places is table)


def _print_next_steps(
    spec: Path, data: Path, geography: Path | None, encoding: str | None, *, own_places: bool
) -> None:
    read = ["--encoding", encoding] if encoding else []
    listed = ["--geography", str(geography)] if geography is not None else []
    own = ["--geography", str(data)] if own_places else listed
    print(f"See what it will do: trueup explain {shlex.join([str(spec), *own, *read])}")
    given = shlex.join([str(spec), *listed, *read])
    print(f"Release: trueup release {given} --data {shlex.quote(str(data))} --out NEW")


Ask = Callable[[str | None, str, str], str]
MAX_CELLS_TRIED_OUT = 1_000_000
"""Cells up to which a draft is tried out."""


def _limit(ask: Ask, who: str, identifier: str | None, most: int | None, *, counts: bool) -> dict[str, Any]:
    """Ask whether a unit may have several rows, which column identifies the unit, and how many rows to keep."""
    if counts:
        if identifier or most:
            raise SpecError(
                "--id and --most apply to a table of records, but this table holds counts",
                remedy="leave them out; in the spec, state by `contribution` in each query how many counts one unit affects",
            )
        return {}
    column = ask(
        identifier,
        f"Column that says which {who} a row is about, if one {who} may stand in several rows (empty: each row is another {who})",
        "",
    ).strip()
    if column and most is None:
        kept = ask(None, f"Rows of one {who} that are kept at most (noise grows with it)", "")
        if kept.strip() and not (kept.strip().isascii() and kept.strip().isdigit()):
            raise SpecError(
                f"'{kept}' is given as the number of rows to keep", needed="a whole number above zero"
            )
        most = int(kept) if kept.strip() else None
    return {"id": column or None, "records": most}


def _public(given: bool | None, *, yes: bool) -> bool:
    """Return True if the user says that the places of a table of counts are public, which is never assumed."""
    if given is not None or yes:
        return bool(given)
    return typer.confirm(
        "Are the places in the table a public list, the same whoever is counted", default=False
    )


def _refuse_places_left_out(header: list[str], places: Any) -> None:
    """Refuse a choice that leaves out the places of a table of counts, because several rows would name one cell."""
    from trueup.model.columns_recognised import is_place

    if places is None and (left := next(filter(is_place, header), None)):
        raise SpecError(
            f"the table of counts has a column '{left}' of places, but no public list of places is given",
            needed="the list of all possible places",
            remedy="give the list (--geography FILE), or say that the places in the table are public (--public-places)",
        )


def _named_levels(ask: Ask, levels: str | None, places: Any, header: list[str] | None) -> list[Any] | None:
    """Ask which of the levels that the public places suggest to use; return None if there are no public places."""
    from trueup.files.source import open_table
    from trueup.model.columns_recognised import propose_levels

    if places is None:
        return _listed(levels) if levels is not None else None
    held, given = open_table(places), _listed(levels) if levels is not None else []
    if header is None and given and set(given) <= set(held.columns()):
        header = given
    proposed = {str(level["name"]): level for level in propose_levels(held, header)}
    asked = given or _listed(ask(None, "Columns of places, from large to small", ",".join(proposed)))
    return [proposed.get(name, name) for name in asked]


def _refuse_what_does_not_run(spec: Any, places: Any) -> None:
    """Refuse a drafted spec that `explain` would refuse, before it is written; no count is read."""
    from trueup.model.problem import Problem
    from trueup.releasing.explain import explain

    problem = Problem.of(spec, places)
    if problem.cells.n <= MAX_CELLS_TRIED_OUT:
        explain(problem, simulate=False)


def _asked_attributes() -> list[str]:
    """Ask for attributes until the user gives no more; the header is not shown, because it may be a row of data."""
    found: list[str] = []
    while text := typer.prompt(
        "A column to count by, with all its values, such as sex=f,m or age=bins 0,15,65 (empty: no more)",
        default="",
    ):
        found.append(text)
    return found


def _listed(text: str) -> list[str]:
    names = names_in(text)
    if not names:
        raise SpecError("no column of places is given", needed="at least one column, such as county,town")
    return names
