"""Columns of a published table, and tests of whether a text is a number, code or total."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import NamedTuple

from trueup.io.published.perturbed.numbers import NUMBER_LIKE, without_mark
from trueup.model.published_codes import INSTEAD, read_interval

TOTAL = re.compile(
    r"_?t|tot\.?|totals?|total[ ,:_].*|.*[ ,:](totalt?|i alt|insgesamt|yhteensä|razem):?|all|both( sexes| genders)?|"
    r"persons|people|gesamt|summe|alle|ensemble|(grand|sub)[- ]?total.*|sum|suma|somme|spolu|totalul|gesamtergebnis|"
    r"gesamtsumme|zusammen|jumlah|cyfanswm|samtliga|alls|kollox|iomlán|guztira|toplamı|genel toplam|keseluruhan|kabuuan|"
    r"jumla( kuu)?|jami|cəmi|"
    r"(totale|totaal|totalt|totali|insgesamt|i alt|yhteensä|razem|celkem|ogółem|összesen|mindösszesen|ukupno|skupaj|kokku|"
    r"kopā|pavisam|iš viso|samtals|toplam|gjithsej|итого|всего|усього|всього|разом|общо|всичко|укупно|вкупно|барлығы|бүгд|σύνολο)"
    r"(\s*[,:/(–-].*)?|"
    r"(all|alle|alla|tod[ao]s (los|las|os|as)|tou(te)?s( les)?|tutt[ei]( le| gli| i)?|kaikki|wszystkie|wszyscy|všechny|všetky|"
    r"sv[ei]|vs[ei]|vis[ia]|visos|kõik|minden|összes|toate|все|всі|всички|όλ(οι|ες|α)|tüm|bütün|semua) "
    r"(?!(the |de |les |l[ao]s |[ao]s )?(other|rest|ander|andr|övrig|autr|otr|outr|altr|inn|ost|muu|друг|проч|інш|άλλ)).*|"
    r"(ambos( os)?|beide|entrambi i|begge|båda|bæði|molemmat|mõlemad|obie?|obě|obydwie|mindkét|ambele|abi|abiejų|les deux|"
    r"ambdós|kedua|оба|обе|двата|обидві|(και )?τα δύο|her iki)( (sex(os|es|e)?|geschlechter|geslachten|sessi|kjønn|køn|könen|kyn|"
    r"sukupuolet|sood|sugu|płcie|pohlav(í|ia)|spola|pola|nem|dzimumi|lyčių|jenis kelamin|пола|статі|φύλα|cinsiyet))|ambos|beide|"
    r"tổng (số|cộng)|รวม|ยอดรวม|ทั้งหมด|कुल( योग)?|योग|जम्मा|মোট|மொத்தம்|សរុប|ລວມ|სულ|ընդամենը|ድምር|סך[ -]?הכו?ל|סה[\"״]כ|"
    r"(ال)?مجموع( الكلي)?|ال(إ|ا)جمالي|(ال)?جملة|جمع( کل)?|کل|"
    r"(男女|年齢|年齡|年龄)?(合計|計|合计|计|總計|总计)|男女|小計|総数|総計|總數|总数|小计|共计|共計|계|소계|합계|총계|총수|전체",
    re.IGNORECASE,
)
YEAR = re.compile(r"(18|19|20)\d\d")
_GEO = (
    r"geo|geograph[a-z]*|authority|territor[a-z]*|fips|nuts|\bags\b|\blau\b|\bzip\b|postcode|\bplz\b|area|region|district|county|municipality|"
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
    """A column of a published table, with its names and texts.

    Attributes
    ----------
    name, path
        Name in the spec, and the names in the header's rows above it.
    texts
        Its cells.
    blank
        Text of the cells for which `texts` are blank: a code of zeros that stands for the total.
    point
        True if a point is a decimal sign: the cells of the file are divided by commas.
    """

    name: str
    path: tuple[str, ...]
    texts: list[str]
    point: bool = False
    blank: str = ""

    @property
    def held(self) -> list[str]:
        """Return the texts of the column that are not blank."""
        return [text for text in self.texts if text]

    def left_out(self, why: str) -> str:
        """Return a note that a spec leaves the column out."""
        return f"column '{self.name}' {why}, and is left out"


class SeenTable(NamedTuple):
    """A table in a published file or sheet, with its columns by role, its titles and its notes.

    Attributes
    ----------
    file, sheet
        File and sheet of the table.
    titles
        Texts above and below it.
    places, attributes, values, variance
        Its columns, places from large to small.
    ignored
        Columns that say nothing more, and why.
    headless
        True if it has no header.
    label, skip, below
        For a table among others in one file: its heading, and the numbers of rows above and below it.
    left
        Columns of values that are left out, of earlier periods: they have codes, too.
    left_rows
        The columns of values in rows of other periods, which are left out.
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
        True if blank keys repeat those above, as its columns of keys do here.
    indents
        Indents before names in their cells, if they differ: blanks, or marks such as `>>`.
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
    left_rows: tuple[SeenColumn, ...] = ()
    indents: Mapping[str, str] = MappingProxyType({})
    keys: tuple[SeenColumn, ...] = ()
    fill: bool = False
    only: Mapping[str, str | Sequence[str]] = MappingProxyType({})
    constant: Mapping[str, str] = MappingProxyType({})
    groups: tuple[str, ...] = ()
    errors: Mapping[str, SeenColumn] = MappingProxyType({})
    error: str = "variance"
    labels: Sequence[SeenColumn] = ()
    kinds: Sequence[SeenColumn] = ()
    wholes: Mapping[str, str] = MappingProxyType({})

    def of_rows(self, kept: Sequence[bool]) -> SeenTable:
        """Return a table restricted to the rows that a mask selects."""

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


def counted_names(names: Sequence[str], most: int = 4) -> str:
    """Return names joined by commas: all of them, or the first ones and how many more there are.

    Examples
    --------
    >>> counted_names(["a", "b", "c"], 2), counted_names(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    more = len(names) - most
    return ", ".join(names) if more < 2 else f"{', '.join(names[:most])} and {more} more"


def is_number(text: str) -> bool:
    """Return True if a text is written as a number."""
    return INSTEAD.fullmatch(text) is None and (
        NUMBER_LIKE.fullmatch(text) is not None
        or re.fullmatch(r"-?\d+(\.\d+)?[eE][+-]?\d+", text) is not None
    )


def is_code(text: str) -> bool:
    """Return True if a text is a code that may replace a number, or a number followed by a mark."""
    ways = (_MARK, INSTEAD)
    return read_interval(text) is not None or any(way.fullmatch(text) for way in ways) or is_marked(text)


def is_marked(text: str) -> bool:
    return (without_mark(text) != text) and not re.search(r"\d[A-Z]", text)


def explains_code(row: Sequence[str]) -> bool:
    """Return True if a row explains a code: it has a code, then words, and nothing else."""
    held = [cell for cell in row if cell]
    signs = [is_code(cell) and not is_number(without_mark(cell)) for cell in held]
    return signs == [True, False] and not is_number(held[1])
