"""`trueup reconcile`: make measurements add up."""

from __future__ import annotations

from typing import Annotated

import typer

from trueup.cli.options import AsJson, BundlePath, MemoryLimit, OutPath, memory_limit
from trueup.cli.progress import progress
from trueup.cli.release import show_release

MethodName = Annotated[
    str | None, typer.Option("--method", help="A method of `trueup methods`.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def reconcile(
        bundle: BundlePath,
        out: OutPath,
        method: MethodName = None,
        memory: MemoryLimit = None,
        as_json: AsJson = False,
    ) -> None:
        """Reconcile the measurements of a bundle; equal measurements give equal integers."""
        from trueup.releasing.again import reconcile_bundle

        with progress(quiet=as_json) as tell:
            released = reconcile_bundle(bundle, out, method=method, memory=memory_limit(memory), tell=tell)
        show_release(released, str(out), as_json=as_json)
