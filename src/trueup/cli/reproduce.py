"""`trueup reproduce`: says where the papers' tables are run again now."""

from __future__ import annotations

import typer

from trueup.errors import TrueupError


def register(app: typer.Typer) -> None:
    """Add the command, unlisted: it only answers those who know it."""

    @app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def reproduce() -> None:
        """Say where the papers' tables are run again."""
        raise TrueupError(
            "the papers' tables are no longer a command of the installed package",
            needed="a checkout of the project, where the folder 'papers' holds them",
            remedy="run there: python -m papers all",
        )
