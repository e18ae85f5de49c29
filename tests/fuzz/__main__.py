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
        said = 0
        start = time.process_time()
        for number in range(options.first, options.first + -(-options.count // len(kinds))):
            for kind in kinds:
                attack.run(kind, number)
                for fault in attack.figures[kind].faults[said if len(kinds) == 1 else 0 :]:
                    print(fault, flush=True)
                said = len(attack.figures[kind].faults)
                if len(kinds) > 1:
                    attack.faulted = getattr(attack, "faulted", 0) + said
                    attack.figures[kind].faults.clear()
    print(f"{time.process_time() - start:.0f} s of a processor")
    for kind in kinds:
        held = attack.figures[kind]
        print(
            f"{kind:18} {held.made:7} made, {held.read:6} read, {held.slowest:5.1f} s, {held.most / 1e6:4.0f} MB at most"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
