# ruff: noqa: E501
"""The table of published tables, and of entries for them, that are refused: each by its name, with a word of what is said."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trueup.errors import DataError, SpecError
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

HEAD = 'format = 1\ntitle = "T"\ntable = { name = "t", counts = "case" }\nlevel = [{ name = "all" }, { name = "area", column = "area" }]\n'
SEX = 'attribute = [{ name = "sex", values = ["f", "m"] }]\n'
COUNT = '[[published]]\nname = "t"\nlevel = "area"\ncount = "n"\nlaw = { name = "exact" }\n'
LONG = COUNT.replace("count =", 'attributes = ["sex"]\ncount =')
ROUNDED = COUNT.replace('"exact"', '"rounded", base = 5')
TWO_LEVELS = HEAD.replace('{ name = "area"', '{ name = "region", column = "region" }, { name = "area"')
PREFIXES = HEAD.replace(
    '{ name = "area", column', '{ name = "part", column = "area", prefix = 3 }, { name = "area", column'
)
POINTERS = HEAD.replace('{ name = "area", column = "area" }', '{ name = "area" }').replace(
    "level = [", 'parents = { id = "id", parent = "in" }\nlevel = ['
)


def read(spec, *texts, geography=None):
    """Read files that hold some texts by a spec, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"t{k}.csv") for k in range(len(texts))]
        for file, text in zip(files, texts):
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        listed = Path(folder, "places.csv")
        listed.write_text(geography or "")
        return read_perturbed(parse_perturbed(spec), files, listed if geography else None)


BAD = [
    ("a text that is no number and no code", DataError, "the text 'x'", (HEAD + COUNT, "area,n\na,x\nb,3\n")),
    ("an empty value", DataError, "no value", (HEAD + COUNT, "area,n\na,\nb,3\n")),
    ("a fraction under a law of whole counts", DataError, "not whole", (HEAD + COUNT, "area,n\na,1.5\nb,3\n")),
    ("a number that reads two ways", DataError, "decimal sign", (HEAD + COUNT, "area;n\na;1.000\nb;2.000\n")),
    ("a number as a code", SpecError, "is read as a count", (HEAD + COUNT + 'codes = { "1,234" = "1-4" }\n',)),
    ("a code whose meaning cannot be read", SpecError, "cannot be read", (HEAD + COUNT + 'codes = { "*" = "small" }\n',)),
    ("a code for what a law hides that hides nothing", SpecError, "hides nothing", (HEAD + COUNT + 'codes = { "*" = "hidden" }\n',)),
    ("a code for other counts than the law hides", DataError, "hides counts", (HEAD + COUNT.replace('"exact"', '"suppressed", threshold = 9'), "area,n\na,<5\nb,12\n")),
    ("a code for values that the law never gives", DataError, "none of which its law can produce", (HEAD + ROUNDED + 'codes = { "c" = "published 1-4" }\n', "area,n\na,c\nb,10\n")),
    ("a value that its law never gives", DataError, "has 7", (HEAD + ROUNDED, "area,n\na,7\nb,10\n")),
    ("two laws that make values", SpecError, "applies the law 'rounded' after 'rounded'", (HEAD + COUNT.replace('{ name = "exact" }', '[{ name = "rounded", base = 5 }, { name = "rounded", base = 10 }]'),)),
    ("a column that is not there", DataError, "header row with column 'n'", (HEAD + COUNT, "area,N\na,1\n")),
    ("a column that is there twice", DataError, "several columns 'n'", (HEAD + COUNT, "area,2023,2024\n,n,n\na,1,2\nb,3,4\n")),
    ("a cell that is listed twice", DataError, "2 times", (HEAD + COUNT, "area,n\na,1\na,2\n")),
    ("a cell that has no row", DataError, "lacks", (HEAD + SEX + LONG, "area,sex,n\na,f,1\na,m,2\nb,f,3\n")),
    ("a value of an attribute that is not declared", DataError, "has 'sum' for 'sex'", (HEAD + SEX + LONG, "area,sex,n\na,f,1\na,m,2\na,sum,3\n")),
    ("a key above that is blank", DataError, "no place of level 'region' above it", (TWO_LEVELS + COUNT, "region,area,n\nN,a,1\n,b,2\n")),
    ("a code shorter than its level", DataError, "shorter than the 3 characters", (PREFIXES + COUNT, "area,n\nab,1\nxyzu,2\n")),
    ("a variance below zero", DataError, "the variance '-1'", (HEAD + COUNT.replace('"exact"', '"gaussian"') + 'variance = "v"\n', "area,n,v\na,1,-1\n")),
    ("an entry without its file", DataError, "is not given", (HEAD + COUNT + 'file = "x.csv"\n', "area,n\na,1\n")),
    ("more entries than files", DataError, "1 table is given", (HEAD + COUNT + COUNT.replace('"t"', '"u"'), "area,n\na,1\n")),
    ("a file in another encoding", DataError, "--encoding latin-1", (HEAD + COUNT, "area,n\nÉvora,1\n".encode("latin-1"))),
    ("places by their parents without their list", DataError, "--geography", (POINTERS + COUNT, "id,n\na,1\n")),
    ("a place that the list of parents has not", DataError, "names the place 'b'", (POINTERS + COUNT, "id,n\nb,1\n", "id,in\nr,\na,r\n")),
    ("a column of a level beside parent pointers", SpecError, "has a column", (HEAD.replace("level = [", 'parents = { id = "id", parent = "in" }\nlevel = [') + COUNT,)),
]  # fmt: skip


def refused(given):
    """Read what is given: a spec, its table, a list of places."""
    spec, *rest = given
    return read(spec, *rest[:1], geography=rest[1] if len(rest) > 1 else None)
