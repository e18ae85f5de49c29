"""Changes to a project, made by the form that each step posts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import trueup
from trueup.errors import TrueupError
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms, place_columns
from trueup.planning.contributions import RecordsOfUnits
from trueup.reconciling import choose
from trueup.reporting.drawing.maps import read_shapes
from trueup.studio import design, jobs
from trueup.studio.accuracy import Plans, Wishes, problem_of
from trueup.studio.project import Choices
from trueup.studio.steps import STEPS, Studio


def set_table(studio: Studio, form: Mapping[str, str]) -> str:
    table, places, shapes = (form.get(name, "").strip() for name in ("table", "places", "shapes"))
    if not table:
        raise TrueupError(
            "no confidential table is given", needed="the path of a CSV or Parquet file on this machine"
        )
    title = form.get("title", "").strip() or Path(table).name.split(".")[0]
    found = trueup.propose_spec(
        table, places or None, title=title, unit=form.get("unit", "").strip() or "person"
    )
    revision = _revision(form)
    studio.open_project.change(
        revision,
        text=found.spec.text(),
        table=table,
        places=places,
        shapes=_readable(shapes),
        left=found.left,
        wishes={},
        sizes={},
        total="",
        pending="",
        candidates="",
    )
    return "/structure"


def set_paths(studio: Studio, form: Mapping[str, str]) -> str:
    table, places, shapes = (form.get(name, "").strip() for name in ("table", "places", "shapes"))
    given = {
        "table": table or studio.open_project.choices.table,
        "places": places,
        "shapes": _readable(shapes),
    }
    problem_of(studio.spec, Choices(table=given["table"], places=places))
    studio.open_project.change(_revision(form), **given)
    studio.forget_release()
    return "/structure"


def _readable(shapes: str) -> str:
    """Return the path of a file of outlines; raise an error if the file cannot be read."""
    if shapes:
        read_shapes(shapes)
    return shapes


def set_structure(studio: Studio, form: Mapping[str, str]) -> str:
    text = design.change_structure(studio.candidates, form)
    problem_of(trueup.parse_spec(text), studio.open_project.choices)
    studio.open_project.change(_revision(form), text=text, pending="", candidates="")
    return "/structure" if form.get("go") == "again" else "/protected"


def set_protected(studio: Studio, form: Mapping[str, str]) -> str:
    text, records = design.change_protection(studio.candidates, form), form.get("supposed", "").strip()
    if records:
        RecordsOfUnits.read(records)
    studio.open_project.change(_revision(form), text=text, pending="", candidates="", records=records)
    return "/protected" if form.get("go") == "again" else "/tables"


def set_tables(studio: Studio, form: Mapping[str, str]) -> str:
    choices = studio.open_project.choices
    text = design.choose_tables(studio.candidates, form)
    Plans.of(text, choices)
    studio.open_project.change(_revision(form), text=text, pending="", candidates="", wishes={}, sizes={})
    return "/accuracy"


def set_accuracy(studio: Studio, form: Mapping[str, str]) -> str:
    plans, project = studio.plans(), studio.open_project
    wishes = {
        name: _number(form.get(f"margin.{name}", ""), f"the margin of error of '{name}'")
        for name in plans.planner.free
        if f"wish.{name}" in form
    }
    by_size = studio.by_size()
    sizes = {
        key: _number(form.get(f"margin.{key}", ""), f"the margin of error of '{c.table}', {c.label}")
        for c in (by_size.classes if by_size else ())
        if f"wish.{(key := f'{c.lowest} {c.table}')}" in form
    }
    confidence, total = _number(form.get("confidence", "95"), "the confidence"), form.get("total", "").strip()
    wanted = Wishes(wishes, sizes, confidence, total, by_size)
    planned = plans.plan(wanted, quick=False)
    chosen = {"reconcile": studio.spec.reconcile}  # a method was perhaps chosen after an earlier plan
    spec = trueup.planned_spec(trueup.parse_spec(plans.text), planned).model_copy(update=chosen)
    choices = project.change(
        _revision(form),
        text=spec.text(),
        candidates=plans.text,
        wishes=wishes,
        sizes=sizes,
        confidence=confidence,
        total=total,
        pending="",
    )
    if form.get("go") == "sizes":
        task = {"spec": studio.sized(), "table": choices.table, "places": choices.places}
        jobs.start(project.folder, "sizes", {**task, "targets": wanted.targets()}, again=True)
        return "/accuracy"
    return "/accuracy" if form.get("go") == "again" else "/methods"


def set_methods(studio: Studio, form: Mapping[str, str]) -> str:
    project = studio.open_project
    if form.get("go") == "compare":
        choices = project.choices
        task = {"spec": project.text, "table": choices.table, "places": choices.places}
        jobs.start(project.folder, "compare", task, again=True)
        return "/methods"
    text = design.choose_method(studio.spec, form.get("method", ""))
    problem = problem_of(trueup.parse_spec(text), project.choices)
    choose(problem.spec.reconcile, problem.constraints)
    project.change(_revision(form), text=text, pending="")
    return "/release"


def set_release(studio: Studio, form: Mapping[str, str]) -> str:
    project, spec = studio.open_project, studio.spec
    out = str(Path(form.get("out", "").strip() or project.folder / "release").expanduser().absolute())
    ledger, analyst = form.get("ledger", "").strip(), form.get("analyst", "").strip()
    if ledger and "://" not in ledger:
        ledger = str(Path(ledger).expanduser().absolute())
    if ledger and not analyst:
        raise TrueupError(
            "a ledger is given without the name of the analyst", needed="the analyst whose budget is charged"
        )
    task = {
        "spec": project.text,
        "table": project.choices.table,
        "places": project.choices.places,
        "out": out,
    }
    task |= {"ledger": ledger, "analyst": analyst}
    task["key"] = "studio-" + hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:24]
    if running := next(
        (job for job in jobs.every(project.folder) if job.task["kind"] == "release" and job.alive), None
    ):
        if running.task.get("key") == task["key"]:
            return "/release"
        raise TrueupError("another release is running; nothing was begun", remedy="wait until it ends")
    problem_of(spec, project.choices)
    if ledger:
        _open_ledger(ledger, spec, form.get("cap", "").strip())
    project.change(_revision(form), out=out, ledger=ledger, analyst=analyst)
    studio.forget_release()
    jobs.start(project.folder, "release", task, again=True)
    return "/release"


def _open_ledger(url: str, spec: trueup.Spec, cap: str) -> None:
    """Create a ledger if a cap is given; leave an existing one unchanged."""
    if "://" in url or Path(url).exists():
        Ledger.open(url)
        return
    currency, equals, amount = cap.partition("=")
    if not equals:
        raise TrueupError(
            f"there is no ledger '{url}'",
            needed="a cap with which a new ledger is made, such as rho=1",
            remedy="fill in the cap, or correct the address of the ledger",
        )
    terms = Terms(spec.privacy.unit, spec.privacy.neighbours, public=place_columns(spec))
    Ledger.create(url).init(spec.table.name, {currency.strip(): amount.strip()}, terms=terms)


def set_spec(studio: Studio, form: Mapping[str, str]) -> str:
    studio.open_project.set_text(_revision(form), form.get("toml", ""))
    back = form.get("back", "")
    return f"/{back}" if back in STEPS else "/structure"


def _revision(form: Mapping[str, str]) -> int:
    text = form.get("revision", "")
    if not (text.isdecimal() and text.isascii() and len(text) < 12):
        raise TrueupError("the page sent no version number", remedy="load the page again")
    return int(text)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TrueupError(f"{what} is '{text[:40]}'", needed="a number") from None


CHANGE: dict[str, Callable[[Studio, Mapping[str, str]], str]] = {
    "table": set_table,
    "structure": set_structure,
    "protected": set_protected,
    "tables": set_tables,
    "accuracy": set_accuracy,
    "methods": set_methods,
    "release": set_release,
}
