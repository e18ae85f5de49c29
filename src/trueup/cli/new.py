"""`trueup new`: a first spec from a few answers, the column names of a table and the public places."""

from __future__ import annotations

import shlex
from pathlib import Path

from trueup.cli.asked import Given, drafted_spec, refuse_what_does_not_run
from trueup.cli.options import INPUT, argument, described, option, with_encoding
from trueup.cli.published import draft_from_published, refuse_beside_published
from trueup.errors import SpecError


@described(
    spec=argument("The spec to write, a TOML file."),
    more=argument("More tables of --published."),
    data=option("The confidential table: CSV, Parquet, xlsx or ods.", INPUT),
    geography="The public list of places: CSV, Parquet, xlsx or ods; leave it out if the table has no places.",
    published="A table that somebody else published: CSV, Parquet, xlsx or ods; repeat it, or name more after it. "
    "All of it is read.",
    title="The title of the release.",
    unit="The protected unit, such as person or visitor.",
    count="The column of counts; '' if each row is one unit.",
    identifier=option(
        "The column that identifies the unit of each row, if one unit may have several rows; otherwise ''.",
        flag="--id",
    ),
    most=option(
        "The largest number of rows of one unit; further rows are left out. The noise grows with this number.",
        min=1,
    ),
    levels="The columns of places, from large to small, such as county,town. Put a name with a comma in double quotes.",
    public_places="State that the places in a table of counts are public, and read them from it.",
    attribute="A column to count by, with all its possible values: sex=f,m; for whole numbers age=bins 0,15,65; for dates "
    "date=months 2026-01 to 2026-12. Rules for reading follow after semicolons: missing unknown; other rest; "
    "form DD.MM.YYYY; fold. Put a value with a comma or semicolon in double quotes, and a column with an equals "
    "sign. May be repeated.",
    tables=option(
        "A table to release, such as 'district x sex'; may be repeated. By default each table adds one attribute.",
        flag="--table",
    ),
    matters="The table that matters most; it gets half of the privacy loss.",
    epsilon="The privacy loss (epsilon) of the release.",
    yes="Ask no questions; accept the proposal for each answer that is not given.",
)
def new_command(
    spec: Path,
    more: list[Path] | None = None,
    data: Path | None = None,
    geography: Path | None = None,
    published: list[Path] | None = None,
    encoding: str | None = None,
    title: str | None = None,
    unit: str | None = None,
    count: str | None = None,
    identifier: str | None = None,
    most: int | None = None,
    levels: str | None = None,
    public_places: bool | None = None,
    attribute: list[str] | None = None,
    tables: list[str] | None = None,
    matters: str | None = None,
    epsilon: str | None = None,
    yes: bool = False,
) -> None:
    """Write a first spec from a few questions; only column names are read from a confidential table."""
    given = Given(
        title, unit, count, identifier, most, levels, public_places, attribute, tables, matters, epsilon, yes
    )
    if published:
        refuse_beside_published({"--data": data, **given.beside_title})
        draft_from_published(spec, [*published, *(more or [])], title, geography, encoding)
        return
    _refuse_second_spec(more)
    if data is None:
        raise SpecError(
            "no table is given",
            needed="--data FILE for a confidential table, or --published FILE for published ones",
        )
    from trueup.files.target import refuse_file

    refuse_file(spec, "name for the spec")
    table = with_encoding(data, encoding)
    same = geography is not None and geography.resolve() == data.resolve()
    listed = table if same else with_encoding(geography, encoding)
    made, places = drafted_spec(given, spec.stem, table, listed)
    refuse_what_does_not_run(made, places)
    made.write(spec)
    print(made)
    for part, text in made.undecided.items():
        print(f"To decide, {part}: {text}.")
    _print_next_steps(spec, data, None if same else geography, encoding, own_places=places is table)


def _refuse_second_spec(more: list[Path] | None) -> None:
    if more:
        raise SpecError(
            f"'{more[0]}' is given as a second spec without --published",
            needed="one path at which the spec is written",
        )


def _print_next_steps(
    spec: Path, data: Path, geography: Path | None, encoding: str | None, *, own_places: bool
) -> None:
    read = ["--encoding", encoding] if encoding else []
    listed = ["--geography", str(geography)] if geography is not None else []
    own = ["--geography", str(data)] if own_places else listed
    print(f"See what it will do: trueup explain {shlex.join([str(spec), *own, *read])}")
    given = shlex.join([str(spec), *listed, *read])
    print(f"Release: trueup release {given} --data {shlex.quote(str(data))} --out NEW")
