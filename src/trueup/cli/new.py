"""`trueup new`: a first spec from a few answers, the names of a table's columns and the public places."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli.new_published import More, Published, draft_from_published
from trueup.cli.options import DataPath, Encoding, with_encoding
from trueup.errors import SpecError

NewSpec = Annotated[Path, typer.Argument(help="The spec to write, a TOML file.", show_default=False)]
Places = Annotated[
    Path,
    typer.Option("--geography", help="The public list of places: CSV, Parquet or xlsx.", show_default=False),
]
Title = Annotated[str | None, typer.Option("--title", help="What the release is called.", show_default=False)]
Unit = Annotated[
    str | None, typer.Option("--unit", help="Who is protected: person, visitor.", show_default=False)
]
Count = Annotated[
    str | None,
    typer.Option("--count", help="The column of counts; '' if each row is one unit.", show_default=False),
]
Levels = Annotated[
    str | None,
    typer.Option("--levels", help="Columns of places, from large to small: county,town.", show_default=False),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        help="A column to count by with all values that it may have, sex=f,m; may be repeated.",
        show_default=False,
    ),
]
Matters = Annotated[
    str | None,
    typer.Option(
        "--matters", help="The table that matters most; it gets half of the loss.", show_default=False
    ),
]
Epsilon = Annotated[
    str | None, typer.Option("--epsilon", help="Privacy loss of the release.", show_default=False)
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Ask nothing: take what is proposed where nothing is given.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def new(
        spec: NewSpec,
        more: More = None,
        data: DataPath = None,  # pyright: ignore[reportArgumentType]
        geography: Places = None,  # pyright: ignore[reportArgumentType]
        published: Published = None,
        encoding: Encoding = None,
        title: Title = None,
        unit: Unit = None,
        count: Count = None,
        levels: Levels = None,
        attribute: Attributes = None,
        matters: Matters = None,
        epsilon: Epsilon = None,
        yes: Yes = False,
    ) -> None:
        """Write a first spec from a few questions; of the table only the names of columns are read, of published ones all."""
        if published:
            draft_from_published(spec, [*published, *(more or [])], title, encoding)
            return
        if more:
            raise SpecError(f"'{more[0]}' is given without --published", needed="one spec to write")
        if data is None or geography is None:
            raise SpecError(
                "no table is given", needed="--data FILE and --geography FILE, or --published FILE"
            )
        from trueup.files.source import open_table
        from trueup.files.target import refuse_occupied
        from trueup.model.draft import attributes_of, count_among, measured_tables, propose_levels
        from trueup.model.spec import Spec

        def ask(given: str | None, question: str, proposed: str) -> str:
            return (
                given if given is not None else proposed if yes else typer.prompt(question, default=proposed)
            )

        refuse_occupied(spec)
        table, places = with_encoding(data, encoding), with_encoding(geography, encoding)
        header = open_table(table).columns()
        proposed = {str(level["name"]): level for level in propose_levels(open_table(places), header)}
        asked = _listed(ask(levels, "Columns of places, from large to small", ",".join(proposed)))
        named = [proposed.get(name, name) for name in asked]
        who = ask(unit, "Who is protected", "person")
        counted = ask(
            count, f"Column that holds counts (empty: each row is one {who})", count_among(header) or ""
        ).strip()
        values = attributes_of(attribute or ([] if yes else _asked_attributes()))
        drafted: dict[str, Any] = {
            "title": ask(title, "What the release is called", spec.stem),
            "name": spec.stem,
            "unit": who,
            "count": counted or None,
            "epsilon": ask(epsilon, "Privacy loss (epsilon) of the whole release", "1"),
        }
        first = Spec.of(table, named, values, public=places, **drafted)
        most = ask(
            matters, f"What matters most ({', '.join(measured_tables(first.queries))}; empty: all alike)", ""
        ).strip()
        made = Spec.of(table, named, values, public=places, **drafted, matters=most) if most else first
        made.write(spec)
        print(made)
        for part, text in made.undecided.items():
            print(f"To decide, {part}: {text}.")
        read = ["--encoding", encoding] if encoding else []
        given = shlex.join([str(spec), "--geography", str(geography), *read])
        print(f"See what it will do: trueup explain {given}")
        print(f"Release: trueup release {given} --data {shlex.quote(str(data))} --out NEW")


def _asked_attributes() -> list[str]:
    """Ask for attributes until there is no more; the header is not shown, since it may be a row of data."""
    found: list[str] = []
    while text := typer.prompt(
        "A column to count by, with all its values, such as sex=f,m (empty: no more)", default=""
    ):
        found.append(text)
    return found


def _listed(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SpecError("no column of places is named", needed="at least one, such as county,town")
    return names
