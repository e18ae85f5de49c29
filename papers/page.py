"""The page of reproduced tables: every printed figure beside ours, and the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from papers.item import Outcome, Setting
from papers.row import ERRORS, Row
from trueup.reporting import html
from trueup.reporting.drawing import Column, Notice, Page, Section, Table, Text
from trueup.reporting.drawing.words import number

NEGLIGIBLE = 1e-6
"""A tolerance below this allows for rounding in the last bits alone."""


def render(outcomes: Sequence[Outcome], setting: Setting) -> str:
    """Write outcomes as one self-contained HTML page."""
    counted = Counter(each.status for each in outcomes)
    return html(
        Page(
            "Published tables and figures, run again",
            "Figures of the papers behind trueup beside ours",
            "",
            (
                ("Items", str(len(outcomes))),
                *((status.capitalize(), str(number)) for status, number in sorted(counted.items())),
                ("Seed", str(setting.seed)),
                ("Replicates", "a fiftieth of each paper's" if setting.quick else "as in each paper"),
            ),
            (_reading(), *(_section(each) for each in outcomes)),
        ),
        more="papers",
    )


def _reading() -> Section:
    text = (
        f"A figure agrees if it differs from the printed one by no more than {ERRORS:g} standard errors of the "
        "difference, both simulations counted, plus half a unit of the last printed decimal. Figures that are "
        "shown only assert nothing. Figures that cannot match are printed wrongly, or do not follow from the "
        "stated setting: ours are what does, and the note says why.",
    )
    return Section("reading", "How to read this page", (Text(*text),))


def _section(done: Outcome) -> Section:
    found = done.found
    power = f"Wrong versions that a full run tells from the right one: {'; '.join(done.catches)}."
    about = Text(f"{done.paper}, {done.place}. {done.shows}", power, *found.notes)
    figures = _table(found.rows) if found.rows else Notice(_unseen(done))
    return Section(done.name, f"{done.name}: {done.status}", (about, figures, *found.pictures))  # pyright: ignore[reportArgumentType]


def _unseen(done: Outcome) -> str:
    return f"No figures: {done.needs}" if done.status == "error" else f"Not run: it needs {done.needs}."


def _table(rows: Sequence[Row]) -> Table:
    notes = [Column("Note", _once(row.note for row in rows))] if any(row.note for row in rows) else []
    return Table(
        "Printed and ours",
        (
            Column("Figure", [row.label for row in rows]),
            Column("Printed", [row.paper or "–" for row in rows], numeric=True),
            Column("Ours", [row.text for row in rows], numeric=True),
            Column("Tolerance", [tolerance(row) for row in rows], numeric=True),
            Column("Verdict", [row.verdict for row in rows]),
            *notes,
        ),
    )


def _once(notes: Iterable[str]) -> list[str]:
    """Notes in full where they first stand, and a reference where they stand again."""
    seen, shown = set(), []
    for note in notes:
        shown.append("as above" if note in seen else note)
        seen |= {note} - {""}
    return shown


def tolerance(row: Row) -> str:
    """Write a tolerance; a dash where nothing is asserted by one.

    Examples
    --------
    >>> from papers.row import compare, corrected, shown
    >>> [tolerance(row) for row in (compare("a", "2714", 2689.4, ours_error=44), shown("b", "1", 2))]
    ['± 220', '–']
    >>> tolerance(corrected("c", "35", 25, 25, "the cells add up to 25"))
    'none'
    """
    if row.tolerance is None:
        return "–"
    rounded = float(f"{row.tolerance:.2g}")
    return "none" if rounded < NEGLIGIBLE else f"± {number(rounded)}"
