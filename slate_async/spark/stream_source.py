"""``readStream.format("slate-changes")`` and ``read.format("slate-changes")``: the change feed of a database.

Spark makes a source in one process, plans with it in another, and reads in others. Each imports what it is asked for
when it is asked.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

ENDS = frozenset(("endingseq", "endingtime"))
"""Options that no stream has, in the case that Spark folds names to."""
CHANGE = StructType(
    [
        StructField("op", StringType(), nullable=False),
        StructField("key", BinaryType(), nullable=False),
        StructField("value", BinaryType(), nullable=True),
        StructField("seq", LongType(), nullable=False),
        StructField("create_time", TimestampType(), nullable=False),
        StructField("expire_time", TimestampType(), nullable=True),
    ]
)
"""Each put and delete as it happened (``op``); a delete has no value."""


class SlateChangesSource(DataSource):
    """``spark.readStream.format("slate-changes")``; see docs/guide/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "slate-changes"

    def schema(self) -> StructType:
        """`CHANGE`. The first that Spark asks for, so wrong options are reported here: later it hides the cause. It
        does not say whether a stream is meant; an end says that none is."""
        from slate_async.spark.stream_options import StreamOptions  # noqa: PLC0415 - not in a task

        if ENDS.isdisjoint(map(str.lower, self.options)):
            StreamOptions.of(self.options)
        else:
            from slate_async.spark.batch_changes import ChangesOptions  # noqa: PLC0415 - not of a stream

            ChangesOptions.of(self.options)
        return CHANGE

    def reader(self, schema: StructType) -> DataSourceReader:
        """Changes up to an end."""
        from slate_async.spark.batch_changes import ChangesBatchReader, ChangesOptions  # noqa: PLC0415 - not of a stream

        return ChangesBatchReader(ChangesOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of changes."""
        from slate_async.spark.stream_options import StreamOptions  # noqa: PLC0415 - not where a source is only made
        from slate_async.spark.stream_reader import ChangesReader  # noqa: PLC0415

        return ChangesReader(StreamOptions.of(self.options))
