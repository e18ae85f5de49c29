"""Give hostile files to their readers, and print what came of them: ``python -m tests.fuzz --count 100000``.

    --seconds 540 --keep FILE   stop after so many seconds of a processor, and go on from FILE in the next call

The readers work in a process of their own, one file after the other. Whatever ends it (a crash, a minute of a processor for one
file, which the system counts even where Python is not asked) is a fault of the file, and another process goes on after it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.attack import Attack, Figures
from tests.fuzz.kinds import KINDS

LONGEST, MOST = 60, 6 << 30
"""Seconds of a processor for one file, and bytes of a process: what takes more is ended by the system."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000, help="hostile files of all kinds together")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of this kind alone; repeat it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a processor, then stop")
    parser.add_argument("--keep", type=Path, help="a file of figures, from which the next call goes on")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = options.kind or list(KINDS)
    order = [(kind, options.first + n) for n in range(-(-options.count // len(kinds))) for kind in kinds]
    if options.worker:
        _work(order, options.seed, options.seconds)
        return 0
    kept = _kept(options.keep)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # what was seen until then is told
        _drive(order, options.seed, options.seconds, kept)
    if options.keep:
        options.keep.write_text(json.dumps(kept))
    figures = {kind: Figures(**kept["figures"].get(kind, {})) for kind in kinds}
    for kind in kinds:
        print(f"{kind:18} {figures[kind]}")
    every = figures.values()
    made, faults = sum(f.made for f in every), sum(len(f.faults) for f in every)
    print(f"{made} made, {faults} faults; {kept['seconds']:.0f} s of a processor")
    return any(f.faults for f in every)


def _kept(path: Path | None) -> dict:
    if path is not None and path.exists():
        return json.loads(path.read_text())
    return {"done": 0, "seconds": 0.0, "figures": {}}


def _drive(order: list[tuple[str, int]], seed: int, seconds: float, kept: dict) -> None:
    """Have workers read files in order, each until it is ended; keep figures."""
    left = seconds
    while kept["done"] < len(order) and left > 0:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended, last = _driven(order[kept["done"] :], seed, left, kept)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        kept["seconds"] += took
        left -= took
        if last is None and ended:
            raise SystemExit(f"the readers did not begin ({ended})")
        if ended:
            kind, number = last
            fault = f"{kind} {number}: ended by {signal.Signals(-ended).name if ended < 0 else ended}"
            print(fault, flush=True)
            kept["figures"][kind]["faults"].append(fault)
        elif kept["done"] < len(order):
            return


def _driven(rest: list, seed: int, seconds: float, kept: dict) -> tuple[int, tuple[str, int] | None]:
    """Have one worker read; how it ended, and the file that it read last."""
    order = [sys.executable, "-m", "tests.fuzz", "--worker", "--seed", str(seed), "--seconds", str(seconds)]
    worker = subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write(json.dumps(rest))
    worker.stdin.close()
    last = None
    for line in worker.stdout:
        said = json.loads(line)
        if "begun" in said:
            last = tuple(said["begun"])
            kept["done"] += 1
            kept["figures"].setdefault(last[0], asdict(Figures()))["made"] += 1
            continue
        held = kept["figures"][said["kind"]]
        held["read"] += said["read"]
        held["faults"] += said["faults"]
        held["slowest"], held["most"] = max(held["slowest"], said["slowest"]), max(held["most"], said["most"])
        for fault in said["faults"]:
            print(fault, flush=True)
    return worker.wait(), last


def _work(_: list, seed: int, seconds: float) -> None:
    """Read one file after the other, and say what came of each."""
    order = json.loads(sys.stdin.read())
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a reader prints is no answer
    faulthandler.enable()
    for number, handler in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGXCPU, signal.SIG_DFL)):
        signal.signal(number, handler)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=room) as folder:
        attack = Attack(Path(folder), seed)
        attack.warm()
        for kind, number in order:
            if time.process_time() > seconds or os.getppid() == 1:
                return
            print(json.dumps({"begun": [kind, number]}), file=said, flush=True)
            limit = int(time.process_time()) + LONGEST + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            for answer in _answers(attack, kind, number):
                print(json.dumps(answer), file=said, flush=True)


def _answers(attack: Attack, kind: str, number: int) -> Iterator[dict]:
    attack.figures[kind] = figures = Figures()
    attack.run(kind, number)
    yield {"kind": kind, **asdict(figures)}


if __name__ == "__main__":
    sys.exit(main())
