"""`trueup measure` and `trueup reconcile`: the two steps of a release, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.infer import Geography, Perturbed, Tables
from trueup.cli.options import (
    Analyst,
    AsJson,
    DataPath,
    Encoding,
    ExpectRows,
    GeographyPath,
    HouseholdsPath,
    Key,
    LedgerUrl,
    MemoryLimit,
    OutPath,
    SpecPath,
    argument,
    given_tables,
    memory_limit,
    open_account,
    option,
    refuse_idle,
    with_encoding,
)
from trueup.cli.printing import print_json, progress, say_repeated
from trueup.cli.published import refuse_two_sources
from trueup.cli.release import show_release
from trueup.errors import SpecError


def measure_command(
    spec: SpecPath,
    data: DataPath,
    out: OutPath,
    geography: GeographyPath = None,
    households: HouseholdsPath = None,
    encoding: Encoding = None,
    ledger: LedgerUrl = None,
    analyst: Analyst = None,
    key: Key = None,
    expect_rows: ExpectRows = None,
    as_json: AsJson = False,
) -> None:
    """Measure with exact noise; reconcile later, or let others do it."""
    from trueup.releasing.pipeline import measure_only

    account = open_account(ledger, analyst, key)
    repeated = account is not None and account.repeats
    with progress(quiet=as_json) as tell:
        measurements = measure_only(
            spec,
            given_tables(with_encoding(data, encoding), with_encoding(households, encoding)),
            out,
            geography=with_encoding(geography, encoding),
            account=account,
            expect_rows=expect_rows,
            tell=tell,
        )
    if as_json:
        print_json({"out": str(out), "drawn": not repeated, "measurements": measurements.digest})
    else:
        say_repeated(repeated and key)
        print("\n".join(measurements.guarantee.sentences))
        print(f"Measurements: {out}/public")


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
    from trueup.releasing.again import reconcile_published

    with progress(quiet=as_json) as tell:
        released = reconcile_published(perturbed, tables, out, geography=geography, method=method, tell=tell)
    show_release(released, str(out), as_json=as_json)
