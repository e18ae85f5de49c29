"""Run a page of the documentation from top to bottom, as a reader would: its files, its commands, its Python."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Callable
from pathlib import Path

BLOCK = re.compile(r"^(?:<!-- file: (?P<name>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
"""A fenced block; the comment before it names the file in which the reader saves it."""


def run_page(page: Path, folder: Path, command: Callable[..., None]) -> int:
    """Do what a page says in a folder; return how many blocks were run.

    Parameters
    ----------
    page
        A Markdown file. Blocks that a comment names become files; `sh` blocks are commands of trueup, one a line; `python` blocks
        are doctests, which share their names.
    folder
        Where files are written; the process must stand in it.
    command
        Takes the words behind `trueup`, and fails where the command does.
    """
    names: dict[str, object] = {}
    blocks = list(BLOCK.finditer(page.read_text()))
    return sum(run_block(block, folder, command, names, page.name) for block in blocks)


def run_block(block: re.Match, folder: Path, command: Callable[..., None], names: dict, page: str) -> bool:
    """Write, run or check one block; return whether there was something to do."""
    if block["name"]:
        (folder / block["name"]).write_text(block["text"])
    elif block["kind"] == "sh":
        run_commands(block["text"], command)
    elif block["kind"] == "python":
        check_examples(block["text"], names, page)
    else:
        return False
    return True


def run_commands(text: str, command: Callable[..., None]) -> None:
    """Run each line; a backslash at the end of one joins the next."""
    for line in text.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line, comments=True) or [""]
        if program:
            assert program == "trueup", f"a reader of this page has no command {program!r}"
            command(*words)


def check_examples(text: str, names: dict, page: str) -> None:
    """Run a session of Python and compare what it prints."""
    test = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert result.attempted > 0, "a Python block without an example"
    assert result.failed == 0, "".join(report)
