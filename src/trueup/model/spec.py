"""The spec: one TOML file that says what is counted, protected, measured and published."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema

from trueup.errors import SpecError
from trueup.files.staging import write_whole
from trueup.model.draft import draft
from trueup.model.faults import fault_text, innermost
from trueup.model.linear import parse_linear, parse_sum
from trueup.model.prior import read_prior
from trueup.model.stacking import COUNTED, stacked
from trueup.model.three_lines import ThreeLines
from trueup.model.toml import read_toml, toml_text
from trueup.noise import law_named
from trueup.noise.cost import Currency
from trueup.noise.rational import rational

_VALUE_COLUMNS = ("count", "exact", "group", "noisy", "standard_error")
_SPELT_OUT = 12  # groups of a recode that a message writes down
FORMAT = 2
"""Version of the spec's format; grows when an old spec would be read differently."""


def _budget(value: Any) -> Fraction | dict[str, Fraction]:
    if isinstance(value, dict):
        return {
            str(level): rational(amount, f"the budget of level '{level}'") for level, amount in value.items()
        }
    return rational(value, "the budget")


_RATIONAL = {"type": ["string", "integer"], "examples": ["1/2", "0.1", 1]}
_CONDITION = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}
Budget = Annotated[
    Any,
    BeforeValidator(_budget),
    WithJsonSchema({"anyOf": [_RATIONAL, {"type": "object", "additionalProperties": _RATIONAL}]}),
]
"""An exact amount for every level that the query names, or one amount per level."""


Name = Annotated[str, Field(pattern=r"\S")]
"""A name that can be seen."""
_LARGEST = 2**62
"""What a count may be at most; see `trueup.files.whole`."""
Limit = Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | Name | None
"""A limit of all groups of a margin, or the name of a public column with one for each place."""


_COMMENTS = {
    "table": "The confidential table: its name in the ledger, and what one count stands for.",
    "privacy": "Who is protected. add-remove: one of them more or less; replace: one in place of another.",
    "level": "The places, from the whole down to the smallest.",
    "attribute": "What counts are broken down by, with every value that may occur: public, whether or not anybody has it.",
    "query": "What is measured, at which levels, each at its own privacy loss; together they are that of the release.",
    "constraints": "What published counts must satisfy beside adding up.",
}
"""What is said above the parts of a spec that is written."""


class SpecPart(BaseModel):
    """A part of the spec: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class Level(SpecPart):
    """One level of the hierarchy; the first is the root and has no column."""

    name: Name
    column: Name | None = None
    prefix: int | None = Field(None, gt=0, description="take this many leading characters of the column")
    label: Name | None = Field(None, description="column with readable names of the places")


class Parents(SpecPart):
    """A hierarchy given by parent pointers, with one row for every place."""

    id: Name
    parent: Name


class RecodePart(SpecPart):
    """A named grouping of an attribute's values."""

    name: Name
    groups: dict[str, tuple[str, ...]] = Field(description="for every group, the values it holds")


class AttributePart(SpecPart):
    """An attribute with its public domain."""

    name: Name
    values: tuple[str, ...] = Field(
        (), description="its domain; a number of persons has that of all numbers that there can be"
    )
    column: Name | None = Field(None, description="column of the table; by default the attribute's name")
    of: Name | None = Field(
        None,
        description="beside [table.join]: whose attribute it is, by what its table counts, or 'reference'; by default "
        "the persons'",
    )
    persons: dict[str, str | tuple[str, ...]] | None = Field(
        None,
        description="beside [table.join]: how many persons of a household have these values; all of them where it is empty",
    )
    partition: bool = Field(True, description="each unit falls under exactly one value")
    recodes: tuple[RecodePart, ...] = Field((), alias="recode", description="groupings that margins may name")

    @property
    def views(self) -> dict[str, tuple[str, ...]]:
        """The values of the attribute and of each of its recodes, under their names."""
        return {self.name: self.values, **{r.name: tuple(r.groups) for r in self.recodes}}

    @model_validator(mode="after")
    def _grouped(self):
        if not self.values:
            raise ValueError("it has no values")
        _refuse_twins(f"value of '{self.name}'", list(self.values))
        for recode in self.recodes:
            self._refuse_misgrouped(recode)
        return self

    def crossed(self, first: str, second: str) -> str:
        """How to say by one name what two of its views tell apart together."""
        groups: dict[tuple[str, str], list[str]] = {}
        for value in self.values:
            groups.setdefault((self._group(first, value), self._group(second, value)), []).append(value)
        for view, names in self.views.items():
            pairs = {(key, self._group(view, value)) for key, held in groups.items() for value in held}
            if len(pairs) == len(names) == len(groups):
                return f"'{view}' alone keeps apart what they do together"
        if len(groups) > _SPELT_OUT:
            return f"name one recode of '{self.name}' with a group for each of the {len(groups)} pairs of theirs that meet"
        listed = ", ".join(
            f"{json.dumps(' '.join(key))} = {json.dumps(held)}" for key, held in groups.items()
        )
        return f"name one recode of '{self.name}' with groups = {{ {listed} }}"

    def _group(self, view: str, value: str) -> str:
        recodes = (recode.groups for recode in self.recodes if recode.name == view)
        groups = next(recodes, {each: (each,) for each in self.values})
        return next(name for name, held in groups.items() if value in held)

    def _refuse_misgrouped(self, recode: RecodePart) -> None:
        listed = [value for group in recode.groups.values() for value in group]
        where = f"recode '{recode.name}'"
        if not self.partition:
            raise ValueError(f"{where} sums values of '{self.name}', which overlap")
        for value in listed:
            _known(value, list(self.values), f"value of '{self.name}'", where)
        if twice := [value for value in listed if listed.count(value) > 1]:
            raise ValueError(f"{where} holds '{twice[0]}' in two groups, or twice in one")
        if lost := [value for value in self.values if value not in listed]:
            raise ValueError(f"{where} has no group for '{lost[0]}'")
        if empty := [name for name, group in recode.groups.items() if not group]:
            raise ValueError(f"{where} has nothing in its group '{empty[0]}'")
        if len(recode.groups) in (1, len(self.values)):
            raise ValueError(f"{where} keeps no values apart, or all: a margin can do without it")


class CellColumn(SpecPart):
    """Where a wide table holds the counts of one combination of attribute values."""

    count: str = Field(description="a column, or a sum of columns such as 'pop - vap'")
    where: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _parses(self):
        parse_sum(self.count)
        return self


class ReferencePart(SpecPart):
    """Who the reference person of a household is."""

    column: Name = Field(description="a column of the persons")
    value: str = Field(description="what stands there for the one reference person of each household")


Apart = Literal[
    "persons without a household",
    "persons of unknown households",
    "households without persons",
    "households listed twice",
    "households without a reference person",
    "households with several reference persons",
]
"""Records that do not link up, by the names under which they are counted apart."""


class JoinPart(SpecPart):
    """The households of a table of persons: a second table of records, linked by their identifier."""

    counts: Name = Field(description="what a record of the second table stands for: household, ...")
    id: Name = Field(description="the column of both tables that says which household it is")
    reference: ReferencePart | None = None
    apart: tuple[Apart, ...] = Field(
        (),
        description="records that are left out and counted apart, for the agency alone; others are refused",
    )
    attributes: tuple[AttributePart, ...] = Field(
        (),
        alias="attribute",
        description="written by trueup: the attributes of both tables as they were declared",
    )
    views: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="written by trueup: what each recode of `record` keeps apart"
    )


class TablePart(SpecPart):
    """The confidential table."""

    name: Name = Field(description="the dataset's declared name; budgets are kept under it")
    kind: Literal["counts", "records"]
    counts: Name = Field(description="what one count stands for: person, household, ...")
    count: Name | None = Field(None, description="the column of counts of a long table")
    cells: tuple[CellColumn, ...] = Field((), alias="cell", description="the columns of a wide table")
    keys: Literal["public", "confidential"] = "confidential"
    file: str | None = None
    join: JoinPart | None = Field(
        None, description="a second table, of the households that the persons live in"
    )

    @model_validator(mode="after")
    def _one_layout(self):
        wanted = self.kind == "counts"
        if wanted != bool(self.count or self.cells) or (self.count and self.cells):
            raise ValueError(
                "kind 'counts' needs either `count` or [[table.cell]]; kind 'records' needs neither"
            )
        if self.join is not None and (self.kind != "records" or self.join.counts == self.counts):
            raise ValueError("[table.join] links two tables of records that count different things")
        if self.kind == "records" and self.keys == "public":
            raise ValueError(
                "places taken from records reveal which are occupied: keep keys confidential, give a geography file"
            )
        return self


class ContributionPart(SpecPart):
    """How far one unit of privacy reaches into the groups of a query."""

    cells: int = Field(gt=0, le=_LARGEST, description="how many groups one unit can touch")
    each: int = Field(1, gt=0, le=_LARGEST, description="by how much it can change each of them")


class RecordsPart(SpecPart):
    """How many records of a table one unit of privacy holds at most."""

    records: int = Field(gt=0, le=_LARGEST, description="how many records one unit holds, or keeps, at most")


class Privacy(SpecPart):
    """The unit of privacy and the neighbour relation."""

    unit: Name
    neighbours: Literal["add-remove", "replace"]
    id: Name | None = Field(
        None,
        description="column of the unit's identifier in a table of records: its contribution is then enforced",
    )
    contribution: RecordsPart | None = None

    @model_validator(mode="after")
    def _limited(self):
        if self.id is not None and self.contribution is None:
            raise ValueError(
                f"`id` names the {self.unit}'s column, but not how many records one {self.unit} keeps: "
                "write contribution = { records = ... }"
            )
        return self


class Query(SpecPart):
    """One marginal, measured at one or more levels, each with its own exact budget."""

    name: Name
    attributes: tuple[str, ...] = ()
    noise: str = "discrete-laplace"
    levels: tuple[str, ...] = ()
    epsilon: Budget = None
    rho: Budget = None
    contribution: ContributionPart | None = None
    options: dict[str, Any] = Field(default_factory=dict, description="further parameters of the law")
    counts: Name | None = Field(
        None, description="beside [table.join]: which table's records it counts; by default the persons"
    )
    cumulative: Name | None = Field(
        None,
        description="beside [table.join]: a number of persons among its attributes, measured as `at least k` for every k",
    )
    where: dict[str, str] = Field(
        default_factory=dict, description="written by trueup: which records of two tables it counts"
    )

    @model_validator(mode="after")
    def _budgeted(self):
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError("give either `epsilon` or `rho`")
        amount = self.rho if self.epsilon is None else self.epsilon
        if amount == {} or isinstance(amount, dict) == bool(self.levels):
            raise ValueError(
                "name the levels once: `levels = [...]` with one budget, or a budget for each level"
            )
        law_named(self.noise)
        return self

    @property
    def currency(self) -> Currency:
        """The currency of the budget."""
        return "epsilon" if self.epsilon is not None else "rho"

    @property
    def budgets(self) -> dict[str, Fraction]:
        """Budget per level, exact."""
        amount = self.epsilon if self.epsilon is not None else self.rho
        if isinstance(amount, dict):
            return amount
        assert amount is not None
        return dict.fromkeys(self.levels, Fraction(amount))


class MarginPart(SpecPart):
    """A margin: a level by some attributes."""

    level: str
    attributes: tuple[str, ...] = ()


def _alternatives(value: Any) -> Any:
    return (value,) if isinstance(value, dict) else value


class InvariantPart(MarginPart):
    """A margin that is published exactly as enumerated, of all units or of those that meet a condition."""

    where: Annotated[
        tuple[Annotated[dict[str, str], Field(min_length=1)], ...],
        BeforeValidator(_alternatives),
        WithJsonSchema({"anyOf": [_CONDITION, {"type": "array", "items": _CONDITION}]}),
    ] = Field(
        (),
        description="count the units alone that meet this condition, or one of several; values of attributes or "
        "recodes, or places by their level",
    )


class BoundPart(MarginPart):
    """Limits on every group of a margin, or on those with the given attribute values."""

    lower: Limit = Field(
        None, description="a number, or the column of the geography file that holds one a place"
    )
    upper: Limit = Field(None, description="likewise")
    where: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _limited(self):
        if self.lower is None and self.upper is None:
            raise ValueError("a bound gives neither `lower` nor `upper`")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the geography file that hold its limits."""
        return tuple(limit for limit in (self.lower, self.upper) if isinstance(limit, str))


class LinearPart(SpecPart):
    """A linear constraint at every place of a level (by default the last)."""

    rule: str
    level: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_text(cls, value: Any) -> Any:
        return {"rule": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _parses(self):
        parse_linear(self.rule)
        return self


class AboutPart(SpecPart):
    """Who publishes the counts, for the report."""

    author: Annotated[Name | None, Field(description="person or office")] = None
    date: Annotated[
        Name | None,
        BeforeValidator(lambda given: given if given is None else str(given)),
        Field(description="of publication"),
    ] = None
    contact: Name | None = None
    licence: Name | None = None
    source: Annotated[Name | None, Field(description="the survey or register that was counted")] = None


class ConstraintsPart(SpecPart):
    """What the published counts must satisfy beside adding up."""

    nonnegative: bool = True
    invariants: tuple[InvariantPart, ...] = ()
    zeros: tuple[Annotated[dict[str, str], Field(min_length=1)], ...] = ()
    bounds: tuple[BoundPart, ...] = ()
    linear: tuple[LinearPart, ...] = ()


class Spec(ThreeLines, SpecPart):
    """Everything a release is made from, except the confidential counts.

    Its parts are those of the file; in Python a level may be a name alone (of a column, but for the first, which holds
    every place), and the attributes a mapping from names to values.

    Raises
    ------
    SpecError
        With every mistake and its place in the spec.

    Examples
    --------
    >>> Spec(
    ...     title="Two areas",
    ...     table={"name": "demo", "kind": "counts", "counts": "person", "count": "n"},
    ...     privacy={"unit": "person", "neighbours": "add-remove"},
    ...     levels=["all", "area"],
    ...     attributes={"sex": ["female", "male"]},
    ...     queries=[{"name": "by sex", "attributes": ["sex"], "epsilon": {"all": "1/2", "area": "1/2"}}],
    ... )
    Spec: Two areas
      one count is one person, by all / area x sex (2); protects one person (add-remove)
      measured: by sex at all (epsilon = 1/2), area (epsilon = 1/2)
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> spec.queries[0].budgets["area"]
    Fraction(1, 2)
    """

    format: Literal[1, 2] = Field(
        description="version of this format; in 1, budgets of lattice noise meant another loss, and are refused"
    )
    title: str
    table: TablePart
    privacy: Privacy
    levels: tuple[Level, ...] = Field(alias="level", min_length=1)
    parents: Parents | None = None
    attributes: tuple[AttributePart, ...] = Field((), alias="attribute")
    queries: tuple[Query, ...] = Field(alias="query", min_length=1)
    constraints: ConstraintsPart = Field(default_factory=ConstraintsPart)
    about: AboutPart = Field(default_factory=AboutPart)
    reconcile: dict[str, Any] = Field(default_factory=dict, description="method and its parameters")
    infer: dict[str, Any] = Field(
        default_factory=dict, description="method, prior, and ratios of the posterior"
    )

    _undecided: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, /, **parts: Any) -> None:
        given = {"format": FORMAT} | parts
        for name, written in (("levels", _named_levels), ("attributes", _listed_attributes)):
            if name in given:
                given[name] = written(given[name])
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise mistakes(error, given) from None

    __init__.__pydantic_base_init__ = True  # pyright: ignore  (a spec that is read has only the keys of its file)

    @classmethod
    def of(
        cls,
        table: Any,
        levels: Sequence[Any] | None = None,
        attributes: Any = (),
        *,
        public: Any,
        **decided: Any,
    ) -> Spec:
        """Draft a spec from the names of a table's columns and from the public places, and say what is left to decide.

        Nothing is learnt from the rows of the table: no value, no place, not how many there are.

        Parameters
        ----------
        table
            The confidential table, of which the names and types of columns are read: a path, a dataframe or a DuckDB relation.
        levels
            Names of columns of the public places, from large to small; by default those that the table has as well.
        attributes
            For each attribute all values that it may have: public, whether or not anybody has them.
        public
            The public list of places: a path, a dataframe or a DuckDB relation.
        decided
            What is decided already: `title`, `name` (of the dataset), `unit`, `neighbours`, `count` (the column of a table
            of counts), `epsilon` (of the whole release), `matters` (the table that gets half of it).

        Raises
        ------
        TrueupError
            If a column is missing, or an attribute comes without its values.

        Examples
        --------
        >>> import pandas
        >>> people = pandas.DataFrame({"town": ["a", "b"], "sex": ["f", "m"]})
        >>> places = pandas.DataFrame({"town": ["a", "b", "c"]})
        >>> spec = Spec.of(people, ["town"], {"sex": ["f", "m", "x"]}, public=places, unit="visitor")
        >>> spec
        Spec: Untitled
          one count is one visitor, by all / town x sex (3); protects one visitor (add-remove)
          measured: total at all (epsilon = 1/3), town (epsilon = 1/3); sex at town (epsilon = 1/3)
        >>> sorted(spec.undecided)
        ['constraints', 'query', 'table', 'title']
        """
        document, undecided = draft(table, levels, attributes, public, **decided)
        spec = cls(**document)
        spec._undecided.update(undecided)
        return spec

    @property
    def undecided(self) -> Mapping[str, str]:
        """What a draft leaves to decide, by the part of the spec; nothing where it is no draft."""
        return dict(self._undecided)

    def _lines(self) -> tuple[str, str, str]:
        by = "".join(f" x {a.name} ({len(a.values)})" for a in self.attributes)
        measured = (
            f"{query.name} at {', '.join(f'{level} ({query.currency} = {amount})' for level, amount in query.budgets.items())}"
            for query in self.queries
        )
        return (
            f"Spec: {self.title}",
            f"one count is one {self.table.counts}, by {' / '.join(x.name for x in self.levels)}{by}; "
            f"protects one {self.privacy.unit} ({self.privacy.neighbours})",
            f"measured: {'; '.join(measured)}",
        )

    def __str__(self) -> str:
        return repr(self)

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """Read a spec from a TOML file; see `parse_spec`.

        Examples
        --------
        >>> from importlib.resources import files
        >>> Spec.read(files("trueup.demo") / "children.toml").table.counts
        'child'
        """
        return load_spec(path)

    def text(self, *, comments: bool = False) -> str:
        """Return the spec as TOML, with comments on its parts if wanted; reading it gives the same spec.

        Examples
        --------
        >>> from trueup.demo.areas import AREAS
        >>> parse_spec(AREAS.text()) == AREAS
        True
        """
        given = self.model_dump(by_alias=True, exclude_defaults=True, mode="python")
        for written, query in zip(given["query"], self.queries):
            amount = query.rho if query.epsilon is None else query.epsilon
            written[query.currency] = query.budgets if isinstance(amount, dict) else amount
        return toml_text(given, self._comments() if comments else None)

    def _comments(self) -> dict[str, str]:
        left = {part: f"To decide: {text}." for part, text in self._undecided.items()}
        return {
            part: "\n".join(x for x in (_COMMENTS.get(part), left.get(part)) if x)
            for part in {**_COMMENTS, **left}
        }

    def write(self, path: str | Path) -> None:
        """Write the spec to a new TOML file, with comments on its parts and on what is left to decide.

        Raises
        ------
        BundleError
            If the file exists, or the disk refuses.
        """
        write_whole(Path(path), self.text(comments=True))

    @property
    def limit_columns(self) -> tuple[tuple[str, ...], ...]:
        """For each level, the columns of the geography file that hold public numbers of its places: limits, shares."""
        held = [(b.level, column) for b in self.constraints.bounds for column in b.columns]
        held += [(self.levels[-1].name, column) for column in self._prior_columns]
        return tuple(
            tuple(dict.fromkeys(column for at, column in held if at == level.name)) for level in self.levels
        )

    @property
    def _prior_columns(self) -> tuple[str, ...]:
        """The columns that the prior of `infer` reads."""
        prior = self.infer.get("prior")
        if not isinstance(prior, dict) or prior.get("name") != "hierarchical":
            return ()
        covariates = prior.get("covariates", ())
        named = [
            prior.get("shares", "uniform"),
            *(covariates if isinstance(covariates, list | tuple) else ()),
        ]
        return tuple(dict.fromkeys(x for x in named if isinstance(x, str) and x != "uniform"))

    @model_validator(mode="before")
    @classmethod
    def _stacked(cls, document: Any) -> Any:
        return stacked(document)

    @model_validator(mode="after")
    def _names_agree(self):
        _refuse_twins("level", [level.name for level in self.levels])
        views = [name for a in self.attributes for name in (a.name, *(r.name for r in a.recodes))]
        _refuse_twins("attribute", views)
        _refuse_twins("query", [q.name for q in self.queries])
        _refuse_alike("level", [level.name for level in self.levels])
        _refuse_alike("attribute", views)
        self._levels_have_columns()
        self._parents_have_a_file()
        self._limits_have_a_file()
        self._columns_are_free()
        for where, margin in self._margins():
            _known(margin[0], [level.name for level in self.levels], "level", where)
            self._refuse_misnamed(margin[1], where)
        self._conditions_are_known()
        self._units_hold_records()
        self._tables_are_two()
        self._cells_cover()
        self._parameters_have_a_method()
        self._priors_can_be_read()
        return self

    def _levels_have_columns(self) -> None:
        if self.levels[0].column is not None:
            raise ValueError("the first level is the root: it holds every place and has no column")
        if self.parents and (read := [x.name for x in self.levels if x.column or x.prefix or x.label]):
            raise ValueError(f"level '{read[0]}' names columns, but the places come from parent pointers")
        if self.parents is None and (bare := [x.name for x in self.levels[1:] if x.column is None]):
            raise ValueError(f"level '{bare[0]}' has no column")

    def _parents_have_a_file(self) -> None:
        if self.parents and self.table.keys == "public":
            raise ValueError(
                "parent pointers name inner places, which a table of counts does not hold: give a geography"
            )

    def _limits_have_a_file(self) -> None:
        columns = [column for level in self.limit_columns for column in level]
        if columns and (self.table.keys == "public" or len(self.levels) == 1):
            prior = columns[0] in self._prior_columns
            reader = "a prior takes its shares" if prior else "a bound takes its limits"
            raise ValueError(
                f"{reader} from the column '{columns[0]}' of the public list of places, which is "
                "not the confidential table: keep keys confidential, give a geography"
            )

    def _columns_are_free(self) -> None:
        """A published table has key, attribute and value columns; a confidential one keys and counts."""
        keys = ["id"] if self.parents else [x.name if x.prefix else x.column or x.name for x in self.levels]
        columns = [*keys, *(name for a in self.attributes for name in a.views)]
        _refuse_twins("published column", [name.casefold() for name in columns])
        if taken := [name for name in columns if name.casefold() in _VALUE_COLUMNS]:
            raise ValueError(
                f"'{taken[0]}' is a value column of published tables: name the attribute or key otherwise"
            )
        held = {self.table.count, *(name for cell in self.table.cells for name in parse_sum(cell.count))}
        read = [*(x.column for x in self.levels), *(x.label for x in self.levels)]
        read += [a.column or a.name for a in self.attributes] if not self.table.cells else []
        if both := [name for name in read if name is not None and name in held]:
            raise ValueError(f"column '{both[0]}' holds counts, so it cannot hold keys or attribute values")

    def _margins(self):
        for query in self.queries:
            yield from ((f"query '{query.name}'", (level, query.attributes)) for level in query.budgets)
        for part in (*self.constraints.invariants, *self.constraints.bounds):
            yield "a constraint", (part.level, part.attributes)
        for rule in self.constraints.linear:
            yield f"'{rule.rule}'", (rule.level or self.levels[-1].name, ())

    def _refuse_misnamed(self, names: Collection[str], where: str) -> None:
        """Margins and conditions name each attribute, or one of its recodes, at most once."""
        for name in names:
            _known(name, [view for a in self.attributes for view in a.views], "attribute", where)
        for attribute in self.attributes:
            if len(same := [name for name in attribute.views if name in names]) > 1:
                raise ValueError(
                    f"{where} names '{same[0]}' and '{same[1]}', which are the same attribute: "
                    + attribute.crossed(same[0], same[1])
                )

    def _conditions_are_known(self) -> None:
        conditions = (*self.constraints.zeros, *(b.where for b in self.constraints.bounds))
        for condition in conditions:
            self._refuse_misnamed(condition, "a condition")
        among = self._conditions_of_invariants()
        for cell in self.table.cells:
            for name in cell.where:
                _known(name, [a.name for a in self.attributes], "attribute", "[[table.cell]]")
        domains = {name: values for a in self.attributes for name, values in a.views.items()}
        every = (*conditions, *among, *(c.where for c in self.table.cells))
        for name, value in (pair for condition in every for pair in condition.items()):
            _known(value, list(domains[name]), f"value of '{name}'", "a condition")

    def _conditions_of_invariants(self) -> list[dict[str, str]]:
        """The conditions of invariants on attributes; places are known once they are read."""
        levels, found = [level.name for level in self.levels], []
        views = [view for a in self.attributes for view in a.views]
        for condition in (each for part in self.constraints.invariants for each in part.where):
            if both := [name for name in condition if name in levels and name in views]:
                raise ValueError(
                    f"an invariant's condition names '{both[0]}', which is a level and an attribute"
                )
            found.append({name: value for name, value in condition.items() if name not in levels})
            self._refuse_misnamed(found[-1], "an invariant's condition")
        return found

    def _units_hold_records(self) -> None:
        privacy = self.privacy
        if privacy.contribution is None:
            return
        if self.table.kind != "records":
            raise ValueError("[privacy] limits the records of a unit, but the table holds counts")
        if both := [q.name for q in self.queries if q.contribution is not None]:
            raise ValueError(
                f"query '{both[0]}' states a contribution, which already follows from that of [privacy]"
            )
        read = [*(x.column for x in self.levels), *(a.column or a.name for a in self.attributes)]
        if privacy.id is not None and privacy.id in [*read, self.parents and self.parents.id]:
            raise ValueError(
                f"column '{privacy.id}' identifies units, so it cannot hold keys or attribute values"
            )
        if privacy.id is not None and self.constraints.invariants:
            raise ValueError(
                "an invariant would publish the records that units keep, not those that there are: "
                "declare no invariant beside `id`"
            )

    def _tables_are_two(self) -> None:
        """What has a meaning for two tables alone stands beside two tables."""
        join = self.table.join
        if join is None:
            for name, attribute in ((a.name, a) for a in self.attributes):
                if attribute.of is not None or attribute.persons is not None:
                    raise ValueError(f"attribute '{name}' is of another table, but there is no [table.join]")
            for query in self.queries:
                if query.counts or query.cumulative or query.where:
                    raise ValueError(
                        f"query '{query.name}' says which table it counts, but there is no [table.join]"
                    )
            return
        if self.parents is not None:
            raise ValueError("places of two linked tables are named by columns, not by parent pointers")
        if self.privacy.unit != join.counts:
            raise ValueError(
                f'two linked tables protect one {join.counts}, with all its {self.table.counts}s: unit = "{join.counts}"'
            )
        for query in self.queries:
            if query.where.get(COUNTED) not in (self.table.counts, join.counts):
                raise ValueError(f"query '{query.name}' does not say which of two tables it counts")
            if law_named(query.noise).joint:
                raise ValueError(
                    f"query '{query.name}' has noise on a lattice, which two linked tables have not"
                )

    def _parameters_have_a_method(self) -> None:
        if self.reconcile and "method" not in self.reconcile:
            name = next(iter(self.reconcile))
            raise ValueError(f"[reconcile] gives '{name}' without the method that it is a parameter of")

    def _priors_can_be_read(self) -> None:
        for part in (self.reconcile, self.infer):
            for name in ("prior", "prior_total"):
                if name in part:
                    read_prior(part[name])

    def _cells_cover(self) -> None:
        if not self.table.cells:
            return
        listed = [tuple(c.where.get(a.name, "") for a in self.attributes) for c in self.table.cells]
        _refuse_twins("combination in [[table.cell]]", [", ".join(c) for c in listed])
        wanted = 1
        for attribute in self.attributes:
            wanted *= len(attribute.values)
        if any("" in c for c in listed) or len(listed) != wanted:
            raise ValueError(
                f"[[table.cell]] lists {len(listed)} of {wanted} combinations of attribute values"
            )


def parse_spec(text: str) -> Spec:
    """Read a spec from TOML text.

    Raises
    ------
    SpecError
        With every mistake and its place in the spec.

    Examples
    --------
    >>> parse_spec('format = 2')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.SpecError: the spec has mistakes: ...
    """
    document = read_toml(text)
    try:
        return Spec.model_validate(document, by_name=False)
    except ValidationError as error:
        raise mistakes(error, document) from None


def mistakes(
    error: ValidationError, document: Any, remedy: str = "correct them; `trueup schema` lists every key"
) -> SpecError:
    """Say all that is wrong with a document, each fault at its place."""
    keys = {field.alias or name for part in _parts(SpecPart) for name, field in part.model_fields.items()}
    faults = (fault_text(fault, document, keys) for fault in innermost(error.errors()))
    return SpecError("the spec has mistakes: " + "; ".join(faults), remedy=remedy)


def _parts(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for part in kind.__subclasses__():
        yield part
        yield from _parts(part)


def _named_levels(levels: Any) -> Any:
    """Levels that are names alone: all but the first are columns."""
    if not isinstance(levels, list | tuple):
        return levels
    return [
        ({"name": level, "column": level} if at else {"name": level}) if isinstance(level, str) else level
        for at, level in enumerate(levels)
    ]


def _listed_attributes(attributes: Any) -> Any:
    """Attributes as a mapping from names to values."""
    if not isinstance(attributes, Mapping):
        return attributes
    return [{"name": name, "values": values} for name, values in attributes.items()]


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a TOML file; see `parse_spec`.

    Raises
    ------
    SpecError
        If the file is missing, not text, or not a valid spec.

    Examples
    --------
    >>> from importlib.resources import files
    >>> load_spec(files("trueup.demo") / "children.toml").table.counts
    'child'
    """
    return parse_spec(read_spec_text(path))


def read_spec_text(path: str | Path) -> str:
    """Read the text of a spec, for those who also keep it.

    Raises
    ------
    SpecError
        If the file is missing or not text.
    """
    if not isinstance(path, str | Path | PathLike | Traversable):
        raise SpecError(
            f"a {type(path).__name__} is given as the path of a spec", needed="the path of a file"
        )
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read the spec '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"the spec '{path}' is not text") from None


def _refuse_alike(what: str, names: list[str]) -> None:
    """Names become names of files and columns, where case and punctuation do not tell them apart."""
    plain = [re.sub(r"\W", "_", name).casefold() for name in names]
    for i, name in enumerate(names):
        if (first := plain.index(plain[i])) < i:
            raise ValueError(f"{what} '{names[first]}' and '{name}' differ in case or punctuation alone")
        if inside := next((other for other in names if other.startswith(f"{name}.")), None):
            raise ValueError(f"{what} '{inside}' begins with the name of {what} '{name}' and a dot")


def _refuse_twins(what: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{what} '{twice[0]}' is declared twice")


def _known(name: str, names: list[str], what: str, where: str) -> None:
    if name not in names:
        close = get_close_matches(name, names, 1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; declared: {', '.join(names) or 'none'}"
        raise ValueError(f"{where} names the unknown {what} '{name}'{hint}")
