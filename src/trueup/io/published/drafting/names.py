"""Names for attributes, suggested by their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from trueup.io.published.drafting.seen import YEAR

_SEX = re.compile(
    r"f|m|w|(fe)?males?|(wo)?m[ae]n|girls?|boys?|weiblich|männlich|männer|frauen|mann|frau|hommes?|femmes?|masculin|féminin|"
    r"garçons|filles|hombres?|mujeres?|masch[io]|femmin[ae]|homens|mulheres|mannen|vrouwen|män|kvinnor|mænd|kvinder|menn|kvinner|"
    r"masc|fem|ž|z|jungen|mädchen|jongens|meisjes|pojkar|flickor|gutter|jenter|drenge|piger|karlar|konur|miehet|naiset|mehed|naised|"
    r"vyrai|moterys|vīrieši|sievietes|mężczyźni|kobiety|muži|ženy|mušk(arci|i)|žen(e|ski?)|moški|ženske|férfi(ak)?|nők?|bărbați|femei|"
    r"meshkuj|femra|erkek|kadın|laki-laki|perempuan|nam|nữ|мужчины|женщины|чоловіки|жінки|мъже|жени|мушкарци|жене|άν[δτ]ρες|"
    r"γυναίκες|ذكور|إناث|男性?|女性?|남자?|여자?|पुरुष|महिला|ชาย|หญิง|wanaume|wanawake",
    re.IGNORECASE,
)
_AGE = re.compile(
    r"[\d+–—<≥～〜-]+[歳岁세]?(以上|以下|未満|이상|미만)?|이상|미만|y\d+-\d+|y_[gl][te]\d+|under|below|over|aged?|to|and|or|years?|older|more|very|jahre|bis|unter|über|adults?|children|young|old|middle|"
    r"ans|et|plus|moins|de|à|anos|ou|mais|menos|años|y|más|anni|e|jaar|en|ouder|år|och|og|äldre",
    re.IGNORECASE,
)
_SIZE = re.compile(r"[\d+–—<≥～〜-]+|and|or|more|over|to|under|up", re.IGNORECASE)
"""Words of a size class such as 1-9: ages begin at 0, or their names say years."""
OF_WHICH = re.compile(
    r"(davon|darunter|of which|including|of whom|dont|di cui|de los cuales|waarvan|waaronder|herav|heraf|därav)\W+"
)
"""Words before the name of a part of the count beside it."""


def name_of(values: Sequence[str]) -> str:
    """Return a name for the attribute that has some values; 'category' if they suggest none.

    Examples
    --------
    >>> name_of(["Men", "Women"]), name_of(["davon männlich", "davon weiblich"]), name_of(["0-17", "18+"]), name_of(["a", "b"])
    ('sex', 'sex', 'age', 'category')
    >>> name_of(["1-9", "10-49", "50+"]), name_of(["2023", "2024"]), name_of(["2022-2023", "2023-2024"])
    ('size', 'year', 'period')
    """
    bare = [re.sub(r"\s*\(.*\)$|\W+$", "", OF_WHICH.sub("", value.casefold())) or value for value in values]
    if all(_SEX.fullmatch(value) for value in bare):
        return "sex"
    years = [YEAR.search(value) for value in values]
    if all(years) and len({year[0] for year in years if year}) == 1 < len(values):  # of one year
        return name_of([re.sub(r"\W*" + YEAR.pattern + r"(/\d\d)?\W*", "", value) for value in values])
    if all(years):
        return "year" if all(map(YEAR.fullmatch, values)) else "period"
    words = [word for value in values for word in OF_WHICH.sub("", value.casefold()).split()]
    coded = any(re.search(r"\d{4}", word) for word in words)  # no age has four digits
    if coded or not all(map(_AGE.fullmatch, words)):
        return "category"
    ranges = all(map(_SIZE.fullmatch, words)) and not all(map(str.isdigit, values))
    begins = [_ages_of(value)[0] for value in values if _NUMBERS.search(value)]
    return "size" if ranges and min(begins, default=0) == 1 else "age"


_TWO_NAMES = re.compile(r"([^\W\d_]+)(?:\s+[^\W\d_]{1,3}\.?\s+|\s*[/+&,]\s*|[-–])([^\W\d_]+)")
"""Two names that a short word or a sign joins: `Men and women`, `M/F`."""


def joined_names(text: str) -> tuple[str, ...]:
    """Return the two names that a text such as "Men and women" joins; empty for any other text.

    Examples
    --------
    >>> [joined_names(text) for text in ("Men and women", "HM", "M+F", "Women", "aged 15 to 24")]
    [('Men', 'women'), ('H', 'M'), ('M', 'F'), (), ()]
    """
    if len(text) == 2 and text.isalpha() and text == text.upper():
        return text[0], text[1]
    found = _TWO_NAMES.fullmatch(text.strip())
    return found.groups() if found else ()


def rest_of_names(whole: str, part: str) -> str:
    """Return the other name if a total's label joins two names, one of them given; otherwise an empty text.

    Examples
    --------
    >>> rest_of_names("HM", "H"), rest_of_names("Men and women", "Women"), rest_of_names("Total", "Women")
    ('M', 'Men', '')
    """
    names = joined_names(whole)
    rest = [name for name in names if name.casefold() != part.casefold()]
    return rest[0] if len(rest) == 1 else ""


_NUMBERS = re.compile(r"\d{1,3}")
_UNDER = re.compile(
    r"\W*(y_l[te]|.*(未満|미만)|under|below|less|younger|unter|moins|menos|<|up to|bis).*", re.IGNORECASE
)
_OVER = re.compile(
    r".*(\+|y_g[te]|以上|이상|over|older|more|älter|mehr|plus|más|mais|più|eldre|äldre|ældre|≥|yli).*",
    re.IGNORECASE,
)


def overlapping(values: Sequence[str]) -> list[str]:
    """Return the age groups that overlap others, without those that others make up exactly.

    Examples
    --------
    >>> overlapping(["0-14", "0-4", "5-14", "15-64", "65+", "80+"])
    ['0-14', '80+']
    """
    if (
        name_of(values) not in ("age", "size")
        or not all(map(_NUMBERS.search, values))
        or all(map(str.isdigit, values))
    ):
        return []  # of single years, or codes, none holds another
    ends = {value: _ages_of(value) for value in values}
    found: list[str] = []
    for value, (low, high) in ends.items():
        inside = sorted(
            ends[o]
            for o in values
            if o != value and low <= ends[o][0] <= ends[o][1] <= high and o not in found
        )
        if inside:
            made_up = (
                inside[0][0] == low
                and inside[-1][1] == high
                and all(a[1] + 1 == b[0] for a, b in pairwise(inside))
            )
            found += [value] if made_up else [o for o in values if o != value and ends[o] in inside]
    return [value for value in values if value in found]


def ages_within(values: Sequence[str], held: Sequence[str]) -> dict[str, list[str]]:
    """Return, for each age group, the other age groups that lie within it.

    Examples
    --------
    >>> ages_within(["0-14"], ["0-14", "0-4", "5-14", "15-64"])
    {'0-14': ['0-4', '5-14']}
    """
    ends = {value: _ages_of(value) for value in held if _NUMBERS.search(value)}
    return {
        value: [
            o
            for o, (low, high) in ends.items()
            if o not in values and ends[value][0] <= low <= high <= ends[value][1]
        ]
        for value in values
        if value in ends
    }


def _ages_of(text: str) -> tuple[int, int]:
    numbers = [int(number) for number in _NUMBERS.findall(text)]
    if _UNDER.fullmatch(text):
        return 0, numbers[-1] - 1
    return numbers[0], 999 if len(numbers) == 1 and _OVER.fullmatch(text) else numbers[-1]
