"""`trueup demo`, `trueup synth` and `trueup studio`: first steps with synthetic data or on a local web page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from trueup.cli.options import AsJson, GeographyPath, OutPath, SpecPath, Workers, argument, option
from trueup.cli.printing import print_json, progress

DemoOut = Annotated[Path | None, option("--out", "A new folder; by default trueup-demo.")]


def demo_command(out: DemoOut = None) -> None:
    """Release a synthetic geography and a fictitious table, end to end."""
    from trueup.demo import run_demo

    out = out or _free_folder()
    with progress(quiet=False) as tell:
        released = run_demo(out, tell)
    print("The data are synthetic: no person or place in them exists. The noise is real and fresh.")
    for name, release in released.items():
        guarantee = release.guarantee
        print(f"\n{name}: {release.cells.n:,} cells, epsilon = {guarantee.amount} for one {guarantee.unit}")
        print(f"  checked: {', '.join(rule for rule, holds in release.checks.items() if holds)}")
        print(f"  report:  {(out / name / 'public' / 'report.html').resolve()}")
    print(f"\nLook inside: {out}. Check the files alone: trueup check {out / 'blocks'}")


def _free_folder() -> Path:
    names = (Path(f"trueup-demo{suffix}") for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(path for path in names if not path.exists())


def synth_command(
    spec: SpecPath,
    out: OutPath,
    blocks: Annotated[int | None, option("--blocks", "Places of the last level.")] = None,
    persons: Annotated[int | None, option("--persons", "Units in all; stated totals are scaled.")] = None,
    state: Annotated[list[str] | None, option("--state", "Make this region alone; may be repeated.")] = None,
    totals: Annotated[Path | None, option("--totals", "Stated totals: name, persons, perhaps code.")] = None,
    seed: Annotated[int, option("--seed", "The same seed gives the same files.", shown=True)] = 20200401,
    workers: Workers = None,
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
            workers=workers or 1,
            tell=tell,
        )
    people, places = sum(r.persons for r in made), sum(r.places for r in made)
    table = next(name for name in ("records", "counts") if (out / name).is_dir())
    if as_json:
        print_json({"out": str(out), "table": table, "units": people, "places": places, "regions": len(made)})
        return
    regions = "one region" if len(made) == 1 else f"{len(made)} regions"
    print(f"Synthetic: {people:,} units in {places:,} places, {regions}. None of them exists.")
    second = ("--data", str(out / "households")) if (out / "households").is_dir() else ()
    given = (str(spec), "--data", str(out / table), *second, "--geography", str(out / "places"))
    print(f"To release: trueup release {shlex.join(given)} --out NEW")


Bundle = Annotated[Path | None, argument("A bundle to explore; without one a release is designed.")]
Folder = Annotated[
    Path, option("--folder", "Where decisions are kept; made if it does not exist.", shown=True)
]
SpecFile = Annotated[Path | None, option("--spec", "Begin with this spec, a TOML file.")]
Data = Annotated[str, option("--data", "The confidential table: its header is read.")]
Shapes = Annotated[str, option("--shapes", "Outlines of the places, as GeoJSON, to draw maps.")]
Demo = Annotated[bool, option("--demo", "Begin with a synthetic table.")]
Port = Annotated[int, option("--port", "By default a free one.", shown=True, min=0, max=65535)]
Browser = Annotated[bool, option("--browser", "Open the page in the browser.")]


def studio_command(
    bundle: Bundle = None,
    folder: Folder = Path("trueup-studio"),
    spec: SpecFile = None,
    data: Data = "",
    geography: GeographyPath = None,
    shapes: Shapes = "",
    demo: Demo = False,
    port: Port = 0,
    browser: Browser = False,
) -> None:
    """Open a local web page on which a release is designed by its accuracy, or a bundle explored."""
    from trueup.errors import load_extra

    for package in ("starlette", "uvicorn"):
        load_extra(package, "studio")
    from trueup.studio.server import serve

    given = "" if geography is None else str(geography)
    serve(
        bundle,
        folder,
        spec=spec,
        data=data,
        geography=given,
        shapes=shapes,
        demo=demo,
        port=port,
        browser=browser,
    )
