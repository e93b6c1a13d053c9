"""Rows in memory: append-only columns with point lookups, sorted views and conversion to Arrow in small steps."""

from __future__ import annotations

from slate_async.storage.memtable.conversion import convert, sorted_columns
from slate_async.storage.memtable.memtable import ROW_OVERHEAD_BYTES, Memtable

__all__ = ["ROW_OVERHEAD_BYTES", "Memtable", "convert", "sorted_columns"]
