"""`trueup release`: measure, reconcile and report in one command.

One file: the options of the largest command, and what each way of running it does with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from trueup.cli import saying_resume
from trueup.cli.options import (
    ENGINE,
    INPUT,
    OUTPUT,
    TABLES,
    argument,
    described,
    engine_and_cluster,
    given_tables,
    memory_limit,
    open_account,
    opened_executor,
    option,
    with_encoding,
)
from trueup.cli.printing import print_json, progress, say_repeated, writing_log
from trueup.errors import SpecError


@dataclass(frozen=True)
class RunOptions:
    """The options that determine how a release is carried out: engine, workers, memory and time."""

    engine: str | None
    master: str | None
    workers: int | None
    worker_memory: int | None
    memory: int | None
    take_over: bool
    log: Path | None
    quiet: bool

    def executor(self) -> Any:
        """Return the executor of the chosen engine, for a release by parts."""
        if self.engine == "memory":
            raise SpecError(
                "the engine 'memory' keeps no run folder, so no run can be continued",
                needed="--engine local or --engine spark",
            )
        return opened_executor(
            self.engine, self.master, self.workers, memory=self.memory, worker_memory=self.worker_memory
        )


@described(
    spec=argument("The spec, a TOML file."),
    data=option(f"The confidential table: {TABLES}. Spark also reads an address or table:NAME.", INPUT),
    out=option("A new folder.", OUTPUT),
    engine=option(
        "The engine: memory, local, spark, or the address of a Spark cluster, such as spark://host:7077 or yarn. By default the "
        "one that suits the size and --memory.",
        ENGINE,
    ),
    worker_memory=option("The memory of each worker, instead of --memory.", ENGINE),
    resume=option("The folder of the interrupted run to continue, OUT.run.", ENGINE),
)
def release_command(
    spec: Path | None = None,
    data: list[str] | None = None,
    out: Path | None = None,
    geography: Path | None = None,
    encoding: str | None = None,
    ledger: str | None = None,
    analyst: str | None = None,
    key: str | None = None,
    engine: str | None = None,
    memory: str | None = None,
    workers: int | None = None,
    worker_memory: str | None = None,
    expect_rows: int | None = None,
    resume: Path | None = None,
    take_over: bool = False,
    log: Path | None = None,
    as_json: bool = False,
) -> None:
    """Measure with exact noise, reconcile and report: one command, one folder."""
    from trueup.files.memory import memory_text
    from trueup.model.problem import Problem
    from trueup.releasing.engine import MEMORY_BYTES, default_engine

    engine, master = engine_and_cluster(engine)
    account = open_account(ledger, analyst, key)
    repeated = account is not None and account.repeats
    given_data = given_tables(data, encoding)
    each, total = map(memory_limit, (worker_memory, memory))
    how = RunOptions(engine, master, workers, each, total, take_over, log, as_json)
    if resume is not None:
        given = {"spec": spec, "data": given_data, "geography": geography, "out": out, "account": account}
        _resume(resume, how, {**given, "expect_rows": expect_rows})
        return
    missing = {"the spec": spec, "--data": data, "--out": out}
    if absent := next((name for name, value in missing.items() if value is None), None):
        raise SpecError(f"{absent} is missing", remedy="trueup release SPEC --data FILE --out FOLDER")
    assert spec is not None
    assert out is not None
    places = with_encoding(geography, encoding)
    problem = Problem.of(spec, places, data=given_data, rows=expect_rows)
    chosen = engine or default_engine(problem, total or MEMORY_BYTES)
    if engine is None and chosen != "memory" and not as_json:
        print(
            f"The problem needs more than {memory_text(total or MEMORY_BYTES)} of memory: it is released by parts."
        )
    _refuse_idle(how, chosen, out)
    carried_out = _in_memory if chosen == "memory" else release_by_parts
    released = carried_out(problem, given_data, out, geography, account, replace(how, engine=chosen))
    show_release(released, str(out), as_json=as_json, repeated=repeated and account and account.key)


def _refuse_idle(how: RunOptions, engine: str, out: Path) -> None:
    """Refuse options for releases by parts that would have no effect on this release."""
    asked = {"--take-over": how.take_over, "--worker-memory": how.worker_memory}
    given = next((name for name, value in asked.items() if value), None)
    if engine == "memory" and given:
        raise SpecError(
            f"{given} is an option of a release by parts, but this release is made in the memory of one process",
            remedy=f"add --engine local or --engine spark, or leave out {given}",
        )
    if not how.take_over:
        return
    from trueup.releasing.start import run_path

    if not run_path(out).exists():
        raise SpecError(
            f"--take-over is given, but there is no interrupted run in '{run_path(out)}'",
            remedy="leave out --take-over, or give the run's folder as --resume",
        )


def _in_memory(problem, data, out, geography, account, how: RunOptions) -> Any:
    from trueup.releasing.pipeline import release

    with progress(quiet=how.quiet) as tell, writing_log(how.log, tell) as watch:
        return release(problem, data, out, account=account, watch=watch)


def release_by_parts(problem, data, out, geography, account, how: RunOptions) -> Any:
    from trueup.releasing.pipeline import release
    from trueup.releasing.start import run_path

    with _by_parts(run_path(out), account, how) as carried_out:
        return release(problem, data, out, geography=geography, account=account, **carried_out)


@contextmanager
def _by_parts(run: Path, account: Any, how: RunOptions) -> Iterator[dict[str, Any]]:
    """Return what carries out a release by parts; print the command that resumes it if an error ends it."""
    charged = f" --ledger LEDGER --analyst {quote(account.analyst)}" if account else ""
    command = f"trueup release --resume {quote(str(run))}{charged}"
    with (
        saying_resume(run / "plan.json", command),
        how.executor() as executor,
        progress(quiet=how.quiet) as shown,
        writing_log(how.log, shown) as watch,
    ):
        yield {"executor": executor, "take_over": how.take_over, "watch": watch}


def _resume(folder: Path, how: RunOptions, given: dict[str, Any]) -> None:
    from trueup.releasing.pipeline import resume

    with _by_parts(folder, given["account"], how) as carried_out:
        released = resume(folder, **carried_out, **given)
    show_release(released, str(released.folder), as_json=how.quiet)


def show_release(released, out: str, *, as_json: bool, repeated: str | bool | None = None) -> None:
    """Print the public figures of a release, and say so if it repeats an earlier release under the same key."""
    from trueup.model.records.release import unreadable_tables

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
    for sentence in (*guarantee.sentences, *getattr(released.spec, "noted", ())):
        print(sentence)
    for sentence in unreadable_tables(released):
        print(sentence)
    print(f"Checked: {', '.join(rule for rule, holds in released.checks.items() if holds)}.")
    print(f"Report: {out}/public/report.html")
