"""The data source ``slate-collection`` as Spark finds it by name: a persistent collection of a lake.

Spark makes a source in one process, plans with it in another, and reads or writes in others. Each imports what it is
asked for when it is asked.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class SlateCollectionSource(DataSource):
    """``spark.read.format("slate-collection")``; see docs/guide/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "slate-collection"

    def schema(self) -> StructType:
        """The columns of the collection, which is asked for them. The first that Spark asks for, so wrong options are
        reported here: later it hides the cause."""
        from slate_async.spark.collection_schema import read_schema  # noqa: PLC0415 - not where a schema is given

        return read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from slate_async.spark.collection_options import CollectionRead  # noqa: PLC0415 - not where it is only made
        from slate_async.spark.collection_read import CollectionReader, FilteringReader  # noqa: PLC0415

        options = CollectionRead.of(self.options)
        return (FilteringReader if options.push_filters else CollectionReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of updates."""
        from slate_async.spark.collection_options import CollectionStream  # noqa: PLC0415 - not where it is only made
        from slate_async.spark.collection_stream import UpdatesReader  # noqa: PLC0415

        return UpdatesReader(CollectionStream.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write: one append at one time."""
        from slate_async.spark.collection_options import CollectionWrite  # noqa: PLC0415 - not where rows are read
        from slate_async.spark.collection_sink import FrameWriter, check_append  # noqa: PLC0415

        check_append(overwrite)
        return FrameWriter(CollectionWrite.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A stream's write: an append for each micro-batch."""
        from slate_async.spark.collection_options import CollectionWrite  # noqa: PLC0415 - not where rows are read
        from slate_async.spark.collection_sink import StreamWriter, check_append  # noqa: PLC0415

        check_append(overwrite)
        return StreamWriter(CollectionWrite.of(self.options), schema)
