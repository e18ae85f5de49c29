"""Files that only say something of the tables beside them: which places lie in which, and how much noise values carry."""

from __future__ import annotations

from itertools import product

import pytest

from tests.io.test_drafted_offices import drafted

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
