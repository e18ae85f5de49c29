"""Inference of large problems part by part, within bounded memory. An interrupted run can be resumed.

Of a tree the driver estimates the prior, as in memory; parts are looked at, solved up to the top, drawn and written. Parts of a
histogram, or of a family of tables, follow draws of the places above them (`histogram_parts`, `family_parts`). All that parts
come to stands in a run folder beside the target until the posterior is whole: the same command goes on from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from trueup.errors import SpecError
from trueup.files.database import connect
from trueup.files.memory import refuse_needed, return_freed
from trueup.files.owner import owning
from trueup.files.target import refuse_occupied
from trueup.files.writing import staged, write_whole, writing
from trueup.inferring import choose_inference
from trueup.inferring.conflict import conflicts
from trueup.inferring.family_moves import FamilyMoves
from trueup.inferring.family_parts import CutFamily
from trueup.inferring.given import (
    Given,
    measured_once,
    prior_instead,
    read_given,
    refuse_draws,
    refuse_fractions,
    remarks,
)
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.histogram_parts import CutHistogram
from trueup.inferring.method import InferenceMethod, Progress, announce, inference_misfit, silent
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.written_parts import WantedAreas, WantedTables, WrittenTree, too_small
from trueup.inferring.written_tables import WrittenFamily, WrittenHistogram
from trueup.io.bundle.places import write_places
from trueup.io.bundle.posterior import PLACES, digests_of, posterior_manifest
from trueup.layouts.family_rules import family_cells
from trueup.model.constraints import Constraints
from trueup.model.prior import Hierarchical
from trueup.model.records.drawn import Drawn
from trueup.model.records.measurements import Measurements
from trueup.model.records.places_asked import AreaTable
from trueup.model.records.posterior import Posterior
from trueup.model.spec import Spec
from trueup.model.tables import probability_of
from trueup.model.verb import describe, refuse_method
from trueup.run import Executor
from trueup.run.parts import KeptExecutor

PARTS_PER_TASK = 16
"""Parts of the tree that a worker looks at or solves at a time."""


def infer_by_parts(
    source: Given,
    out: str | Path,
    executor: Executor,
    *,
    spec: Spec | Constraints | None = None,
    draws: int = 1000,
    level: float | str = 0.9,
    areas: AreaTable | None = None,
    keep_draws: bool = True,
    take_over: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the posterior of a large tree, histogram or family to a folder, part by part.

    Parameters
    ----------
    source, spec, draws, level, progress
        The same as in `infer`.
    out
        A new folder; until the run ends, the folder `OUT.run` beside it holds finished parts.
    executor
        Executor that works on the parts; a run that is predicted to need more memory than it has is refused.
    areas
        Areas off the hierarchy, and the attributes that are kept of them.
    keep_draws
        True to write the draws, False to write their summaries alone.
    take_over
        True if somebody confirms that the silent process on another machine has ended.

    Returns
    -------
    The manifest. Equal sources give equal draws on whatever engine: of a tree those that `infer` gives.

    Raises
    ------
    SpecError
        If the method is not one of trees, histograms or families, or if the problem cannot be cut.
    ConvergenceError
        If no windows of counts hold the posterior.
    """
    return_freed()
    out, level, tell = Path(out), probability_of(level), progress or silent
    measured, constraints, entry = read_given(source, spec)
    refuse_draws(draws)
    refuse_fractions(measured)
    entry = {key: held for key, held in entry.items() if key not in ("minutes", "quantity")}
    chosen = choose_inference(entry, constraints, measured)
    refuse_method(chosen, inference_misfit(chosen, constraints, measured))
    instead = {} if "prior" in entry else prior_instead(chosen, constraints, measured)
    used, repeated = measured_once(measured)
    table = None if areas is None else WantedAreas.of(measured.cells, areas)
    wanted = _part_problem(chosen, constraints, used, WantedTables(measured, draws, level, table, keep_draws))
    expected = wanted.expected(executor.workers)
    hours, disk = expected.core_seconds / 3600, expected.disk / 1e9
    announce(tell, f"about {hours:.2g} core-hours and {disk:.2g} GB of disk")
    refuse_needed("the posterior", expected.memory, executor.memory)
    refuse_occupied(out)
    with _run_folder(out, take_over) as run:
        rng, kept = measured.rng(), KeptExecutor(executor, run)
        solved = wanted.solved(rng, tell, replace(kept, together=PARTS_PER_TASK))
        with staged(out) as folder:
            drawn = solved.write(folder, kept, rng, tell)
            more = remarks(chosen, constraints, used, repeated, instead)
            drawn = replace(drawn, stats={**drawn.stats, **more})
            manifest = _manifest(folder, measured, drawn, describe(chosen), level)
            write_whole(folder / "manifest.json", json.dumps(manifest, indent=2, default=str) + "\n")
        shutil.rmtree(run)
    return manifest


def _part_problem(
    chosen: InferenceMethod, constraints: Constraints, used: Measurements, wanted: WantedTables
) -> WrittenTree | WrittenHistogram | WrittenFamily:
    """Return the tables to write, with the large problem that is cut into parts for them. Refuse a method without parts."""
    row = constraints, tuple(used.headers), tuple(used.values)
    if isinstance(chosen, FamilyMoves):
        _refuse_family(chosen, constraints, used)
        return WrittenFamily(**vars(wanted), cut=CutFamily(*row))
    if isinstance(chosen, HistogramGibbs) and chosen.tier != "chains" and chosen.prior.even:
        return WrittenHistogram(**vars(wanted), cut=CutHistogram(*row, tuple(chosen.prior.concentrations)))
    if not isinstance(chosen, TreeExact) or chosen.mode or chosen.tier == "approximate":
        own = {TreeExact: "`mode`", HistogramGibbs: "public shares or covariates"}.get(type(chosen), "")
        odd = f"tier '{tier}'" if (tier := getattr(chosen, "tier", "")) in ("approximate", "chains") else own
        raise SpecError(
            f"method '{chosen.name}' cannot infer by parts{f' with {odd}' if odd else ''}",
            needed=f"method '{TreeExact.name}' or '{HistogramGibbs.name}'{f' without {odd}' if odd else ''}",
            remedy="leave out --engine",
        )
    if odd := next((h for h in used.headers if not (h.law.additive or h.exact) or h.margin.where), None):
        raise SpecError(
            f"query '{odd.query}' of '{odd.margin}', which cannot be inferred by parts, has "
            + ("a condition" if odd.margin.where else f"the law '{odd.law.name}', which does not add noise"),
            needed="noise that is added to all counts of a table",
            remedy="leave out --engine",
        )
    state = chosen.prepare(constraints, used.headers).flat_given_bounds(used.flat)
    if state.cut is None:
        raise too_small(state)
    state.refuse_impossible(used.flat)
    return WrittenTree(**vars(wanted), values=used.flat, tree=replace(chosen, tier="exact"), state=state)


def _refuse_family(chosen: FamilyMoves, constraints: Constraints, used: Measurements) -> None:
    """Refuse families of tables that can only be inferred in memory."""
    added = (h.groups is None and (h.exact or (h.law.additive and not h.law.joint)) for h in used.headers)
    if not isinstance(chosen.prior, Hierarchical) or chosen.prior.concentrations:
        why = "only the prior with estimated concentrations is possible, not a flat or given one"
    elif family_cells(constraints).joint is not None:
        why = "their shared attributes form a cycle (as in a x b, b x c, c x a), so all places are drawn together"
    elif not all(added):
        why = "only some counts of a table are measured, or their noise is not added independently"
    else:
        return
    raise SpecError(
        f"the tables on these places cannot be inferred by parts: {why}", remedy="leave out --engine"
    )


@contextmanager
def _run_folder(out: Path, take_over: bool) -> Iterator[Path]:
    run = out.absolute().with_name(f"{out.name}.run")
    with writing(run):
        run.mkdir(mode=0o700, exist_ok=True)
    with owning(run, take_over=take_over):
        yield run


def _manifest(
    folder: Path, measured: Measurements, drawn: Drawn, method: Mapping[str, Any], level: float
) -> dict[str, Any]:
    """Write the table of places, and return the manifest of the folder."""
    checked = conflicts(measured, drawn)
    given = measured.cells, drawn, method, measured.digest, level
    posterior = Posterior(*given, conflicts=checked, spec=measured.spec)
    if measured.cells.tree.keys:
        with connect(folders=[folder], threads=1) as connection:  # each thread holds a group of rows
            write_places(folder / PLACES, measured.cells, connection)
    by_parts = not measured.cells.is_family  # draws of a family are written as those in memory are
    return posterior_manifest(posterior) | {"by parts": by_parts, "files": digests_of(folder)}
