"""slate_async for Apache Spark: the only part that imports pyspark. See docs/guide/spark.md.

>>> import slate_async as slate
>>> df = slate.spark.read(spark, "s3://bucket/db", prefix="user:")
"""

from typing import TYPE_CHECKING

from slate_async.late_names import late_names

if TYPE_CHECKING:
    from slate_async.engine.ingest.dry_run import IngestPart
    from slate_async.spark.arrangement import ColumnLike, SortMode, arrange
    from slate_async.spark.collection_frames import read_collection, reading_collection
    from slate_async.spark.collection_merge import CollectionMergeExecutor
    from slate_async.spark.collection_source import SlateCollectionSource
    from slate_async.spark.compaction import SparkExecutor
    from slate_async.spark.database_size import size
    from slate_async.spark.decode import OnError, decode_arrow, decode_json, decode_with
    from slate_async.spark.export import ExportReport, Reshape, SaveMode, export_parquet, import_parquet
    from slate_async.spark.frames import read, read_changes, reading
    from slate_async.spark.key_lookup import LookupHow, lookup
    from slate_async.spark.known_job import OnKnown
    from slate_async.spark.load import bulk_load
    from slate_async.spark.load_plan import LoadPlan, plan_load
    from slate_async.spark.options import OptionValue
    from slate_async.spark.progress import LoadProgress, ProgressSink
    from slate_async.spark.report import draw_report, totals
    from slate_async.spark.session import spark_session
    from slate_async.spark.source import SlateDataSource, register
    from slate_async.spark.statistics_frame import statistics
    from slate_async.spark.stream_source import SlateChangesSource
    from slate_async.spark.tuple_key import decode_key, encode_key
    from slate_async.spark.typed_rows import encode_value
    from slate_async.spark.value_formats import ValueFormat
else:
    __getattr__ = late_names(
        __name__,
        {
            "slate_async.engine.ingest.dry_run": "IngestPart",
            "slate_async.spark.arrangement": "ColumnLike SortMode arrange",
            "slate_async.spark.collection_frames": "read_collection reading_collection",
            "slate_async.spark.collection_merge": "CollectionMergeExecutor",
            "slate_async.spark.collection_source": "SlateCollectionSource",
            "slate_async.spark.compaction": "SparkExecutor",
            "slate_async.spark.decode": "OnError decode_arrow decode_json decode_with",
            "slate_async.spark.export": "ExportReport Reshape SaveMode export_parquet import_parquet",
            "slate_async.spark.known_job": "OnKnown",
            "slate_async.spark.load": "bulk_load",
            "slate_async.spark.load_plan": "LoadPlan plan_load",
            "slate_async.spark.key_lookup": "LookupHow lookup",
            "slate_async.spark.options": "OptionValue",
            "slate_async.spark.progress": "LoadProgress ProgressSink",
            "slate_async.spark.report": "draw_report totals",
            "slate_async.spark.session": "spark_session",
            "slate_async.spark.database_size": "size",
            "slate_async.spark.frames": "read read_changes reading",
            "slate_async.spark.source": "SlateDataSource register",
            "slate_async.spark.statistics_frame": "statistics",
            "slate_async.spark.stream_source": "SlateChangesSource",
            "slate_async.spark.tuple_key": "decode_key encode_key",
            "slate_async.spark.typed_rows": "encode_value",
            "slate_async.spark.value_formats": "ValueFormat",
        },
    )

__all__ = [
    "CollectionMergeExecutor",
    "ColumnLike",
    "ExportReport",
    "IngestPart",
    "LoadPlan",
    "LoadProgress",
    "LookupHow",
    "OnError",
    "OnKnown",
    "OptionValue",
    "ProgressSink",
    "Reshape",
    "SaveMode",
    "SlateChangesSource",
    "SlateCollectionSource",
    "SlateDataSource",
    "SortMode",
    "SparkExecutor",
    "ValueFormat",
    "arrange",
    "bulk_load",
    "decode_arrow",
    "decode_json",
    "decode_key",
    "decode_with",
    "draw_report",
    "encode_key",
    "encode_value",
    "export_parquet",
    "import_parquet",
    "lookup",
    "plan_load",
    "read",
    "read_changes",
    "read_collection",
    "reading",
    "reading_collection",
    "register",
    "size",
    "spark_session",
    "statistics",
    "totals",
]
