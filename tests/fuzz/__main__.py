"""``python -m tests.fuzz [--count N] [--kind KIND] [--seed N] [--first N]``: hostile files, and figures of what came of them."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.attack import KINDS, Attack


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="hostile files of all kinds together")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of this kind alone; repeat it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first of each kind")
    options = parser.parse_args()
    faulthandler.enable()
    kinds = options.kind or list(KINDS)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        attack = Attack(Path(folder), options.seed)
        attack.warm()
        start = time.process_time()
        for number in range(options.first, options.first + -(-options.count // len(kinds))):
            for kind in kinds:
                for fault in attack.run(kind, number):
                    print(fault, flush=True)
    print(f"{time.process_time() - start:.0f} s of a processor")
    for kind in kinds:
        print(f"{kind:18} {attack.figures[kind]}")
    return any(attack.figures[kind].faults for kind in kinds)


if __name__ == "__main__":
    sys.exit(main())
