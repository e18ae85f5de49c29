"""`trueup methods`: the laws and the reconciliation methods."""

from __future__ import annotations

from typing import Annotated

import typer

from trueup.cli.console import AsJson, print_json, table

AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the page of the documentation.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def methods(as_json: AsJson = False, markdown: AsMarkdown = False) -> None:
        """List the laws of noise and the reconciliation methods with their structures."""
        from trueup.noise import JOINT_LAWS, LAWS
        from trueup.reconcile import METHODS

        laws = [{"name": law.name, "title": law.title} for law in (*LAWS, *JOINT_LAWS)]
        kinds = [{"name": k.name, "title": k.title, "structures": sorted(k.structures)} for k in METHODS]
        if as_json:
            print_json({"noise": laws, "reconcile": kinds})
            return
        if markdown:
            _print_markdown(laws, kinds)
            return
        table("Noise", ["law", "what it is"], [[law["name"], law["title"]] for law in laws])
        rows = [[k["name"], ", ".join(k["structures"]), k["title"]] for k in kinds]
        table("Reconciliation", ["method", "structures", "what it solves"], rows)


def _print_markdown(laws: list[dict], kinds: list[dict]) -> None:
    """Print docs/methods.md."""
    print("# Laws and methods\n\nMade by `trueup methods --markdown`.\n\n## Laws of noise\n")
    print("| law | what it is |\n|---|---|")
    for law in laws:
        print(f"| `{law['name']}` | {law['title']} |")
    print("\n## Reconciliation methods\n\nThe first that fits a structure is its default.\n")
    print("| method | structures | what it solves |\n|---|---|---|")
    for kind in kinds:
        print(f"| `{kind['name']}` | {', '.join(kind['structures'])} | {kind['title']} |")
