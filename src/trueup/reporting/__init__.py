"""The verb report: write one self-contained HTML page about any record.

A kind of record is a file that lays out its `Page` and one line in `PAGES`. The report computes
nothing private: it reads records and imports no verb.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.verb import takes_records
from trueup.reporting.drawing.blocks import Page
from trueup.reporting.html import Report
from trueup.reporting.sections.origin import Ledger

if TYPE_CHECKING:
    from trueup.model.perturbed import PerturbedSpec
    from trueup.model.spec import Spec

LayOut = Callable[..., Page]


def _page(home: str) -> LayOut:
    """Return a layout by its file and function, which are imported with the first record of its kind."""
    module, _, name = f"trueup.reporting.pages.{home}".rpartition(".")
    return lambda *given, **options: getattr(import_module(module), name)(*given, **options)


PAGES: dict[str, LayOut] = {
    "Measurements": _page("release.measurements_page"),
    "Release": _page("release.release_page"),
    "Allocation": _page("assessment.plan_page"),
    "Assessment": _page("assessment.assessment_page"),
    "Posterior": _page("posterior.posterior_page"),
}
"""The layout of every kind of record, by its name, so that no record is imported for another's page."""


@takes_records
def report(
    record: Any,
    spec: Spec | PerturbedSpec | None = None,
    *,
    ledger: Ledger = None,
    level: float | str = "90%",
    shapes: str | Path | None = None,
    areas: Mapping[str, NDArray] | None = None,
) -> Report:
    """Write the report of a record as one self-contained HTML page.

    Parameters
    ----------
    record
        `Measurements`, `Release`, a planned `Allocation`, an `Assessment` or a `Posterior`.
    spec
        The spec that it was made from; by default the one that it knows.
    ledger
        What the ledger says of it, by name; None if no ledger was kept.
    level
        Of a release: the probability with which an error is no larger than its margin.
    shapes
        Of a release: a GeoJSON file with the shapes of places, for a map. A property of each shape holds the key of its place.
    areas
        Of a posterior: areas off the hierarchy that were asked for, which the page pictures first; see
        `trueup.inferring.questions.infer_areas`.

    Returns
    -------
    Report
        The page, a text with `save(path)` and `pictures`. It loads nothing; equal records give equal bytes.

    Raises
    ------
    SpecError
        If there is no report for that kind of record, or it was made without its spec.

    Examples
    --------
    >>> import pandas, trueup
    >>> from trueup.demo.areas import AREAS
    >>> noisy = trueup.measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> page = report(trueup.reconcile(noisy))
    >>> [picture.section for picture in page.pictures]
    ['What the numbers say', 'What it cost', 'Expected error', 'What reconciliation changed']
    >>> report(3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.SpecError: there is no report for a int. Needed: one of Measurements, Release, ...
    """
    kind = next((kind.__name__ for kind in type(record).__mro__ if kind.__name__ in PAGES), None)
    if kind is None:
        raise SpecError(
            f"there is no report for a {type(record).__name__}", needed=f"one of {', '.join(PAGES)}"
        )
    stated = getattr(record, "spec", None) if spec is None else spec
    if stated is None:
        raise SpecError(
            f"the {type(record).__name__} was made without its spec", remedy="give it: report(record, spec)"
        )
    lay_out, options = PAGES[kind], {}
    if kind == "Release":
        options = {"level": level, "shapes": shapes}
    elif shapes is not None:
        raise SpecError(f"shapes are given for a {kind}", needed="a Release")
    if kind == "Posterior":
        options = {"areas": areas}
    elif areas is not None and kind != "Release":
        raise SpecError(f"areas are given for a {kind}", needed="a Posterior")
    return Report.of(lay_out(record, stated, ledger, **options))
