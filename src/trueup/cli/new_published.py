"""`trueup new SPEC --published FILE...`: a first spec of somebody else's tables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

Published = Annotated[
    list[Path] | None,
    typer.Option(
        "--published",
        help="A table that somebody else published: CSV, Parquet or xlsx; repeat it, or name more after it. All of it is read.",
        show_default=False,
    ),
]
More = Annotated[list[Path] | None, typer.Argument(help="More tables of --published.", show_default=False)]


def draft_from_published(spec: Path, files: list[Path], title: str | None, encoding: str | None) -> None:
    """Write a first spec of published tables, and print what is undecided."""
    from trueup.errors import SpecError
    from trueup.files.target import refuse_occupied
    from trueup.io.published.drafting import draft_published

    refuse_occupied(spec)
    if encoding:
        raise SpecError(
            "--encoding is given beside --published", remedy="save the tables as UTF-8, and leave it out"
        )
    draft = draft_published(files, title or spec.stem)
    spec.write_text(draft.text, encoding="utf-8")
    print(f"Spec: {spec}")
    for text in draft.undecided:
        print(f"To decide: {text}.")
    tables = " ".join(f"--table {shlex.quote(str(file))}" for file in files)
    print(
        f"What the true counts may be: trueup infer --perturbed {shlex.quote(str(spec))} {tables} --out NEW"
    )
