"""`trueup methods`: the laws, and the methods of reconciliation and inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from trueup.cli.options import AsJson, option
from trueup.cli.printing import print_json, print_table

AsMarkdown = Annotated[bool, option("--markdown", "Print the page of the documentation.")]

NOUNS = {"reconcile": "Reconciliation", "infer": "Inference"}


def methods_command(as_json: AsJson = False, markdown: AsMarkdown = False) -> None:
    """List the noise distributions and the methods of reconciliation and inference with their structures."""
    from trueup import inferring, reconciling
    from trueup.noise import JOINT_LAWS, LAWS, PERTURBATIONS

    laws = [{"name": law.name, "title": law.title} for law in (*LAWS, *JOINT_LAWS)]
    others = [{"name": law.name, "title": law.title} for law in PERTURBATIONS]
    verbs = {"reconcile": _listed(reconciling.METHODS), "infer": _listed(inferring.METHODS)}
    if as_json:
        print_json({"noise": laws, "perturbed": others, **verbs})
        return
    if markdown:
        _print_markdown(laws, others, verbs)
        return
    print_table("Noise", ["distribution", "what it is"], [[law["name"], law["title"]] for law in laws])
    print_table(
        "What others publish",
        ["distribution", "what it is"],
        [[law["name"], law["title"]] for law in others],
    )
    for verb, kinds in verbs.items():
        rows = [[k["name"], ", ".join(k["structures"]), k["title"]] for k in kinds]
        print_table(NOUNS[verb], ["method", "structures", "what it solves"], rows)


def _listed(kinds: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": k.name, "title": k.title, "structures": sorted(k.structures)} for k in kinds]


def _print_markdown(laws: list[dict], others: list[dict], verbs: dict[str, list[dict]]) -> None:
    """Print docs/methods.md."""
    print("# Noise distributions and methods\n\nMade by `trueup methods --markdown`.")
    for heading, listed in (
        ("Noise distributions", laws),
        (
            "Distributions of what others publish\n\nFor `infer --perturbed` and `assess`; none has a guarantee.",
            others,
        ),
    ):
        print(f"\n## {heading}\n\n| distribution | what it is |\n|---|---|")
        for law in listed:
            print(f"| `{law['name']}` | {law['title']} |")
    for verb, kinds in verbs.items():
        print(f"\n## {NOUNS[verb]} methods\n\nThe first that fits is the default.\n")
        print("| method | structures | what it solves |\n|---|---|---|")
        for kind in kinds:
            print(f"| `{kind['name']}` | {', '.join(kind['structures'])} | {kind['title']} |")
