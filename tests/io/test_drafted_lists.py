"""Files that only say something of the tables beside them: which places lie in which, and how much noise values carry."""

from __future__ import annotations

import json
from itertools import product

import pytest

from tests.io.test_drafted_offices import drafted
from trueup.model.perturbed import parse_perturbed

CANTONS = {"A7": "North", "B2": "North", "C9": "South", "D4": "South", "E1": "South"}
GRADES = [f"grade {k}" for k in range(1, 7)]
SCHOOLS = {(c, s, g): 7 + 3 * k for k, (c, s, g) in enumerate(product(CANTONS, ("girls", "boys"), GRADES))}
LIST = "unit,unit name,part,part name\n" + "".join(
    f"{c},Canton {c},{p[0]}X,{p}\n" for c, p in CANTONS.items()
)


def table(places, rows):
    """A table of places, with all of both attributes and each sex."""
    text = "sex,UNIT,grade,pupils\n"
    for place, own in places.items():
        held = {
            (s, g): sum(n for (c, t, h), n in rows.items() if c in own and (s, g) == (t, h))
            for _, s, g in rows
        }
        text += f"Total,{place},Total,{sum(held.values())}\n"
        text += "".join(f"{s},{place},{g},{n}\n" for (s, g), n in held.items())
    return text


@pytest.mark.thorough
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_a_list_of_codes_makes_places_of_columns_with_fewer_values_than_an_attribute_has(tmp_path, order):
    parts = {p[0] + "X": [c for c, own in CANTONS.items() if own == p] for p in ("North", "South")}
    texts = [
        LIST,
        table({c: [c] for c in CANTONS}, SCHOOLS),
        table(parts, SCHOOLS),
        table({"CH": [*CANTONS]}, SCHOOLS),
    ]
    names = ["units.csv", "cantons.csv", "parts.csv", "land.csv"]
    draft, read = drafted(tmp_path, *(texts[k] for k in order), names=[names[k] for k in order])
    assert dict(draft.places) == {"CH": "", "NX": "CH", "SX": "CH"} | {
        c: p[0] + "X" for c, p in CANTONS.items()
    }
    assert not [text for text in draft.undecided if "refused" in text or "places stand in 'grade'" in text]
    assert len(read) == (5 + 2 + 1) * 13


PLACES = {"Aby": (310, 45), "Bro": (120, 31), "Cal": (77, 12), "Dun": (58, 9)}
WIDE = "place,everyone,inside,outside\n" + "".join(
    f"{p},{a + b},{a + 0.25},{b - 0.75}\n" for p, (a, b) in PLACES.items()
)
LONG = "place,where,n\n" + "".join(
    f"{p},either,{a + b}\n{p},inside,{a + 3}\n{p},outside,{b - 11}\n" for p, (a, b) in PLACES.items()
)


def laws(draft):
    """The law of each part of what is published: the name of a column or what rows say of an attribute."""
    found = {}
    for part in parse_perturbed(draft.text).published:
        told = [text for said in part.only.values() for text in ([said] if isinstance(said, str) else said)]
        for name in told or [cell.count for cell in part.cells] or [part.name]:
            found[name] = (
                (part.law[0] if isinstance(part.law, list) else part.law)["name"],
                part.law.get("sigma2"),
            )
    return found


@pytest.mark.parametrize("text", [WIDE, LONG])
@pytest.mark.parametrize(
    "noise",
    [
        "column;standard deviation\neither;0\neveryone;0\ninside;1,5\noutside;4\n",
        "Std. dev. of the noise,of\n4,outside\n1.5,inside\n0,everyone\n0,either\n",
        "Noise added\n\nSIGMA²,what\n2.25,Inside\n16,Outside\n0,Everyone\n0,Either\n",
        ",inside,outside,everyone,either\nStandardabweichung,1.5,4,0,0\n",
    ],
)
def test_each_deviation_of_a_list_has_an_entry(tmp_path, text, noise):
    names = {name for name in ("either", "everyone") if name in text}
    kept = "\n".join(
        line
        for line in noise.splitlines()
        if not any(w in line.casefold() for w in {"either", "everyone"} - names)
    )
    kept = noise if "\nStandard" in noise else kept + "\n"
    if "\nStandard" in noise:
        kept = f",inside,outside,{next(iter(names))}\nStandardabweichung,1.5,4,0\n"
    kind = "gaussian" if ".25" in text else "discrete-gaussian"
    for order in ((kept, text), (text, kept)):
        draft, read = drafted(tmp_path, *order, names=("a.csv", "b.csv"))
        assert laws(draft) == {
            "inside": (kind, "2.25"),
            "outside": (kind, "16"),
            names.pop() if len(names) > 1 else next(iter(names)): ("exact", None),
        }
        assert len(read) == 12
        assert not [said for said in draft.undecided if "refused" in said or "sigma2 is not known" in said]


def test_a_list_may_give_a_deviation_to_each_table(tmp_path):
    one, two = (
        f"place,{name}\n" + "".join(f"{p},{a + k}\n" for k, (p, (a, _)) in enumerate(PLACES.items()))
        for name in ("cats", "dogs")
    )
    draft, _ = drafted(
        tmp_path, one, two, "file,sd\nmild.csv,2\nwild.csv,10\n", names=("mild.csv", "wild.csv", "noise.csv")
    )
    assert laws(draft) == {"mild": ("discrete-gaussian", "4"), "wild": ("discrete-gaussian", "100")}


def test_counts_with_an_error_each_are_no_list(tmp_path):
    errors = "where,n,standard error\ninside,571,2.5\noutside,86,2.5\n"
    draft, _ = drafted(tmp_path, LONG, errors, names=("a.csv", "b.csv"))
    assert not [text for text in draft.undecided if "a list of the noise" in text]


CHANGES = {0: {0: 1.0}, 1: {-1: 2 / 3, 2: 1 / 3}, 2: {-2: 1 / 3, 1: 2 / 3}, 3: {-1: 0.2, 0: 0.6, 1: 0.2}}


def listing(way, sign, last):
    """A list of `CHANGES` in a form of its own."""
    cell = lambda p: f"{p:.6f}".replace(".", sign)  # noqa: E731
    rows = [(x, d, p) for x, row in CHANGES.items() for d, p in row.items()]
    name = lambda x: last if x == 3 else x  # noqa: E731
    by = ";" if sign == "," else ","
    forms = {
        "changes": [("original", "change", "p"), *((name(x), f"{d:+d}", cell(p)) for x, d, p in rows)],
        "published": [("p", "j", "i"), *((cell(p), x + d, name(x)) for x, d, p in rows)],
        "wide": [
            ("", *range(-2, 3)),
            *((name(x), *(cell(row.get(d, 0)) for d in range(-2, 3))) for x, row in CHANGES.items()),
        ],
        "without 0": [("wahr", "Abw.", "W."), *((name(x), d, cell(p)) for x, d, p in rows if x)],
    }
    return "".join(by.join(map(str, row)) + "\n" for row in forms[way])


@pytest.mark.parametrize("way", ["changes", "published", "wide", "without 0"])
@pytest.mark.parametrize("sign", [",", "."])
@pytest.mark.parametrize("last", ["3", "3+", "3 und mehr"])
def test_a_list_of_transition_probabilities_is_the_law_of_the_tables(tmp_path, way, sign, last):
    text = "place,cats,dogs\n" + "".join(f"{p},{a},{b}\n" for p, (a, b) in PLACES.items())
    draft, read = drafted(tmp_path, listing(way, sign, last), text, names=("how.csv", "pets.csv"))
    (part,) = parse_perturbed(draft.text).published
    assert part.rule.law.name == "cell-key"
    found = json.loads(part.rule.law.transitions)
    assert [{int(d): p for d, p in row.items() if p} for row in found] == [
        pytest.approx(row, abs=1e-6) for row in CHANGES.values()
    ]
    assert len(read) == 8
    assert [said for said in draft.undecided if "transition probabilities" in said and "cell key" in said]


@pytest.mark.parametrize(
    "text", ["a,b,share\n1,1,0.5\n1,2,0.4\n2,1,0.7\n", "year,part,share\n2020,1,1\n2021,1,1\n2022,1,1\n"]
)
def test_shares_that_are_no_probabilities_of_changes_are_no_law(tmp_path, text):
    draft, _ = drafted(tmp_path, LONG, text, names=("a.csv", "b.csv"))
    assert "transitions" not in draft.text


FARMS = {"k1": (12, 31), "k2": (25, 8), "k3": (44, 19), "k4": (9, 16), "k5": (7, 28)}
WITHIN = {"r1": ["k1", "k2"], "r2": ["k3", "k4", "k5"]}
TITLES = {
    "k1": "Little Aby",
    "k2": "Bro",
    "k3": "Cal on the Hill",
    "k4": "Dun",
    "k5": "East Dun",
    "r1": "Upper Shire",
    "r2": "Nether Shire",
    "z": "Land",
}


@pytest.mark.parametrize(
    "told",
    [
        "a farm in {code}",
        "Kreis ({code}), seit 1990",
        "lies in {title}",
        "{title}",
        "part of {title}; known for its dunes",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_list_of_codes_may_name_the_place_above_in_its_text(tmp_path, told, first):
    above = {part: told.format(code=r, title=TITLES[r]) for r, parts in WITHIN.items() for part in parts}
    sums = {r: tuple(sum(FARMS[k][j] for k in parts) for j in (0, 1)) for r, parts in WITHIN.items()}
    sums["z"] = tuple(sum(own) for own in zip(*sums.values()))
    text = "unit,cows,sheep\n" + "".join(f"{k},{a},{b}\n" for k, (a, b) in {**sums, **FARMS}.items())
    listing = "".join(f'unit,{code},{title},"{above.get(code, "")}"\n' for code, title in TITLES.items())
    listing = "key,code,title,text\n" + listing + "cows,c1,Cows of any age,all that give milk\n"
    files = [(listing, "codes.csv"), (text, "farms.csv")][:: 1 if first else -1]
    draft, read = drafted(tmp_path, *(file for file, _ in files), names=[name for _, name in files])
    assert dict(draft.places) == {"z": "", "r1": "z", "r2": "z"} | {
        k: r for r, parts in WITHIN.items() for k in parts
    }
    assert len(read) == 8 * 3 - 8
    assert not [said for said in draft.undecided if "refused" in said or "missed" in said]
