"""The spec of tables that somebody else published: places, attributes, and the law of every table.

It has the names by which post-processing reads a spec (`levels`, `attributes`, `constraints`, `queries`, `infer`,
`reconcile`), but no unit of privacy and no budget: nothing is protected here, and nothing can be measured by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from trueup.errors import SpecError
from trueup.model.names import refuse_repeats, refuse_taken_columns, refuse_unknown_name
from trueup.model.prior import read_prior
from trueup.model.published_codes import UNKNOWN, read_interval
from trueup.model.spec import mistakes, read_spec_text
from trueup.model.spec_queries import ConstraintsPart
from trueup.model.spec_table import AttributePart, CellColumn, Level, Name, SpecPart
from trueup.model.toml import read_toml
from trueup.model.transitions import read_transitions
from trueup.noise import law_named
from trueup.noise.laws.exact import Exact
from trueup.noise.perturbed import CellKey, CountInterval


class PublishedName(SpecPart):
    """What was counted."""

    name: Name = Field(description="the dataset's name")
    counts: Name = Field(description="what one count stands for: person, household, ...")
    cells: ClassVar[tuple[CellColumn, ...]] = ()
    keys: ClassVar[None] = None


class PublishedTable(SpecPart):
    """One published table: its margin, its columns, the law of its values and the codes in their place."""

    name: Name
    level: str
    attributes: tuple[str, ...] = Field((), description="of a long table: a column each")
    count: Name | None = Field(None, description="the column of values of a long table")
    cells: tuple[CellColumn, ...] = Field(
        (), alias="cell", description="the columns of a wide table; one without all attributes is a total"
    )
    total: Name | None = Field(
        None, description="what stands in the column of an attribute that is summed out"
    )
    law: dict[str, Any] = Field(description="name and parameters")
    codes: dict[str, str] = Field(
        default_factory=dict,
        description=f"what stands in the place of a value, and what it says: '1-4', '<5', '10+' or '{UNKNOWN}'",
    )
    unlisted: Literal["refused", "zero", "unknown"] = Field(
        "refused", description="what it says where a place or value has no row"
    )
    key: str | None = Field(
        None,
        description="tables with the same key show a cell with the same perturbation; cell keys share one unless told",
    )
    file: Name | None = Field(None, description="the file's name; by default the files are in this order")
    sheet: Name | None = Field(None, description="of a workbook; by default the first")
    skip: int = Field(0, ge=0, le=1000, description="rows of a workbook before the header")

    @property
    def settled_law(self) -> Any:
        """The law of the values."""
        return read_law(self.law, self.name)

    def meaning(self, code: str) -> CountInterval | None:
        """What a declared code says; None if nothing."""
        return None if self.codes[code] == UNKNOWN else read_interval(self.codes[code])

    @model_validator(mode="after")
    def _can_be_read(self):
        if bool(self.count) == bool(self.cells):
            raise ValueError(f"table '{self.name}' needs either `count` or [[published.cell]]")
        if self.cells and (self.attributes or self.total):
            raise ValueError(
                f"table '{self.name}' is wide: its cells name the attributes, so it lists none, and no total"
            )
        columns = [cell.count for cell in self.cells]
        if twice := [column for column in columns if columns.count(column) > 1]:
            raise ValueError(f"table '{self.name}' takes two cells from the column '{twice[0]}'")
        for code, meaning in self.codes.items():
            if meaning != UNKNOWN and read_interval(meaning) is None:
                raise ValueError(
                    f"table '{self.name}': code '{code}' says '{meaning}', which cannot be read: write an interval "
                    f"such as '1-4', '<5' or '10+', or '{UNKNOWN}'"
                )
            if re.fullmatch(r"\s*-?\d+\s*", code):
                raise ValueError(f"table '{self.name}': the code '{code}' is a count")
        _ = self.settled_law
        return self


class _Margins(NamedTuple):
    """A query's name, attributes and levels, as constraints are built from them."""

    name: str
    attributes: tuple[str, ...]
    budgets: Mapping[str, Fraction]
    where: None = None


class PerturbedSpec(SpecPart):
    """Places, attributes, rules and published tables.

    Examples
    --------
    >>> spec = parse_perturbed('''
    ... format = 1
    ... title = "Two districts"
    ... table = { name = "demo", counts = "person" }
    ... level = [{ name = "all" }, { name = "district", column = "district" }]
    ... [[published]]
    ... name = "districts"
    ... level = "district"
    ... count = "persons"
    ... law = { name = "random-rounding", base = 3 }
    ... ''')
    >>> spec.published[0].settled_law
    RandomRounding(base=3)
    """

    format: Literal[1] = Field(description="version of this format")
    title: str
    table: PublishedName
    levels: tuple[Level, ...] = Field(alias="level", min_length=1)
    attributes: tuple[AttributePart, ...] = Field((), alias="attribute")
    published: tuple[PublishedTable, ...] = Field(min_length=1)
    constraints: ConstraintsPart = Field(default_factory=ConstraintsPart)
    reconcile: dict[str, Any] = Field(default_factory=dict, description="method and its parameters")
    infer: dict[str, Any] = Field(default_factory=dict, description="method, prior, and ratios")

    parents: ClassVar[None] = None

    @property
    def limit_columns(self) -> tuple[tuple[str, ...], ...]:
        """No column of the places holds limits."""
        return tuple(() for _ in self.levels)

    @property
    def queries(self) -> tuple[_Margins, ...]:
        """The margins of all tables."""
        return tuple(
            _Margins(part.name, attributes, {part.level: Fraction(0)})
            for part in self.published
            for attributes in self.margins_of(part)
        )

    def margins_of(self, part: PublishedTable) -> list[tuple[str, ...]]:
        """The attributes of every margin that a table shows."""
        if part.cells:
            return list(dict.fromkeys(tuple(cell.where) for cell in part.cells))
        return [part.attributes, *(() for _ in [0] if part.total and part.attributes)]

    @model_validator(mode="after")
    def _names_agree(self):
        levels = [level.name for level in self.levels]
        views = [view for a in self.attributes for view in a.views]
        refuse_repeats("level", levels)
        refuse_repeats("attribute", views)
        refuse_repeats("published table", [part.name for part in self.published])
        keys = [x.name if x.prefix else x.column or x.name for x in self.levels]
        refuse_taken_columns(self.levels, self.attributes, keys)
        if self.levels[0].column is not None:
            raise ValueError("the first level is the root: it holds every place and has no column")
        if bare := [level.name for level in self.levels[1:] if level.column is None]:
            raise ValueError(f"level '{bare[0]}' has no column")
        if columned := [b for b in self.constraints.bounds if b.columns]:
            raise ValueError(f"a bound on '{columned[0].level}' names a column; give numbers")
        if self.constraints.invariants:
            raise ValueError("invariants are tables of law 'exact' here")
        for part in self.published:
            where = f"table '{part.name}'"
            refuse_unknown_name(part.level, levels, "level", where)
            for attributes in self.margins_of(part):
                self._refuse_misnamed(attributes, where)
            for name, value in (pair for cell in part.cells for pair in cell.where.items()):
                domain = next(list(a.views[name]) for a in self.attributes if name in a.views)
                refuse_unknown_name(value, domain, f"value of '{name}'", where)
        for name in ("prior", "prior_total"):
            if name in self.infer:
                read_prior(self.infer[name])
        return self

    def _refuse_misnamed(self, names: tuple[str, ...], where: str) -> None:
        for name in names:
            refuse_unknown_name(name, [view for a in self.attributes for view in a.views], "attribute", where)
        for attribute in self.attributes:
            if len(same := [name for name in attribute.views if name in names]) > 1:
                raise ValueError(f"{where} names '{same[0]}' and '{same[1]}', which are the same attribute")
            if not attribute.partition and not any(name in attribute.views for name in names):
                raise ValueError(f"{where} sums over '{attribute.name}', whose values overlap")


def read_law(entry: Mapping[str, Any], table: str) -> Any:
    """Make the law of a table from its name and parameters.

    Raises
    ------
    SpecError
        If the name or a parameter is unknown, missing or out of range.

    Examples
    --------
    >>> read_law({"name": "cell-key", "maximum": 2, "change_variance": "1"}, "t").period
    1
    """
    given = dict(entry)
    if "name" not in given:
        raise SpecError(
            f"the law of table '{table}' has no name", needed='such as { name = "random-rounding", base = 3 }'
        )
    kind: Any = law_named(given.pop("name"))
    if kind is CountInterval:
        raise SpecError(f"table '{table}' has the law '{kind.name}', which reads no value", needed="a code")
    try:
        return kind() if kind is Exact and not given else kind(**given)
    except TypeError:
        parameters = fields(kind) if hasattr(kind, "__dataclass_fields__") else ()
        known = ", ".join(repr(each.name) for each in parameters) or "no parameter"
        shown = ", ".join(map(repr, given)) or "no parameter"
        raise SpecError(f"law '{kind.name}' of table '{table}' is given {shown}", needed=f"{known}") from None


def parse_perturbed(text: str, folder: Path | None = None, what: str = "the spec") -> PerturbedSpec:
    """Read the spec of published tables from TOML text; files that laws name lie in `folder`, messages call it `what`.

    Raises
    ------
    SpecError
        With every mistake and its place in the spec.
    """
    document = read_toml(text, what)
    for part in document.get("published", ()) if isinstance(document.get("published"), list) else ():
        law = part.get("law") if isinstance(part, dict) else None
        if isinstance(law, dict) and law.get("name") == CellKey.name and "file" in law:
            path = (folder or Path()) / str(law.pop("file"))
            law["transitions"] = read_transitions(path)
    try:
        return PerturbedSpec.model_validate(document)
    except ValidationError as error:
        raise mistakes(error, document, "correct them; `docs/perturbed.md` lists every key") from None


def load_perturbed(path: str | Path) -> PerturbedSpec:
    """Read the spec of published tables from a TOML file; see `parse_perturbed`."""
    return parse_perturbed(read_spec_text(path), Path(path).parent, f"'{path}'")
