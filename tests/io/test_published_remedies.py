"""Remedies of published tables, each followed to the letter."""

from __future__ import annotations

import re

import pytest

from trueup.errors import DataError, SpecError
from trueup.inferring import infer
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

HEAD = """format = 1
title = "t"
table = { name = "t", counts = "unit" }
level = [{ name = "all" }, { name = "area", column = "area" }]
[[published]]
name = "t"
level = "area"
count = "n"
"""


def _read(tmp_path, spec, text, *more):
    files = []
    for k, each in enumerate((text, *more)):
        (tmp_path / f"{k}.csv").write_text(each)
        files.append(tmp_path / f"{k}.csv")
    return read_perturbed(parse_perturbed(spec), files)


@pytest.mark.thorough
@pytest.mark.parametrize("largest", [7, 1234, 56789])
def test_a_bound_on_what_nothing_bounds_leaves_room_for_all_counts(tmp_path, largest):
    spec = HEAD + 'law = { name = "exact" }\ncodes = { "*" = "unknown" }\n'
    text = f"area,n\na,{largest}\nb,*\nc,0\nd,3\n"
    with pytest.raises(SpecError, match="nothing limits the count of 'b'") as refused:
        infer(_read(tmp_path, spec, text), draws=20)
    found = re.search(r"(\[infer\]) and (prior = \{.*?\})", str(refused.value))
    assert found
    shown = infer(_read(tmp_path, f"{spec}{found[1]}\n{found[2]}\n", text), draws=20).summary("area")
    assert shown["low"].tolist()[0] == largest
    assert shown["high"].tolist()[1] > largest


def test_noise_too_small_to_see_is_none(tmp_path):
    spec, text = HEAD + 'law = { name = "discrete-laplace", epsilon = "1000" }\n', "area,n\na,5\nb,9\n"
    with pytest.raises(DataError, match="it never changes a count") as refused:
        _read(tmp_path, spec, text)
    found = re.search(r"write (law = \{.*?\})", str(refused.value))
    assert found
    read = _read(tmp_path, re.sub(r"law = .*", found[1], spec), text)
    assert infer(read, draws=20).summary("area")["mean"].tolist() == [5, 9]


REGIONS = """format = 1
title = "t"
table = { name = "t", counts = "unit" }
level = [{ name = "all" }, { name = "region", column = "region" }, { name = "town", column = "town" }]
[[published]]
name = "regions"
level = "region"
count = "n"
law = { name = "exact" }
[[published]]
name = "towns"
level = "town"
count = "n"
law = { name = "exact" }
"""


def test_a_place_above_whose_parts_no_table_lists_is_its_own_part(tmp_path):
    tables = "region,n\nN,7\nS,5\nIsle,4\n", "region,town,n\nN,a,3\nN,b,4\nS,c,5\n"
    with pytest.raises(
        DataError, match="names the place 'Isle', which is no place of level 'region'"
    ) as refused:
        _read(tmp_path, REGIONS, *tables)
    assert "where it has no parts: ragged = true" in str(refused.value)
    followed = REGIONS.replace('level = "region"\n', 'level = "region"\nragged = true\n')
    with pytest.raises(
        DataError, match=r"'towns' lacks 'Isle/Isle'.*what a cell without a row means"
    ) as refused:
        _read(tmp_path, followed, *tables)
    found = re.search(r'unlisted = "\w+"', str(refused.value))
    assert found
    shown = infer(_read(tmp_path, f"{followed}{found[0]}\n", *tables), draws=20).summary()
    assert dict(zip(shown["label"], shown["mean"]))["Isle/Isle"] == 4


QUOTED = """format = 1
title = "t"
table = { name = "t", counts = "unit" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "kind", values = ["low", 'so-called "high"'] }]
[[published]]
name = "t"
level = "area"
attributes = ["kind"]
count = "n"
law = { name = "exact" }
"""


@pytest.mark.parametrize("way", ["total", "only"])
def test_a_line_for_rows_of_a_sum_is_read_whatever_signs_its_values_hold(tmp_path, way):
    text = 'area,kind,n\na,low,3\na,"so-called ""high""",4\na,"both ""kinds""",7\n'
    with pytest.raises(DataError, match="leave its rows out") as refused:
        _read(tmp_path, QUOTED, text)
    found = re.search(rf"{way} = \{{.*?\}}", str(refused.value))
    assert found
    read = _read(tmp_path, f"{QUOTED}{found[0]}\n", text)
    assert infer(read, draws=20).summary("area x kind")["mean"].tolist() == [3, 4]
