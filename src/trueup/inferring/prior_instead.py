"""Reasons why a method has another prior than the hierarchical one without being asked."""

from __future__ import annotations

from trueup.inferring.method import InferenceMethod, inference_misfit
from trueup.model.constraints import Constraints
from trueup.model.prior import Flat, Hierarchical
from trueup.model.records.measurements import Measurements


def prior_instead(method: InferenceMethod, constraints: Constraints, measured: Measurements) -> str | None:
    """Return which prior replaces the hierarchical one, and why; None if none does."""
    prior = getattr(method, "prior", None) or Flat()
    if isinstance(prior, Hierarchical):
        return None
    why = _why(method, constraints, measured)
    return (
        f"The prior is '{prior.name}', not the hierarchical one of 'tree-exact' and 'histogram-gibbs': {why}."
    )


def _why(method: InferenceMethod, constraints: Constraints, measured: Measurements) -> str:
    if method.released:
        return "these methods know noisy values, and released counts alone are known here"
    # The method may be another, and these are slow to import.
    from trueup.inferring.histogram_gibbs import HistogramGibbs
    from trueup.inferring.tree_exact import TreeExact

    misfits = {k.name: inference_misfit(k(), constraints, measured) for k in (TreeExact, HistogramGibbs)}
    fitting = next((name for name, misfit in misfits.items() if not misfit), None)
    if fitting is None:
        return "; ".join(f"'{name}' does not fit: {misfit}" for name, misfit in misfits.items())
    if fitting == method.name:
        return "published values are perturbed, not noisy"
    return f"method '{method.name}' does not take it"
