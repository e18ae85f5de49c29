"""Published tables that cannot be read are refused by name, and remedies that the messages print lead on when followed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bad_inputs import published_rows
from tests.io.bad_input import BAD, COUNT, HEAD, POINTERS, PREFIXES, read, refused
from tests.io.test_published_as_they_come import values
from trueup.errors import DataError, SpecError

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.parametrize(
    ("error", "message", "given"), [pytest.param(e, m, g, id=what) for what, e, m, g in BAD]
)
def test_bad_input_is_refused_by_name(error, message, given):
    with pytest.raises(error) as caught:
        refused(given)
    assert type(caught.value) is error
    assert message in str(caught.value)


@pytest.mark.thorough
def test_the_table_is_documented_word_for_word():
    page = PAGE.read_text()
    assert not [line for line in published_rows() if line not in page]


def remedy(pattern, spec, *texts):
    """What a message tells to write."""
    with pytest.raises(DataError) as caught:
        read(spec, *texts)
    found = re.search(pattern, str(caught.value))
    assert found, str(caught.value)
    return found[1]


def test_a_column_by_a_name_that_the_message_offers_is_read():
    name = remedy("use names that are in the header: '([^']+)'", HEAD + COUNT, "area,N\na,1\nb,2\n")
    assert values(read(HEAD + COUNT.replace('"n"', f'"{name}"'), "area,N\na,1\nb,2\n")) == {"a": 1, "b": 2}


def test_one_of_several_columns_of_a_name_is_read_by_the_name_that_the_message_offers():
    text = "area,2023,2024\n,n,n\na,1,2\nb,3,4\n"
    name = remedy("such as '[^']+' or '([^']+)'", HEAD + COUNT, text)
    assert values(read(HEAD + COUNT.replace('"n"', f'"{name}"'), text)) == {"a": 2, "b": 4}


def test_a_short_code_has_a_level_of_its_own_as_the_message_says():
    text = "area,n\nX,9\nX11,4\nX12,5\nY,3\nY11,3\n"
    spec = HEAD.replace("level = [", "level = [").replace(
        '{ name = "area", column', '{ name = "part", column = "area", prefix = 2 }, { name = "area", column'
    )
    length = remedy("of the first ([0-9]) characters of 'area'", spec + COUNT, text)
    own = f'{{ name = "land", column = "area", prefix = {length} }}, {{ name = "part"'
    found = values(read(spec.replace('{ name = "part"', own) + COUNT, text))
    assert found == {"X": 9, "X11": 4, "X12": 5, "Y": 3, "Y11": 3}


def test_tables_that_were_perturbed_apart_have_keys_of_their_own_as_the_message_says():
    spec = HEAD + COUNT.replace('"exact"', '"cell-key", maximum = 2, change_variance = "1"')
    two = spec + spec.removeprefix(HEAD).replace('"t"', '"u"')
    texts = ("area,n\na,5\nb,9\n", "area,n\na,6\nb,9\n")
    remedy("give each a (key) of its own", two, *texts)
    keyed = "".join(
        f'[[published]]{part}key = "k{k}"\n'
        for k, part in enumerate(two.removeprefix(HEAD).split("[[published]]")[1:])
    )
    assert len(read(HEAD + keyed, *texts).headers) == 2


def test_places_by_their_parents_are_read_with_the_list_that_the_message_asks_for():
    remedy("(--geography FILE)", POINTERS + COUNT, "id,n\nr,3\na,1\nb,2\n")
    found = values(read(POINTERS + COUNT, "id,n\nr,3\na,1\nb,2\n", geography="id,in\nr,\na,r\nb,r\n"))
    assert found == {"r": 3, "a": 1, "b": 2}


def test_places_without_parts_and_total_rows_are_read_by_parent_pointers():
    places = "id,in\nr,\na,r\nb,r\na1,a\na2,a\n"
    spec = POINTERS.replace('{ name = "area" }', '{ name = "land" }, { name = "area" }') + COUNT
    found = values(read(spec + 'total = "Sum"\n', "id,n\nSum,9\na,3\nb,6\na1,1\na2,2\n", geography=places))
    assert found == {"r": 9, "a": 3, "b": 6, "a1": 1, "a2": 2}


def test_a_place_below_the_level_of_its_table_is_refused():
    spec = POINTERS.replace('{ name = "area" }', '{ name = "land" }, { name = "area" }')
    last = COUNT.replace('"t"', '"u"').replace('"n"', '"n"')
    with pytest.raises(DataError, match="is not a place of level 'land' or above"):
        read(
            spec + COUNT.replace('level = "area"', 'level = "land"') + last,
            "id,n\na1,1\n",
            "id,n\na1,1\nb,1\n",
            geography="id,in\nr,\na,r\nb,r\na1,a\n",
        )


def test_prefixes_need_full_codes():
    assert values(read(PREFIXES + COUNT, "area,n\nxyz,2\nxyzu,2\n"))["xyzu"] == 2


def test_an_attribute_in_rows_and_one_in_columns_are_margins_together():
    both = HEAD + (
        'attribute = [{ name = "sex", values = ["f", "m"] }, { name = "age", values = ["young", "old"] }]\n'
        '[[published]]\nname = "t"\nlevel = "area"\nattributes = ["age"]\nlaw = { name = "exact" }\ntotal = "T"\n'
        'cell = [{ count = "F", where = { sex = "f" } }, { count = "M", where = { sex = "m" } }, { count = "All" }]\n'
    )
    found = values(read(both, "area,age,F,M,All\na,young,1,2,3\na,old,4,5,9\na,T,5,7,12\n"))
    assert found == {
        "a, sex=f, age=young": 1, "a, sex=f, age=old": 4, "a, sex=m, age=young": 2, "a, sex=m, age=old": 5,
        "a, age=young": 3, "a, age=old": 9, "a, sex=f": 5, "a, sex=m": 7, "a": 12,
    }  # fmt: skip
    with pytest.raises(DataError, match="lacks 'a, sex=f, age=old'"):
        read(both, "area,age,F,M,All\na,young,1,2,3\n")
    with pytest.raises(SpecError, match="both in its cells and as a column"):
        read(both.replace('attributes = ["age"]', 'attributes = ["sex"]'))
