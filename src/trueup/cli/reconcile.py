"""`trueup reconcile`: make measurements add up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.infer import Geography, Perturbed, Tables
from trueup.cli.options import (
    AsJson,
    Encoding,
    MemoryLimit,
    OutPath,
    argument,
    memory_limit,
    option,
    refuse_idle,
    with_encoding,
)
from trueup.cli.progress import progress
from trueup.cli.published import refuse_two_sources
from trueup.cli.release import show_release
from trueup.errors import SpecError

Bundle = Annotated[Path | None, argument("A bundle: the folder that a run wrote.")]

MethodName = Annotated[str | None, option("--method", "A method of `trueup methods`.")]


def reconcile_command(
    out: OutPath,
    bundle: Bundle = None,
    perturbed: Perturbed = None,
    table: Tables = None,
    geography: Geography = None,
    encoding: Encoding = None,
    method: MethodName = None,
    memory: MemoryLimit = None,
    as_json: AsJson = False,
) -> None:
    """Reconcile the measurements of a bundle, or tables that somebody else published, into whole counts that add up."""
    from trueup.releasing.again import reconcile_bundle

    refuse_idle(
        {"--table": table, "--geography": geography, "--encoding": encoding}, "--perturbed", perturbed
    )
    if perturbed is not None:
        refuse_two_sources(bundle)
        given = [with_encoding(path, encoding) for path in table or []]
        _reconcile_published(
            perturbed, given, out, with_encoding(geography, encoding), method, as_json=as_json
        )
        return
    if bundle is None:
        raise SpecError("no source is given", needed="a bundle, or --perturbed SPEC with its tables")
    with progress(quiet=as_json) as tell:
        released = reconcile_bundle(bundle, out, method=method, memory=memory_limit(memory), tell=tell)
    show_release(released, str(out), as_json=as_json)


def _reconcile_published(perturbed, tables, out, geography, method, *, as_json: bool) -> None:
    from trueup.releasing.published import reconcile_published

    with progress(quiet=as_json) as tell:
        released = reconcile_published(perturbed, tables, out, geography=geography, method=method, tell=tell)
    show_release(released, str(out), as_json=as_json)
