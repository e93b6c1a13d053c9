"""DataFrames of persistent collections: `read_collection`, `reading_collection`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

import slate_async as slate
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.reader.lending import share_hold
from slate_async.collections.reader.split import since_error
from slate_async.spark.collection_options import CollectionRead
from slate_async.spark.collection_place import leased, open_collection
from slate_async.spark.collection_plan import definite
from slate_async.spark.collection_source import SlateCollectionSource
from slate_async.spark.options import OptionValue, as_strings
from slate_async.spark.registration import register_once
from slate_async.spark.worker import this_worker

FORMAT = "slate-collection"


def read_collection(spark: SparkSession, path: str, collection: str, **options: OptionValue) -> DataFrame:
    """A fresh DataFrame of the contents of ``collection`` in the lake at ``path`` (see docs/guide/spark.md for
    ``options``; ``None`` is as if not given): its data columns, ``_time`` and ``_diff``, which is never 0.

    Raises `InvalidError` for wrong options."""
    given = as_strings({**options, "collection": collection})
    wanted = CollectionRead.of({**given, "path": path})
    register_once(spark, SlateCollectionSource)
    return spark.read.format(FORMAT).options(**given).load(wanted.place.path)


@contextmanager
def reading_collection(spark: SparkSession, path: str, collection: str, **options: OptionValue) -> Iterator[DataFrame]:
    """As `read_collection`, for the queries inside the block: all of them see the contents at one time, and the hold
    that sees to it is given up at the end. This process keeps it, so it needs access to the lake, too.

    Raises `InvalidError` for wrong options and times that cannot be read, `NotFoundError`."""
    wanted = CollectionRead.of({**as_strings({**options, "collection": collection}), "path": path})
    if wanted.hold is not None:
        raise slate.InvalidError("option hold is what this gives: read_collection takes it")
    worker, kept = this_worker(), _Kept(wanted)
    keeping = worker.start(kept.keep)
    try:
        as_of = kept.as_of.result()
        rows = read_collection(spark, path, collection, **{**options, "asOf": as_of, "hold": kept.hold})
        yield rows if as_of is not None else rows.where("false")  # nothing was appended yet
    finally:
        worker.run(kept.end)
        keeping.result()


class _Kept:
    """A hold that this process keeps on its worker's loop, from `keep` on until `end`.

    as_of: what its readers read at, as text; hold: what they are given"""

    def __init__(self, options: CollectionRead) -> None:
        self._options = options
        self._ended = asyncio.Event()
        self.as_of: Future[str | None] = Future()
        self.hold = ""
        self._task: asyncio.Task[None] | None = None

    async def keep(self, environment: slate.Environment) -> None:
        """Take the hold, say so, keep it, and give it up."""
        self._task = asyncio.current_task()
        try:
            async with open_collection(self._options.place, environment) as stores:
                context = leased(stores, self._options.lifetime_s)
                shared, area = await share_hold(context, "spark reading")
                async with shared:
                    lent = await shared.lend(area.version)
                    _, as_of = await definite(context, stores.life.uuid, self._options, lent, area)
                    if as_of is not None and not shared.since.less_equal(as_of):
                        raise since_error(context, as_of, shared.since)  # what is beneath it may go between two queries
                    self.hold = f"{lent.reader}:{lent.beat}"
                    self.as_of.set_result(None if as_of is None else str(Frontier([as_of])))
                    await self._ended.wait()
        except BaseException as error:
            if self.as_of.done():
                raise
            self.as_of.set_exception(error)

    async def end(self, _: slate.Environment) -> None:
        """Let `keep` end, also while it waits for its time to be definite."""
        self._ended.set()
        if self._task is not None and not self.as_of.done():
            self._task.cancel()
