"""The format ``slate-collection`` for Spark to find.

When a format in Python is first used, Spark imports all top-level modules ``pyspark_…``. An error in one of them would
hide the formats of all, so this imports nothing that may be missing; the engine is imported when the format is used.
"""

from __future__ import annotations

import sys

try:
    import pyspark
    from pyspark.sql.datasource import DataSource
except ImportError:  # before Spark 4.0 there are no formats in Python
    pass
else:

    class DefaultSource(DataSource):
        """The format before it is used."""

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return "slate-collection"

        def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
            """A `SlateCollectionSource`. Raises `ImportError` if what the engine needs is not installed."""
            try:
                from slate_async.spark.collection_source import SlateCollectionSource  # noqa: PLC0415
            except ImportError as error:
                where = f"{sys.executable}, beside pyspark {pyspark.__version__}"
                raise ImportError(f"slate-async[spark] is not fully installed for {where}: {error}") from error
            return SlateCollectionSource(options)
