"""The read path: point reads and scans over memtables, L0 SSTs and sorted runs as one picture."""

from __future__ import annotations

from slate_async.engine.read.bounds import KeyRange, key_range
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.sources import Run, Table, TableSource
from slate_async.engine.read.view import Pin, ReadView

__all__ = ["KeyRange", "Pin", "ReadView", "Run", "Scan", "Table", "TableSource", "key_range"]
