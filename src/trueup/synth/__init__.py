"""Synthetic microdata or counts of a made-up country, for demonstrations, benchmarks and assessments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from trueup.errors import SpecError
from trueup.files.writing import staged
from trueup.model.problem import Problem, spec_and_text
from trueup.model.spec import Spec
from trueup.run.local import LocalPool
from trueup.synth.places import Digits, level_sizes, region_level, synth_layout
from trueup.synth.totals import (
    PERSONS_PER_BLOCK,
    PERSONS_PER_PLACE,
    SynthRegion,
    WideTable,
    chosen,
    sized,
    stated_regions,
)
from trueup.synth.write import RegionPlan, WriteRegion
from trueup.version import __version__

SEED = 20200401


def synthesize(
    spec: Spec | Problem | str | Path,
    out: str | Path,
    *,
    places: int | None = None,
    persons: int | None = None,
    regions: Sequence[str] = (),
    totals: Any = None,
    seed: int = SEED,
    workers: int = 1,
    tell: Callable[[str], None] = lambda stage: None,
) -> list[SynthRegion]:
    """Create a synthetic country that a spec can release: public places, and counts or records of units.

    Sizes have the skew of real ones and a third of the blocks is empty; shares of attributes vary from
    place to place; group quarters stand in few blocks. Regions have the stated totals exactly. The same
    arguments give the same files with the same versions of NumPy and DuckDB, whatever the workers.

    Parameters
    ----------
    spec
        A spec, the path of one, or a Problem: levels, attributes, structural zeros, and whether its table has counts or
        records. Places are made up, a Problem's own too.
    out
        A new folder: `places/`, and `counts/` or `records/`, each of Parquet parts; `README.md`. Where the spec links two
        tables, `records/` are the persons, and `households/` are beside them.
    places
        Places of the last level; by default one for 40 persons, or as many as tracts or counties have where it is
        called so.
    persons
        Units in all (of two tables about so many persons), to which the stated totals are scaled; by default 40 (or so) for
        each of `places`, or as stated.
    regions
        Names or codes of the regions to make; by default all.
    totals
        A table of stated totals (columns `name`, `persons`, perhaps `code`); by default the state populations of the census
        of 2020. They are about the level called `state`, if it is the first below the root, or about the root.
    seed
        Seed of everything.
    workers
        Processes; each works on one region at a time.
    tell
        Called with how many regions are done, in words.

    Returns
    -------
    list of Region
        Totals and numbers of places, as made.

    Raises
    ------
    SpecError, DataError, BundleError
        If the spec has rules that no synthetic data are known to satisfy, its codes are too short for so many
        places, totals are at fault, or the folder is occupied.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "areas.toml").write_text('''
    ... format = 2
    ... title = "Areas"
    ... table = { name = "demo", kind = "records", counts = "person" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "state", column = "state" }, { name = "county", column = "county" }]
    ... query = [{ name = "total", epsilon = { county = "1/2" } }]
    ... ''')
    >>> made = synthesize(folder / "areas.toml", folder / "out", persons=1000, regions=["Idaho", "Utah"])
    >>> [(region.name, region.persons) for region in made]
    [('Idaho', 360), ('Utah', 640)]
    """
    spec, out = spec_and_text(spec)[0], Path(out)
    refuse_rules(spec)
    _refuse_unsolvable_sums(spec)
    made = _regions(
        spec,
        chosen(stated_regions(totals), regions),
        persons,
        places,
        bool(regions) or totals is not None,
    )
    laid, plans = _plans(spec, made)
    with staged(out) as folder, LocalPool(workers) as pool:
        second = ["households"] if spec.table.join is not None else []
        for part in ("places", "records" if spec.table.kind == "records" else "counts", *second):
            (folder / part).mkdir()
        task = WriteRegion(spec, laid, folder, seed)
        for done, _ in enumerate(pool.map(task, plans), 1):
            tell(f"region {done} of {len(plans)}")
        (folder / "README.md").write_text(readme(spec, made, seed), encoding="utf-8")
    return made


def refuse_rules(spec: Spec) -> None:
    """Refuse a spec with bounds or linear rules, which synthetic counts would break."""
    if spec.constraints.bounds:
        raise _broken_by_draws("bounds")
    refuse_linear(spec)


def refuse_linear(spec: Spec) -> None:
    """Refuse a spec with linear rules, which synthetic counts would break."""
    if spec.constraints.linear:
        raise _broken_by_draws("linear rules")


def _broken_by_draws(rules: str) -> SpecError:
    return SpecError(
        f"the spec declares {rules}, which synthetic counts would not keep",
        needed="a spec whose only constraints are invariants and structural zeros",
        remedy="leave the other rules out of a copy of the spec",
    )


def _refuse_unsolvable_sums(spec: Spec) -> None:
    """Refuse a spec whose sums of columns have no solution in whole numbers for some table of counts."""
    task = WriteRegion(spec, (), Path(), 0)
    if spec.table.cells and spec.table.in_rows(spec.attributes):
        raise SpecError(
            "the values of some attributes are in names of columns, and those of others in rows",
            needed="for synthetic data, either all in columns or all in rows",
        )
    if task.domain and spec.table.cells:
        WideTable.of(spec, task.cells)


def _regions(
    spec: Spec, found: list[SynthRegion], persons: int | None, places: int | None, named: bool
) -> list[SynthRegion]:
    """Return the regions with their numbers of persons and of places."""
    at = region_level(spec)
    if not at and len(found) > 1:
        if persons is None and places is None and not named:
            raise SpecError(
                "totals are given for states, but the spec has no level called 'state' below its root",
                remedy="give the number of units by --persons or of places by --blocks, or name one region",
            )
        found = [SynthRegion("0", "country", sum(region.persons for region in found))]
    per_place = PERSONS_PER_PLACE.get(spec.levels[-1].name.casefold(), PERSONS_PER_BLOCK)
    made = sized(found, persons, places, per_place)
    return [replace(r, places=1) for r in made] if at == len(spec.levels) - 1 else made


def _plans(spec: Spec, regions: list[SynthRegion]) -> tuple[tuple[Digits, ...], list[RegionPlan]]:
    """Return the layout of the place codes, and the plan of every region."""
    at = region_level(spec)
    names = [level.name.casefold() for level in spec.levels[at + 1 :]]
    free = [level_sizes(names, region.places, [10**9] * len(names)) for region in regions]
    country = [1] + [len(regions)] * at + [sum(column) for column in zip(*free)]
    laid = tuple(synth_layout(spec, country, len(regions[0].code)))
    most = [10**9 if digits.unique else digits.most for digits in laid[at:]]
    sizes = [tuple(level_sizes(names, region.places, most)) for region in regions]
    held = [(1,) * at + size for size in sizes]
    before = list(accumulate(held, lambda a, b: tuple(map(sum, zip(a, b))), initial=(0,) * len(laid)))
    for digits, total, level in zip(laid, before[-1], spec.levels[1:]):
        if digits.unique and total > digits.most:
            raise SpecError(
                f"{total:,} places of level '{level.name}' do not fit in {digits.width} digits",
                remedy=f"lengthen the prefix of '{level.name}', or ask for at most {digits.most:,} places",
            )
    if at and max(int(region.code) for region in regions) > laid[0].most:
        raise SpecError(
            f"the codes of the regions are longer than the level '{spec.levels[1].name}' allows",
            needed=f"codes of at most {laid[0].most} characters",
            remedy="give the regions shorter codes",
        )
    plans = zip(regions, sizes, before)
    return laid, [RegionPlan(r, s, b, first=not i) for i, (r, s, b) in enumerate(plans)]


def readme(spec: Spec, regions: list[SynthRegion], seed: int) -> str:
    """Return the text of the note that accompanies synthetic data."""
    persons, places = sum(r.persons for r in regions), sum(r.places for r in regions)
    kind = "records" if spec.table.kind == "records" else "counts"
    second = (
        "\n- `households/`: the second table (`--data` again, after the first)"
        if spec.table.join is not None
        else ""
    )
    return f"""# Synthetic data

No {spec.table.counts} and no place in these files exists. They were drawn by `trueup synth` {__version__} with the seed {seed}
for the spec "{spec.title}": {persons:,} x {spec.table.counts} in {places:,} places of level '{spec.levels[-1].name}', in
{len(regions)} region(s). Totals of regions were stated; everything else is made up, so nothing can be learnt from it about
anybody. Every Parquet file says so in its metadata (key `synthetic`).

- `places/`: the public list of places (`--geography`)
- `{kind}/`: the table (`--data`){second}
"""
