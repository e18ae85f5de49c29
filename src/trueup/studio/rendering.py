"""Pages made from templates, and explanations of the words on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log10
from typing import Any, NamedTuple

from jinja2 import Environment
from starlette.responses import HTMLResponse, Response

from trueup.errors import place_of
from trueup.reporting import templates

WORDS = {
    "attribute": "What counts are broken down by, such as sex or age, with all values that it may have.",
    "bias": "How far published counts are off on average, in counts: above zero where they are too large.",
    "budget": "The privacy loss that may be spent. The more accurate the tables, the more they cost. Losses of all publications "
    "about the same units add up.",
    "bundle": "The folder that a release writes: public/, which may be published, and internal/, which may not.",
    "cap": "The most that all releases of a dataset together may spend. The ledger grants nothing beyond it.",
    "cell key": "A method of agencies today: each cell gets a small change that is drawn from its records, the same "
    "whenever it is published. It has no formal guarantee.",
    "coverage": "How often an interval holds the true count. Intervals that claim 90 % should hold it 90 times in 100.",
    "delta": "The probability with which the bound on the odds may fail.",
    "digest": "A fingerprint of a file: two files with the same digest are the same.",
    "epsilon": "The privacy loss of pure differential privacy: between tables one step apart, such as with and without one unit, "
    "the odds change by a factor of e^epsilon at most.",
    "finest counts": "The counts of the last level by all attributes. All other counts are sums of them.",
    "invariant": "A count that is published exactly as it was enumerated. It is not protected.",
    "ledger": "A file that records what every release of a dataset spends, and grants nothing beyond the caps.",
    "level": "A kind of place: nation, state, county. Each place of a level belongs to one place of the level above.",
    "made-up population": "Counts drawn for these places with the skew of real ones. No confidential count is read.",
    "margin of error": "The number of counts by which a published count errs at most, with the stated probability.",
    "measured": "A table is measured when noise is added to its true counts. What is not measured is added up from what is.",
    "method": "How noisy counts become whole counts that add up.",
    "noise": "A random number, from a law that is published, that is added to every true count that is measured.",
    "posterior": "The distribution of the true counts given what was published.",
    "public list of places": "All places that exist, occupied or not. Places taken from records would reveal which are occupied.",
    "random rounding": "A method of agencies today: counts are rounded up or down at random. It has no formal guarantee.",
    "reconciliation": "Turning noisy counts into whole counts that are not negative and add up, from the noisy counts alone.",
    "rho": "The privacy loss of zero-concentrated differential privacy, the currency of Gaussian noise. Losses add up. It is "
    "compared with others as a pair of epsilon and delta.",
    "shapes": "The outlines of places on a map, as GeoJSON: a property of each holds the code of its place.",
    "size of the count": "Counts of 0, of 1 to 9, of 10 to 99 and so on err differently, since none is published below zero.",
    "suppression": "A method of agencies today: small counts are left out. It has no formal guarantee.",
    "suspicion": "The probability that somebody gives to something about one unit: that it is in the table, or what it answered.",
    "table": "The counts of one level by some attributes, such as county by sex.",
    "typical error": "The root of the mean square of published minus true count.",
    "unit": "Who is protected: a person, a household. What is published would be almost as likely without any one of them.",
}
"""Meaning of each word; docs/glossary.md has the same words at greater length."""


class Precedent(NamedTuple):
    """An earlier publication with a formal guarantee, and its budget.

    Attributes
    ----------
    publication, unit
        Name of the publication, and the protected unit.
    currency, amount
        The loss.
    source
        Source of the figure.
    """

    publication: str
    unit: str
    currency: str
    amount: str
    source: str


PRECEDENTS = (
    Precedent(
        "2020 Census redistricting data (P.L. 94-171), persons; some counts exact",
        "person",
        "rho",
        "2.556",
        "U.S. Census Bureau, DAS_2020_Redistricting_Production_Code, person_default.ini: global_scale 339/542; its inverse "
        "squared is rho",
    ),
    Precedent(
        "2020 Census redistricting data, housing units",
        "housing unit",
        "rho",
        "0.07",
        "Abowd et al., The 2020 Census Disclosure Avoidance System TopDown Algorithm, Harvard Data Science Review (2022)",
    ),
    Precedent(
        "2020 Census Detailed DHC-A, persons by detailed race and tribe, United States",
        "person",
        "rho",
        "4.944",
        "U.S. Census Bureau, DAS_2020_DDHCA_Production_Code, NMFv7-2020/config.json: sum over its levels",
    ),
    Precedent(
        "2020 Census Detailed DHC-B, households by detailed race and tribe, United States",
        "household",
        "rho",
        "8.895",
        "U.S. Census Bureau, DAS_2020_DDHCB_Production_Code, NMFv5/config.json: sum of both tables over their levels",
    ),
    Precedent(
        "2020 Census Supplemental DHC, persons in households, United States",
        "person, with changes of the housing units around",
        "rho",
        "1.257",
        "U.S. Census Bureau, DAS_2020_SDHC_Production_Code, NMFv8/us/config.json: sum over all tables",
    ),
    Precedent(
        "Live births in Israel in 2014, microdata",
        "mother with newborn",
        "epsilon",
        "9.98",
        "Hod and Canetti, Differentially Private Release of Israel's National Registry of Live Births, arXiv:2405.00267 (2024)",
    ),
)
"""Choices of others; docs/choosing-epsilon.md has the same."""


def rendered(template: str, context: Mapping[str, Any], status: int = 200) -> Response:
    """Return the web response with a page that is made from a template."""
    text = _environment().get_template(template).render(**context, words=WORDS)
    return HTMLResponse(text, status)


@cache
def _environment() -> Environment:
    environment = templates("trueup.studio")
    environment.filters["log10"] = log10
    return environment


def refused(status: int, sentence: str) -> Response:
    """Return a page that says why a request was refused."""
    return rendered("refused.html", {"sentence": sentence}, status)


def internal(error: Exception) -> str:
    """Return the text for an unforeseen error, without the error's message, which may quote data."""
    return f"internal error {type(error).__name__} at {place_of(error)}; please report it"


@dataclass(frozen=True)
class ExploredPage:
    """The content of a page of the explorer: a table of a bundle, and chosen places.

    Attributes
    ----------
    table, confidence, search, number
        The table, the probability of its intervals, what the names of its places hold, and the page.
    of, chosen
        The places of an area, and their level.
    summing
        True if the sum of the chosen places is wanted.
    """

    table: str
    confidence: str
    search: str
    number: int
    of: str
    chosen: tuple[str, ...]
    summing: bool

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[str, str]]) -> ExploredPage:
        """Return the view that a posted form requests; each ticked box stands for a chosen place."""
        form = dict(pairs)
        go, page = form.get("go", ""), form.get("page", "")
        number = int(page) if page.isdecimal() and page.isascii() and len(page) < 8 else 0
        moved = {"next": number + 1, "before": max(0, number - 1), "show": 0}.get(go, number)
        typed = [line.strip() for line in form.get("chosen", "").splitlines() if line.strip()]
        listed = form.get("listed", "")
        of = form.get("of", "") if typed else listed
        if of == listed:
            boxes = {name: {v for n, v in pairs if n == name} for name in ("seen", "place")}
            typed = [key for key in typed if key not in boxes["seen"] - boxes["place"]]
            typed += [v for n, v in pairs if n == "place"]
        chosen = () if go == "clear" else tuple(dict.fromkeys(typed))
        return cls(
            form.get("table", ""),
            form.get("confidence") or "90%",
            form.get("search", ""),
            moved,
            of if chosen else "",
            chosen,
            go == "sum",
        )
