"""Columns of a published table, and which of their texts are numbers, codes or totals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import NamedTuple

from trueup.io.published.perturbed.numbers import NUMBER_LIKE, without_mark
from trueup.model.published_codes import read_interval

TOTAL = re.compile(
    r"_?t|tot\.?|totals?|total[ ,:_].*|.*[ ,:](totalt?|i alt|insgesamt|yhteensä|razem):?|all|"
    r"all (?!(the )?(other|rest)).*|both( sexes| genders)?|persons|insgesamt|gesamt|summe|alle|"
    r"ensemble|totale|totaal|i alt|totalt|yhteensä|ambos( (os )?sexos)?|(grand|sub)[- ]?total.*|sum|suma|somme|razem|celkem|"
    r"ogółem|spolu|összesen|ukupno|skupaj|kokku|kopā|iš viso|samtals|toplam|totalul|gesamtergebnis|gesamtsumme|zusammen|jumlah|"
    r"cyfanswm|people|beide( geschlechter)?|begge (kjønn|køn)|båda könen|molemmat( sukupuolet)?|les deux sexes|alle aldre|"
    r"итого|всего|усього|разом|σύνολο|tổng số|合計|小計|総数|総計|计|合计|小计|总计|總計|계|소계|합계|전체",
    re.IGNORECASE,
)
YEAR = re.compile(r"(18|19|20)\d\d")
_GEO = (
    r"geo|fips|nuts|\bags\b|\blau\b|\bzip\b|postcode|\bplz\b|area|region|district|county|municipality|"
    r"tract|block|ward|gemeinde|kreis|land|province|state|country|place|town|city|village|page|site|clinic|hospital|school"
)
PLACE = re.compile(
    rf".*({_GEO}|commune|comune|municipio|kommune?|bezirk|\bort|ortsteil|stadt|ville|città|ciudad|gmina|powiat|obec|kunta|provinc(ia|e)|"
    r"d[eé]partement|r[eé]gi[oó]n|regione|[ck]anton|concelho|freguesia|parish|l[aä]n|fylke|borough|station)(s?| ?name)",
    re.IGNORECASE,
)
"""Names of columns of places."""
KEY = re.compile(
    rf".*((?<![^\W_])id\b|code|_cd\b|\bcd\b|c[oó]digo|codice|kode?|koodi|schlüssel|kennziffer|kennung|insee|istat|clave|nr\.?|nummer|{_GEO})",
    re.IGNORECASE,
)
"""Names of columns of keys: of places, or of codes of anything."""
_MARK = re.compile(
    r"[^\w\s]{1,3}(\s?[a-z]|\s+[^\W\d][\w ]{1,40})?|\[\w{1,3}\]|\.\.?[A-Za-z]|[A-Za-z]|n/?[adp]|n\.[adp]\.?|nan|null|nil|none|"
    r"conf\.?|suppressed|suppr\.?|confidential|unreliable|missing|withheld|not (available|published|applicable|shown|disclosed)",
    re.IGNORECASE,
)


class SeenColumn(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    name, path
        What the spec calls it, and the names of the header's rows above it.
    texts
        Its cells.
    blank
        What stands in its cells where `texts` are blank: a code of zeros, of the whole.
    point
        Whether a point is a decimal sign: the cells of its file are divided by commas.
    """

    name: str
    path: tuple[str, ...]
    texts: list[str]
    point: bool = False
    blank: str = ""

    @property
    def held(self) -> list[str]:
        """Return its texts without blanks."""
        return [text for text in self.texts if text]


class SeenTable(NamedTuple):
    """The content of one file or sheet.

    Attributes
    ----------
    file, sheet
        Where it stands.
    titles
        Texts above and below it.
    places, attributes, values, variance
        Its columns, places from large to small.
    ignored
        Columns that say nothing more, and why.
    headless
        Whether it has no header.
    label, skip, below
        Of a table among others in one file: its heading, and the rows above and below it.
    left
        Columns of values that are left out, of earlier periods: they have codes, too.
    errors, error
        The columns beside values that hold their errors, and of what kind these are.
    labels, kinds
        Columns that name what its keys say, and that say of which level a row is.
    wholes
        The value of an attribute, by its column, whose rows hold the sums of all others; empty if there is none.
    groups
        The heading above each row, where rows without values are headings.
    only, constant
        Rows of it by what columns say, others left out; and columns that it lacks, with what they would say.
    fill
        Whether blank keys repeat those above, as its columns of keys do here.
    indents
        What stands before names in their cells, where it differs: blanks, or marks such as `>>`.
    keys
        All columns that say something of rows: of places, of attributes, labels, and numbers that are no counts.
    """

    file: str
    sheet: str | None
    titles: str
    places: list[SeenColumn]
    attributes: list[SeenColumn]
    values: list[SeenColumn]
    variance: SeenColumn | None
    ignored: list[str]
    headless: bool = False
    label: str | None = None
    skip: int | None = None
    below: int | None = None
    left: tuple[SeenColumn, ...] = ()
    indents: Mapping[str, str] = MappingProxyType({})
    keys: tuple[SeenColumn, ...] = ()
    fill: bool = False
    only: Mapping[str, str | Sequence[str]] = MappingProxyType({})
    constant: Mapping[str, str] = MappingProxyType({})
    groups: tuple[str, ...] = ()
    errors: Mapping[str, str] = MappingProxyType({})
    error: str = "variance"
    labels: Sequence[SeenColumn] = ()
    kinds: Sequence[SeenColumn] = ()
    wholes: Mapping[str, str] = MappingProxyType({})

    def of_rows(self, kept: Sequence[bool]) -> SeenTable:
        """Return the table with some of its rows."""

        def some(columns: Sequence[SeenColumn]) -> list[SeenColumn]:
            return [column._replace(texts=list(compress(column.texts, kept))) for column in columns]

        variance = self.variance and some([self.variance])[0]
        return self._replace(
            places=some(self.places),
            attributes=some(self.attributes),
            values=some(self.values),
            variance=variance,
            labels=some(self.labels),
            kinds=some(self.kinds),
            keys=tuple(some(self.keys)),
            groups=tuple(compress(self.groups, kept)),
        )


def is_number(text: str) -> bool:
    """Return True if a text is meant as a number."""
    return (
        NUMBER_LIKE.fullmatch(text) is not None
        or re.fullmatch(r"-?\d+(\.\d+)?[eE][+-]?\d+", text) is not None
    )


def is_code(text: str) -> bool:
    """Return True if a text may stand in the place of a number, or is one with a mark behind it."""
    return read_interval(text) is not None or _MARK.fullmatch(text) is not None or is_marked(text)


def is_marked(text: str) -> bool:
    return (without_mark(text) != text) and not re.search(r"\d[A-Z]", text)
