"""Amounts of memory: parsing of settings, and measurement of what the machine has."""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

from trueup.digits import to_digits
from trueup.errors import SpecError, TrueupError

PROCESS_BYTES = 350_000_000
"""Bytes of a process that has loaded everything and holds nothing."""
BYTES_PER_CELL = 100
"""About how many bytes a problem that memory holds as a whole needs for each of its cells."""
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{letter}iB".upper(): 1024**power for power, letter in enumerate("KMGT", 1)
}


def parse_memory(text: str) -> int:
    """Return the number of bytes that a size such as '2GB' states.

    Examples
    --------
    >>> parse_memory("4GB"), parse_memory("1.5 gb"), parse_memory("4GiB")
    (4000000000, 1500000000, 4294967296)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise SpecError(
            f"the memory '{text}' is not a size", needed="a number with a unit, such as 4GB or 800MB"
        )
    unit = found[2].upper()
    return int(float(found[1]) * _UNITS[unit if unit in _UNITS else f"{unit}B"])


def memory_text(size: float) -> str:
    """Return a size in bytes as text, such as '2 GB'.

    Examples
    --------
    >>> memory_text(450_000_000), memory_text(1_800_000_000), memory_text(4)
    ('450 MB', '1.8 GB', '4 bytes')
    """
    for unit, many in (("GB", 1e9), ("MB", 1e6)):
        if size >= many:
            return f"{to_digits(size / many, 3)} {unit}"
    return f"{size:.0f} bytes"


def refuse_needed(what: str, needed: float, memory: int | None) -> None:
    """Refuse work that needs more memory (bytes) than a limit; a limit of None refuses nothing."""
    if memory is not None and needed > memory:
        raise TrueupError(
            f"{what} needs about {memory_text(needed)} of memory, but at most {memory_text(memory)} may be used",
            remedy=f"raise --memory to at least {memory_text(needed)}",
        )


def return_freed(least: int | None = 1 << 20) -> None:
    """Return freed memory to the operating system, and have later large arrays returned as soon as freed.

    The C library would keep arrays below 32 MB for reuse: a third of the memory of a tree of 4e6 counts.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        if least is not None:
            library.mallopt(-3, least)  # M_MMAP_THRESHOLD
        library.malloc_trim(0)


def machine_bytes() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available() -> float:
    """Return the free memory in bytes, or infinity if the system does not state it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return math.inf


def peak_bytes() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
