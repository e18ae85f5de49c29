"""Faults of CSV files, stated by line and cause without showing content, and guesses of a file's encoding."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trueup.files import DAMAGED, DELIMITERS, opened_csv

_MARKS = "“”‘’„‚«»–—…·°§©®€£¥º¿¡ª²³±×½\u00a0"
_WESTERN = ("äöüß", "éèêëàâçîïôûùœæ", "áéíóúüñ", "ãõáéíóúâêôàç", "àèéìíòóù", "åäöæøéáš", "éëïóöüâçúô")
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţșț", "čćšđž")
_RUSSIAN = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё"
_CYRILLIC = (
    _RUSSIAN,
    "оаинвіетрслкумдпзяьбгйчюхжїщцшєфґ",
    "аиоенртсвлпкдмузгбъчщйхцяжшюфь",
    "аоиенртсвјукдмлпгзбчшжцњљхћђџф",
)
_GREEK = ("αοιετσνρίόάέήςηυπκμλωδγχθφβξζψύώϊϋΐΰ",)
_LETTERS: dict[str, tuple[str, ...]] = {
    "cp1252": _WESTERN,
    "cp1250": _CENTRAL,
    "iso8859-2": _CENTRAL,
    "cp1254": ("çğıöşüâîi\u0307",),
    "iso8859-1": ("þðáéíóúýöæ",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
    "cp1251": _CYRILLIC,
    "koi8-r": (_RUSSIAN,),
    "cp866": (_RUSSIAN,),
    "cp1253": _GREEK,
    "iso8859-7": _GREEK,
    "cp1255": ("יוהלארמבתשנםדכעפקחגטזצסןךףץ" + "".join(map(chr, range(0x5B0, 0x5C3))),),
    "cp1256": ("اليمنوترةبدعسفهكقحجشأطصخإىضذزثغءؤئظآ،؛ـ" + "".join(map(chr, range(0x64B, 0x653))),),
    "cp874": ("านรองกมเลีตัยสดวทิ่้คจะปพหขชบใแไโุูืึํ์็ซถผฝฟภศษธญณฐฎฏฉฆฌฮฬฤๆฯ๏",),
    "cp850": _WESTERN,
    "cp852": _CENTRAL,
    "mac_roman": _WESTERN,
}  # fmt: skip
"""Encodings of one byte a letter, the likely first, and the letters of languages that are written in them: those of other scripts
than Latin by how often they stand in texts, the most common first.
"""
_COMMON = 14
"""Number of letters of another script that are common ones."""
_NEVER = re.compile(
    r"[a-zß-öø-ÿа-яёά-ώ][A-ZÀ-ÖØ-ÞĄĆĘŁŃŚŹŻČĎĚŇŘŠŤŮŽŐŰĞİŞА-ЯЁΑ-Ω]|[ךםןףץ][א-ת]|ς[α-ω]|[©®][^\W\d_]|(?<![ก-๎])[ัิ-ฺ็-๎]|[^\W\d_][“”„«»…§€£¥¿¡±×½¬¦¤¶][^\W\d_]"
)
"""Letters that stand within no word: a capital behind a small letter, a last form of a letter before others, a mark."""
_MIXED = re.compile(
    r"[A-Za-z][Ͱ-\u0e7f]|[Ͱ-\u0e7f][A-Za-z]|[À-ɏ]{4,}|(?<![A-Za-zÀ-ɏ])[À-ɏ]{3}(?![A-Za-zÀ-ɏ])"
)
"""Letters of two scripts in one word, or a word of letters that Latin has beside its own 26, alone."""
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
    """Return the likely encoding of bytes: UTF-8 or UTF-16 if they are valid, otherwise the one that best fits a language.

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
    scores |= {name: _score_single(held, name, alphabets) for name, alphabets in _LETTERS.items()}
    best = max(scores, key=lambda name: scores[name])
    return "latin-1" if best == "cp1252" and not re.search(rb"[\x80-\x9f]", held) else best


def _decoded(held: bytes, name: str) -> str | None:
    try:
        return held.decode(name)
    except UnicodeDecodeError:
        return None


def _score_wide(held: bytes, name: str) -> float:
    """Return the share of letters that are common in a two-byte encoding, or -1 if bytes are invalid."""
    if (text := _decoded(held, name)) is None:
        return -1
    strange = [letter for letter in text if letter > "\x7f"]
    letters, low, high = _WIDE[name]
    own = sum(re.match(letters, letter) is not None for letter in strange)
    firsts = [pair[0] for pair in _PAIRS.findall(held)]
    common = sum(low <= first <= high for first in firsts)
    beside = len(re.findall(r"(?<=[A-Za-z])[^\x00-\x7f]|[^\x00-\x7f](?=[a-z])", text))
    return own / len(strange) * common / max(len(firsts), 1) - beside / len(strange)


def _score_single(held: bytes, name: str, alphabets: tuple[str, ...]) -> float:
    """Return the largest share of letters that a language explains, less a penalty for misplaced letters."""
    if (text := _decoded(held, name)) is None:
        return -1
    strange = Counter(letter for letter in text if letter > "\x7f")
    own = max(
        sum(n * _weight(letter, letters, "".join(alphabets)) for letter, n in strange.items())
        for letters in alphabets
    )
    odd = sum(len(way.findall(text)) for way in (_NEVER, _MIXED))
    return (own - odd) / strange.total() - 0.005 * list(_LETTERS).index(name)


def _weight(letter: str, letters: str, every: str) -> float:
    """Return a score between 0 and 1 for how well a letter fits a language in a given encoding."""
    small = letter.lower()
    if small in letters:
        return (1.0 if small in letters[:_COMMON] else 0.7) - 0.05 * (small != letter)
    return 1.0 if letter in _MARKS else 0.6 if small in every else 0.0


MOST_LINES = 5_000_000
"""Lines that are searched for a fault."""


class FileFault(NamedTuple):
    """The first fault of a CSV file: its line, the cause, and a remedy."""

    line: int
    what: str
    remedy: str


def encoding_of(path: Path) -> str:
    """Return the likely encoding of a file from its beginning; UTF-8 if it cannot be read."""
    try:
        with opened_csv(path) as file:
            held = file.read(1 << 20)
    except DAMAGED:
        return "utf-8-sig"  # what is wrong is said where it is read
    return likely_encoding(held)


def line_of_row(path: Path, number: int) -> int | None:
    """Return the number, as in an editor, of the line at which a row of a CSV file ends.

    None where that cannot be told.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text('town,n\\n"a\\nb",1\\nc,2\\n')
    >>> line_of_row(path, 2)
    4
    """
    if path.name.lower().endswith(".zst"):
        return None
    with (
        suppress(*DAMAGED, csv.Error),
        opened_csv(path) as file,
        TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text,
    ):
        reader = csv.reader(text, delimiter=delimiter_of(path))
        lines = (reader.line_num for row in reader if row)
        return next(islice(lines, number, None), None)  # the header is the first
    return None


def csv_fault(path: Path, delimiter: str = ",") -> FileFault | None:
    """Return the first fault that prevents a CSV file from being read, or None if there is no fault.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_bytes(b"town,sex\\na,f\\nb\\n")
    >>> csv_fault(path)[:2]
    (3, 'has 1 field, and the header has 2')
    """
    try:
        return _bytes_at_fault(path) or _fields_at_fault(path, delimiter) or _mixed_ends(path)
    except DAMAGED:
        return None  # a file that ends too early is as damaged as it is said to be


def _lines(path: Path) -> Iterator[bytes]:
    with opened_csv(path) as file:
        yield from islice(file, MOST_LINES)


def _bytes_at_fault(path: Path) -> FileFault | None:
    for number, line in enumerate(_lines(path), 1):
        if b"\0" in line:
            return FileFault(
                number, "holds a zero byte, so the file is in UTF-16 or no text", "save it as UTF-8"
            )
        if b"\r" in line.rstrip(b"\r\n"):
            return FileFault(
                number, "holds a carriage return without a line feed", "save it with the line endings of Unix"
            )
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return FileFault(
                number,
                "holds bytes that are not UTF-8",
                f"name the encoding: --encoding {encoding_of(path)}; or save the file as UTF-8",
            )
    return None


def _fields_at_fault(path: Path, delimiter: str) -> FileFault | None:
    text = (line.decode("utf-8-sig" if at == 0 else "utf-8") for at, line in enumerate(_lines(path)))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    wanted, begins = 0, 1
    try:
        for fields in reader:
            wanted = wanted or len(fields)
            if fields and len(fields) != wanted:
                many = f"{len(fields)} field{'s' if len(fields) > 1 else ''}"
                return FileFault(
                    begins, f"has {many}, and the header has {wanted}", "give every row the header's fields"
                )
            begins = reader.line_num + 1
    except csv.Error:
        return FileFault(
            begins,
            "holds a quotation mark out of place, or one that is never closed",
            "double the quotation marks within a text, and close what is opened",
        )
    return None


def _mixed_ends(path: Path) -> FileFault | None:
    first = None
    for number, line in enumerate(_lines(path), 1):
        end = "CRLF" if line.endswith(b"\r\n") else "LF" if line.endswith(b"\n") else None
        first = first or end
        if end and end != first:
            return FileFault(
                number,
                f"ends in {end}, and the lines before it in {first}",
                "save the file with one kind of line endings",
            )
    return None


def delimiter_of(path: Path) -> str:
    """Return the delimiter that occurs most often in the header of a CSV file."""
    with suppress(*DAMAGED, UnicodeDecodeError), opened_csv(path) as file:
        return max(DELIMITERS, key=file.readline(1 << 20).decode().count)
    return ","
