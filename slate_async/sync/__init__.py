"""The engine without ``await``: for scripts, notebooks, threads, and libraries that know nothing of asyncio.

>>> import slate_async as slate
>>> with slate.sync.open("file:///data/db") as db:
...     db.put(b"user:1", b"Alice")
...     db.get(b"user:1")

Names, arguments, results and errors are those of `slate_async`. One thread runs one event loop for all that a process
opens; every handle may be used from any thread but that one. A call that is interrupted (``KeyboardInterrupt``) is
cancelled. What is still open when the interpreter ends is closed then. A process that forks opens its own.
"""

from typing import TYPE_CHECKING

from slate_async.engine.write.batch import WriteBatch
from slate_async.late_names import late_names
from slate_async.sync.admin import Admin, Ingests, Inspection
from slate_async.sync.checkpoints import Checkpoints
from slate_async.sync.compactor import DbCompactor
from slate_async.sync.db import Db
from slate_async.sync.environment import Environment
from slate_async.sync.feed import ChangeFeed
from slate_async.sync.garbage_collector import GarbageCollector
from slate_async.sync.ingest import Batches, IngestJob, IngestTask
from slate_async.sync.map import IndexReads, Map, MapTransaction, MapView
from slate_async.sync.namespace import Namespace, NamespaceView
from slate_async.sync.opening import (
    open,
    open_admin,
    open_compactor,
    open_gc,
    open_ingest,
    open_ingest_task,
    open_reader,
)
from slate_async.sync.readable import Readable
from slate_async.sync.reader import DbReader
from slate_async.sync.scan import Scan
from slate_async.sync.snapshot import Snapshot
from slate_async.sync.transaction import Transaction, TransactionScan
from slate_async.sync.watch import Watch
from slate_async.sync.write_handle import UpdateHandle, WriteHandle

if TYPE_CHECKING:
    from slate_async.sync.lake import Collection, Lake, open_collections
else:
    __getattr__ = late_names(__name__, {"slate_async.sync.lake": "Collection Lake open_collections"})

__all__ = [
    "Admin",
    "Batches",
    "ChangeFeed",
    "Checkpoints",
    "Collection",
    "Db",
    "DbCompactor",
    "DbReader",
    "Environment",
    "GarbageCollector",
    "IngestJob",
    "IngestTask",
    "Ingests",
    "Inspection",
    "Lake",
    "IndexReads",
    "Map",
    "MapTransaction",
    "MapView",
    "Namespace",
    "NamespaceView",
    "Readable",
    "Scan",
    "Snapshot",
    "Transaction",
    "TransactionScan",
    "UpdateHandle",
    "Watch",
    "WriteBatch",
    "WriteHandle",
    "open",
    "open_admin",
    "open_collections",
    "open_compactor",
    "open_gc",
    "open_ingest",
    "open_ingest_task",
    "open_reader",
]
