"""The studio's server, for this machine only."""

from __future__ import annotations

import json
import os
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn

import trueup
from trueup.demo.synthetic import made_up_shapes, synthetic_blocks
from trueup.errors import BundleError, BusyError, TrueupError
from trueup.files.target import claimed
from trueup.files.writing import replace_whole, write_csv
from trueup.studio.pages import application
from trueup.studio.project import Project
from trueup.studio.security import Keys
from trueup.studio.steps import Studio


def serve(
    bundle: Path | None,
    folder: Path,
    *,
    spec: Path | None = None,
    data: str = "",
    geography: str = "",
    shapes: str = "",
    demo: bool = False,
    port: int = 0,
    browser: bool = False,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the pages of a project folder or of a bundle until interrupted.

    Raises
    ------
    TrueupError
        If the folder is served by another process, the port is taken, or the spec or the bundle cannot be read.
    """
    os.umask(0o077)
    with _listening(port) as listener:
        keys = Keys(listener.getsockname()[1], lambda link: tell(f"Open again: {link}"))
        if bundle is not None:
            trueup.read_release(bundle)
            _run_server(
                Studio(bundle=bundle, shapes=shapes and str(Path(shapes).absolute())),
                listener,
                keys,
                tell,
                None,
            )
            return
        project = Project.at(folder)
        with _alone(project):
            prepare(project, spec=spec, data=data, geography=geography, shapes=shapes, demo=demo)
            tell(f"What you decide is kept in {project.folder}")
            _run_server(Studio(project), listener, keys, tell, project if browser else None)


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """Keep other studios out of a project folder during the block."""
    with ExitStack() as held:
        try:
            held.enter_context(claimed(project.folder / "studio"))
        except BusyError:
            raise BusyError(
                f"another studio has the folder '{project.folder}' open",
                remedy="use that one, or choose another --folder",
            ) from None
        yield


def prepare(
    project: Project, *, spec: Path | None, data: str, geography: str, shapes: str, demo: bool
) -> None:
    """Begin a project with a spec, with paths, or with the demonstration, unless it has begun."""
    if demo and not project.text:
        table = project.folder / "blocks.csv"
        write_csv(table, synthetic_blocks())
        found = trueup.propose_spec(table, title="Synthetic population by block, sex and age")
        drawn = project.folder / "tracts.geojson"
        made_up = made_up_shapes(synthetic_blocks()["GEOID"].tolist(), (2, 5, 11), "tract")
        replace_whole(drawn, json.dumps(made_up), private=True)
        data, shapes = str(table), str(drawn)
        project.change(None, text=found.spec.text(), table=data, left=found.left)
    if spec is not None:
        project.change(None, text=trueup.load_spec(spec).text(), candidates="", wishes={})
    paths = {
        "table": data and str(Path(data).absolute()),
        "places": geography and str(Path(geography).absolute()),
        "shapes": shapes and str(Path(shapes).absolute()),
    }
    if given := {name: path for name, path in paths.items() if path}:
        project.change(None, **given)


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # a link may be opened as soon as it is printed: callers wait until the pages are served
    except OSError as error:
        listener.close()
        raise TrueupError(
            f"port {port} cannot be used: {error.strerror}", remedy="choose another --port, or leave it out"
        ) from None
    return listener


def _run_server(
    studio: Studio, listener: socket.socket, keys: Keys, tell: Callable[[str], None], opened: Project | None
) -> None:
    tell(f"Open: {keys.link}")
    tell(
        "The link works once and for this machine alone. Ctrl-C ends the studio; a release that is running goes on."
    )
    if opened is not None:
        _open(opened.folder, keys.link)
    server = uvicorn.Server(
        uvicorn.Config(
            application(studio, keys),
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
        )
    )
    server.run(sockets=[listener])


def _open(folder: Path, link: str) -> None:
    """Open the browser at a link, by a file that only its owner can read."""
    page = folder / "open.html"
    try:
        text = (
            f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={link}"><title>trueup studio</title>'
        )
        replace_whole(page, text, private=True)
    except BundleError:
        return
    webbrowser.open(page.as_uri())
