"""Filters of queries that narrow what is read, by opt-in only. With them Spark answers later queries of the same
DataFrame from the partitions of the first one (see docs/guide/spark.md).

Filters are only used to read less: Spark applies all of them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.spark.batch_read import BatchReader
from slate_async.spark.read_options import ReadOptions


class PushdownReader(BatchReader):
    """A `BatchReader` that reads no keys which a query's comparisons of ``key`` exclude.

    Spark asks for it only with ``spark.sql.python.filterPushdown.enabled``, and fails the query without."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filtered = self._span

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note the range of keys that ``filters`` (all of which hold) leave."""
        self._filtered = narrowed(self._span, filters)
        return filters

    def _read_span(self) -> KeyRange:
        return self._filtered


def narrowed(span: KeyRange, filters: Sequence[Filter]) -> KeyRange:
    """The smallest range that holds all keys of ``span`` which pass ``filters``; of a list of keys, what lies between
    the first and the last, too."""
    start, end = span
    for condition in filters:
        low, high = _bounds(condition)
        start = low if start is None else start if low is None else max(start, low)
        end = high if end is None else end if high is None else min(end, high)
    return KeyRange(start, end)


def _bounds(filter_: Filter) -> KeyRange:
    """The keys from the first to the last one that pass; all, if nothing is known of the filter."""
    if getattr(filter_, "attribute", None) != ("key",):
        return EVERY_KEY
    if isinstance(filter_, In):
        keys = [bytes(key) for key in filter_.value if key is not None]
        return KeyRange(min(keys), _after(max(keys))) if keys else KeyRange(b"", b"")
    value = getattr(filter_, "value", None)
    if not isinstance(value, bytes | bytearray):
        return EVERY_KEY
    key = bytes(value)
    match filter_:
        case EqualTo():
            return KeyRange(key, _after(key))
        case GreaterThan():
            return KeyRange(_after(key), None)
        case GreaterThanOrEqual():
            return KeyRange(key, None)
        case LessThan():
            return KeyRange(None, key)
        case LessThanOrEqual():
            return KeyRange(None, _after(key))
    return EVERY_KEY


def _after(key: bytes) -> bytes:
    """The next key in the order of bytes."""
    return key + b"\0"
