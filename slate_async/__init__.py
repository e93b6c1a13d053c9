"""An asyncio-native storage engine that keeps everything in an object store.

>>> import slate_async as slate
>>> async with slate.open("file:///data/db") as db:
...     await db.put(b"user:1", b"Alice")
...     await db.get(b"user:1")
"""

from typing import TYPE_CHECKING

from slate_async.late_names import late_names

if TYPE_CHECKING:
    from slate_async import collections as collections
    from slate_async import keys as keys
    from slate_async import sync as sync
    from slate_async.arguments import BytesLike, Duration
    from slate_async.bridges.envelopes import Envelope, relay_schema
    from slate_async.bridges.relay import Relay, relay
    from slate_async.bridges.to_database import DatabaseRelay, relay_to_database
    from slate_async.codec.header import ObjectHeader, ObjectKind
    from slate_async.collections.collection import Collection
    from slate_async.collections.core.errors import (
        LeaseLostError,
        SinceError,
        SumError,
        TokenMismatchError,
        UpperMismatchError,
    )
    from slate_async.collections.core.frontier import DONE, Frontier
    from slate_async.collections.info import CollectionInfo, DamagedCollection
    from slate_async.collections.lake import Lake
    from slate_async.collections.open import open_collections
    from slate_async.database.admin import Admin
    from slate_async.database.checkpoints import Checkpoints
    from slate_async.database.compactor import DbCompactor
    from slate_async.database.db import Db
    from slate_async.database.environment import Environment
    from slate_async.database.garbage_collector import GarbageCollector
    from slate_async.database.handle import HandleState
    from slate_async.database.ingest import IngestJob, IngestTask
    from slate_async.database.ingests import Ingests
    from slate_async.database.inspection import Inspection
    from slate_async.database.maps.build import BuildProgress
    from slate_async.database.maps.by_index import IndexReads
    from slate_async.database.maps.errors import UniqueError
    from slate_async.database.maps.index import Index
    from slate_async.database.maps.map import Map
    from slate_async.database.maps.page import Page
    from slate_async.database.maps.value_codec import ValueCodec
    from slate_async.database.maps.within import MapBatch, MapTransaction, MapView
    from slate_async.database.namespaces.namespace import Namespace
    from slate_async.database.namespaces.reads import NamespaceView
    from slate_async.database.open import (
        open,
        open_admin,
        open_compactor,
        open_gc,
        open_ingest,
        open_ingest_task,
        open_reader,
    )
    from slate_async.database.readable import Readable
    from slate_async.database.reader import DbReader
    from slate_async.database.resources import DatabasePath
    from slate_async.database.snapshot import Snapshot
    from slate_async.database.status import CompactorStatus, ReaderStatus, Status
    from slate_async.database.transact import UpdateHandle
    from slate_async.database.transaction import Isolation, Transaction
    from slate_async.database.transaction_scan import TransactionScan
    from slate_async.engine.changes.change import Change, Op
    from slate_async.engine.changes.feed import ChangeFeed
    from slate_async.engine.changes.options import FromSeq, Initial
    from slate_async.engine.changes.read_ahead import ReadAhead
    from slate_async.engine.changes.subscription import FeedPosition
    from slate_async.engine.checkpoint.info import CheckpointInfo
    from slate_async.engine.checkpoint.manage import Scope
    from slate_async.engine.clone.info import CloneInfo
    from slate_async.engine.compaction.executor import Executor, MergeCounts, RangeResult, RangeTask
    from slate_async.engine.compaction.progress import CompactionEvent, EventKind, EventSink
    from slate_async.engine.gc.report import BlockingCompaction, GarbageObject, GcProgress, GcReport, GcStage
    from slate_async.engine.ingest.manage import IngestApp, IngestInfo, IngestPendingError, IngestState, StreamBatch
    from slate_async.engine.ingest.orphans import IngestObject
    from slate_async.engine.ingest.rows import Duplicates
    from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
    from slate_async.engine.ingest.sst_writer import Batches
    from slate_async.engine.ingest.watch import IngestMode, OnWait
    from slate_async.engine.read.record_batch import RecordBatch
    from slate_async.engine.read.row_statistics import RowStatistics
    from slate_async.engine.read.scan import Scan
    from slate_async.engine.read.splits import Split
    from slate_async.engine.read.time_travel import TimeLike
    from slate_async.engine.transactions.condition import DeleteConditions, PutConditions
    from slate_async.engine.watch.options import OnLag, WatchFrom
    from slate_async.engine.watch.watch import Watch
    from slate_async.engine.write.batch import WriteBatch
    from slate_async.engine.write.commit_group import WriteHandle
    from slate_async.errors import (
        ClosedError,
        ConfigError,
        ConflictError,
        CorruptionError,
        FencedError,
        InternalError,
        InvalidError,
        NotFoundError,
        Outcome,
        SlateError,
        UnavailableError,
    )
    from slate_async.maintenance.inspection.log import LogEntry, LogEntryKind, LogInspection
    from slate_async.maintenance.inspection.manifest import ManifestInspection, RunInspection
    from slate_async.maintenance.inspection.sst import BlockInspection, SstInspection
    from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
    from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport, VerifyStage
    from slate_async.merge_operators.guarded import MergeError
    from slate_async.merge_operators.protocol import MergeOperator
    from slate_async.merge_operators.registry import register_merge_operator
    from slate_async.merge_operators.values import pack_i64, pack_set, unpack_i64, unpack_set
    from slate_async.runtime.opening import Opening
    from slate_async.settings import Compression, LogProtocol, Settings
    from slate_async.settings.collections import CollectionSettings
    from slate_async.settings.serving import ServeSettings
    from slate_async.storage.format.sst import SstFooter
    from slate_async.storage.format.stats import SstStats
    from slate_async.storage.liveness.observer import LifeState, WriterLife
    from slate_async.storage.manifest.state import CheckpointOwner
    from slate_async.tables.catalog import Catalog
    from slate_async.tables.changes import TableChange
    from slate_async.tables.compact import CompactResult
    from slate_async.tables.core.errors import SnapshotExpiredError
    from slate_async.tables.core.predicate import Column, Predicate, PredicateLike, col
    from slate_async.tables.explain import ScanPlan
    from slate_async.tables.history import TableStatus, TableVersion
    from slate_async.tables.incoming import ArrowData
    from slate_async.tables.open import open_catalog
    from slate_async.tables.remote import RemoteCatalog, RemoteScan, RemoteTable, connect
    from slate_async.tables.results import AppendResult, DeleteResult, TransactionResult, UpsertResult
    from slate_async.tables.scan import TableScan
    from slate_async.tables.snapshot import TableSnapshot
    from slate_async.tables.table import Table
    from slate_async.tables.transaction import TableTransaction
    from slate_async.tables.vacuum import VacuumReport
    from slate_async.tables.versions import TablePin
    from slate_async.types import Finding, RangeDelete, Row
else:
    __getattr__ = late_names(
        __name__,
        {
            "slate_async.collections": "",
            "slate_async.keys": "",
            "slate_async.sync": "",
            "slate_async.arguments": "BytesLike Duration",
            "slate_async.bridges.envelopes": "Envelope relay_schema",
            "slate_async.bridges.relay": "Relay relay",
            "slate_async.bridges.to_database": "DatabaseRelay relay_to_database",
            "slate_async.codec.header": "ObjectHeader ObjectKind",
            "slate_async.collections.collection": "Collection",
            "slate_async.collections.core.errors": "LeaseLostError SinceError SumError TokenMismatchError"
            " UpperMismatchError",
            "slate_async.collections.core.frontier": "DONE Frontier",
            "slate_async.collections.info": "CollectionInfo DamagedCollection",
            "slate_async.collections.lake": "Lake",
            "slate_async.collections.open": "open_collections",
            "slate_async.database.admin": "Admin",
            "slate_async.database.checkpoints": "Checkpoints",
            "slate_async.database.compactor": "DbCompactor",
            "slate_async.database.db": "Db",
            "slate_async.database.environment": "Environment",
            "slate_async.database.garbage_collector": "GarbageCollector",
            "slate_async.database.handle": "HandleState",
            "slate_async.database.ingest": "IngestJob IngestTask",
            "slate_async.database.ingests": "Ingests",
            "slate_async.database.inspection": "Inspection",
            "slate_async.database.maps.build": "BuildProgress",
            "slate_async.database.maps.by_index": "IndexReads",
            "slate_async.database.maps.errors": "UniqueError",
            "slate_async.database.maps.index": "Index",
            "slate_async.database.maps.map": "Map",
            "slate_async.database.maps.page": "Page",
            "slate_async.database.maps.value_codec": "ValueCodec",
            "slate_async.database.maps.within": "MapBatch MapTransaction MapView",
            "slate_async.database.namespaces.namespace": "Namespace",
            "slate_async.database.namespaces.reads": "NamespaceView",
            "slate_async.database.open": (
                "open open_admin open_compactor open_gc open_ingest open_ingest_task open_reader"
            ),
            "slate_async.database.readable": "Readable",
            "slate_async.database.reader": "DbReader",
            "slate_async.database.resources": "DatabasePath",
            "slate_async.database.snapshot": "Snapshot",
            "slate_async.database.status": "CompactorStatus ReaderStatus Status",
            "slate_async.database.transact": "UpdateHandle",
            "slate_async.database.transaction": "Isolation Transaction",
            "slate_async.database.transaction_scan": "TransactionScan",
            "slate_async.engine.changes.change": "Change Op",
            "slate_async.engine.changes.feed": "ChangeFeed",
            "slate_async.engine.changes.options": "FromSeq Initial",
            "slate_async.engine.changes.read_ahead": "ReadAhead",
            "slate_async.engine.changes.subscription": "FeedPosition",
            "slate_async.engine.checkpoint.info": "CheckpointInfo",
            "slate_async.engine.checkpoint.manage": "Scope",
            "slate_async.engine.clone.info": "CloneInfo",
            "slate_async.engine.compaction.executor": "Executor MergeCounts RangeResult RangeTask",
            "slate_async.engine.compaction.progress": "CompactionEvent EventKind EventSink",
            "slate_async.engine.gc.report": "BlockingCompaction GarbageObject GcProgress GcReport GcStage",
            "slate_async.engine.ingest.manage": "IngestApp IngestInfo IngestPendingError IngestState StreamBatch",
            "slate_async.engine.ingest.orphans": "IngestObject",
            "slate_async.engine.ingest.rows": "Duplicates",
            "slate_async.engine.ingest.spec": "IngestedSst IngestSpec",
            "slate_async.engine.ingest.sst_writer": "Batches",
            "slate_async.engine.ingest.watch": "IngestMode OnWait",
            "slate_async.engine.read.record_batch": "RecordBatch",
            "slate_async.engine.read.row_statistics": "RowStatistics",
            "slate_async.engine.read.scan": "Scan",
            "slate_async.engine.read.splits": "Split",
            "slate_async.engine.read.time_travel": "TimeLike",
            "slate_async.engine.transactions.condition": "DeleteConditions PutConditions",
            "slate_async.engine.watch.options": "OnLag WatchFrom",
            "slate_async.engine.watch.watch": "Watch",
            "slate_async.engine.write.batch": "WriteBatch",
            "slate_async.engine.write.commit_group": "WriteHandle",
            "slate_async.errors": (
                "ClosedError ConfigError ConflictError CorruptionError FencedError InternalError "
                "InvalidError NotFoundError Outcome SlateError UnavailableError"
            ),
            "slate_async.maintenance.inspection.log": "LogEntry LogEntryKind LogInspection",
            "slate_async.maintenance.inspection.manifest": "ManifestInspection RunInspection",
            "slate_async.maintenance.inspection.sst": "BlockInspection SstInspection",
            "slate_async.maintenance.mirror.report": "MirrorProgress MirrorReport",
            "slate_async.maintenance.verify.report": "VerifyProgress VerifyReport VerifyStage",
            "slate_async.merge_operators.guarded": "MergeError",
            "slate_async.merge_operators.protocol": "MergeOperator",
            "slate_async.merge_operators.registry": "register_merge_operator",
            "slate_async.merge_operators.values": "pack_i64 pack_set unpack_i64 unpack_set",
            "slate_async.runtime.opening": "Opening",
            "slate_async.settings": "Compression LogProtocol Settings",
            "slate_async.settings.collections": "CollectionSettings",
            "slate_async.settings.serving": "ServeSettings",
            "slate_async.storage.format.sst": "SstFooter",
            "slate_async.storage.format.stats": "SstStats",
            "slate_async.storage.liveness.observer": "LifeState WriterLife",
            "slate_async.storage.manifest.state": "CheckpointOwner",
            "slate_async.tables.catalog": "Catalog",
            "slate_async.tables.changes": "TableChange",
            "slate_async.tables.compact": "CompactResult",
            "slate_async.tables.core.errors": "SnapshotExpiredError",
            "slate_async.tables.core.predicate": "Column Predicate PredicateLike col",
            "slate_async.tables.explain": "ScanPlan",
            "slate_async.tables.history": "TableStatus TableVersion",
            "slate_async.tables.incoming": "ArrowData",
            "slate_async.tables.open": "open_catalog",
            "slate_async.tables.remote": "RemoteCatalog RemoteScan RemoteTable connect",
            "slate_async.tables.results": "AppendResult DeleteResult TransactionResult UpsertResult",
            "slate_async.tables.scan": "TableScan",
            "slate_async.tables.table": "Table",
            "slate_async.tables.transaction": "TableTransaction",
            "slate_async.tables.snapshot": "TableSnapshot",
            "slate_async.tables.versions": "TablePin",
            "slate_async.tables.vacuum": "VacuumReport",
            "slate_async.types": "Finding RangeDelete Row",
        },
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "Admin",
    "AppendResult",
    "ArrowData",
    "Batches",
    "BlockInspection",
    "BlockingCompaction",
    "BuildProgress",
    "BytesLike",
    "Catalog",
    "Change",
    "ChangeFeed",
    "CheckpointInfo",
    "CheckpointOwner",
    "Checkpoints",
    "CloneInfo",
    "ClosedError",
    "Collection",
    "CollectionInfo",
    "CollectionSettings",
    "Column",
    "CompactResult",
    "CompactionEvent",
    "CompactorStatus",
    "Compression",
    "ConfigError",
    "ConflictError",
    "CorruptionError",
    "DONE",
    "DamagedCollection",
    "DatabasePath",
    "DatabaseRelay",
    "Db",
    "DbCompactor",
    "DbReader",
    "DeleteConditions",
    "DeleteResult",
    "Duplicates",
    "Duration",
    "Envelope",
    "Environment",
    "EventKind",
    "EventSink",
    "Executor",
    "FeedPosition",
    "FencedError",
    "Finding",
    "FromSeq",
    "Frontier",
    "GarbageCollector",
    "GarbageObject",
    "GcProgress",
    "GcReport",
    "GcStage",
    "HandleState",
    "Index",
    "IndexReads",
    "IngestApp",
    "IngestInfo",
    "IngestJob",
    "IngestMode",
    "IngestObject",
    "IngestPendingError",
    "IngestSpec",
    "IngestState",
    "IngestTask",
    "IngestedSst",
    "Ingests",
    "Initial",
    "Inspection",
    "InternalError",
    "InvalidError",
    "Isolation",
    "Lake",
    "LeaseLostError",
    "LifeState",
    "LogEntry",
    "LogEntryKind",
    "LogInspection",
    "LogProtocol",
    "ManifestInspection",
    "Map",
    "MapBatch",
    "MapTransaction",
    "MapView",
    "MergeCounts",
    "MirrorProgress",
    "MirrorReport",
    "Namespace",
    "NamespaceView",
    "NotFoundError",
    "ObjectHeader",
    "ObjectKind",
    "OnWait",
    "OnLag",
    "Op",
    "Opening",
    "Outcome",
    "Page",
    "Predicate",
    "PredicateLike",
    "PutConditions",
    "RangeDelete",
    "RangeResult",
    "RangeTask",
    "ReadAhead",
    "Readable",
    "ReaderStatus",
    "RecordBatch",
    "Relay",
    "Row",
    "RowStatistics",
    "RunInspection",
    "Scan",
    "ScanPlan",
    "Scope",
    "Settings",
    "SinceError",
    "SlateError",
    "Snapshot",
    "SnapshotExpiredError",
    "Split",
    "SstFooter",
    "SstInspection",
    "SstStats",
    "Status",
    "StreamBatch",
    "SumError",
    "VacuumReport",
    "Table",
    "TableChange",
    "TablePin",
    "TableScan",
    "TableTransaction",
    "TableSnapshot",
    "TableStatus",
    "TableVersion",
    "TimeLike",
    "TokenMismatchError",
    "Transaction",
    "TransactionResult",
    "TransactionScan",
    "UnavailableError",
    "UniqueError",
    "UpdateHandle",
    "UpperMismatchError",
    "UpsertResult",
    "ValueCodec",
    "VerifyProgress",
    "VerifyReport",
    "VerifyStage",
    "Watch",
    "WatchFrom",
    "WriteBatch",
    "WriteHandle",
    "WriterLife",
    "col",
    "open",
    "open_admin",
    "open_catalog",
    "open_collections",
    "open_compactor",
    "open_gc",
    "open_ingest",
    "open_ingest_task",
    "open_reader",
    "relay",
    "relay_schema",
    "relay_to_database",
    "MergeError",
    "MergeOperator",
    "register_merge_operator",
    "pack_i64",
    "pack_set",
    "unpack_i64",
    "unpack_set",
    "RemoteCatalog",
    "RemoteScan",
    "RemoteTable",
    "connect",
    "ServeSettings",
]
