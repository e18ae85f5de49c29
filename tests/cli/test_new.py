"""`trueup new` writes a spec that runs, from a header and the public places; help has groups and examples."""

from __future__ import annotations

import re
import shlex

import pytest
import typer.main

import trueup as tu
from tests.command import run
from trueup.cli import EXAMPLES, whole_app

PLACES = "county,town\n01,a\n01,b\n02,c\n02,d\n"
PEOPLE = "county,town,sex\n01,a,f\n01,a,m\n01,b,f\n02,c,m\n"
GIVEN = "--data people.csv --geography places.csv"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places.csv").write_text(PLACES)
    (tmp_path / "people.csv").write_text(PEOPLE)
    return tmp_path


def succeeds(words: str) -> str:
    done = run(*shlex.split(words))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_it_prints_are_commands_that_run(folder):
    said = succeeds(
        f"new towns.toml {GIVEN} --attribute sex=f,m --unit visitor --matters town --epsilon 2 --yes"
    )
    for line in re.findall(r": trueup (.*)", said):
        succeeds(f"{line} --quick" if line.startswith("explain") else line)
    assert tu.read_release(folder / "NEW").guarantee.amount == 2


def test_questions_are_asked_for_what_is_not_given(folder, monkeypatch):
    answers = iter(["child", "", "", "town", "sex=f,m", "", "Towns", "1/2", "town x sex"])
    asked = []

    def answer(question, default):
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("typer.prompt", answer)
    succeeds(f"new towns.toml {GIVEN}")
    spec = tu.Spec.read("towns.toml")
    assert [level.name for level in spec.levels] == ["all", "town"]
    assert str(spec.queries[1].budgets["town"]) == "1/4"
    assert not any("sex" in question for question in asked[:3]), "the header is not shown"


def test_no_row_of_the_table_is_read(folder):
    first = succeeds(f"new one.toml {GIVEN} --attribute sex=f,m --title T --yes").replace(
        "one.toml", "two.toml"
    )
    (folder / "people.csv").write_text('county,town,sex\n"broken')
    assert succeeds(f"new two.toml {GIVEN} --attribute sex=f,m --title T --yes") == first


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--attribute sex", "has no values"),
        ("--attribute age=1,2", "no column 'age'"),
        ("--matters tract", "one of: all, county, town"),
        ("--levels village", "no column 'village'"),
        ("--levels ,", "no column of places"),
        ("--epsilon much", "epsilon"),
    ],
)
def test_bad_answers_leave_nothing_behind(more, words, folder):
    done = run(*shlex.split(f"new towns.toml {GIVEN} {more} --yes"))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (folder / "towns.toml").exists()


def test_a_spec_is_not_overwritten(folder):
    (folder / "towns.toml").write_text("mine")
    assert run(*shlex.split(f"new towns.toml {GIVEN} --yes")).returncode == 2
    assert (folder / "towns.toml").read_text() == "mine"


def test_every_command_has_an_example_with_options_that_it_knows():
    root = typer.main.get_command(whole_app())
    single = {name: command for name, command in root.commands.items() if not hasattr(command, "commands")}
    assert set(single) == set(EXAMPLES)
    for name, command in single.items():
        _, given, *words = shlex.split(EXAMPLES[name].partition(">")[0])
        assert given == name
        command.make_context(name, words, resilient_parsing=False).close()


def test_related_options_stand_together():
    said = run("release", "--help").stdout
    for group in ("What is read", "What is written", "Ledger", "Machine"):
        assert group in said
    assert "Example: trueup release" in said


def test_levels_are_proposed_in_one_way_and_a_column_of_counts_is_found(folder):
    (folder / "codes.csv").write_text("GEOID,GEOID_name\n01001,Ash\n01003,Bell\n02001,Cedar\n")
    (folder / "counts.csv").write_text("GEOID,pop\n01001,3\n01003,4\n02001,5\n")
    succeeds("new counties.toml --data counts.csv --geography codes.csv --yes")
    spec = tu.Spec.read("counties.toml")
    assert [(level.name, level.prefix) for level in spec.levels] == [
        ("all", None),
        ("state", 2),
        ("county", None),
    ]
    assert spec.table.count == "pop"
    assert tu.Spec.of("counts.csv", count="pop", public="codes.csv").levels == spec.levels
    assert tu.propose_spec("counts.csv", "codes.csv").spec.levels == spec.levels
    done = run(*shlex.split("new states.toml --data counts.csv --geography codes.csv --levels state --yes"))
    assert done.returncode == 2, "the list has many rows for each state"
    assert "lists state '01' more than once" in done.stderr
    assert not (folder / "states.toml").exists()
