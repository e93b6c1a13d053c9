"""Memory that was freed, given back to the system.

The C library of Linux (glibc) keeps what it may need again, apart for each of several threads. After a flush or a
compaction that is tens of megabytes, which nobody else can use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

LARGE_BYTES = 8 << 20
"""Once an object of so many bytes is dealt with, giving memory back is worth the time: 1 to 10 ms."""


def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return None
    return trim


_malloc_trim = _trim()


def give_back() -> None:
    """Give back what is free now. For a worker thread; others that need a large block wait meanwhile."""
    if _malloc_trim is not None:
        _malloc_trim(0)
