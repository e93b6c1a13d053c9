"""Lists that the cyclic garbage collector does not look through.

A full collection visits every reference of every container, and a memtable alone has half a million: 40 ms and more in
which an event loop stands still. A list of ``bytes`` can be part of no cycle, so nothing is lost if it is left out, as
CPython itself leaves out tuples and dicts of such values (`PyObject_GC_UnTrack`, a documented call of its C interface).
"""

from __future__ import annotations

import ctypes
import sys
from typing import TypeVar

T = TypeVar("T")

_CPYTHON = sys.implementation.name == "cpython"
"""Other interpreters have other collectors."""


def untracked(items: list[T]) -> list[T]:
    """``items`` itself. It may be changed as ever, but must hold nothing that could refer back to it: bytes, numbers,
    or tuples of them."""
    if _CPYTHON:
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(items))
    return items
