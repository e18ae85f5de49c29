"""The note beside synthetic data."""

from __future__ import annotations

from trueup.model.spec import Spec
from trueup.synth.totals import SynthRegion
from trueup.version import __version__


def readme(spec: Spec, regions: list[SynthRegion], seed: int) -> str:
    """Return a note that the data are synthetic, what made them and how to use them."""
    persons, places = sum(r.persons for r in regions), sum(r.places for r in regions)
    kind = "records" if spec.table.kind == "records" else "counts"
    second = "\n- `households/`: the second table (`--households`)" if spec.table.join is not None else ""
    return f"""# Synthetic data

No {spec.table.counts} and no place in these files exists. They were drawn by `trueup synth` {__version__} with the seed {seed}
for the spec "{spec.title}": {persons:,} x {spec.table.counts} in {places:,} places of level '{spec.levels[-1].name}', in
{len(regions)} region(s). Totals of regions were stated; everything else is made up, so nothing can be learnt from it about
anybody. Every Parquet file says so in its metadata (key `synthetic`).

- `places/`: the public list of places (`--geography`)
- `{kind}/`: the table (`--data`){second}
"""
