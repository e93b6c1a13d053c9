"""The read path: point reads and scans over memtables, L0 SSTs and sorted runs as one view.

Most reads need no waiting, and are answered by the first of these that can; each passes on what it cannot answer. All
but the last never suspend, and are asked only while it is nobody else's turn (`runtime.yield_budget`).

| | a point read asks | a page of a scan's first rows asks | in |
|---|---|---|---|
| memory | memtables, newest first | memtables: keys put in order | `storage.memtable`, `view`, `first_pages` |
| hot ranges | one dictionary for all levels | | `hot` |
| cached blocks | each level: filter, index, block | each level: index, blocks | `storage.sst.reader`, `first_pages` |
| sync read | one block a level, of a local file | some blocks, of a local file | `objectstore.sync_read` |
| the store | indexes of all levels at once, then blocks, newest first | streams, which read ahead | `view`, `streams` |

`scan_steps` says when a scan goes from pages to streams; `source` how a point read goes from memory to the store.
"""

from __future__ import annotations

from slate_async.engine.read.bounds import KeyRange, key_range
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.sources import Run, Table, TableSource
from slate_async.engine.read.view import Pin, ReadView

__all__ = ["KeyRange", "Pin", "ReadView", "Run", "Scan", "Table", "TableSource", "key_range"]
