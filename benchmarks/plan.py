"""Planning the budget of the redistricting tables (64 tables, Rhode Island's shape: 25,181 blocks)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Case, Harness
from trueup.model.spec import load_spec
from trueup.planning.plan import plan

EXAMPLE = Path(__file__).parents[1] / "examples" / "pl94.toml"
TWO = ["county=10@95%", "block x cenrace=25@90%"]
ATTRIBUTES = [
    "hhgq",
    "votingage",
    "hispanic",
    "cenrace",
    "hhinstlevels",
    "hispanic x cenrace",
    "votingage x cenrace",
]


def cases(harness: Harness) -> Iterator[Case]:
    """Two targets, forty, and weights."""
    spec, places = load_spec(EXAMPLE), geography(25_181)
    levels = {"nation": 5, "county": 10, "tract": 12, "block group": 14, "block": 16}
    many = [
        f"{level} x {by}={counts + i}@95%"
        for level, counts in levels.items()
        for i, by in enumerate(ATTRIBUTES)
    ]
    many += [f"{level}={counts}@95%" for level, counts in levels.items() if level != "nation"] + [
        "state x hhgq=9@95%"
    ]
    for name, wishes in {
        "2 targets": {"targets": TWO},
        f"{len(many)} targets": {"targets": many},
        "equal weights": {},
    }.items():
        planned = plan(spec, places, **wishes)
        case = f"{name}, gap {planned.certificate.gap:.1g}, at most {planned.certificate.mechanisms:.2f} times any mechanism"
        yield from harness.compare(
            case, lambda wishes=wishes: float(plan(spec, places, **wishes).total), memory=False
        )


def geography(blocks: int):
    """Codes of blocks in 5 counties, 244 tracts and 815 block groups of random sizes."""
    import pandas

    rng = np.random.default_rng(1)
    tract_county = np.sort(np.append(np.arange(5), rng.integers(5, size=239)))
    group_tract = np.sort(np.append(np.arange(244), rng.integers(244, size=571)))
    block_group = np.sort(np.append(np.arange(815), rng.integers(815, size=blocks - 815)))
    first = np.searchsorted(group_tract, np.arange(244))
    digit = (np.arange(815) - first[group_tract]) % 9 + 1
    tract = group_tract[block_group]
    block = np.arange(blocks) - np.searchsorted(block_group, np.arange(815))[block_group]
    codes = [
        f"44{c:03d}{t:06d}{d}{b:03d}"
        for c, t, d, b in zip(tract_county[tract], tract, digit[block_group], block)
    ]
    return pandas.DataFrame({"geocode": sorted(set(codes))})
