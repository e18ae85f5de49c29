"""`trueup methods`: the laws and the reconciliation methods."""

from __future__ import annotations

import typer

from trueup.cli.console import AsJson, print_json, table


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def methods(as_json: AsJson = False) -> None:
        """List the laws of noise and the reconciliation methods with their structures."""
        from trueup.noise import LAWS
        from trueup.reconcile import METHODS

        laws = [{"name": law.name, "title": law.title} for law in LAWS]
        kinds = [{"name": k.name, "title": k.title, "structures": sorted(k.structures)} for k in METHODS]
        if as_json:
            print_json({"noise": laws, "reconcile": kinds})
            return
        table("Noise", ["law", "what it is"], [[law["name"], law["title"]] for law in laws])
        rows = [[k["name"], ", ".join(k["structures"]), k["title"]] for k in kinds]
        table("Reconciliation", ["method", "structures", "what it solves"], rows)
