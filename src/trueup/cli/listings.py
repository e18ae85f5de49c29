"""`trueup methods`, `trueup schema` and `trueup audit`: lists of what the package offers, and audits of its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from typing import Annotated, Any

import typer

from trueup.cli import FAILED_CHECK
from trueup.cli.options import AsJson, argument, named_parameters, option
from trueup.cli.printing import print_json, print_table

NOUNS = {"reconcile": "Reconciliation", "infer": "Inference"}


def methods_command(as_json: AsJson = False) -> None:
    """List the noise distributions and the methods of reconciliation and inference with their structures."""
    found = methods_and_laws()
    if as_json:
        print_json(found)
        return
    for title, kind in (("Noise", "noise"), ("What others publish", "perturbed")):
        laws = [[law["name"], law["title"]] for law in found[kind]]
        print_table(title, ["distribution", "what it is"], laws)
    for verb, noun in NOUNS.items():
        rows = [[k["name"], ", ".join(k["structures"]), k["title"]] for k in found[verb]]
        print_table(noun, ["method", "structures", "what it solves"], rows)


def methods_and_laws() -> dict[str, list[dict[str, Any]]]:
    """Return the names, titles and structures of noise laws, publishing laws, and methods of both verbs."""
    from trueup import inferring, reconciling
    from trueup.noise import JOINT_LAWS, LAWS
    from trueup.noise.perturbed import PERTURBATIONS

    return {
        "noise": [{"name": law.name, "title": law.title} for law in (*LAWS, *JOINT_LAWS)],
        "perturbed": [{"name": law.name, "title": law.title} for law in PERTURBATIONS],
        "reconcile": _listed(reconciling.METHODS),
        "infer": _listed(inferring.METHODS),
    }


def _listed(kinds: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": k.name, "title": k.title, "structures": sorted(k.structures)} for k in kinds]


OfPublished = Annotated[bool, option("--published", "Of the spec of tables that somebody else published.")]


def schema_command(published: OfPublished = False) -> None:
    """Print the JSON Schema of the spec, for editors and validators."""
    from trueup.schema import published_schema, spec_schema

    print_json(published_schema() if published else spec_schema())


def audit_command(
    law: Annotated[
        str,
        argument(
            "A noise distribution with its parameters: discrete-laplace:epsilon=1/2, discrete-gaussian:rho=1/8."
        ),
    ],
    draws: Annotated[int, option("--draws", "Number of draws.", shown=True, min=1000)] = 10_000_000,
    delta: Annotated[float | None, option("--delta", "State epsilon at it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Audit a sampler: bound epsilon from draws, compare neighbouring log ratios, and test every first word."""
    from trueup.measuring.entropy import words
    from trueup.noise.audit import audit as audit_law

    found = audit_law(_audited_law(*named_parameters(law, "law")), draws, words, delta=delta)
    if as_json:
        print_json(asdict(found) | {"passed": found.passed})
    else:
        _show_audit(found)
    if not found.passed:
        raise typer.Exit(FAILED_CHECK)


def _audited_law(name: str, given: dict[str, str]) -> Any:
    """Build the noise law to audit from parameters; rho may be given instead of sigma2."""
    from trueup.digits import rational
    from trueup.noise import law_named

    parameters = dict(given)
    if "rho" in parameters:
        parameters["sigma2"] = str(1 / (2 * rational(parameters.pop("rho"), "rho")))
    law = law_named(name)
    optional = {field.name: field.default for field in fields(law) if field.default is not MISSING}
    return law.from_parameters(optional | parameters)


def _show_audit(found: Any) -> None:
    from trueup.privacy import outward

    written = ", ".join(f"{key} = {value}" for key, value in found.parameters.items())
    print(f"{found.law} ({written}), {found.draws:,} draws; one count moves by one")
    first, furthest = found.first_words, found.largest_deviation
    delta = f" at delta = {outward(found.delta)}" if found.delta else ""
    rows = [
        ["claimed epsilon" + delta, outward(found.epsilon_claimed, 6)],
        [f"measured: at least ({found.confidence:g} confidence)", f"{found.epsilon_at_least:.6g}"],
        ["adjacent log ratios compared", f"{len(found.log_ratios)}"],
        ["p-value of the one furthest off", f"{found.log_ratio_p:.3g}"],
        ["first words checked", f"{first.cells:,} in {first.tables} table{'s' * (first.tables > 1)}"],
        ["left to later words", f"{first.undecided:,}"],
        ["wrong first words", f"{first.wrong:,}"],
    ]
    if furthest:
        detail = f"noise {furthest.noise}: {furthest.measured:.4f}, by the law {furthest.exact:.4f}"
        rows.insert(4, ["the one furthest off", f"{detail} (standard error {furthest.error:.4f})"])
    print_table("", ["audit", "found"], rows)
    print("Nothing refutes the claim." if found.passed else "REFUTED: the sampler is not the law it claims.")
