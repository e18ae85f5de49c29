"""Tables that are printed show names as they are written, and no name commands the terminal."""

from __future__ import annotations

import pytest

from trueup.cli.printing import print_table, shown_lines


@pytest.mark.parametrize("name", ["[/x]", "[red]x", ":smile:", "B [North]", "Saint-Étienne", "東京"])
def test_names_are_printed_as_they_are_written(capsys, name):
    print_table(name, ["place"], [[name]])
    assert capsys.readouterr().out.count(name) == 2


@pytest.mark.parametrize(
    ("name", "shown"), [("a\x1b[31mb", "a\\x1b[31mb"), ("a\nb", "a\\nb"), ("a\u202eb", "a\\u202eb")]
)
def test_names_that_would_command_a_terminal_are_escaped(capsys, name, shown):
    print_table("", ["place"], [[name]])
    out = capsys.readouterr().out
    assert shown in out
    assert not {"\x1b", "\u202e"} & set(out)


def test_messages_keep_their_lines():
    assert shown_lines("no place 'a\x1b[2J'\nuse b\r") == "no place 'a\\x1b[2J'\nuse b\\r"
