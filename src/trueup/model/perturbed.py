"""Specs of tables that others published: places, attributes, and the law of every table.

It has the names by which post-processing reads a spec (`levels`, `attributes`, `constraints`, `queries`, `infer`,
`reconcile`), but no unit of privacy and no budget: nothing is protected here, and nothing can be measured by it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from trueup.errors import SpecError
from trueup.model.names import refuse_repeats, refuse_taken_columns, refuse_unknown_name
from trueup.model.prior import refuse_unread_priors
from trueup.model.published_table import PublishedCell, PublishedTable
from trueup.model.spec import mistakes, read_spec_text
from trueup.model.spec_queries import ConstraintsPart
from trueup.model.spec_table import AttributePart, Level, Name, Parents, SpecPart, refuse_misplaced_columns
from trueup.model.toml import read_toml, toml_text
from trueup.noise.perturbed import MAX_PARAMETER, CellKey
from trueup.noise.perturbed.cell_key import LARGEST_CHANGE


def read_transitions(path: Path) -> list[dict[int, float]]:
    """Read transition probabilities from columns `i` (count), `j` (published) and `p`, as R's ptable writes them.

    The last count's row holds for all larger ones.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        delimiter = max(",;\t", key=(lines or [""])[0].count)
        rows = list(csv.DictReader(lines, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        cause = getattr(error, "strerror", None) or "it is no CSV in UTF-8"
        raise SpecError(
            f"cannot read the transitions from '{path}': {cause}",
            needed="a CSV file in UTF-8 with the columns i, j and p: a count, what it may become, and the probability of that",
        ) from None
    if not rows or not {"i", "j", "p"} <= set(rows[0]):
        raise SpecError(
            f"'{path.name}' does not have the columns i, j and p",
            needed="the columns i, j and p: a count, what it may become, and the probability of that",
        )
    try:
        entries = [(int(row["i"]), int(row["j"]), float(str(row["p"]).replace(",", "."))) for row in rows]
    except (TypeError, ValueError):
        raise SpecError(
            f"'{path.name}' holds something that is not a number",
            needed="whole numbers in i and j, and probabilities in p",
        ) from None
    if wide := [(i, j) for i, j, _ in entries if not 0 <= i <= MAX_PARAMETER or abs(j - i) > LARGEST_CHANGE]:
        raise SpecError(
            f"'{path.name}' lists i = {wide[0][0]}, j = {wide[0][1]}",
            needed=f"counts i from 0 to {MAX_PARAMETER:,}, and values j that differ from i by at most {LARGEST_CHANGE}",
        )
    table: list[dict[int, float]] = [{} for _ in range(max(i for i, _, _ in entries) + 1)]
    for i, j, p in entries:
        if j - i in table[i]:
            raise SpecError(f"'{path.name}' lists i = {i}, j = {j} twice", needed="each pair of i and j once")
        table[i][j - i] = p
    table[0] = table[0] or {0: 1.0}
    if lost := [i for i, row in enumerate(table) if not row]:
        raise SpecError(
            f"'{path.name}' has no row for the count {lost[0]}",
            needed="a row for every count up to the largest one",
        )
    return table


class PublishedName(SpecPart):
    """The name of a published dataset and the unit that it counts."""

    name: Name = Field(description="the dataset's name")
    counts: Name = Field(description="what one count stands for: person, household, ...")
    cells: ClassVar[tuple[PublishedCell, ...]] = ()
    keys: ClassVar[None] = None


class _Margins(NamedTuple):
    """The name, attributes and levels of a published table, in the form of a query."""

    name: str
    attributes: tuple[str, ...]
    budgets: Mapping[str, Fraction]
    where: None = None


class PerturbedSpec(SpecPart):
    """The spec of published tables: places, attributes, rules, and the law of every table.

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
    >>> spec.published[0].rule.law
    RandomRounding(base=3, below=None)
    """

    format: Literal[1] = Field(description="version of this format")
    title: str
    table: PublishedName
    levels: tuple[Level, ...] = Field(alias="level", min_length=1)
    parents: Parents | None = Field(
        None, description="columns of the list of places: its id, which tables name, and its parent's"
    )
    attributes: tuple[AttributePart, ...] = Field((), alias="attribute")
    published: tuple[PublishedTable, ...] = Field(min_length=1)
    constraints: ConstraintsPart = Field(default_factory=ConstraintsPart)
    reconcile: dict[str, Any] = Field(default_factory=dict, description="method and its parameters")
    infer: dict[str, Any] = Field(default_factory=dict, description="method, prior, and ratios")

    @property
    def limit_columns(self) -> tuple[tuple[str, ...], ...]:
        """Return no columns for every level, because the list of places holds no limits."""
        return tuple(() for _ in self.levels)

    @property
    def fractional_columns(self) -> frozenset[str]:
        """Return no columns, because the list of places holds no numbers."""
        return frozenset()

    _shown: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = PrivateAttr(default=())
    _noted: tuple[str, ...] = PrivateAttr(default=())

    @property
    def noted(self) -> tuple[str, ...]:
        """Return sentences on values that contradict the codes of their tables; empty before the tables are read."""
        return self._noted

    def note(self, found: Iterable[str]) -> None:
        """Add sentences on what was found in the tables to the notes."""
        self._noted = (*self._noted, *found)

    @property
    def queries(self) -> tuple[_Margins, ...]:
        """Return the margins of all published tables: those found when the tables were read, else those declared."""
        found = self._shown or tuple(
            tuple((part.level, attributes) for attributes in self.margins_of(part)) for part in self.published
        )
        return tuple(
            _Margins(part.name, attributes, {level: Fraction(0)})
            for part, margins in zip(self.published, found)
            for level, attributes in margins
        )

    def showing(self, margins: Sequence[Sequence[tuple[str, tuple[str, ...]]]]) -> PerturbedSpec:
        """Return the spec with the levels and attributes that each table was found to have."""
        known = self.model_copy()
        known._shown = tuple(tuple(each) for each in margins)
        return known

    def text(self) -> str:
        """Return the spec as TOML text that does not depend on the files which the spec named."""
        return toml_text(self.model_dump(by_alias=True, exclude_defaults=True, mode="python"))

    def shown_alone(self) -> PerturbedSpec:
        """Return the spec without the attributes that no published table uses."""
        if self.constraints != ConstraintsPart() or "quantity" in self.infer:
            return self
        named = {name for part in self.published for names in self.margins_of(part) for name in names}
        kept = tuple(a for a in self.attributes if named & set(a.views) or not a.partition)
        if kept == self.attributes:
            return self
        known = self.model_copy(update={"attributes": kept})
        lost = ", ".join(f"'{a.name}'" for a in self.attributes if a not in kept)
        known.note([f"No table shows {lost}, so that nothing is said of values of it."])
        return known

    def margins_of(self, part: PublishedTable) -> list[tuple[str, ...]]:
        """Return the attributes of each margin that a published table declares."""
        return [(*own[0].where, *part.attributes) for own in part.columns_by_attributes()]

    @model_validator(mode="after")
    def _names_agree(self):
        levels = [level.name for level in self.levels]
        views = [view for a in self.attributes for view in a.views]
        refuse_repeats("level", levels)
        refuse_repeats("attribute", views)
        refuse_repeats("published table", [part.name for part in self.published])
        keys = [x.name if x.prefix else x.column or x.name for x in self.levels]
        refuse_taken_columns(self.levels, self.attributes, ["id"] if self.parents else keys)
        columned = [level.name for level in self.levels if level.column or level.prefix or level.label]
        if self.parents is not None and columned:
            raise ValueError(
                f"level '{columned[0]}' has a column, but `parents` already says which places it holds: leave out the "
                "column"
            )
        refuse_misplaced_columns(self.levels, parents=self.parents is not None)
        if columned := [b for b in self.constraints.bounds if b.columns]:
            raise ValueError(f"a bound on '{columned[0].level}' names a column: give numbers instead")
        if self.constraints.invariants:
            raise ValueError(
                "[constraints] names invariants, which only a spec for a release has: list them as a table whose law "
                "is 'exact'"
            )
        for part in self.published:
            where = f"table '{part.name}'"
            refuse_unknown_name(part.level, levels, "level", where)
            for attributes in self.margins_of(part):
                self.refuse_misnamed(attributes, where)
            for name, value in (pair for cell in part.cells for pair in cell.where.items()):
                domain = next(list(a.views[name]) for a in self.attributes if name in a.views)
                refuse_unknown_name(value, domain, f"value of '{name}'", where)
        refuse_unread_priors(self.infer)
        return self

    def key_columns(self, level: str) -> list[str]:
        """Return the columns whose values name the place of a row of a given level."""
        if self.parents is not None:
            return [self.parents.id]
        last = [each.name for each in self.levels].index(level)
        return list(dict.fromkeys(each.column for each in self.levels[: last + 1] if each.column))

    def refuse_misnamed(self, names: tuple[str, ...], where: str) -> None:
        """Refuse attributes that are undeclared or named twice, and tables that sum over overlapping values."""
        for name in names:
            refuse_unknown_name(name, [view for a in self.attributes for view in a.views], "attribute", where)
        for attribute in self.attributes:
            if len(same := [name for name in attribute.views if name in names]) > 1:
                raise ValueError(
                    f"{where} names '{same[0]}' and '{same[1]}', but may name '{attribute.name}' or a recode of it only "
                    "once: leave one of them out"
                )
            if not attribute.partition and not any(name in attribute.views for name in names):
                raise ValueError(
                    f"{where} sums over '{attribute.name}', whose values overlap: add '{attribute.name}' to its attributes"
                )


def parse_perturbed(text: str, folder: Path | None = None, what: str = "the spec") -> PerturbedSpec:
    """Read the spec of published tables from TOML text; laws may name files in `folder`.

    Raises
    ------
    SpecError
        With every mistake and its place in the spec.
    """
    document = read_toml(text, what)
    for part in document.get("published", ()) if isinstance(document.get("published"), list) else ():
        given = part.get("law") if isinstance(part, dict) else None
        for law in given if isinstance(given, list) else [given]:
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
