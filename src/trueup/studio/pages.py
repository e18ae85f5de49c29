"""Handlers of web requests to the studio, which show or change a project."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from trueup import Spec
from trueup.errors import TrueupError
from trueup.studio import jobs
from trueup.studio.accuracy import Wishes, answer
from trueup.studio.changes import CHANGE, set_paths, set_spec
from trueup.studio.project import Outdated, Project
from trueup.studio.rendering import ExploredPage, internal, refused, rendered
from trueup.studio.security import Guarded, Keys
from trueup.studio.steps import SHOW, STEPS, Studio

REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; sandbox allow-scripts"
"""Reports bring script and style of their own: they are shown apart from the studio, without its cookie."""
STATIC = {"studio.js": "text/javascript", "studio.css": "text/css", "icon.svg": "image/svg+xml"}
"""Files of every page, and their kinds."""

SHOWN_BY = {"compare": "/methods", "release": "/release", "sizes": "/accuracy"}
"""The step that shows a kind of job."""


def application(studio: Studio, keys: Keys) -> Guarded:
    """Return the web application, with access control around it."""

    async def first(request: Request) -> Response:
        return RedirectResponse("/table" if studio.project is not None else "/explore", 303)

    async def words(request: Request) -> Response:
        held = {"designing": studio.project is not None, "step": "", "steps": STEPS, "fault": None}
        return rendered("words.html", held)

    routes = [Route("/", first), Route("/words", words), Route("/static/{name}", _static)]
    routes += _routes(_EXPLORE, studio)
    if studio.project is not None:
        routes += _routes(_DESIGN, studio)
    inner = Starlette(routes=routes, exception_handlers={404: _missing, 405: _missing})
    return Guarded(inner, keys, refused)


def _step_handler(name: str) -> Callable[[Studio, Request], Any]:
    """Return the handler of a step's page: GET shows it, and POST changes the project."""

    async def handle(studio: Studio, request: Request) -> Response:
        if request.method != "POST":
            return await run_in_threadpool(_page, studio, name)
        form = await _form(request)
        return await run_in_threadpool(_changed, studio, name, CHANGE[name], form)

    return handle


def _changed(
    studio: Studio, name: str, change: Callable[[Studio, Mapping[str, str]], str], form: Mapping[str, str]
) -> Response:
    try:
        return RedirectResponse(change(studio, form), 303)
    except TrueupError as error:
        return _page(studio, name, error, form)


def _page(
    studio: Studio,
    name: str,
    fault: TrueupError | None = None,
    form: Mapping[str, str] | None = None,
) -> Response:
    """Return the page of a step, with an error message if a change was refused."""
    project, shown = studio.open_project, {}
    status = 200 if fault is None else 409 if isinstance(fault, Outdated) else 422
    try:
        spec = project.spec
        shown = {**SHOW[name](studio), "ready": True}
    except TrueupError as error:
        spec, fault, status = _readable(project), fault or error, max(status, 409)
    context = {
        "step": name,
        "steps": STEPS,
        "choices": project.choices,
        "toml": project.choices.pending or project.text,
        "spec": spec,
        "fault": fault,
        "form": form or {},
        "ready": False,
    }
    return rendered(f"{name}.html", {**context, **shown}, status)


def _readable(project: Project) -> Spec | None:
    """Return the spec, or None if its file cannot be read."""
    try:
        return project.spec
    except TrueupError:
        return None


async def _set_spec(studio: Studio, request: Request) -> Response:
    form = await _form(request)
    back = form.get("back", "")
    return await run_in_threadpool(_changed, studio, back if back in STEPS else "structure", set_spec, form)


async def _set_paths(studio: Studio, request: Request) -> Response:
    return await run_in_threadpool(_changed, studio, "table", set_paths, await _form(request))


async def _plan(studio: Studio, request: Request) -> Response:
    """Return the plan for the positions of the sliders, as JSON."""
    return await run_in_threadpool(_planned, studio, await request.body())


def _planned(studio: Studio, body: bytes) -> Response:
    try:
        asked = json.loads(body)
        wishes, sizes = (
            {str(k): float(v) for k, v in asked.get(part, {}).items()} for part in ("wishes", "sizes")
        )
        confidence, total = float(asked["confidence"]), str(asked.get("total", ""))
        quick = bool(asked.get("quick"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return JSONResponse(
            {"error": "The request cannot be read. Needed: wishes, confidence and total."}, 400
        )
    try:
        wanted = Wishes(wishes, sizes, confidence, total, studio.by_size())
        plans = studio.plans()
        return JSONResponse(answer(plans.plan(wanted, quick=quick), wanted, plans.guarantee))
    except TrueupError as error:
        return JSONResponse({"error": str(error)}, 422)
    except Exception as error:
        return JSONResponse({"error": internal(error)}, 500)


async def _job(studio: Studio, request: Request) -> Response:
    job = jobs.find(studio.open_project.folder, request.path_params["name"])
    if job is None:
        return JSONResponse({"error": "There is no such job."}, 404)
    if request.method == "POST":
        job.stop()
        return RedirectResponse(SHOWN_BY[job.task["kind"]], 303)
    return JSONResponse(job.progress)


async def _compared(studio: Studio, request: Request) -> Response:
    job = jobs.find(studio.open_project.folder, request.path_params["name"])
    if job is None or not (job.folder / "report.html").exists():
        return refused(404, "There is no such comparison.")
    return HTMLResponse(
        (job.folder / "report.html").read_text(encoding="utf-8"),
        headers={"content-security-policy": REPORT_POLICY},
    )


async def _explore(studio: Studio, request: Request) -> Response:
    return await run_in_threadpool(
        _explored, studio, ExploredPage.of_pairs(list(request.query_params.multi_items()))
    )


async def _view(studio: Studio, request: Request) -> Response:
    return await run_in_threadpool(_explored, studio, ExploredPage.of_pairs(await _pairs(request)))


def _explored(studio: Studio, view: ExploredPage) -> Response:
    context: dict[str, Any] = {"designing": studio.project is not None, "step": "", "steps": STEPS}
    context |= {"view": view, "found": None, "area": None}
    fault: TrueupError | None = None
    try:
        explorer = studio.explorer()
        context |= explorer.page(view)
        if view.summing:
            context["area"] = explorer.area(view.of, view.chosen)
            explorer.infer()
    except TrueupError as error:
        fault = error
    return rendered("explore.html", {**context, "fault": fault}, 200 if fault is None else 422)


async def _download(studio: Studio, request: Request) -> Response:
    return await run_in_threadpool(_downloaded, studio, request.path_params["name"])


def _downloaded(studio: Studio, name: str) -> Response:
    try:
        content, kind = studio.explorer().download(name)
    except TrueupError as error:
        return refused(404, str(error))
    headers = {"content-security-policy": REPORT_POLICY}
    if name != "report.html":
        headers["content-disposition"] = f'attachment; filename="{name}"'
    return Response(content, media_type=kind, headers=headers)


_DESIGN: dict[str, tuple[Callable[[Studio, Request], Any], tuple[str, ...]]] = {
    **{f"/{name}": (_step_handler(name), ("GET", "POST") if name in CHANGE else ("GET",)) for name in STEPS},
    "/spec": (_set_spec, ("POST",)),
    "/paths": (_set_paths, ("POST",)),
    "/plan": (_plan, ("POST",)),
    "/job/{name}": (_job, ("GET", "POST")),
    "/job/{name}/report": (_compared, ("GET",)),
}
_EXPLORE: dict[str, tuple[Callable[[Studio, Request], Any], tuple[str, ...]]] = {
    "/explore": (_explore, ("GET",)),
    "/area": (_view, ("POST",)),
    "/download/{name}": (_download, ("GET",)),
}


def _routes(
    handlers: Mapping[str, tuple[Callable[[Studio, Request], Any], tuple[str, ...]]], studio: Studio
) -> list[Route]:
    def bound(handle: Callable[[Studio, Request], Any]):
        async def endpoint(request: Request) -> Response:
            try:
                return await handle(studio, request)
            except TrueupError as error:
                return refused(422, str(error))
            except Exception as error:
                return refused(500, internal(error))

        return endpoint

    return [Route(path, bound(handle), methods=list(methods)) for path, (handle, methods) in handlers.items()]


async def _pairs(request: Request) -> list[tuple[str, str]]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise TrueupError("the request was not sent by a form of the studio", remedy="load the page again")
    try:
        return parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            max_num_fields=20_000,
            errors="strict",
        )
    except ValueError:
        raise TrueupError(
            "the form cannot be read", needed="text in UTF-8", remedy="load the page again, and send its form"
        ) from None


async def _form(request: Request) -> dict[str, str]:
    return dict(await _pairs(request))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return refused(404, "There is no such page.")
    text = (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")
    return Response(text, media_type=STATIC[name])


async def _missing(request: Request, error: Exception) -> Response:
    return refused(404, "There is no such page.")
