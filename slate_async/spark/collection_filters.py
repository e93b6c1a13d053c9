"""Filters of queries as conditions of a snapshot. They are only used to read less: Spark applies all of them again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from slate_async.collections.core.filtering import Condition, ConditionLike
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import InvalidError

COMPARED = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)
"""Types that Spark and collections order alike. Floats are not among them: to Spark NaN is the greatest."""
SIGNS: dict[type[Filter], str] = {
    EqualTo: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def condition_of(filter_: Filter, kinds: dict[str, DataType]) -> ConditionLike | None:
    """``filter_`` as a condition of a snapshot; ``None`` if that would not mean the same."""
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in kinds or attribute[0].startswith("_"):
        return None
    [name] = attribute
    if isinstance(filter_, IsNull | IsNotNull):
        return (name, "is null" if isinstance(filter_, IsNull) else "is not null")
    sign = SIGNS.get(type(filter_))
    if sign is None or not isinstance(kinds[name], COMPARED):
        return None
    value: Any = getattr(filter_, "value", None)
    if sign == "in":
        values = [_plain(item, kinds[name]) for item in value if item is not None]
        return (name, sign, values)
    return None if value is None else (name, sign, _plain(value, kinds[name]))


def applicable(conditions: Iterable[ConditionLike], schema: UpdateSchema) -> list[ConditionLike]:
    """Those of ``conditions`` that a snapshot can apply. One whose value the column cannot hold, such as 300 of a
    ``uint8``, is left to Spark, which applies all of them."""
    found: list[ConditionLike] = []
    for condition in conditions:
        with suppress(InvalidError):
            Condition.of(condition, schema)
            found.append(condition)
    return found


def _plain(value: Any, kind: DataType) -> Any:
    if isinstance(kind, DecimalType) and kind.scale == 0:
        return int(value)  # of uint64, too
    return bytes(value) if isinstance(value, bytearray) else value
