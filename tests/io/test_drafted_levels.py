"""Places of several levels in one column: whatever tells the levels, the draft finds them, as the sums confirm."""

import pytest

from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.above import write_indented_places
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

PARTS = {
    "Moor": {"Ash": (41, 52), "Birch": (67, 30), "Cedar": (18, 25)},
    "Vale": {"Dill": (93, 71), "Elm": (22, 46)},
}


def rows(*, last=False):
    """Yield each place with its depth, the numbers of its place above and of itself there, and its counts."""
    for k, (county, towns) in enumerate(PARTS.items(), 1):
        whole = (county, 1, k, 0, tuple(map(sum, zip(*towns.values()))))
        parts = [(town, 2, k, j, counts) for j, (town, counts) in enumerate(towns.items(), 1)]
        yield from [*parts, whole] if last else [whole, *parts]


def table(head, line, *, last=False):
    return "\n".join([head, *(line(*row) for row in rows(last=last))]) + "\n"


def counts_of(counts):
    return ",".join(map(str, counts))


FILES = {
    "lengths of codes that do not begin with each other": table(
        "code,area,m,f",
        lambda name, depth, k, j, n: f"{k + 4 if depth == 1 else 700 + 10 * k + j},{name},{counts_of(n)}",
    ),
    "codes before names in one cell": table(
        "area,m,f", lambda name, depth, k, j, n: f"{k:02}{f'{j:02}' if j else ''} {name},{counts_of(n)}"
    ),
    "zeros at the end of codes": table(
        "code,area,m,f", lambda name, depth, k, j, n: f"3{k}{j:02},{name},{counts_of(n)}"
    ),
    "letters before codes": table(
        "code,m,f",
        lambda name, depth, k, j, n: (
            f"{'GM' if depth == 1 else 'BU'}{k:03}{f'{j:02}' if depth > 1 else ''},{counts_of(n)}"
        ),
    ),
    "a kind beside names": table(
        "area,kind,m,f",
        lambda name, depth, k, j, n: f"{name},{'county' if depth == 1 else 'town'},{counts_of(n)}",
    ),
    "a kind beside names, parts above": table(
        "area,szint,m,f",
        lambda name, depth, k, j, n: f"{name},{'megye' if depth == 1 else 'falu'},{counts_of(n)}",
        last=True,
    ),
    "a number of the level": table(
        "level,code,name,m,f",
        lambda name, depth, k, j, n: f"{depth},{k}{j if j else ''},{name},{counts_of(n)}",
    ),
    "indents of names beside codes": table(
        "code,name,m,f", lambda name, depth, k, j, n: f"{name[:2]}X,{'  ' * (depth - 1)}{name},{counts_of(n)}"
    ),
    "a column of the one above": table(
        "id,part_of,m,f",
        lambda name, depth, k, j, n: f"{name},{'' if depth == 1 else list(PARTS)[k - 1]},{counts_of(n)}",
        last=True,
    ),
}


def read_draft(folder, text):
    file = folder / "t.csv"
    file.write_text(text)
    draft = draft_published([file])
    listed = (
        write_indented_places(folder / "p.csv", draft.columns, draft.places)
        if draft.places
        else draft.geography
    )
    return draft, read_perturbed(parse_perturbed(draft.text), [file], listed)


@pytest.mark.parametrize("name", FILES)
def test_levels_of_one_column_are_found(name, tmp_path):
    draft, measured = read_draft(tmp_path, FILES[name])
    assert measured.cells.tree.sizes[-2:] == (2, 5), draft.text
    assert measured.cells.n == 5 * 2


def test_places_whose_sums_differ_stay_beside_each_other(tmp_path):
    text = (
        FILES["indents of names beside codes"].replace("Moor,126", "Moor,326").replace("Vale,115", "Vale,15")
    )
    _, measured = read_draft(tmp_path, text)
    assert measured.cells.tree.sizes == (1, 7)


def test_districts_of_one_name_lie_in_their_cities(tmp_path):
    lines = [
        "city,district,m,f",
        "A,소계,63,58",
        "A,East,41,20",
        "A,Mid,22,38",
        "B,소계,90,71",
        "B,Mid,31,44",
        "B,North,59,27",
    ]
    _, measured = read_draft(tmp_path, "\n".join([*lines, "C,소계,18,25"]) + "\n")
    assert measured.cells.tree.sizes == (1, 3, 5)
    assert measured.cells.n == 5 * 2


def test_a_total_column_is_found_beside_parts_that_are_mostly_hidden(tmp_path):
    lines = [
        "area,n,a,b,c",
        "Ash,70,41,29,0",
        "Birch,55,30,x,x",
        "Cedar,47,20,x,x",
        "Dill,93,50,43,0",
        "Elm,38,19,x,x",
        "Fir,21,9,x,x",
    ]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 6 * 3, draft.text


FLAT = (
    "area,m,f\nAsh,41,52\n"
    + "Moor,126,107\nBirch,67,30\nCedar,18,25\nFir,35,60\nGorse,12,17\nVale,115,117\nDill,93,71\nElm,22,46\n"
)
"""Ash lies in Moor, and stands above it; Fir and Gorse lie in nothing."""


def test_places_that_hold_sums_are_named_by_the_draft_and_the_remedy_leads(tmp_path):
    draft, measured = read_draft(tmp_path, FLAT)
    assert measured.cells.tree.sizes == (1, 9)
    told = [text for text in draft.undecided if "'Vale' is about the sum of 2 places" in text]
    assert told
    assert "--geography LIST" in told[0]
    assert told[0] in measured.spec.noted
    listed = tmp_path / "list.csv"
    listed.write_text(
        "place,in\nall,\nMoor,all\nVale,all\nFir,all\nGorse,all\nAsh,Moor\nBirch,Moor\nCedar,Moor\nDill,Vale\nElm,Vale\n"
    )
    again = draft_published([tmp_path / "t.csv"], geography=listed)
    measured = read_perturbed(parse_perturbed(again.text), [tmp_path / "t.csv"], listed)
    assert measured.cells.n == 7 * 2
    assert not measured.spec.noted


def test_numbers_that_are_no_sums_raise_no_alarm(tmp_path):
    draft, _ = read_draft(tmp_path, FLAT.replace("115,117", "118,90"))
    assert not [text for text in draft.undecided if "about the sum" in text]


def test_a_list_of_codes_beside_a_table_is_no_table(tmp_path):
    table, codes = tmp_path / "t.csv", tmp_path / "codes.csv"
    table.write_text("region,m,f\nAsh,41,52\nBirch,67,30\nCedar,18,25\n")
    codes.write_text("term,length\nmales,8\nfemales,8\nwho,12\n")
    draft = draft_published([table, codes])
    assert any("codes.csv" in text and "taken for a list" in text for text in draft.undecided)
    measured = read_perturbed(parse_perturbed(draft.text), [table])
    assert measured.cells.tree.sizes == (1, 3)


def test_four_rows_of_a_header_are_joined(tmp_path):
    head = [
        "code,name,years and crops,,,,,",
        ",,2017,,,,,",
        ",,Total,,,Maize,,",
        ",,Total,Men,Women,Total,Men,Women",
    ]
    head = [line + ",,," * (k < 2) for k, line in enumerate(head)]
    lines = ["11,Ash,30,20,10,12,8,4", "12,Birch,50,31,19,20,11,9", "13,Cedar,21,11,10,9,5,4"]
    head[2] += ",Rice,,"
    head[3] += ",Total,Men,Women"
    parts = (",18,12,6", ",30,20,10", ",12,6,6")
    (tmp_path / "t.csv").write_text("\n".join([*head, *map(str.__add__, lines, parts)]) + "\n")
    draft = draft_published([tmp_path / "t.csv"])
    measured = read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"])
    assert measured.cells.n == 3 * 2 * 2, draft.text


def test_rows_of_shares_are_left_out(tmp_path):
    lines = ["code,age,what,value"]
    for k, area in enumerate(("11", "1101", "1102", "1103")):
        for age, n in (
            ("999", (610, 200, 110, 300)[k]),
            ("018-044", (401, 120, 81, 200)[k]),
            ("045-066", (209, 80, 29, 100)[k]),
        ):
            lines += [f"{area},{age},Mottakere,{n}", f"{area},{age},Andel,{n % 7 + 0.3:.1f}"]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 3 * 2, draft.text


@pytest.mark.parametrize(
    "names",
    [("Region", "County or unitary", "District"), ("Land", "Kreis", "Gemeinde"), ("country", "area", "town")],
)
def test_a_level_is_blank_where_a_place_has_no_parts(tmp_path, names):
    """Fewer towns than counties, most of which have none: of those the column of towns is blank."""
    lines = [",".join((*names, "House", "Flat"))]
    lines += [
        f"{land},{county},{town},{n},{n // 3}"
        for land, county, town, n in [
            ("West", "Dev", "Exe", 55),
            ("West", "Dev", "Mid", 25),
            ("West", "Ply", "", 130),
            ("West", "Som", "", 185),
            ("East", "Ken", "Ash", 100),
            ("East", "Ken", "Dov", 45),
            ("East", "Med", "", 610),
            ("East", "Wig", "", 376),
            ("East", "Sou", "", 91),
        ]
    ]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert "ragged = true" in draft.text
    assert measured.cells.n == 9 * 2, draft.text


@pytest.mark.parametrize("head", ["Region {}", "{} region", "Landkreis {}"])
def test_noisy_sums_are_those_of_places_by_their_names(tmp_path, head):
    """Regions and their towns stand in one column; sums miss by noise whose size no one tells, but fractions show it."""
    noise = iter(
        [1.8, -4.1, -3.4, 2.2, 9.9, -1.7, 8.3, 3.1, -2.6, 0.7, -7.9, 1.4, 5.5, -6.2, 4.4, 2.9, -3.3, 1.2]
    )
    lines = ["area,what,value"]
    for region, towns in {
        "North": {"Ash": 694, "Birch": 180, "Cedar": 459},
        "South": {"Dill": 2443, "Elm": 20},
    }.items():
        for place, n in {head.format(region): sum(towns.values()), **towns}.items():
            lines += [
                f"{place},{what},{n * share + next(noise):.4f}"
                for what, share in (("cash", 1), ("kind", 1.25))
            ]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 5 * 2, draft.text


def test_places_without_any_row_are_spoken_of(tmp_path):
    lines = ["zip,visit,n", "01930,in,76", "01930,out,513", "02186,in,252", "02186,out,668", "01339,out,44"]
    draft, _ = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert "--geography" in next(text for text in draft.undecided if "without any row" in text)


@pytest.mark.parametrize("names", [("Kanton", "Bezirk"), ("province", "commune"), ("area", "ward")])
def test_places_above_their_parts_in_an_outline_are_carried_on(tmp_path, names):
    """A county's row has its name alone, those of its parts their own alone; the parts' names tell all rows apart."""
    outline = {
        "Moor": {"Ash": 41, "Birch": 67},
        "Isle": {},
        "Vale": {"Dill": 93, "Elm": 22, "Fern": 8},
        "Cape": {},
    }
    lines = [f"{names[0]},{names[1]},women,men"]
    for county, towns in outline.items():
        n = sum(towns.values()) or 57
        lines += [f"{county},,{n},{2 * n}", *(f",{town},{n},{2 * n}" for town, n in towns.items())]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert "fill = true" in draft.text
    assert measured.cells.n == 7 * 2, draft.text


def test_margins_one_after_the_other_are_no_outline(tmp_path):
    lines = ["sex,age,n", "men,,40", "women,,44", ",young,30", ",old,54"]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert "fill" not in draft.text
    assert measured.cells.n == 4, draft.text


@pytest.mark.parametrize(
    "ages", [("0", "1-2", "3-6", "7-15", "16-17"), ("16 - 24", "25 - 64", "65"), ("1–4", "5", "6–9", "10–14")]
)
def test_ages_in_years_are_no_counts(tmp_path, ages):
    lines = ["town,years,children"]
    lines += [
        f"{town},{age},{3 * (k + len(town))}"
        for town in ("Ash", "Birch", "Cedar")
        for k, age in enumerate(ages)
    ]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 3 * len(ages), draft.text


def test_counts_below_a_threshold_are_no_ages(tmp_path):
    lines = ["town,sex,n", "Ash,m,1-4", "Ash,f,5", "Birch,m,6", "Birch,f,1-4", "Cedar,m,5", "Cedar,f,6"]
    _, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 6


@pytest.mark.parametrize("hidden", ["n/s", "few", "unter 10"])
def test_a_first_row_of_a_hidden_number_is_no_header(tmp_path, hidden):
    """The first row has no number, but a text that stands in place of numbers below, too."""
    lines = [
        "county,town,sex,new",
        f"Moor,Ash,F,{hidden}",
        "Moor,Ash,M,22",
        f"Moor,Birch,F,{hidden}",
        "Moor,Birch,M,45",
    ]
    lines += ["Vale,Dill,F,31", f"Vale,Dill,M,{hidden}"]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 3 * 2, draft.text


@pytest.mark.parametrize("names", [("SEXP", "INGP"), ("a", "b"), ("sexo", "nac")])
def test_two_columns_of_the_same_numbers_are_two_attributes(tmp_path, names):
    lines = [f"SA4_2021,SA2_2021,{names[0]},age,{names[1]},Count"]
    for k, area in enumerate(("301,30101", "301,30102", "304,30401", "304,30402")):
        for sex in "12@":
            for age in ("0-9", "10-19"):
                for status in "12@":
                    n = 30 * (k + 1) * (2 if sex == "@" else 1) * (3 if status == "@" else int(status))
                    lines.append(f"{area},{sex},{age},{status},{n}")
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 4 * 2 * 2 * 2, draft.text


@pytest.mark.parametrize("rounded_alone", [False, True])
def test_sums_of_rounded_numbers_are_named(tmp_path, rounded_alone):
    lines = ["county,town,m,f,total"]
    for k in range(30):
        m, f = 5 * ((7 * k + 3) % 23 + 2), 5 * ((11 * k + 5) % 19 + 3)
        lines.append(f"c{k % 4},t{k},{m},{f},{m + f + (5 * (k % 3 - 1) if rounded_alone else 0)}")
    draft, _ = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert rounded_alone != any("perturbed by itself" in text for text in draft.undecided), draft


@pytest.mark.parametrize(
    "name", ["Standardna napaka", "erreur-type", "error estándar", "błąd standardowy", "標準誤差"]
)
def test_standard_errors_are_known_in_other_languages(tmp_path, name):
    lines = [f"area,n,{name}", "Ash,41.25,3.0", "Birch,67.5,3.0", "Cedar,18.125,3.0", "Dill,12.5,0"]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert f'variance = "{name}"' in draft.text
    assert measured.cells.n == 4
