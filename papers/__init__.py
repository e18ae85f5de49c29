"""papers: the tables and figures of the papers behind trueup, run again and held to what was printed.

Adding a table takes one file and one line in `ITEMS`. The file holds one class, a child of
`papers.item.Item` (its docstring explains every field):

    class Table3(Item):
        '''What the table shows, in one line.'''

        name: ClassVar[str] = "wang-table-3"        # the paper's short name, then the table
        paper: ClassVar[str] = "Wang (2020)"
        place: ClassVar[str] = "Table 3"
        shows: ClassVar[str] = "What is computed, from what, with what setting, in one sentence."
        files: ClassVar[tuple[str, ...]] = ()       # ("us_counties_2010.csv",): without it the item is skipped by name
        packages: ClassVar[tuple[str, ...]] = ()    # ("flint",): likewise
        seconds: ClassVar[float] = 3.0              # of a full run on one core, to start long items first
        catches: ClassVar[tuple[str, ...]] = ("epsilon 5 % off",)   # wrong versions that it tells from the right one

        def run(self, setting: Setting) -> Found:
            rng, runs = setting.rng(self), setting.runs(10_000)
            ...
            return Found(rows, pictures, notes)

`catches` is the item's power. Every entry is the name of a case of `tests/papers/mutations.py`, which puts the wrong version
in place and expects the item to differ; an item without one fails the tests.

`rows` is a tuple of `Row`s, each made by a function of `papers.row`:

- `compare(label, "186.88", ours, ours_error=..., paper_error=...)` asserts. The figure is given as it was
  printed, because its decimals say how it was rounded. The tolerance is five standard errors of the
  difference plus half a printed unit, so both simulations count; `mean_error`, `variance_error` and
  `share_error` give the paper's error from its number of runs. What a paper leaves open (counts it
  describes without printing) is `slack`, and the note says so.
- `held(label, ours, right, ours_error=...)` asserts what the paper does not print against its exact value, or one that is
  computed in another way; `furthest(label, ours, right, errors)` does it for many figures at once.
- `shown(label, paper, ours, note)` asserts nothing: the note says why nothing could be asserted.
- `corrected(label, paper, ours, right, note)` is for a printed figure that its stated setting does not give:
  it asserts ours against what is right, and the note says what is wrong with the printed one.
- `likely(label, paper, ours, probability)` asserts that what was found, or a draw that was printed, is no rarer than chance.
- `claim(label, paper, ours, holds)` asserts a statement that is no figure.

A tolerance comes from Monte Carlo error, printed rounding or the error of an exact computation, never from what passes.
What is right comes from the paper's setting (`papers/*/exact.py`), not from what the item takes from the package.

`pictures` are blocks of the report (`papers.curves`, and `pictures` and `blocks` of `trueup.reporting.drawing`)
drawn below the item's table; `notes` are sentences that hold for the whole item. An item draws from
`setting.rng(self)` alone, so its figures depend on the seed and on nothing that ran before it, and it asks
`setting.runs(n)` how often to replicate, so that a quick run is a fiftieth of a full one with wider tolerances.
All items together have six minutes of processor time, quick runs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from difflib import get_close_matches
from multiprocessing import get_context

from papers.dharangutte.figure_1 import DharangutteFigure1
from papers.dharangutte.figure_2 import DharangutteFigure2
from papers.dharangutte.figure_5 import DharangutteFigure5
from papers.dharangutte.figure_7 import DharangutteFigure7
from papers.dharangutte.figure_10 import DharangutteFigure10
from papers.dharangutte.tables import DharangutteTables
from papers.item import Item, Outcome, Setting, outcome
from papers.janicki.table_2 import JanickiTable2
from papers.wang.table_1 import WangTable1
from papers.wang.table_3 import WangTable3
from papers.wang.table_4 import WangTable4
from papers.wang.table_5 import WangTable5
from papers.wangreiter.example import WangReiterExample
from papers.wangreiter.figure_2 import WangReiterFigure2
from papers.wangreiter.negative_counts import WangReiterNegativeCounts
from papers.wangreiter.summed_totals import WangReiterSummedTotals
from papers.wangreiter.table_2 import WangReiterTable2
from papers.wangreiter.table_3 import WangReiterTable3
from papers.zhu.figure_1 import ZhuFigure1
from papers.zhu.figure_4 import ZhuFigure4
from papers.zhu.figure_5 import ZhuFigure5
from papers.zhu.figure_6 import ZhuFigure6
from papers.zhu.new_mexico import ZhuNewMexico
from papers.zhu.variances import ZhuVariances
from trueup.errors import SpecError

ITEMS: tuple[type[Item], ...] = (
    WangReiterTable2,
    WangReiterNegativeCounts,
    WangReiterSummedTotals,
    WangReiterTable3,
    WangReiterFigure2,
    WangReiterExample,
    WangTable1,
    WangTable3,
    WangTable4,
    WangTable5,
    ZhuFigure1,
    ZhuFigure4,
    ZhuNewMexico,
    ZhuFigure5,
    ZhuVariances,
    ZhuFigure6,
    JanickiTable2,
    DharangutteTables,
    DharangutteFigure1,
    DharangutteFigure2,
    DharangutteFigure5,
    DharangutteFigure7,
    DharangutteFigure10,
)
"""Every item, in the order in which they are listed and shown."""

Tell = Callable[[str], None]
FULL = Setting()
"""Full replicates, no data."""


def reproduce(
    which: str = "all", setting: Setting = FULL, *, workers: int = 1, tell: Tell = lambda stage: None
) -> tuple[Outcome, ...]:
    """Run items again and compare their figures with the printed ones.

    Parameters
    ----------
    which
        Name of an item, short name of a paper, or `all`.
    setting
        Seed, number of replicates, folder of data.
    workers
        Processes to run items in; with one, they run here.
    tell
        Hears what is done.

    Returns
    -------
    tuple of Outcome
        In the order of `ITEMS`; figures do not depend on `workers`.

    Raises
    ------
    SpecError
        If no item and no paper has that name.

    Examples
    --------
    >>> [done] = reproduce("zhu-variances", Setting(quick=True))
    >>> done.status, [row.text for row in done.found.rows[::3]]
    ('agrees', ['186.667', '199.213'])
    """
    items = select(which)
    done = _in_processes(items, setting, workers) if workers > 1 and len(items) > 1 else _here(items, setting)
    outcomes = {}
    for each in done:
        outcomes[each.name] = each
        tell(f"{len(outcomes)} of {len(items)} done ({each.name}: {each.status})")
    return tuple(outcomes[item.name] for item in items)


def select(which: str) -> list[Item]:
    """Items of that name, of the paper of that short name, or all.

    Examples
    --------
    >>> [item.name for item in select("zhu-variances")]
    ['zhu-variances']
    """
    every = [kind() for kind in ITEMS]
    chosen = [item for item in every if which in ("all", item.name, item.name.partition("-")[0])]
    if not chosen:
        close = get_close_matches(which, [item.name for item in every], 1)
        raise SpecError(
            f"there is no item '{which}'",
            needed="'all' or a name of `python -m papers --list`",
            remedy=f"did you mean '{close[0]}'?" if close else "",
        )
    return chosen


def _here(items: Sequence[Item], setting: Setting) -> Iterator[Outcome]:
    return (outcome(item, setting) for item in items)


def _in_processes(items: Sequence[Item], setting: Setting, workers: int) -> Iterator[Outcome]:
    """Long items first: the last one to finish should be a short one."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        longest_first = sorted(items, key=lambda item: -item.seconds)
        for future in as_completed([pool.submit(outcome, item, setting) for item in longest_first]):
            yield future.result()
