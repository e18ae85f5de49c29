"""The smallest useful specs, for the examples in docstrings: two areas and their total."""

from trueup.model.spec import Spec, parse_spec

_AREAS = """
format = 2
title = "Two areas"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
"""


def _areas(*rest: str) -> Spec:
    return parse_spec(_AREAS + "\n".join(rest))


AREAS = _areas('query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]')
"""Half of epsilon for the total, half for the areas."""
AREAS_RHO = _areas(
    'query = [{ name = "total", noise = "discrete-gaussian", rho = { all = "1/2", area = "1/2" } }]'
)
"""The same with discrete Gaussian noise."""
AREAS_BY_SEX = _areas(
    'attribute = [{ name = "sex", values = ["f", "m"] }]',
    'query = [{ name = "detailed", attributes = ["sex"], epsilon = { all = "1/2", area = "1/2" } }]',
)
"""Counts by sex."""
