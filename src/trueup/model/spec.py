"""The spec: one TOML file that declares the counts, their protection, their measurement and their publication.

One file: the document, with every way to make, read and write it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from trueup.digits import ThreeLines
from trueup.errors import SpecError
from trueup.files.writing import write_whole
from trueup.model.spec_document import SpecDocument, refuse_disagreement
from trueup.model.spec_table import SpecPart
from trueup.model.toml import MAX_CHARACTERS, fault_text, innermost, read_toml, toml_text

FORMAT = 2
"""Version of the spec's format; grows when an old spec would be read differently."""


_COMMENTS = {
    "table": "The confidential table: its name in the ledger, and what one count stands for.",
    "privacy": "Who is protected. add-remove: one of them more or less; replace: one in place of another.",
    "level": "The places, from the whole down to the smallest.",
    "attribute": "What counts are broken down by, with every value that may occur: public, whether or not anybody has it.",
    "query": "What is measured, at which levels, each at its own privacy loss; together they are that of the release.",
    "left_out": "How many records the limit on those of one unit leaves out, counted with noise.",
    "constraints": "What published counts must satisfy beside adding up.",
}
"""Comments above the parts of a written spec."""


class Spec(ThreeLines, SpecDocument):
    """Everything from which a release is made, except the confidential counts.

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
    ... format = 2
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> spec.queries[0].budgets["area"]
    Fraction(1, 2)
    """

    _undecided: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, /, **parts: Any) -> None:
        given: dict[str, Any] = {"format": FORMAT, **parts}
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
        public: Any = None,
        **decided: Any,
    ) -> Spec:
        """Draft a spec from the column names of a table and the public places, and list what remains to decide.

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
            The public list of places: a path, a dataframe or a DuckDB relation; None for a table without places.
        decided
            The decisions already made: `title`, `name` (of the dataset), `unit`, `neighbours`, `counts` (what one count stands
            for: by default a unit, or a record where one unit may have several), `count` (the column of a table of counts),
            `keys` (`"public"` where its own places are), `id` and `records` (of a table of records, the column that says whom a
            row is about, and how many rows of one are kept), `epsilon` (of the whole release), `matters` (the table that gets
            half of it), `tables` (all that are measured, such as `["town", "county x sex"]`; by default each adds an attribute
            to the one before).

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
        from trueup.model.draft import Decided, draft

        document, undecided = draft(table, levels, attributes, public, Decided(**decided))
        spec = cls(**document)
        spec._undecided.update(undecided)
        return spec

    @property
    def undecided(self) -> Mapping[str, str]:
        """Return the decisions that a draft leaves to the user, by part of the spec."""
        return dict(self._undecided)

    def _lines(self) -> tuple[str, str, str]:
        by = "".join(f" x {a.name} ({len(a.values)})" for a in self.attributes)
        measured = (
            f"{query.name} at {', '.join(f'{level} ({query.currency} = {amount})' for level, amount in query.budgets.items())}"
            for query in self.queries
        )
        alone = self.left_out
        left_out = f"; {alone.name} ({alone.currency} = {alone.budget})" if alone else ""
        return (
            f"Spec: {self.title}",
            f"one count is one {self.table.counts}, by {' / '.join(x.name for x in self.levels)}{by}; "
            f"protects one {self.privacy.unit} ({self.privacy.neighbours})",
            f"measured: {'; '.join(measured)}{left_out}",
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
        """Return the spec as TOML text, with comments if wanted.

        Examples
        --------
        >>> from trueup.demo import AREAS
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
        """Write the spec to a new TOML file, with comments on its parts and on undecided ones.

        Raises
        ------
        BundleError
            If the file exists, or the disk refuses.
        """
        write_whole(Path(path), self.text(comments=True))

    @model_validator(mode="before")
    @classmethod
    def _stacked(cls, document: Any) -> Any:
        table = document.get("table") if isinstance(document, Mapping) else None
        if not isinstance(table, Mapping) or "join" not in table:
            return document
        from trueup.model.stacking import stacked

        return stacked(document)

    @model_validator(mode="after")
    def _agrees(self):
        refuse_disagreement(self)
        return self


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
    return _read_spec(text, "the spec")


def _read_spec(text: str, what: str) -> Spec:
    document = read_toml(text, what)
    if "published" in document and "query" not in document:
        raise SpecError(
            "this spec describes tables that others published, so that nothing can be measured with it",
            needed="a spec with [[query]], by which counts are measured and released",
            remedy="read the published tables with `trueup infer --perturbed SPEC --table FILE`",
        )
    try:
        return Spec.model_validate(document, by_name=False)
    except ValidationError as error:
        raise mistakes(error, document) from None


def mistakes(
    error: ValidationError, document: Any, remedy: str = "correct them; `trueup schema` lists every key"
) -> SpecError:
    """Return the error that lists all faults of a document, each with its position in the document."""
    keys = {field.alias or name for part in _parts(SpecPart) for name, field in part.model_fields.items()}
    faults = (fault_text(fault, document, keys) for fault in innermost(error.errors()))
    return SpecError("the spec has mistakes: " + "; ".join(faults), remedy=remedy)


def _parts(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for part in kind.__subclasses__():
        yield part
        yield from _parts(part)


def _named_levels(levels: Any) -> Any:
    """Return levels in full form; a bare name is also the name of a column, except for the first level."""
    if not isinstance(levels, list | tuple):
        return levels
    return [
        ({"name": level, "column": level} if at else {"name": level}) if isinstance(level, str) else level
        for at, level in enumerate(levels)
    ]


def _listed_attributes(attributes: Any) -> Any:
    """Return attributes as a list, if given as a mapping from names to values."""
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
    return _read_spec(read_spec_text(path), f"'{path}'")


def read_spec_text(path: str | Path) -> str:
    """Read the text of a spec, for callers that also need the text itself."""
    if not isinstance(path, str | Path | PathLike | Traversable):
        raise SpecError(
            f"a {type(path).__name__} is given as the path of a spec", needed="the path of a TOML file"
        )
    try:
        held = Path(path)
        if held.stat().st_size > MAX_CHARACTERS:
            raise SpecError(f"the spec '{path}' has more than {MAX_CHARACTERS:,} bytes", needed="a TOML file")
        return held.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(
            f"cannot read the spec '{path}': {error.strerror}",
            needed="a TOML file",
            remedy="check the path; `trueup new` drafts a spec",
        ) from None
    except UnicodeDecodeError:
        raise SpecError(
            f"the spec '{path}' is not text in UTF-8",
            needed="a TOML file in UTF-8",
            remedy="save the file in UTF-8, or correct the path",
        ) from None
