"""`trueup infer`: the posterior of the true counts.

One file: the options of one command, and what it does with each source.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trueup.cli import saying_resume
from trueup.cli.infer_parts import Drawing, InferenceByParts, posterior_as_json, print_missed, print_posterior
from trueup.cli.options import (
    ENGINE,
    OUTPUT,
    PUBLISHED_PLACES,
    argument,
    described,
    engine_and_cluster,
    memory_limit,
    named_areas,
    names_in,
    option,
    refuse_idle,
    with_encoding,
)
from trueup.cli.printing import print_json, progress
from trueup.cli.published import is_census_file, read_periods, read_source
from trueup.errors import SpecError


@described(
    source=argument("A bundle, or the spec of the Census files that --table names."),
    geography=PUBLISHED_PLACES,
    released="Released counts without their measurements; the first argument is the spec of the release.",
    later="The bundle of a later period; may be repeated. The prior links all periods, which are named by their folders.",
    out="The new folder to write.",
    draws=option("The number of draws.", min=1),
    level="The probability of the intervals, such as 95% or .95.",
    as_csv=option("Write CSV instead of Parquet.", flag="--csv"),
    chosen="The label of a count that the report's pictures show; may be repeated.",
    estimates="Write estimates of S-DHC tables to this file, with the columns of the published tables, and estimates of ratios "
    "to a file beside it.",
    show=option("The number of rows to print of each table.", min=0),
    within="Infer only this place and the places in it: county=44001.",
    tier="How draws are made: exact (for trees), chains (for histograms) or approximate. By default exact if the noise is "
    "narrow, and chains if they converge in 15 seconds of processor time.",
    minutes="The minutes after which the run must end with a result or an error, at least 1; by default the spec's, or 10.",
    by="The attributes to keep in --areas, separated by commas.",
    engine=option(
        "Infer a large tree, histogram or family of tables by parts: local, spark or the address of a Spark cluster. The same "
        "command continues an interrupted run.",
        ENGINE,
    ),
    summaries_alone=option("With --engine, write summaries only, without draws.", OUTPUT),
)
def infer_command(
    source: Path | None = None,
    perturbed: Path | None = None,
    table: list[Path] | None = None,
    geography: Path | None = None,
    released: Path | None = None,
    encoding: str | None = None,
    later: list[Path] | None = None,
    out: Path | None = None,
    draws: int = 1000,
    level: str = "90%",
    as_csv: bool = False,
    chosen: list[str] | None = None,
    estimates: Path | None = None,
    show: int = 20,
    workers: int | None = None,
    within: str | None = None,
    tier: str | None = None,
    minutes: float | None = None,
    areas: str | None = None,
    by: str | None = None,
    memory: str | None = None,
    engine: str | None = None,
    summaries_alone: bool = False,
    log: Path | None = None,
    take_over: bool = False,
    as_json: bool = False,
) -> None:
    """Draw the posterior of the true counts from a bundle, published measurements or perturbed tables."""
    from trueup.files.memory import BYTES_PER_CELL, PROCESS_BYTES, refuse_needed
    from trueup.files.target import refuse_occupied
    from trueup.inferring import infer as run
    from trueup.inferring import tiered
    from trueup.model.records.together import link_periods

    refuse_idle({"--by": by}, "--areas", areas)
    mapping, column = named_areas(areas)
    needed = "--perturbed or --released"
    refuse_idle({"--geography": geography, "--encoding": encoding}, needed, perturbed or released)
    refuse_idle({"--csv": as_csv, "--chosen": chosen}, "--out", out)
    if out is not None:
        refuse_occupied(out)
    if engine is not None:
        idle = {"--perturbed": perturbed, "--table": table, "--released": released, "--csv": as_csv}
        idle |= {"--chosen": chosen, "--estimates": estimates, "--within": within, "--tier": tier}
        idle |= {"--minutes": minutes, "--later": later}
        own = *engine_and_cluster(engine), workers, memory, draws, level, mapping, column, by
        InferenceByParts(*own, log, take_over, summaries_alone, as_json).run(source, out, idle)
        return
    unused = {"--summaries-alone": summaries_alone, "--log": log}
    refuse_idle(unused | {"--take-over": take_over}, "--engine", engine)
    limit, each = memory_limit(memory), BYTES_PER_CELL + (8 * draws if within is None else 0)
    bundle = _fitting_bundle(source, out, limit, each)
    given = [with_encoding(path, encoding) for path in table or []]
    files = with_encoding(geography, encoding), with_encoding(released, encoding)
    spec, measurements = read_source(source, perturbed, given, *files)
    inferred = measurements
    if later:
        inferred = read_periods(bundle, measurements, later)
        measurements = link_periods(inferred)[0]
    if bundle is None:
        refuse_needed(f"'{perturbed or source}'", PROCESS_BYTES + each * measurements.cells.n, limit)
    if estimates is not None:
        _refuse_estimates(spec, estimates, census=is_census_file(source, given))
    # What is wrong in these is said now, not after the minutes that drawing may take.
    cells = _inferred(measurements, within)
    shown = _known_labels(cells, chosen or [])
    wanted = None if mapping is None else area_summary(cells, mapping, column, by)
    known = None if later else spec  # of several periods, the record knows its own
    method = None if tier is None else tiered(inferred, known, tier)
    chains = None if out is None else out.absolute().with_name(f".{out.name}.chains")
    how: dict[str, Any] = {"draws": draws, "level": level, "within": within, "workers": workers or 1}
    how |= {"minutes": minutes}
    if measurements.guarantee.kind != "none" and known is not None:  # else the record knows its own
        how["spec"] = known
    # Progress goes to standard error, whatever goes to standard output.
    with saying_resume(chains, by=KeyboardInterrupt), progress(quiet=False) as tell:
        posterior = run(inferred, method, progress=Drawing(tell), checkpoint=chains, **how)
        tell("describing every count")
        found = None if wanted is None else wanted(posterior)
    if estimates is not None:
        from trueup.io.published.sdhc import write_estimates

        write_estimates(estimates, posterior, spec, measurements)
    if out is not None:
        _write_with_page(out, posterior, shown, known, found, as_csv=as_csv)
        shutil.rmtree(chains or "", ignore_errors=True)
    missed = _missed(measurements, posterior) if perturbed is not None else None
    _print_found(posterior, found, missed, None if as_json else (show, out, found, column))


def _fitting_bundle(source: Path | None, out: Path | None, limit: int | None, each: int) -> Path | None:
    """Return the source if it is a bundle; refuse one that the output would lie in, or that needs too much memory."""
    from trueup.io.bundle.read import refuse_beyond

    if source is None or not source.is_dir():
        return None
    if out is not None and out.resolve().is_relative_to(source.resolve()):
        raise SpecError(f"'{out}' lies inside the bundle '{source}'", needed="a folder outside the bundle")
    refuse_beyond(source, limit, each=each)
    return source


def _print_found(
    posterior: Any, areas: Mapping[str, Any] | None, missed: list[dict] | None, tables: tuple | None
) -> None:
    """Print a posterior as text, with the tables that `print_posterior` chooses, or as JSON."""
    if tables is not None:
        print_posterior(posterior, *tables)
        print_missed(missed or [])
        return
    more = {} if missed is None else {"inconsistency": missed}
    more |= {} if areas is None else {"areas": {name: drawn.tolist() for name, drawn in areas.items()}}
    print_json(posterior_as_json(posterior) | more)


def _write_with_page(
    out: Path, posterior: Any, shown: Any, spec: Any, areas: Mapping[str, Any] | None, *, as_csv: bool
) -> None:
    from trueup.io.bundle.posterior import write_posterior
    from trueup.reporting import report

    page = report(replace(posterior, chosen=shown), spec, areas=areas)
    write_posterior(out, posterior, as_csv=as_csv, page=page, areas=areas)


def _refuse_estimates(spec: Any, path: Path, *, census: bool) -> None:
    """Refuse `--estimates` for anything but S-DHC tables with ratios."""
    from trueup.files.target import refuse_file

    if not census or not spec.infer.get("quantity"):
        raise SpecError(
            "--estimates is given without S-DHC tables"
            if not census
            else "--estimates is given, but the spec names no ratio",
            needed="S-DHC files, given by --table FILE" if not census else "a spec with [[infer.quantity]]",
            remedy="leave out --estimates, or give what is needed",
        )
    refuse_file(path, "--estimates")


def _missed(measurements, posterior) -> list[dict]:
    from trueup.inferring.conflict import inconsistencies

    return [
        {**each._asdict(), "total": str(each.total), "parts": str(each.parts), "explained": each.explained}
        for each in inconsistencies(measurements, posterior)
    ]


def _inferred(measurements: Any, within: str | None) -> Any:
    """Return the cells whose counts are inferred: all cells, or those within one place."""
    cells = measurements.cells
    if within is None:
        return cells
    from trueup.inferring.recast import cells_within, place_named

    return cells_within(cells, *place_named(cells, within))


def _known_labels(cells: Any, labels: list[str]) -> tuple[str, ...]:
    """Return labels of counts as a tuple; refuse a label that no count has."""
    known = {cells.label(cell) for cell in range(cells.n)} if labels else set()
    if unknown := [label for label in labels if label not in known]:
        first = (cells.label(cell) for cell in range(min(3, cells.n)))
        raise SpecError(
            f"no count is called '{unknown[0]}'",
            needed="a label such as " + ", ".join(f"'{x}'" for x in first),
        )
    return tuple(labels)


def area_summary(cells: Any, mapping: Path, column: str, by: str | None) -> Callable[[Any], dict]:
    """Read areas that are not in the hierarchy; return a function that summarises a posterior over them."""
    from trueup.inferring.questions import infer_areas, refuse_overlapping
    from trueup.model.cells import Margin
    from trueup.model.records.places_asked import AreaTable

    kept = names_in(by)
    margin = cells.margin(Margin(cells.tree.levels[-1], tuple(kept)))
    refuse_overlapping(cells, margin)
    cells.refuse_unheld(margin)
    return partial(infer_areas, mapping=AreaTable.read(mapping, column, cells, kept))
