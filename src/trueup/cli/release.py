"""`trueup release`: measure, reconcile and report in one command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli.console import (
    Analyst,
    AsJson,
    GeographyPath,
    Key,
    LedgerUrl,
    Memory,
    open_account,
    print_json,
    progress,
    progress_by_level,
    say_repeated,
)
from trueup.errors import SpecError

Spec = Annotated[Path | None, typer.Argument(help="The spec, a TOML file.", show_default=False)]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="The confidential table: CSV, Parquet or a folder of it; for Spark also an address or table:NAME.",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="A new folder.", show_default=False)]
Engine = Annotated[
    str | None,
    typer.Option(
        help="memory, local or spark; by default what the size and --memory suggest.", show_default=False
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Address of the Spark cluster, such as spark://host:7077.", show_default=False),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes of the engine 'local'.")]
Resume = Annotated[
    Path | None,
    typer.Option(help="Continue the interrupted run of this folder, OUT.run.", show_default=False),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Also write the tables as CSV, OUT/tables.")]
AsXlsx = Annotated[bool, typer.Option("--xlsx", help="Also write the tables as Excel, OUT/tables.xlsx.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def release(
        spec: Spec = None,
        data: Data = None,
        out: Out = None,
        geography: GeographyPath = None,
        ledger: LedgerUrl = None,
        analyst: Analyst = None,
        key: Key = None,
        engine: Engine = None,
        master: Master = None,
        memory: Memory = "4GB",
        workers: Workers = 1,
        resume: Resume = None,
        as_csv: AsCsv = False,
        as_xlsx: AsXlsx = False,
        as_json: AsJson = False,
    ) -> None:
        """Measure with exact noise, reconcile and report: one command, one folder."""
        from trueup.cli.export import write_tables
        from trueup.files.memory import parse_memory
        from trueup.model.problem import Problem
        from trueup.releasing.engine import default_engine

        _refuse_lost_master(engine, master)
        if as_xlsx:
            from trueup.io.export import refuse_unwritable

            refuse_unwritable("xlsx")
        account = open_account(ledger, analyst, key)
        repeated = account is not None and account.repeats
        size = parse_memory(memory)
        if resume is not None:
            given = {"spec": spec, "data": data, "geography": geography, "out": out, "account": account}
            _resume(resume, engine, master, workers, given, quiet=as_json)
            return
        missing = {"the spec": spec, "--data": data, "--out": out}
        if absent := next((name for name, value in missing.items() if value is None), None):
            raise SpecError(f"{absent} is missing", remedy="trueup release SPEC --data FILE --out FOLDER")
        assert spec is not None
        assert out is not None
        problem = Problem.of(spec, geography, data=data)
        chosen = engine or default_engine(problem, size)
        if chosen == "memory":
            _in_memory(problem, data, out, account, quiet=as_json, repeated=repeated)
            write_tables(out, as_csv=as_csv, as_xlsx=as_xlsx)
            return
        if engine is None and not as_json:
            print(f"The problem is larger than {memory} of memory holds at once: it is released by parts.")
        _by_parts(
            problem,
            data,
            out,
            geography,
            account,
            chosen,
            master,
            size,
            workers,
            quiet=as_json,
            repeated=repeated,
        )
        write_tables(out, as_csv=as_csv, as_xlsx=as_xlsx)


def _refuse_lost_master(engine: str | None, master: str | None) -> None:
    """Refuse a cluster's address that no engine would use."""
    if master is not None and engine != "spark":
        given = f"not '{engine}'" if engine else "and no engine is given"
        raise SpecError(f"--master is for the engine 'spark', {given}", remedy="add --engine spark")


def _in_memory(problem, data, out, account, *, quiet: bool, repeated: bool) -> None:
    from trueup.releasing.pipeline import release

    with progress(quiet=quiet) as tell:
        released = release(problem, data, out, account=account, tell=tell)
    show_release(released, str(out), as_json=quiet, repeated=repeated and account.key)


def _by_parts(
    problem, data, out, geography, account, engine, master, memory, workers, *, quiet: bool, repeated: bool
) -> None:
    from trueup.releasing.pipeline import release
    from trueup.releasing.start import run_path

    with (
        _saying_how_to_go_on(run_path(out)),
        _executor(engine, master, workers) as executor,
        progress_by_level(quiet=quiet) as watch,
    ):
        released = release(
            problem,
            data,
            out,
            geography=geography,
            executor=executor,
            account=account,
            memory=memory,
            watch=watch,
        )
    show_release(released, str(out), as_json=quiet, repeated=repeated and account.key)


def _resume(folder, engine, master, workers, given, *, quiet: bool) -> None:
    from trueup.releasing.pipeline import resume

    with (
        _saying_how_to_go_on(folder),
        _executor(engine or "local", master, workers) as executor,
        progress_by_level(quiet=quiet) as watch,
    ):
        released = resume(folder, executor=executor, watch=watch, **given)
    show_release(released, str(released.folder), as_json=quiet)


@contextmanager
def _saying_how_to_go_on(run: Path) -> Iterator[None]:
    """Where an interruption leaves a run that has begun, say how to continue it."""
    try:
        yield
    except KeyboardInterrupt:
        if run.exists():
            print(f"continue with: trueup release --resume {run}", file=sys.stderr)
        raise


def _executor(engine: str, master: str | None, workers: int) -> Any:
    """The engine that carries out a release by parts."""
    from trueup.releasing.engine import refuse_unknown

    refuse_unknown(engine)
    if engine == "spark":
        from trueup.run.spark import SparkCluster

        return SparkCluster(master)
    if engine == "memory":
        raise SpecError("the engine 'memory' keeps nothing to continue from", needed="local or spark")
    from trueup.run.local import LocalPool

    return LocalPool(workers)


def show_release(released, out: str, *, as_json: bool, repeated: str | bool | None = None) -> None:
    """Print what a release is, public quantities only, and whether it is that of a repeated key."""
    guarantee = released.guarantee
    if as_json:
        print_json(
            {
                "out": out,
                "drawn": not repeated,
                "report": f"{out}/public/report.html",
                "method": dict(released.method),
                "checks": dict(released.checks),
                "tables": [str(margin) for margin in released.published],
                "guarantee": list(guarantee.sentences),
            }
        )
        return
    say_repeated(repeated)
    for sentence in guarantee.sentences:
        print(sentence)
    print(f"Checked: {', '.join(rule for rule, holds in released.checks.items() if holds)}.")
    print(f"Report: {out}/public/report.html")
