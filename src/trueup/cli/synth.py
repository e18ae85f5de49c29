"""`trueup synth`: synthetic data for a spec."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from trueup.cli.options import AsJson, OutPath, SpecPath
from trueup.cli.printing import print_json
from trueup.cli.progress import progress


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def synth(
        spec: SpecPath,
        out: OutPath,
        blocks: Annotated[
            int | None, typer.Option("--blocks", help="Places of the last level.", show_default=False)
        ] = None,
        persons: Annotated[
            int | None,
            typer.Option("--persons", help="Units in all; stated totals are scaled.", show_default=False),
        ] = None,
        state: Annotated[
            list[str] | None,
            typer.Option("--state", help="Make this region alone; may be repeated.", show_default=False),
        ] = None,
        totals: Annotated[
            Path | None,
            typer.Option("--totals", help="Stated totals: name, persons, perhaps code.", show_default=False),
        ] = None,
        year: Annotated[int, typer.Option("--year", help="State populations of 2010 or 2020.")] = 2020,
        seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same files.")] = 20200401,
        workers: Annotated[int, typer.Option("--workers", min=1, help="Processes at work.")] = 1,
        as_json: AsJson = False,
    ) -> None:
        """Make up places and counts or records that a spec can release, from stated totals."""
        from trueup.synth import synthesize

        with progress(quiet=as_json) as tell:
            made = synthesize(
                spec,
                out,
                places=blocks,
                persons=persons,
                regions=state or (),
                totals=totals,
                year=year,
                seed=seed,
                workers=workers,
                tell=tell,
            )
        people, places = sum(r.persons for r in made), sum(r.places for r in made)
        table = next(name for name in ("records", "counts") if (out / name).is_dir())
        if as_json:
            print_json(
                {"out": str(out), "table": table, "units": people, "places": places, "regions": len(made)}
            )
            return
        regions = "one region" if len(made) == 1 else f"{len(made)} regions"
        print(f"Synthetic: {people:,} units in {places:,} places, {regions}. None of them exists.")
        second = ("--households", str(out / "households")) if (out / "households").is_dir() else ()
        given = (str(spec), "--data", str(out / table), *second, "--geography", str(out / "places"))
        print(f"To release: trueup release {shlex.join(given)} --out NEW")
