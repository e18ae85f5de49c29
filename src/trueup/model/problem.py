"""The public cells of a spec."""

from __future__ import annotations

from typing import Any

from trueup.errors import DataError
from trueup.model.build import build_cells
from trueup.model.cells import Cells
from trueup.model.geography import read_tree
from trueup.model.spec import Spec
from trueup.model.tree import Tree


def public_cells(spec: Spec, data: Any = None, geography: Any = None) -> Cells:
    """Read the public places, unless they are a Tree already, and cross them with the declared attributes.

    Raises
    ------
    DataError
        If no public list of places is given: places taken from confidential rows would reveal
        which are occupied.
    """
    places = geography if geography is not None else data if spec.table.keys == "public" else None
    if places is None and len(spec.levels) > 1:
        public = spec.table.keys == "public"
        raise DataError(
            "no public geography is given"
            + ("" if public else ", and the spec does not declare the keys of the table public"),
            needed="the list of all places",
            remedy="give --geography FILE"
            + ("" if public else ', or write keys = "public" under [table] for a table of counts'),
        )
    return build_cells(spec, places if isinstance(places, Tree) else read_tree(spec, places))
