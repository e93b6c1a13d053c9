"""Persistent collections: durable sets of updates ``(data, time, diff)`` in an object store.

The contents of a collection at time t are the sums of diff over the updates whose times are at or before t.

>>> import slate_async as slate
>>> async with slate.open_collections("file:///data/live") as lake:
...     reader = await lake.create("orders")
...     async with lake.collection("orders").writer("relay-a") as writer:
...         await writer.append([(b"ada", 0, 1)], upper=1)
...     snapshot = await reader.snapshot(as_of=0)
"""

from typing import TYPE_CHECKING

from slate_async.late_names import late_names

if TYPE_CHECKING:
    from slate_async.collections.controller.controller import Controller
    from slate_async.collections.controller.executor import Executor, MergeTask
    from slate_async.collections.controller.report import Collected, HeldBack, RoundReport
    from slate_async.collections.controller.service import ControllerService
    from slate_async.collections.core.filtering import ConditionLike
    from slate_async.collections.core.frontier import FrontierLike
    from slate_async.collections.core.garbage import Garbage, Why
    from slate_async.collections.core.times import Time, TimeLike
    from slate_async.collections.core.updates import UpdatesLike
    from slate_async.collections.overview.views import GarbageView, HoldView, LayerBatch, Overview, Shard
    from slate_async.collections.reader.critical import CriticalHandle
    from slate_async.collections.reader.handle import ReadHandle
    from slate_async.collections.reader.listen import Delta, Listener
    from slate_async.collections.reader.snapshot import Snapshot
    from slate_async.collections.verify.report import (
        CollectionStage,
        CollectionVerifyProgress,
        CollectionVerifyReport,
    )
    from slate_async.collections.writer.builder import BatchBuilder
    from slate_async.collections.writer.writer import Writer
else:
    __getattr__ = late_names(
        __name__,
        {
            "slate_async.collections.controller.controller": "Controller",
            "slate_async.collections.controller.executor": "Executor MergeTask",
            "slate_async.collections.controller.report": "Collected HeldBack RoundReport",
            "slate_async.collections.controller.service": "ControllerService",
            "slate_async.collections.core.filtering": "ConditionLike",
            "slate_async.collections.core.frontier": "FrontierLike",
            "slate_async.collections.core.garbage": "Garbage Why",
            "slate_async.collections.core.times": "Time TimeLike",
            "slate_async.collections.core.updates": "UpdatesLike",
            "slate_async.collections.overview.views": "GarbageView HoldView LayerBatch Overview Shard",
            "slate_async.collections.reader.critical": "CriticalHandle",
            "slate_async.collections.reader.handle": "ReadHandle",
            "slate_async.collections.reader.listen": "Delta Listener",
            "slate_async.collections.reader.snapshot": "Snapshot",
            "slate_async.collections.verify.report": (
                "CollectionStage CollectionVerifyProgress CollectionVerifyReport"
            ),
            "slate_async.collections.writer.builder": "BatchBuilder",
            "slate_async.collections.writer.writer": "Writer",
        },
    )

__all__ = [
    "BatchBuilder",
    "Collected",
    "CollectionStage",
    "CollectionVerifyProgress",
    "CollectionVerifyReport",
    "ConditionLike",
    "Controller",
    "ControllerService",
    "CriticalHandle",
    "Delta",
    "Executor",
    "FrontierLike",
    "Garbage",
    "GarbageView",
    "HeldBack",
    "HoldView",
    "LayerBatch",
    "Listener",
    "MergeTask",
    "Overview",
    "ReadHandle",
    "RoundReport",
    "Shard",
    "Snapshot",
    "Time",
    "TimeLike",
    "UpdatesLike",
    "Why",
    "Writer",
]
