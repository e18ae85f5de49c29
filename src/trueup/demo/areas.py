"""The smallest useful spec: two areas and their total, for the examples in docstrings."""

from trueup.model.spec import parse_spec

AREAS = parse_spec("""
format = 1
title = "Two areas"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
""")
