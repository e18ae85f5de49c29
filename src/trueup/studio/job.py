"""Entry point of the process that carries out a job: `python -m trueup.studio.job FOLDER`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trueup
from trueup.errors import TrueupError
from trueup.files.writing import replace_whole
from trueup.ledger.account import Account
from trueup.releasing.engine import MEMORY_BYTES, default_engine
from trueup.releasing.pipeline import resume
from trueup.releasing.start import run_path
from trueup.run.local import LocalPool
from trueup.studio.jobs import STOPPED, Job
from trueup.studio.rendering import internal

COMPARATORS = {
    "cell key": ("cell-key", {"maximum": "5", "change_variance": "3"}),
    "random rounding to 3": ("random-rounding", {"base": "3"}),
    "suppression below 10": ("suppressed", {"threshold": "10"}),
}
"""Methods that agencies use today, without a formal guarantee; compared with the spec's own method."""
ASSESSMENT_REPLICATES = 60
MAX_WORKERS = 4
"""Processes of a release by parts at most."""


def carry_out_job(folder: str) -> None:
    """Carry out the job in a folder, and record how it ended."""
    job = Job(Path(folder))
    task = job.task
    try:
        KINDS[task["kind"]](job, task)
        job.report(state="done", final=True)
    except TrueupError as error:
        job.report(state="failed", final=True, error=str(error))
    except KeyboardInterrupt:
        job.report(state="ended", final=True, error=STOPPED)
    except Exception as error:
        job.report(state="failed", final=True, error=internal(error))


def carry_comparison(job: Job, task: dict[str, Any]) -> None:
    """Compare the spec's method with other methods in use, on a made-up population."""
    job.report(state="running", stage="making a population up")
    problem = trueup.Problem.of(trueup.parse_spec(task["spec"]), task["places"] or None, data=task["table"])
    truth = trueup.made_up_truth(problem)

    found = trueup.assess(
        problem.spec,
        truth,
        replicates=ASSESSMENT_REPLICATES,
        comparators=list(COMPARATORS.values()),
        progress=partial(_watch(job), "replicates"),
    )
    replace_whole(job.folder / "result.json", json.dumps(_comparison_rows(found)), private=True)
    replace_whole(job.folder / "report.html", trueup.report(found, problem.spec), private=True)


def _comparison_rows(found: trueup.Assessment) -> dict[str, Any]:
    rows = [
        {
            "table": str(table),
            "method": method.label,
            **{name: _figure(found, name, str(table), method.label) for name in _SHOWN},
        }
        for table in found.levels
        for method in found.methods
    ]
    return {"rows": rows, "sizes": _by_size(found), "replicates": found.replicates, "truth": found.truth}


def _by_size(found: trueup.Assessment) -> list[dict[str, Any]]:
    """Return bias and root mean squared error of the spec's own method by size of the true count."""
    held: dict[tuple[str, str], dict[str, Any]] = {}
    for statistic in ("bias", "rmse"):
        rows = found.rows(by="size", statistic=statistic, method=found.methods[0].label)
        for table, size, value, error in zip(rows["level"], rows["unit"], rows["value"], rows["mc_error"]):
            row = held.setdefault((str(table), str(size)), {"table": str(table), "size": str(size)})
            row[statistic] = [float(value), float(error)]
    return list(held.values())


_SHOWN = ("bias", "rmse", "coverage")


def _figure(found: trueup.Assessment, statistic: str, table: str, method: str) -> list[float] | None:
    try:
        value, error = found.figure(statistic, table, method=method)
    except TrueupError:
        return None
    return [value, error] if value == value else None


def carry_sizes(job: Job, task: dict[str, Any]) -> None:
    """Simulate margins of error by size of the count, on a made-up population."""
    job.report(state="running", stage="making a population up")
    problem = trueup.Problem.of(trueup.parse_spec(task["spec"]), task["places"] or None, data=task["table"])

    progress = partial(_watch(job), "simulating margins by size")
    found = trueup.margins_by_size(problem, targets=task["targets"], progress=progress)
    replace_whole(job.folder / "result.json", json.dumps(found.written()), private=True)
    if not found.classes:
        raise TrueupError(found.note)


def carry_release(job: Job, task: dict[str, Any]) -> None:
    """Carry out a release into the folder that the task names."""
    problem = trueup.Problem.of(trueup.parse_spec(task["spec"]), task["places"] or None, data=task["table"])
    account = Account.open(
        task["ledger"] or None, task["analyst"] or None, task["key"] if task["ledger"] else None
    )
    given = {"account": account, "watch": _watch(job)}
    if default_engine(problem, MEMORY_BYTES) == "memory":
        trueup.release(problem, task["table"], task["out"], **given)
    else:
        _release_by_parts(task, problem, {**given, "geography": task["places"] or None})
    job.report(state="running", stage="checking the bundle")
    checks = [{"rule": check.rule, "holds": check.holds} for check in trueup.check(task["out"])]
    replace_whole(job.folder / "result.json", json.dumps({"checks": checks}), private=True)
    if not all(check["holds"] for check in checks):
        raise TrueupError(
            f"the bundle '{task['out']}' breaks a rule that it states",
            remedy="run `trueup check` on it, and report its output as an error in trueup",
        )


def _watch(job: Job) -> Callable[[str, int, int], None]:
    return lambda stage, done, of: job.report(state="running", stage=stage, done=done, of=of)


def _release_by_parts(task: dict[str, Any], problem: trueup.Problem, given: dict[str, Any]) -> None:
    """Release by parts, or resume the run that an earlier job began."""
    run = run_path(Path(task["out"]))
    with LocalPool(min(os.cpu_count() or 1, MAX_WORKERS)) as pool:
        if not (run / "plan.json").exists():
            trueup.release(problem, task["table"], task["out"], executor=pool, **given)
            return
        resume(run, executor=pool, spec=problem.spec, data=task["table"], out=task["out"], **given)


KINDS: dict[str, Callable[[Job, dict[str, Any]], None]] = {
    "compare": carry_comparison,
    "sizes": carry_sizes,
    "release": carry_release,
}


def _interrupted(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _interrupted)
    carry_out_job(sys.argv[1])
