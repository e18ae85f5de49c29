"""The kind of a single column, such as periods, codes or values, judged by its name and texts."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from math import comb

from trueup.io.published.drafting.numbered import SHARE_NAMES, holds_shares, is_named
from trueup.io.published.drafting.pairs import distinct_keys
from trueup.io.published.drafting.seen import KEY, TOTAL, YEAR, SeenColumn, is_code, is_marked, is_number

_TIME = re.compile(
    r".*(year|time|period|date|jahr|month|quarter|anno|année|annee|año|(?<![^\W_])år|jaar|vuosi|trimestre|mois|monat|stichtag)(?![^\W_]).*|"
    r".*(year|time|period|date|jahr|month|quarter)|per[ií]odo",
    re.IGNORECASE,
)
_PERIOD = re.compile(
    rf"(Q|T|K)[1-4](\W{YEAR.pattern})?|{YEAR.pattern}\D.*|{YEAR.pattern}(\d\d){{,2}}|1?\d", re.ASCII
)
_MONTH = r"(jan|feb|fév|mar|mär|apr|avr|abr|may|mai|jun|jui|jul|aug|aoû|sep|oct|okt|nov|dec|dez|déc|dic)[a-zûéñ]*\.?"
_YEAR = YEAR.pattern
DATED = re.compile(
    rf"{_YEAR}|{_YEAR}([-–/. ]?[QKTMHS]|JJ|HJ|KW|MM)\d{{1,2}}|{_YEAR}[-–/.]\d{{1,2}}([-–/.]\d{{1,2}})?|{_YEAR}[-–/]{_YEAR}|"
    rf"\d{{1,2}}[./-]\d{{1,2}}[./-]{_YEAR}|(\d{{1,2}}\W*)?{_MONTH}\W*({_YEAR}|\d\d)|{_YEAR}\W*{_MONTH}|[QKT][1-4]\W*{_YEAR}",
    re.IGNORECASE,
)
VARIANCE = re.compile(
    r".*(vari[aâ]n[csçz]|wariancj|dispersij|rozptyl|szórásnégyzet|дисперси|分散|方差|분산|\bvar\b|_var\b).*",
    re.IGNORECASE,
)
_MARKS = re.compile(r".*(flag|footnote|\bnotes?\b|remark|comment|symbol).*", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,3})(?: ?[-–] ?(\d{1,3}))?")
"""A number of years, or a range of them."""
_NOTED = re.compile(r"\s*[\[(]notes?\W*\w{1,3}[\])]", re.IGNORECASE)
"""Points from a name to a note."""
BESIDE = re.compile(
    r".*(population|denominator|\bbase\b|person[- ]years|sample( size)?|respondents).*", re.IGNORECASE
)
_ERRORS = {
    "standard error": re.compile(
        r".*(standard[ _]error|std[ ._]*err(or)?|(?<![^\W_])se|standardfehler|erreur[ -]type|errore? (est[aá]ndard?|standard)|"
        r"erro[ -]padrão|błąd standardowy|standaardfout|medelfel|standard(feil|fejl)|keskivirhe|"
        r"(směrodatná|standardní|štandardná) chyba|"
        r"standardna (napaka|greška|pogreška)|standard hiba|eroare standard|standartinė paklaida|standartkļūda|standardviga|"
        r"standart hata|стандартная ошибка|τυπικό σφάλμα|標準誤差|标准误)(?![^\W_]).*",
        re.I,
    ),
    "margin 95": re.compile(r".*(95 ?%.*margin|margin.*95 ?%|95 ?% ci ?(\+/?-|±)).*", re.I),
    "margin 90": re.compile(
        r".*((?<![^\W_])moe|margins?[ _]of[ _]error|\+/-|±|fehlerspanne|marge d.erreur|margen de error|foutmarge).*",
        re.I,
    ),
}
"""Names of columns by what stands there of the error of a value."""
NO_COUNTS = re.compile(
    rf".*({SHARE_NAMES}|per[ _](100|1[,. ]?000)|margin of error|densit|\bratio\b|"
    r"\bmoe\b|\bchange|\bdifference|standard error|\bse\b|\bcv\b|\bmedian|\bmean\b|\baverage|durchschnitt|moyenne).*",
    re.IGNORECASE,
)


_GEOMETRY = re.compile(
    r"lati?(tude?)?|lon(g(itude?)?)?|lng|[xy]|easting|northing|"
    r".*(km2|km²|sq[ _]?km|hectares?|shape[ _]?(area|len).*|geometry|wkt)|"
    r"(.*[\W_])?(altitud(e|ine)?|elevation|lat_\w+|lon_\w+|längengrad|breitengrad|longitud|latitud|höhe( über.*)?|hoogte|"
    r"høyde|höjd|korkeus|wysokość|(nadmořská|nadmorská) výška|nadmorska visina|magasság|высота|υψόμετρο|標高|海拔|해발|rakım|"
    r"land area|area[ _](ha|km).*|superfic(ie|i)|superf[ií]cie|surface|fläche|oppervlakte|flatarmál|areal|powierzchnia|rozloha|"
    r"površina|pinta-ala|suprafață|yüzölçümü|площадь|площа|площ|έκταση|面積|面积|면적|"
    r"densidade?|bevölkerungsdichte|dichte|dichtheid|gęstość|hustota|gostota|gustoća|tetthet|täthet|tæthed|tiheys|népsűrűség|"
    r"yoğunluk|плотность|πυκνότητα|人口密度)([\W_].*)?",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"\b(rank(ing)?|rang|posi[cç][aã]o|posici[oó]n|puesto|platz|plaats|miejsce|sija|kl\.?)\b|順位",
    re.IGNORECASE,
)


def error_of(column: SeenColumn) -> str:
    """Return the kind of errors in a column, judged by its name; empty if it has no errors."""
    numbers = any(map(is_number, column.held))
    return next(
        (
            kind
            for kind, name in _ERRORS.items()
            if numbers and name.fullmatch(" ".join((column.name, *column.path)))
        ),
        "",
    )


def holds_no_counts(column: SeenColumn) -> bool:
    """Return True if a column contains shares, rates or areas, judged by its name or percent signs."""
    held = column.held
    if _RANK.search(column.name) and len(set(held)) == len(held) and all(map(str.isdigit, held)):
        return len(held) < 3 or max(map(int, held)) <= len(column.texts)
    named = is_named(NO_COUNTS, column) or _GEOMETRY.fullmatch(column.name) is not None
    degrees = any("°" in text or is_number(text) for text in held)
    return holds_shares(column) or (named and degrees)


def is_period(column: SeenColumn, every: list[SeenColumn]) -> bool:
    """Return True if a column contains years, months or days, judged by its name or texts."""
    held, rows = set(column.held), len(column.texts)
    named = _TIME.fullmatch(column.name) and not re.search(r"\d", column.name)  # as in "0-14 years"
    if named and all(map(_PERIOD.fullmatch, held)):
        return True
    years = all(map(YEAR.fullmatch, held)) and (len(held) == 1 or 2 * len(held) <= rows) and rows > 3
    return (all(map(DATED.fullmatch, held)) and not all(map(str.isdigit, held))) or (
        years and any(any(map(is_number, o.held)) for o in every if o is not column)
    )


def marks_values(column: SeenColumn, at: int) -> bool:
    """Return True if a column contains flags or footnotes, judged by its name or by few short texts."""
    held = column.held
    sparse = 2 * len(held) <= len(column.texts) and all(len(t) < 3 and not t.isdigit() for t in held)
    named = _MARKS.fullmatch(_NOTED.sub("", column.name))
    return named is not None or (at > 0 and sparse and not KEY.fullmatch(column.name))


def without_flags(
    every: list[SeenColumn], keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[str]]:
    """Return the key columns without those that flag hidden values, and notes on these."""
    said = []
    for column in keys if len(values) == 1 else ():
        texts, shown = values[0].texts, {True: Counter[str](), False: Counter[str]()}
        for text, flag in zip(texts, column.texts):
            shown[is_number(text)][flag] += 1
        behind = any(column is other for other in every[every.index(values[0]) + 1 :])
        others = [key for key in keys if key is not column]
        told = distinct_keys(others) == len(texts)
        parted = len(column.held) > len(set(column.held)) + 2 and not shown[True].keys() & shown[False].keys()
        hidden = [f"'{flag}'" if flag else "nothing" for flag in shown[False]]
        if not told or not (_STATUS.fullmatch(column.name) or (behind and parted and hidden)):
            continue
        keys = others
        instead = " or ".join(
            f"'{text}'" if text else "an empty cell"
            for text in dict.fromkeys(t for t in texts if not is_number(t))
        )
        where = f": {instead} stands where it says {' or '.join(hidden)}" if hidden and parted else ""
        said.append(f"column '{column.name}' marks values{where}; it is left out")
    return keys, said


def without_status(values: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Return the value columns without those that state which values of another column are hidden."""
    said, left = [], []
    for column in values:
        numbers = Counter(column.texts)
        few = (
            len(numbers) <= 4
            and min(numbers.values()) > 1
            and all(re.fullmatch(r"\d{1,2}", t) for t in numbers)
        )
        for other in values if few else ():
            hidden = [flag for text, flag in zip(other.texts, column.texts) if not is_number(text)]
            shown = {flag for text, flag in zip(other.texts, column.texts) if is_number(text)}
            if shown and hidden and not shown & {*hidden} and comb(len(other.texts), len(hidden)) > 1000:
                left.append(column)
                says = " or ".join(f"'{flag}'" for flag in dict.fromkeys(hidden))
                said.append(column.left_out(f"says {says} where '{other.name}' is hidden"))
                break
    return [column for column in values if all(column is not each for each in left)], said


_STATUS = re.compile(
    r"((obs(ervation)?|conf(identiality)?|cell|data|value|disclosure|suppress(ion)?|quality|reliability)[ _.-]?"
    r"(status|code|mark|sign)|confidential(ity)?|suppress(ed|ion)|geheimhaltung|secret( statistique)?|statut)",
    re.IGNORECASE,
)
"""Names of columns that say whether values are shown, and how good they are."""


def holds_values(column: SeenColumn, at: int) -> bool:
    held = column.held
    numbers = [text for text in held if is_number(text)]
    numbers += [text for text in held if (numbers or at > 0) and is_marked(text)]
    if len(numbers) < 0.5 * len(held) and not (numbers and all(is_number(t) or is_code(t) for t in held)):
        return False
    zeros = any(re.fullmatch(r"0\d+", text) for text in numbers)
    coded = [text for text in held if not TOTAL.fullmatch(text)] or held
    one_width = len({len(text) for text in coded}) == 1 and len(set(coded)) == len(coded) > 1
    codes = KEY.fullmatch(column.name) is not None and not re.search(r"[.,]\d", " ".join(numbers))
    return not (
        zeros
        or codes
        or (at == 0 and one_width and len(coded[0]) > 1)
        or (at == 0 and _TIME.fullmatch(column.name))
    )


def holds_ages(column: SeenColumn) -> bool:
    """Return True if the texts of a column are repeated ages that follow each other without gaps."""
    times = Counter(column.held)
    found = sorted((int(a), int(b or a)) for a, b in map(_ends, times) if a)
    gapless = all(low == high + 1 for (_, high), (low, _) in pairwise(found))
    ranges = sum(low < high for low, high in found)
    return gapless and ranges > 1 and len(found) >= len(times) - 1 and min(times.values()) > 1


def _ends(text: str) -> tuple[str, str]:
    """Return both ends of an age range such as 3-6, or blanks for a text that is no range."""
    found = _RANGE.fullmatch(text)
    return (found[1], found[2] or "") if found else ("", "")


def stands_among_values(every: list[SeenColumn], at: int) -> bool:
    """Return True if a column after a column of values contains values rather than codes."""
    held = every[at].held
    several = len({len(text) for text in held}) > 1 and sum(map(is_number, held)) > 0.5 * len(held)
    zeros = any(re.fullmatch(r"0\d+", text) for text in held)
    return several and at > 1 and not zeros and holds_values(every[at - 1], at - 1)


def stands_before_names(every: list[SeenColumn]) -> bool:
    """Return True if the first of some columns contains numbers, and the last a name in every row."""
    names = every[-1].held
    apart = len(set(names)) == len(every[-1].texts) and not any(map(is_number, names))
    numbers = all(any(map(is_number, column.held)) for column in every[:-1]) and len(every) > 2
    return apart and numbers and not KEY.fullmatch(every[0].name)


def holds_codes(column: SeenColumn, at: int, every: list[SeenColumn]) -> bool:
    """Return True if one of the first columns contains codes, which are nested or rise from row to row."""
    codes = [text for text in column.held if not TOTAL.fullmatch(text)]
    if at > 2 or len(codes) < 3 or len(set(codes)) < len(codes) or not all(map(_CODED.fullmatch, codes)):
        return False
    beside = every[at + 1].held if at + 1 < len(every) else []
    named = len(set(beside)) > 0.8 * len(codes) and not any(map(is_number, beside))
    nested = sum(any(code[:end] in set(codes) for end in range(1, len(code))) for code in codes)
    shortest = min(map(len, codes))
    tops = sum(len(code) == shortest for code in codes)
    rising = all(one < other for one, other in pairwise(float(code) for code in codes if code.count(".") < 2))
    return ((named or at == 0) and nested >= len(codes) - tops > tops / 2) or (named and rising and at == 0)


_CODED = re.compile(r"\d{1,12}(\.\d{1,4})*")
