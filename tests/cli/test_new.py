"""`trueup new` writes a spec that runs, from a header and the public places; help has groups and examples."""

from __future__ import annotations

import io
import json
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


def test_records_that_name_the_town_alone_take_the_county_from_the_list(folder):
    (folder / "people.csv").write_text("town,sex\na,f\nd,m\n")
    succeeds(f"new towns.toml {GIVEN} --attribute sex=f,m --epsilon 200 --yes")
    spec = tu.Spec.read("towns.toml")
    assert spec.table.place == ("town",)
    assert [level.name for level in spec.levels] == ["all", "county", "town"]
    succeeds("release towns.toml --data people.csv --geography places.csv --out NEW")
    assert tu.read_release("NEW").table("county")["released"].tolist() == [1, 1]


@pytest.mark.thorough
def test_a_family_of_named_tables_is_drafted_and_runs(folder):
    """Tables that cross each other, with half of the loss for one."""
    named = "--table town --table 'county x sex' --table 'sex x age' --matters 'county x sex'"
    (folder / "people.csv").write_text("county,town,sex,age\n01,a,f,old\n01,a,m,young\n02,c,m,old\n")
    said = succeeds(
        f"new towns.toml {GIVEN} --levels county,town --attribute sex=f,m --attribute age=young,old {named} --yes"
    )
    for line in re.findall(r": trueup (.*)", said):
        succeeds(f"{line} --quick" if line.startswith("explain") else line)
    spec = tu.Spec.read("towns.toml")
    assert {q.name: {k: str(v) for k, v in q.budgets.items()} for q in spec.queries} == {
        "total": {"town": "1/4"},
        "sex": {"county": "1/2"},
        "sex x age": {"all": "1/4"},
    }
    assert len(tu.read_release(folder / "NEW").cells.finest_tables) == 3
    refused = run(*shlex.split(f"new other.toml {GIVEN} --attribute sex=f,m --table 'town x race' --yes"))
    assert refused.returncode
    assert "table 'town x race' names 'race'" in refused.stderr


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


VISITS = "who,clinic,sex,age\np1,a,f,young\np1,a,f,young\np1,b,f,old\np2,a,m,old\n"
SHAPES = "--attribute sex=f,m --attribute age=young,old"


def test_one_unit_may_stand_in_several_rows(folder, monkeypatch):
    """It is asked for the column that identifies it, then for the most rows to keep."""
    (folder / "visits.csv").write_text(VISITS)
    (folder / "clinics.csv").write_text("clinic\na\nb\n")
    answers, asked = iter(["person", "", "who", "2", "clinic", "", "Visits", "1", ""]), []

    def answer(question, default):
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("typer.prompt", answer)
    succeeds("new visits.toml --data visits.csv --geography clinics.csv")
    assert "may stand in several rows" in asked[2]
    assert "kept at most" in asked[3]
    spec = tu.Spec.read("visits.toml")
    privacy = spec.privacy
    assert spec.table.counts == "record", "two visits of one person are not two persons"
    assert (privacy.id, privacy.contribution.records) == ("who", 2)
    said = succeeds("release visits.toml --data visits.csv --geography clinics.csv --out out")
    assert "at most 2 of its records" in said
    done = run(*shlex.split("new again.toml --data visits.csv --id who --yes"))
    assert done.returncode == 2
    assert "--most 5" in done.stderr


def test_what_is_given_is_not_left_to_decide(folder):
    (folder / "visits.csv").write_text(VISITS)
    line = f"new visits.toml --data visits.csv {SHAPES} --id who --most 2 --matters 'all x sex' --yes"
    said = succeeds(line)
    assert "which tables matter most" not in said
    assert "share what 'all x sex' leaves" in said
    assert "what one record is" in said
    again = run(*shlex.split(line))
    assert again.returncode == 2
    assert "choose another name for the spec" in again.stderr


def test_two_attributes_and_a_table_without_places_run(folder):
    (folder / "visits.csv").write_text(VISITS)
    said = succeeds(f"new visits.toml --data visits.csv {SHAPES} --yes")
    for line in re.findall(r": trueup (.*)", said):
        succeeds(f"{line} --quick" if line.startswith("explain") else line)
    released = tu.read_release(folder / "NEW")
    assert [str(margin) for margin in released.published] == ["all", "all x sex", "all x sex x age"]


def test_public_places_are_read_from_a_table_of_counts_when_it_is_said(folder):
    (folder / "counts.csv").write_text("town,sex,n\na,f,3\na,m,4\nb,f,5\nb,m,0\n")
    done = run(*shlex.split("new towns.toml --data counts.csv --attribute sex=f,m --yes"))
    assert done.returncode == 2
    assert "column 'town' of places" in done.stderr
    said = succeeds("new towns.toml --data counts.csv --attribute sex=f,m --public-places --yes")
    assert tu.Spec.read("towns.toml").table.keys == "public"
    for line in re.findall(r": trueup (.*)", said):
        succeeds(f"{line} --quick" if line.startswith("explain") else line)


def test_a_value_with_a_comma_stands_in_double_quotes(folder):
    (folder / "counts.csv").write_text('town,work,n\na,"farming, fishing",3\na,none,4\n')
    given = """--attribute 'work="farming, fishing",none' --public-places"""
    succeeds(f"new towns.toml --data counts.csv {given} --yes")
    assert tu.Spec.read("towns.toml").attributes[0].values == ("farming, fishing", "none")


def test_named_columns_of_a_table_of_counts_are_its_places_whatever_they_are_called(folder):
    (folder / "stays.csv").write_text("house,ward,sex,n\nA,1,f,3\nA,1,m,4\nB,1,f,5\nB,1,m,0\n")
    succeeds("new stays.toml --data stays.csv --attribute sex=f,m --levels house,ward --public-places --yes")
    assert [level.column for level in tu.Spec.read("stays.toml").levels] == [None, "house", "ward"]
    succeeds("release stays.toml --data stays.csv --out out")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--levels town", "no public list of places"),
        ("--count n --id who --most 2", "--id and --most apply to a table of records"),
        ("--id nobody --most 2", "no column 'nobody'"),
    ],
)
def test_what_cannot_be_drafted_without_places_is_refused(more, words, folder):
    (folder / "rows.csv").write_text("who,sex,n\n1,f,2\n")
    done = run(*shlex.split(f"new rows.toml --data rows.csv {more} --yes"))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (folder / "rows.toml").exists()


def test_names_that_are_alike_or_are_those_of_figures_are_told_apart(folder):
    (folder / "odd.csv").write_text("mean,Mean group,a.b,a,all,n\nx,y,1,2,3,4\n")
    (folder / "list.csv").write_text("a,a.b,all\n2,1,3\n")
    words = "--attribute mean=x --attribute 'Mean group=y' --levels a,a.b,all --yes"
    succeeds(f"new odd.toml --data odd.csv --geography list.csv {words}")
    spec = tu.Spec.read("odd.toml")
    assert [level.name for level in spec.levels] == ["all places", "a", "a b", "all"]
    assert [(a.name, a.column) for a in spec.attributes] == [
        ("mean group", "mean"),
        ("Mean group group", "Mean group"),
    ]
    succeeds("release odd.toml --data odd.csv --geography list.csv --out out")


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


def test_errors_that_cannot_be_simulated_leave_no_empty_table(folder):
    (folder / "visits.csv").write_text(VISITS)
    succeeds(f"new visits.toml --data visits.csv {SHAPES} --yes")
    rules = '\n[constraints]\nbounds = [{ level = "all", lower = 9 }]\n'
    simulated = succeeds("explain visits.toml")
    (folder / "visits.toml").write_text((folder / "visits.toml").read_text() + rules)
    refused = succeeds("explain visits.toml")
    assert "Errors to expect by size" in simulated
    assert "Errors to expect by size" not in refused
    assert "could not be simulated" in refused


@pytest.mark.thorough
def test_how_columns_are_read_is_drafted(folder):
    """Ages, dates, blanks, upper case, what is not listed: under a loss of 500 no noise is seen, and every row is in place."""
    (folder / "people.csv").write_text(
        "county,town,sex,age,day,work\n01,a,F,14,2026-01-31,Farming; wild\n01,a,,15,2026-02-01,x\n02,c,m ,70,2026-02-28,none\n"
    )
    columns = ["sex=f,m; missing not known; fold", "age=bins 0, 15, 65", "day=months 2026-01 to 2026-02"]
    columns.append('work="farming; wild", none; fold; other rest')
    given = " ".join(f"--attribute {shlex.quote(column)}" for column in columns)
    succeeds(f"new towns.toml {GIVEN} --levels county,town {given} --epsilon 500 --yes")
    succeeds("release towns.toml --data people.csv --geography places.csv --out NEW")
    released = tu.read_release("NEW")
    table = released.table("town x sex x age x day x work")
    rows = table[table["released"] > 0][["town", "sex", "age", "day", "work", "released"]]
    assert sorted(map(tuple, rows.values.tolist())) == [
        ("a", "f", "0-14", "2026-01", "farming; wild", 1),
        ("a", "not known", "15-64", "2026-02", "rest", 1),
        ("c", "m", "65 and more", "2026-02", "none", 1),
    ]
    refused = run(*shlex.split(f"new other.toml {GIVEN} --attribute 'sex=f,m; blank x' --yes"))
    assert refused.returncode
    assert "'blank x' is not a rule" in refused.stderr


def test_readable_names_of_named_levels_are_found(folder):
    (folder / "schools.csv").write_text("Borough,School Code,School Name\nN,01,Park\nN,02,Hill\nS,03,Park\n")
    (folder / "pupils.csv").write_text("Borough,School Code\nN,01\nS,03\n")
    levels = shlex.quote("Borough,School Code")
    succeeds(f"new s.toml --data pupils.csv --geography schools.csv --levels {levels} --yes")
    assert 'label = "School Name"' in (folder / "s.toml").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("places", ["""--public-places --levels '"County, town"'""", "--geography cc.csv"])
def test_a_column_with_a_comma_is_named_in_double_quotes(folder, places):
    (folder / "cc.csv").write_text('"County, town","Sex, as = told",n\nx,f,3\nx,m,4\ny,f,1\ny,m,2\n')
    given = """--count n --attribute '"Sex, as = told"=f,m' --epsilon 500"""
    said = succeeds(f"new cc.toml --data cc.csv {places} {given} --yes")
    assert [level.column for level in tu.Spec.read("cc.toml").levels] == [None, "County, town"]
    for line in re.findall(r": trueup (.*)", said):
        succeeds(f"{line} --quick" if line.startswith("explain") else line)
    assert tu.read_release("NEW").table("County, town x Sex, as = told")["released"].tolist() == [3, 4, 1, 2]


@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [
        ("Raion,sex,n", "--count n --levels Rayon --public-places --yes", "has no column 'Rayon'"),
        ("Raion,sex,n", "--count n --public-places --yes", "make the header the first row"),
        ("Office,Men,Women", "--levels Office --public-places --yes", "--public-places is given without"),
        ("Office,Men,Women", "--geography t.csv --yes", "each row would count as one person"),
        ("Office,Men,Women", "", "add --yes"),
    ],
)
def test_what_is_drafted_wrongly_or_not_at_all_says_why(columns, more, words, folder, monkeypatch):
    (folder / "t.csv").write_text(f"{columns}\nx,1,3\ny,2,4\n")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = run(*shlex.split(f"new t.toml --data t.csv {more}"))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (folder / "t.toml").exists()


PUPILS = """School,Grade,Girls,Boys,Total
Hillside,1,24,21,45
Hillside,2,*,19,22
Hillside,3,17,*,20
Lakeview,1,31,*,*
Lakeview,2,28,30,58
Lakeview,3,26,27,53
Riverside,1,12,13,25
Riverside,2,*,*,*
Riverside,3,15,9,24
Note: * = fewer than 5 pupils
"""


@pytest.mark.thorough
@pytest.mark.parametrize("meaning", ["unknown", "1-4"])
def test_a_code_that_also_hides_larger_counts_leads_to_an_answer(folder, meaning):
    """What is drafted, and what is written by hand, by following each remedy to the letter."""
    (folder / "pupils.csv").write_text(PUPILS)
    said = succeeds("new pupils.toml --published pupils.csv")
    assert "cannot say its range everywhere" in said
    text = (folder / "pupils.toml").read_text()
    assert 'codes = { "*" = "unknown" }' in text
    line = "infer --perturbed pupils.toml --table pupils.csv --out"
    if meaning != "unknown":
        (folder / "pupils.toml").write_text(text.replace("unknown", meaning))
        refused = run(*shlex.split(f"{line} none"))
        assert 'it says "unknown"' in refused.stderr
    unlimited = run(*shlex.split(f"{(folder / 'pupils.toml').write_text(text) and line} none"))
    found = re.search(r"To do: write two lines.*?(\[infer\]) and (prior = \{.*?\})", unlimited.stderr)
    assert found
    (folder / "pupils.toml").write_text(f"{text}{found[1]}\n{found[2]}\n")
    succeeds(f"{line} posterior")
    answered = json.loads(succeeds("ask posterior \"'Hillside, Grade=2, sex=Girls'\" --json"))
    assert answered["answers"][0]["mean"] == [3]


def test_a_code_whose_range_holds_keeps_it(folder):
    (folder / "pupils.csv").write_text(PUPILS.replace("Lakeview,1,31,*,*", "Lakeview,1,31,*,34"))
    said = succeeds("new pupils.toml --published pupils.csv")
    assert 'codes = { "*" = "<5" }' in (folder / "pupils.toml").read_text()
    assert 'write codes = { "*" = "unknown" }' in said
