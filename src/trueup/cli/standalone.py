"""Commands that need no data of the user: `demo`, `synth`, `studio`, `methods`, `schema` and `audit`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import typer

from trueup.cli import FAILED_CHECK
from trueup.cli.options import argument, described, named_parameters, option
from trueup.cli.printing import print_json, print_table, progress

NOUNS = {"reconcile": "Reconciliation", "infer": "Inference"}


@described(
    out="A new folder; by default trueup-demo.",
)
def demo_command(out: Path | None = None) -> None:
    """Release a synthetic geography and a fictitious table, end to end."""
    from trueup.demo import run_demo

    names = (Path(f"trueup-demo{suffix}") for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    out = out or next(path for path in names if not path.exists())
    with progress(quiet=False) as tell:
        released = run_demo(out, tell)
    print("The data are synthetic: no person or place in them exists. The noise is real and fresh.")
    for name, release in released.items():
        guarantee = release.guarantee
        print(f"\n{name}: {release.cells.n:,} cells, epsilon = {guarantee.amount} for one {guarantee.unit}")
        print(f"  checked: {', '.join(rule for rule, holds in release.checks.items() if holds)}")
        print(f"  report:  {(out / name / 'public' / 'report.html').resolve()}")
    print(f"\nLook inside: {out}. Check the files alone: trueup check {out / 'blocks'}")


@described(
    blocks="The number of places at the last level.",
    persons="The number of units in all; stated totals are scaled to it.",
    state="A region to make, instead of all regions; may be repeated.",
    totals="A table of stated totals with the columns name, persons and, optionally, code.",
    seed="The seed; the same seed gives the same files.",
)
def synth_command(
    spec: Path,
    out: Path,
    blocks: int | None = None,
    persons: int | None = None,
    state: list[str] | None = None,
    totals: Path | None = None,
    seed: int = 20200401,
    workers: int | None = None,
    as_json: bool = False,
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


@described(
    bundle=argument("The bundle to explore; without it, a release is designed."),
    folder="The folder in which decisions are stored; made if it does not exist.",
    spec="Begin with this spec, a TOML file.",
    data="The confidential table, whose header is read.",
    shapes="A GeoJSON file with the outlines of places, for maps.",
    demo="Begin with a synthetic table.",
    port=option("The port of the page; 0 for any free one.", min=0, max=65535),
    browser="Open the page in the browser.",
)
def studio_command(
    bundle: Path | None = None,
    folder: Path = Path("trueup-studio"),
    spec: Path | None = None,
    data: str = "",
    geography: Path | None = None,
    shapes: str = "",
    demo: bool = False,
    port: int = 0,
    browser: bool = False,
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


@described()
def methods_command(as_json: bool = False) -> None:
    """List the noise distributions and the methods of reconciliation and inference with their structures."""
    found = methods_and_laws()
    if as_json:
        print_json(found)
        return
    for title, kind in (("Noise", "noise"), ("What others publish", "perturbed")):
        laws = [[law["name"], law["title"]] for law in found[kind]]
        print_table(title, ["distribution", "what it is"], laws)
    for verb, noun in NOUNS.items():
        rows = [[k["name"], ", ".join(k["structures"]), k["title"]] for k in found[verb]]
        print_table(noun, ["method", "structures", "what it solves"], rows)


def methods_and_laws() -> dict[str, list[dict[str, Any]]]:
    """Return the names, titles and structures of noise laws, publishing laws, and all methods."""
    from trueup import inferring, reconciling
    from trueup.noise import JOINT_LAWS, LAWS
    from trueup.noise.perturbed import PERTURBATIONS

    return {
        "noise": [{"name": law.name, "title": law.title} for law in (*LAWS, *JOINT_LAWS)],
        "perturbed": [{"name": law.name, "title": law.title} for law in PERTURBATIONS],
        "reconcile": _listed(reconciling.METHODS),
        "infer": _listed(inferring.METHODS),
    }


def _listed(kinds: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": k.name, "title": k.title, "structures": sorted(k.structures)} for k in kinds]


@described(
    published="Print the schema of specs of tables that somebody else published.",
)
def schema_command(published: bool = False) -> None:
    """Print the JSON Schema of the spec, for editors and validators."""
    from trueup.schema import published_schema, spec_schema

    print_json(published_schema() if published else spec_schema())


@described(
    law=argument(
        "A noise distribution with its parameters: discrete-laplace:epsilon=1/2, discrete-gaussian:rho=1/8."
    ),
    draws=option("The number of draws.", min=1000),
    delta="The delta at which epsilon is stated.",
)
def audit_command(
    law: str,
    draws: int = 10_000_000,
    delta: float | None = None,
    as_json: bool = False,
) -> None:
    """Audit a sampler: bound epsilon from draws, compare neighbouring log ratios, and test its tables."""
    from trueup.measuring.entropy import words
    from trueup.noise.audit import audit as audit_law

    found = audit_law(_audited_law(*named_parameters(law, "law")), draws, words, delta=delta)
    if as_json:
        print_json(asdict(found) | {"passed": found.passed})
    else:
        _show_audit(found)
    if not found.passed:
        raise typer.Exit(FAILED_CHECK)


def _audited_law(name: str, given: dict[str, str]) -> Any:
    """Build the noise law to audit from parameters; rho may be given instead of sigma2."""
    from trueup.digits import rational
    from trueup.noise import law_named

    parameters = dict(given)
    if "rho" in parameters:
        parameters["sigma2"] = str(1 / (2 * rational(parameters.pop("rho"), "rho")))
    law = law_named(name)
    optional = {field.name: field.default for field in fields(law) if field.default is not MISSING}
    return law.from_parameters(optional | parameters)


def _show_audit(found: Any) -> None:
    from trueup.privacy import outward

    written = ", ".join(f"{key} = {value}" for key, value in found.parameters.items())
    print(f"{found.law} ({written}), {found.draws:,} draws; one count moves by one")
    first, furthest = found.first_words, found.largest_deviation
    delta = f" at delta = {outward(found.delta)}" if found.delta else ""
    rows = [
        ["claimed epsilon" + delta, outward(found.epsilon_claimed, 6)],
        [f"measured: at least ({found.confidence:g} confidence)", f"{found.epsilon_at_least:.6g}"],
        ["adjacent log ratios compared", f"{len(found.log_ratios)}"],
        ["p-value of the one furthest off", f"{found.log_ratio_p:.3g}"],
        ["first words checked", f"{first.cells:,} in {first.tables} table{'s' * (first.tables > 1)}"],
        ["left to later words", f"{first.undecided:,}"],
        ["wrong first words", f"{first.wrong:,}"],
    ]
    if furthest:
        detail = f"noise {furthest.noise}: {furthest.measured:.4f}, by the law {furthest.exact:.4f}"
        rows.insert(4, ["the one furthest off", f"{detail} (standard error {furthest.error:.4f})"])
    print_table("", ["audit", "found"], rows)
    print("Nothing refutes the claim." if found.passed else "REFUTED: the sampler is not the law it claims.")
