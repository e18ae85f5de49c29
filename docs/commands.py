"""Write the command reference from the commands themselves: `python docs/commands.py > docs/commands.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from trueup.cli import EXIT_CODES, options, whole_app

HEAD = """# Command line

Every command and option, as `trueup COMMAND --help` shows them.

| exit code | meaning |
|---|---|
"""

COMMON = """## Options of one meaning everywhere

They may stand before the command or after it; the command's section says which of them it takes. `--json` prints for machines
what is otherwise printed to be read, errors as well:
`{"error": {"message": ..., "given": ..., "needed": ..., "remedy": ..., "exit_code": ...}}`.
"""


def page() -> str:
    """Return the page as Markdown."""
    root = typer.main.get_command(whole_app())
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    common = "\n".join(
        [
            "| option | meaning |",
            "|---|---|",
            *(row(each) for each in root.params if each.name in options.COMMON),
        ]
    )
    sections = (section(name, command) for name, command in commands("trueup", root))
    return "\n\n".join([HEAD + codes, f"{COMMON}\n{common}", *sections])


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, groups opened."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for inner in command.commands.values():
        if not inner.hidden:
            yield from commands(f"{name} {inner.name}", inner)


def section(name: str, command: Any) -> str:
    """Return what a command does and a row for each of its parameters."""
    rows = [row(parameter) for parameter in command.params if parameter.name != "help"]
    table = "\n".join(["| parameter | meaning |", "|---|---|", *rows]) if rows else ""
    names = ", ".join(f"`{name}`" for name in options.taken_by(command))
    taken = names and f"Takes {names}, too."
    return "\n\n".join(part for part in (f"## `{name}`", command.help or "", table, taken) if part)


def row(parameter: Any) -> str:
    """Return a parameter's names, what it means, and its default."""
    option = parameter.param_type_name == "option"
    names = (
        ", ".join(f"`{name}`" for name in parameter.opts)
        if option
        else f"`{(parameter.metavar or parameter.name).upper()}`"
    )
    notes = [text(getattr(parameter, "help", None) or "")]
    if parameter.required and option:
        notes.append("Required.")
    if parameter.default not in (None, False, (), []) and not callable(parameter.default):
        notes.append(f"By default `{parameter.default}`.")
    return f"| {names} | {' '.join(note for note in notes if note)} |"


def text(line: str) -> str:
    """Return a line that a table can hold."""
    return line.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(page())
