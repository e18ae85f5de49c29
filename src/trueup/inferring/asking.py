"""Questions to a kept posterior: answers from its draws, without new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trueup.io.bundle.kept_posterior import open_posterior
from trueup.model.records.answer import PosteriorAnswer
from trueup.model.records.asked import ask_draws
from trueup.model.records.places_asked import Names
from trueup.model.records.posterior import Posterior
from trueup.model.tables import probability_of
from trueup.planning.areas import AreaTable


def ask(
    posterior: Posterior | str | Path,
    question: str,
    *,
    areas: Any = None,
    column: str = "area",
    level: float | str | None = None,
) -> PosteriorAnswer:
    """Answer a question about the true counts from the draws of a posterior.

    Parameters
    ----------
    posterior
        A posterior, or the folder of one that was kept.
    question
        Names of counts with `+ - * /`, numbers, `rank(...)`, and at most one comparison. A name is a place, alone or with values
        of attributes: `'county=001'`, `'001'`, `'county=001, sex=f'`. The name of a level asks about each of its places:
        `county`, `'county, sex=f' / 'county'`.
    areas, column
        A table of areas of one's own with a row for each place, and its column of areas, which the question names as a level is:
        `'district=north'`.
    level
        Probability of the intervals; by default the posterior's own.

    Raises
    ------
    SpecError
        If the question does not parse, or names what the draws do not hold: it names the nearest, and the draws needed.
    DataError
        If the areas name no places of the last level.
    BundleError
        If the folder holds no posterior, or an altered one.

    Examples
    --------
    >>> import pandas, trueup
    >>> from trueup.demo.areas import AREAS
    >>> noisy = trueup.measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> posterior = trueup.infer(noisy)
    >>> ask(posterior, "'area=b' > 'area=a'").probability
    1.0
    >>> ask(posterior, "area / all").table().columns.tolist()[:3]
    ['area', 'mean', 'sd']
    """
    held = posterior if isinstance(posterior, Posterior) else open_posterior(posterior)
    own = None if areas is None else AreaTable.read(areas, column, held.cells)
    asked = ask_draws(question, Names(held.cells, own), held.draws)
    return PosteriorAnswer(question, asked, held, held.level if level is None else probability_of(level))
