"""The likely encoding of text that is not in UTF-8: the one in which its letters are those of some language."""

from __future__ import annotations

import re
from itertools import pairwise

_MARKS = "“”‘’„‚«»–—…·°§©®€£¥º¿¡ª²³±×½\u00a0"
_WESTERN = ("äöüß", "éèêëàâçîïôûùœæ", "áéíóúüñ", "ãõáéíóúâêôàç", "àèéìíòóù", "åäöæøé", "éëïóöü")
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţșț", "čćšđž")
_LETTERS: dict[str, tuple[str, ...]] = {
    "cp1252": _WESTERN,
    "cp1250": _CENTRAL,
    "iso8859-2": _CENTRAL,
    "cp1254": ("çğıöşüâîİ",),
    "iso8859-1": ("þðáéíóúýöæ",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
    "cp1251": ("абвгдежзийклмнопрстуфхцчшщъыьэюяё", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", "абвгдђежзијклљмнњопрстћуфхцчџш"),
    "koi8-r": ("абвгдежзийклмнопрстуфхцчшщъыьэюяё",),
    "cp1253": ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋ",),
    "cp850": _WESTERN,
    "cp852": _CENTRAL,
    "mac_roman": _WESTERN,
}  # fmt: skip
"""Encodings of one byte a letter, the likely first, and the letters of languages that are written in them."""
_WIDE = {
    "cp932": (r"[ぁ-ヿ一-鿿々　-】！-｝]", 0x81, 0x97),
    "euc_kr": (r"[가-힣　-】！-｝·]", 0xA1, 0xC8),
    "gb18030": (r"[一-鿿　-】！-｝“”]", 0xA1, 0xD7),
    "big5": (r"[一-鿿　-】！-｝]", 0xA1, 0xC6),
    "euc_jp": (r"[ぁ-ヿ一-鿿々　-】！-｝]", 0xA1, 0xCF),
}
"""Encodings of two bytes a letter, their letters, and the ends of the first bytes of common ones."""
_PAIRS = re.compile(rb"[\x81-\xfe][\x40-\xfe]")


def likely_encoding(held: bytes) -> str:
    """Return the encoding in which the letters of a text are those of a language; UTF-8 if they are UTF-8.

    Examples
    --------
    >>> names = {"Köln": "latin-1", "Łódź": "cp1250", "北海道": "cp932", "Москва": "cp1251"}
    >>> [likely_encoding(name.encode(encoding)) for name, encoding in names.items()]
    ['latin-1', 'cp1250', 'cp932', 'cp1251']
    """
    held = held[: held.rfind(b"\n") + 1] or held
    if held[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if 3 * held.count(b"\0") > len(held):
        return "utf-16-le" if held[1:2] == b"\0" else "utf-16-be"
    if _decoded(held, "utf-8") is not None:
        return "utf-8-sig"
    scores = {name: _score_wide(held, name) for name in _WIDE}
    scores |= {name: _score(held, name, alphabets) for name, alphabets in _LETTERS.items()}
    best = max(scores, key=lambda name: scores[name])
    return "latin-1" if best == "cp1252" and not re.search(rb"[\x80-\x9f]", held) else best


def _decoded(held: bytes, name: str) -> str | None:
    try:
        return held.decode(name)
    except UnicodeDecodeError:
        return None


def _score_wide(held: bytes, name: str) -> float:
    """Return the share of the letters that are common ones of an encoding of two bytes; below all others if some are none."""
    if (text := _decoded(held, name)) is None:
        return -1
    strange = [letter for letter in text if letter > "\x7f"]
    letters, low, high = _WIDE[name]
    own = sum(re.match(letters, letter) is not None for letter in strange)
    firsts = [pair[0] for pair in _PAIRS.findall(held)]
    common = sum(low <= first <= high for first in firsts)
    beside = len(re.findall(r"(?<=[A-Za-z])[^\x00-\x7f]|[^\x00-\x7f](?=[a-z])", text))
    return own / len(strange) * common / max(len(firsts), 1) - beside / len(strange)


def _score(held: bytes, name: str, alphabets: tuple[str, ...]) -> float:
    """Return the largest share of the letters that belong to one language, capitals within words aside."""
    if (text := _decoded(held, name)) is None:
        return -1
    strange = [letter for letter in text if letter > "\x7f"]
    inside = sum(one.islower() and other.isupper() for one, other in pairwise(text))
    own = max(sum(x.lower() in letters or x in letters + _MARKS for x in strange) for letters in alphabets)
    return (own - inside) / len(strange) - 0.01 * list(_LETTERS).index(name)
