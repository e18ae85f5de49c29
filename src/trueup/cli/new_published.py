"""`trueup new SPEC --published FILE...`: a first spec of somebody else's tables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from trueup.cli.options import argument, option, with_encoding

Published = Annotated[
    list[Path] | None,
    option(
        "--published",
        "A table that somebody else published: CSV, Parquet or xlsx; repeat it, or name more after it. All of it is read.",
    ),
]
More = Annotated[list[Path] | None, argument("More tables of --published.")]


def refuse_beside_published(options: dict[str, Any]) -> None:
    """Refuse options for a table of your own beside tables that somebody else published."""
    from trueup.errors import SpecError

    if idle := [name for name, value in options.items() if value is not None]:
        raise SpecError(
            f"{idle[0]} is given beside --published",
            needed="a table of your own, or published ones, whose columns the files tell",
            remedy=f"leave {idle[0]} out, and change the drafted spec where it does not fit",
        )


def draft_from_published(
    spec: Path, files: list[Path], title: str | None, geography: Path | None, encoding: str | None
) -> None:
    """Write a first spec of published tables, and print what is undecided."""
    from trueup.files.csv_files import Encoded
    from trueup.files.target import refuse_file
    from trueup.io.published.drafting import draft_published
    from trueup.io.published.drafting.indents import write_indented_places
    from trueup.model.perturbed import parse_perturbed

    places = spec.with_name(f"{spec.stem}-places.csv")
    refuse_file(spec, "name for the spec")
    refuse_file(places, "name for the spec")
    told = {file: with_encoding(file, encoding or _encoding_of(file)) for file in (*files, geography) if file}
    tables = [told[file] for file in files]
    draft = draft_published(tables, title or spec.stem, told[geography] if geography else None)
    spec.write_text(draft.text, encoding="utf-8")
    print(f"Spec: {spec}")
    listed = draft.geography
    if draft.places:
        listed = write_indented_places(places, draft.text, draft.places)
        print(f"Places, as indents, codes or sums tell them (correct the list where it is wrong): {listed}")
    for text in draft.undecided:
        print(f"To decide: {text.rstrip('.')}.")
    read = {part.file for part in parse_perturbed(draft.text).published}
    given = [part for file in dict.fromkeys(files) if file.name in read for part in ("--table", str(file))]
    given += ["--geography", str(listed)] if listed is not None else []
    named = dict.fromkeys(each.encoding for each in told.values() if isinstance(each, Encoded))
    if named and not encoding:
        print(f"To decide: the encoding, {' or '.join(named)} as the letters suggest; another by --encoding.")
    given += ["--encoding", encoding or next(iter(named))] if encoding or named else []
    print(
        f"What the true counts may be: trueup infer --perturbed {shlex.join([str(spec), *given])} --out NEW"
    )


def _encoding_of(file: Path) -> str | None:
    """Return the encoding of a CSV file that is in none of Unicode, as its letters suggest it."""
    from trueup.files.csv_faults import encoding_of
    from trueup.files.paths import is_csv

    found = encoding_of(file) if is_csv(file) else "utf-8"
    return None if found.startswith("utf") else found
