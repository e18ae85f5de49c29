"""`trueup synth`: synthetic data for a spec."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from trueup.cli.options import AsJson, OutPath, SpecPath, option
from trueup.cli.printing import print_json
from trueup.cli.progress import progress


def synth_command(
    spec: SpecPath,
    out: OutPath,
    blocks: Annotated[int | None, option("--blocks", "Places of the last level.")] = None,
    persons: Annotated[int | None, option("--persons", "Units in all; stated totals are scaled.")] = None,
    state: Annotated[list[str] | None, option("--state", "Make this region alone; may be repeated.")] = None,
    totals: Annotated[Path | None, option("--totals", "Stated totals: name, persons, perhaps code.")] = None,
    seed: Annotated[int, option("--seed", "The same seed gives the same files.", shown=True)] = 20200401,
    workers: Annotated[int, option("--workers", "Processes at work.", shown=True, min=1)] = 1,
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
            seed=seed,
            workers=workers,
            tell=tell,
        )
    people, places = sum(r.persons for r in made), sum(r.places for r in made)
    table = next(name for name in ("records", "counts") if (out / name).is_dir())
    if as_json:
        print_json({"out": str(out), "table": table, "units": people, "places": places, "regions": len(made)})
        return
    regions = "one region" if len(made) == 1 else f"{len(made)} regions"
    print(f"Synthetic: {people:,} units in {places:,} places, {regions}. None of them exists.")
    second = ("--households", str(out / "households")) if (out / "households").is_dir() else ()
    given = (str(spec), "--data", str(out / table), *second, "--geography", str(out / "places"))
    print(f"To release: trueup release {shlex.join(given)} --out NEW")
