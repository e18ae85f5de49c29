"""A process that works on a ledger; tests start several, and kill some.

`python -m tests.ledger.worker URL reserve ATTEMPTS` prints how often it was granted one hundredth.
`python -m tests.ledger.worker URL create` makes the ledger and prints its head.
`python -m tests.ledger.worker URL release FOLDER` releases without end.
"""

import itertools
import os
import sys
from pathlib import Path

from tests.ledger.helpers import PERSON, release, reserve
from trueup.errors import BudgetError
from trueup.ledger.ledger import Ledger


def reserves(url, attempts):
    """Reserve as often as it is granted."""
    ledger, granted = Ledger.open(url), 0
    for _ in range(int(attempts)):
        try:
            reserve(ledger, "1/100", analyst=f"analyst {os.getpid()}")
            granted += 1
        except BudgetError:
            pass
    print(granted)


def create(url):
    """Make the ledger."""
    ledger = Ledger.create(url)
    ledger.init("survey", {"epsilon": "1"}, terms=PERSON)
    print(ledger.state().ledger)


def releases(url, folder):
    """Release until killed or refused."""
    ledger = Ledger.open(url)
    ledger.recover()
    for i in itertools.count():
        release(ledger, Path(folder), f"out{os.getpid()}-{i}", "1/100")


if __name__ == "__main__":
    url, task, *rest = sys.argv[1:]
    {"reserve": reserves, "create": create, "release": releases}[task](url, *rest)
