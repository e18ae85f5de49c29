"""The redistricting tables of a synthetic state by blocks: the whole command on one machine, two workers.

`ours_s` is the processor time of `trueup release` with all its processes, `peer_s` that of the previous version beside it where
`--previous` names one (both by least squares), and `peak_mb` the largest memory of all processes
together, sampled. Sizes: 10,000 blocks; with `--full` 50,000 and 150,000 as well. The data are made first, untimed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.harness import Case, Harness, Picture

SPEC = Path(__file__).parents[1] / "examples" / "pl94.toml"
METHOD = '\n[reconcile]\nmethod = "histogram-tree"\nestimates = "least-squares"\n'
COMMAND = (sys.executable, "-m", "trueup")
_PICTURES: list[Picture] = []


def cases(harness: Harness) -> Iterator[Case]:
    for blocks in (10_000, *((50_000, 150_000) if harness.full else ())):
        harness.progress(f"{blocks:,} blocks")
        with tempfile.TemporaryDirectory() as folder:
            yield _case(blocks, Path(folder), harness.previous)


def pictures(harness: Harness) -> Iterator[Picture]:
    yield from _PICTURES


def _case(blocks: int, folder: Path, previous: Path | None) -> Case:
    made, spec = folder / "synthetic", folder / "spec.toml"
    spec.write_text(SPEC.read_text() + METHOD)
    synth = (
        "synth",
        spec,
        "--state",
        "Rhode Island",
        "--blocks",
        blocks,
        "--persons",
        40 * blocks,
        "--out",
        made,
    )
    subprocess.run([*COMMAND, *map(str, synth)], check=True, capture_output=True)
    cpu, peak = _released(spec, made, folder / "out", os.environ)
    log = json.loads((folder / "out" / "internal" / "run.json").read_text())
    _PICTURES.append(_picture(blocks, cpu, log))
    before = None
    if previous:
        source = previous / "src" if (previous / "src").is_dir() else previous
        before, _ = _released(spec, made, folder / "before", {**os.environ, "PYTHONPATH": str(source)})
    return Case(
        case=f"{blocks:,} blocks",
        ours_s=cpu,
        peer="the previous version" if previous else None,
        peer_s=before,
        ratio=before / cpu if before else None,
        peak_mb=peak / 1e6,
        difference=None,
    )


def _released(spec: Path, made: Path, out: Path, environment: Mapping[str, str]) -> tuple[float, int]:
    """Processor seconds and the largest memory of a release, by whatever version the environment leads to."""
    data = ("--data", made / "records", "--geography", made / "places", "--out", out)
    options = ("--engine", "local", "--workers", 2, "--memory", "4GB", "--json")
    before = _children_seconds()
    run = subprocess.Popen(
        [*COMMAND, *map(str, ("release", spec, *data, *options))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(environment),
    )
    peak = _watch(run)
    if run.returncode:
        raise RuntimeError(run.stderr.read().decode() if run.stderr else "the release failed")
    return _children_seconds() - before, peak


def _picture(blocks: int, cpu: float, log: dict) -> Picture:
    rows = [
        [s["what"], str(s["parts"]), f"{s['seconds']:.1f}", f"{1000 * s['core seconds'] / blocks:.2f}"]
        for s in log["stages"]
    ]
    title = f"{blocks:,} blocks: {1000 * cpu / blocks:.2f} core-ms a block"
    return Picture(title=title, columns=["what", "parts", "wall s", "core-ms a block"], rows=rows)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(run: subprocess.Popen) -> int:
    """Largest sum of the resident memory of a process and all below it, in bytes, until it ends."""
    peak = 0
    while run.poll() is None:
        peak = max(peak, sum(map(_memory, _tree(run.pid))))
        time.sleep(0.2)
    return peak


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        below = [child for task in tasks for child in task.read_text().split()]
    except OSError:
        return
    for child in below:
        yield from _tree(int(child))


def _memory(pid: int) -> int:
    """Resident memory; pages that processes share count for each."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
