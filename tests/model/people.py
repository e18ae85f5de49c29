"""A small table of people and its spec."""

from __future__ import annotations

import pandas

SPEC = """
format = 2
title = "Areas by sex"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
attribute = [{ name = "sex", values = ["f", "m"] }]
level = [
  { name = "all" },
  { name = "state", column = "state", label = "state_name" },
  { name = "county", column = "county", label = "county_name" },
]
query = [
  { name = "total", epsilon = { state = "1" } },
  { name = "detail", attributes = ["sex"], epsilon = { county = "1" } },
]
constraints = { invariants = [{ level = "all" }] }
"""


DATA = pandas.DataFrame(
    {
        "state": ["01", "01", "01", "01", "02", "02"],
        "state_name": ["Alabama"] * 4 + ["Alaska"] * 2,
        "county": ["001", "001", "003", "003", "001", "001"],
        "county_name": ["Autauga"] * 2 + ["Baldwin"] * 2 + ["Anchorage"] * 2,
        "sex": ["f", "m"] * 3,
        "n": [3000, 4000, 500, 600, 70, 80],
    }
)
