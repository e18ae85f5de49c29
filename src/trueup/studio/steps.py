"""The steps of the studio, and the state that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trueup import Spec, TrueupError, parse_spec
from trueup.digits import to_digits
from trueup.model.columns_recognised import written_values
from trueup.model.problem import Problem
from trueup.planning.contributions import RecordsOfUnits, least_typical, weigh_bounds
from trueup.reconciling import METHODS, default, misfit
from trueup.releasing.by_size import MarginsBySize
from trueup.reporting.drawing.maps import outlines, read_shapes
from trueup.studio import design, jobs
from trueup.studio.accuracy import Plans, Wishes, answer, first_wishes, precedents, problem_of
from trueup.studio.explore import Explorer
from trueup.studio.job import COMPARATORS
from trueup.studio.project import Project
from trueup.synth.own_places import usual_persons


class Studio:
    """A project or a bundle that is open in the studio, with results computed from it.

    Parameters
    ----------
    project
        The project that is designed; None if only a bundle is explored.
    bundle, shapes
        Folder of the bundle that is explored, and path of the outlines of its places.
    """

    def __init__(self, project: Project | None = None, bundle: Path | None = None, shapes: str = "") -> None:
        self.project = project
        self._plans: Plans | None = None
        self._explorer = Explorer(bundle, shapes) if bundle else None
        self._sized: tuple[int, str] = (-1, "")
        self._by_size: tuple[int, MarginsBySize | None] = (-1, None)

    @property
    def open_project(self) -> Project:
        """Return the open project of the studio."""
        assert self.project is not None
        return self.project

    def explorer(self) -> Explorer:
        """Return the explorer of the released bundle."""
        if self._explorer is None:
            out = self.open_project.choices.out
            if not out or not (Path(out) / "public").is_dir():
                raise TrueupError("nothing is released yet", remedy="go to the step 'Release'")
            self._explorer = Explorer(Path(out), self.open_project.choices.shapes)
        return self._explorer

    def plans(self) -> Plans:
        """Return the planner for the current spec and places."""
        project = self.open_project
        choices = project.choices
        text = choices.candidates or project.text
        if self._plans is None or not self._plans.fits(text, choices):
            self._plans = Plans.of(text, choices)
        return self._plans

    def sized(self) -> str:
        """Return the TOML of the spec for simulated errors by size: all candidate tables, with the chosen method."""
        choices = self.open_project.choices
        if self._sized[0] != choices.revision:
            candidates = self.candidates.model_copy(update={"reconcile": self.spec.reconcile})
            self._sized = choices.revision, candidates.text()
        return self._sized[1]

    def by_size(self) -> MarginsBySize | None:
        """Return margins of error by size of the count, or None if they are not simulated yet."""
        choices = self.open_project.choices
        if self._by_size[0] != choices.revision:  # what is simulated stays so until something else is decided
            task = {"spec": self.sized(), "table": choices.table, "places": choices.places}
            found = jobs.newest(self.open_project.folder, "sizes", **task)
            if found is None or found.result is None:
                return None
            self._by_size = choices.revision, MarginsBySize.read(found.result)
        return self._by_size[1]

    def forget_release(self) -> None:
        """Close the explored release, because a release goes to another folder."""
        self._explorer = None

    @property
    def spec(self) -> Spec:
        """Return the spec of the project.

        Raises
        ------
        TrueupError
            If there is none yet.
        """
        spec = self.open_project.spec
        if spec is None:
            raise TrueupError("there is no spec yet", remedy="give the confidential table in the first step")
        return spec

    @property
    def candidates(self) -> Spec:
        """Return the spec with all tables that a plan may choose.

        Raises
        ------
        TrueupError
            If there is none yet.
        """
        text = self.open_project.choices.candidates
        return parse_spec(text) if text else self.spec


STEPS = {
    "table": "Table and places",
    "structure": "Levels and attributes",
    "protected": "Who is protected",
    "tables": "Tables",
    "accuracy": "Accuracy and budget",
    "methods": "Methods",
    "release": "Release",
    "result": "Result",
}
"""The path, in its order."""


def shown_table(studio: Studio) -> dict[str, Any]:
    return {}


def shown_structure(studio: Studio) -> dict[str, Any]:
    spec, choices = studio.spec, studio.open_project.choices
    attributes = [(a.name, a.column or "", written_values(a.values)) for a in spec.attributes]
    if not choices.shapes:
        return {"attributes": attributes}
    cells = problem_of(spec, choices).cells
    drawn = outlines(cells, read_shapes(choices.shapes))
    labels = {place: cells.tree.label(drawn.level, place) for place in drawn.paths}
    return {"attributes": attributes, "outlines": drawn, "labels": labels}


def shown_protected(studio: Studio) -> dict[str, Any]:
    choices = studio.open_project.choices
    problem = problem_of(studio.spec, choices)
    return {"sentences": problem.guarantee.sentences, "bounds": _bounds(problem, choices.records)}


def _bounds(problem: Problem, supposed: str) -> dict[str, Any] | None:
    """Return limits on the records of one unit, compared under a supposed distribution of records; None without one."""
    if not supposed or problem.spec.privacy.contribution is None:
        return None
    weighed = weigh_bounds(problem, RecordsOfUnits.read(supposed), usual_persons(problem.cells.tree))
    tables = [*weighed[0].noise]
    best = {table: least_typical(weighed, table).records for table in tables}
    rows = [
        {
            "records": f"{each.records:,}",
            "share": f"{to_digits(100 * each.share, 2)} %",
            "cells": [
                {
                    "text": f"{to_digits(-each.left_out[table] or 0.0, 3)} ± {to_digits(each.noise[table], 2)}",
                    "best": best[table] == each.records,
                }
                for table in tables
            ],
        }
        for each in weighed
    ]
    return {"tables": tables, "rows": rows}


def shown_tables(studio: Studio) -> dict[str, Any]:
    spec = studio.candidates
    measured = {(frozenset(q.attributes), level) for q in spec.queries for level in q.budgets}
    rows = [
        (" x ".join(s) or "total", [(frozenset(s), level.name) in measured for level in spec.levels])
        for s in design.sets(spec)
    ]
    return {"rows": rows, "tabled": spec}


def shown_accuracy(studio: Studio) -> dict[str, Any]:
    plans, choices = studio.plans(), studio.open_project.choices
    by_size = studio.by_size()
    known = {name: wish for name, wish in choices.wishes.items() if name in plans.planner.free}
    simulated = {f"{c.lowest} {c.table}" for c in by_size.classes} if by_size else set()
    sizes = {key: counts for key, counts in choices.sizes.items() if key in simulated}
    wishes = known if known or sizes else first_wishes(plans.planner)
    wanted = Wishes(wishes, sizes, choices.confidence, choices.total, by_size)
    planned = answer(plans.plan(wanted, quick=False), wanted, plans.guarantee)
    rows = [
        {**row, "wish": wishes.get(row["table"]), "classes": _classes(row, sizes, by_size)}
        for row in planned["tables"]
        if row["table"] in plans.planner.free
    ]
    found = jobs.newest(studio.open_project.folder, "sizes", spec=studio.sized())
    return {
        "planned": planned,
        "rows": rows,
        "precedents": precedents(),
        "by_size": by_size,
        "job": found and found.name,
        "progress": found and found.progress,
    }


def _classes(
    row: Mapping[str, Any], sizes: Mapping[str, float], by_size: MarginsBySize | None
) -> list[dict[str, Any]]:
    classes = by_size.of(row["table"]) if by_size else ()
    return [
        {
            "key": f"{c.lowest} {c.table}",
            "label": c.label,
            "lowest": c.lowest,
            "margin": row["sizes"].get(str(c.lowest)),
            "wish": sizes.get(f"{c.lowest} {c.table}"),
        }
        for c in classes
    ]


def shown_methods(studio: Studio) -> dict[str, Any]:
    spec, choices = studio.spec, studio.open_project.choices
    problem = problem_of(spec, choices)
    found = jobs.newest(studio.open_project.folder, "compare")
    return {
        "fitting": [
            kind.name for kind in METHODS if misfit(kind(), problem.constraints, problem.headers) is None
        ],
        "default": default(problem.constraints).name,
        "job": found and found.name,
        "progress": found and found.progress,
        "compared": found and found.result,
        "current": found is not None and found.task.get("spec") == studio.open_project.text,
        "comparators": list(COMPARATORS),
    }


def shown_release(studio: Studio) -> dict[str, Any]:
    choices = studio.open_project.choices
    found = jobs.newest(studio.open_project.folder, "release")
    problem = problem_of(studio.spec, choices)
    return {
        "sentences": problem.guarantee.sentences,
        "out": choices.out or str(studio.open_project.folder / "release"),
        "published": bool(choices.out) and (Path(choices.out) / "public").is_dir(),
        "job": found and found.name,
        "progress": found and found.progress,
    }


def shown_result(studio: Studio) -> dict[str, Any]:
    found = jobs.newest(studio.open_project.folder, "release")
    done = found is not None and found.progress["state"] == "done"
    return {
        "done": done,
        "checks": ((found and found.result) or {}).get("checks", []) if done else [],
        "out": studio.open_project.choices.out,
    }


SHOW: dict[str, Callable[[Studio], dict[str, Any]]] = {
    "table": shown_table,
    "structure": shown_structure,
    "protected": shown_protected,
    "tables": shown_tables,
    "accuracy": shown_accuracy,
    "methods": shown_methods,
    "release": shown_release,
    "result": shown_result,
}
