"""Lines of `docs/bad-input.md` for what specs, costs, caps, ledgers and plans, assessments and others refuse.

`python -m tests.bad_inputs` prints them; the files `test_bad_input.py` hold the page to them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.assessing.bad_input import BAD as BAD_ASSESSMENTS
from tests.inferring.bad_input import BAD as BAD_INFER
from tests.io.bad_input import BAD as BAD_PUBLISHED
from tests.io.bad_input import refused
from tests.ledger.bad_input import BAD
from tests.ledger.helpers import ledger_at, release
from tests.model.bad_input import BAD as BAD_SPECS
from tests.reconciling.bad_input import BAD as BAD_RULES
from tests.releasing.bad_input import BAD as BAD_BY_PARTS
from trueup.errors import TrueupError


def fresh_ledger(folder: Path):
    """A ledger with a cap of 1 on `survey`, of which a release under the key `done` took a tenth."""
    ledger = ledger_at(str(folder / "ledger.db"))
    release(ledger, folder, key="done")
    return ledger


def row(what, call, *given) -> str:
    """One line of the page: the input, its error, what that says."""
    try:
        call(*given)
    except TrueupError as error:
        return f"| {what} | {type(error).__name__} | {error} |"
    raise AssertionError(f"{what} was not refused")


def rows() -> list[str]:
    """All lines of the table."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = fresh_ledger(Path(folder))
        return [row(what, call, ledger) for what, call, *_ in BAD]


def assess_rows() -> list[str]:
    """All lines of the table of assessments."""
    return [row(what, call) for what, call, *_ in BAD_ASSESSMENTS]


def spec_rows() -> list[str]:
    """All lines of the table of specs."""
    return [row(what, call) for what, call in BAD_SPECS]


def rule_rows() -> list[str]:
    """All lines of the table of rules and noise."""
    return [row(what, call) for what, call in BAD_RULES]


def infer_rows() -> list[str]:
    """All lines of the table of posteriors."""
    return [row(what, call) for what, _, _, call in BAD_INFER]


def published_rows() -> list[str]:
    """All lines of the table of published tables."""
    return [row(what, refused, given) for what, _, _, given in BAD_PUBLISHED]


def rows_by_parts() -> list[str]:
    """All lines of the table of releases by blocks; its folders are written as `.`."""
    return [row_by_parts(what, call) for what, call, *_ in BAD_BY_PARTS]


def row_by_parts(what, call) -> str:
    """One line of that table."""
    with tempfile.TemporaryDirectory() as folder:
        return row(what, call, Path(folder)).replace(folder, ".")


if __name__ == "__main__":
    print(
        "\n".join(
            [
                *spec_rows(),
                *rule_rows(),
                *rows(),
                *assess_rows(),
                *infer_rows(),
                *published_rows(),
                *rows_by_parts(),
            ]
        )
    )
