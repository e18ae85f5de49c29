"""Completeness of Zstandard files, since DuckDB takes a truncated one for a shorter one."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A5
_DICTIONARY, _CONTENT = (0, 1, 2, 4), (0, 2, 4, 8)
"""Bytes of two fields of a frame's header, by their flags."""
_RUN, _RESERVED = 1, 3
"""Kinds of blocks: one byte that is repeated, and none."""


def is_whole_zst(path: Path) -> bool:
    """Return True if all frames and blocks of a file end within it, by their sizes, without unpacking.

    Source: RFC 8878, section 3.1.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.zst"
    >>> packed = bytes.fromhex("28b52ffd2001090000") + b"a"  # one frame, of one block that holds an `a`
    >>> [path.write_bytes(packed[:n]) and is_whole_zst(path) for n in (10, 9)]
    [True, False]
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            if not _past_frame(file):
                return False
        return file.tell() == size > 0


def _past_frame(file: BinaryIO) -> bool:
    """Skip to the end of a frame; return False if it is missing."""
    magic = _little_endian(file, 4)
    if magic >> 4 == _SKIPPABLE:
        file.seek(_little_endian(file, 4), 1)
        return True
    if magic != _FRAME:
        return False
    flags = _little_endian(file, 1)
    single = flags >> 5 & 1
    content = _CONTENT[flags >> 6] or single
    file.seek((not single) + _DICTIONARY[flags & 3] + content, 1)
    return _past_blocks(file) and (not flags >> 2 & 1 or len(file.read(4)) == 4)


def _past_blocks(file: BinaryIO) -> bool:
    """Skip to the end of a frame's last block; return False if it is missing."""
    while len(head := file.read(3)) == 3:
        block = int.from_bytes(head, "little")
        kind = block >> 1 & 3
        file.seek(1 if kind == _RUN else block >> 3, 1)
        if block & 1 or kind == _RESERVED:
            return kind != _RESERVED
    return False


def _little_endian(file: BinaryIO, size: int) -> int:
    return int.from_bytes(file.read(size), "little")
