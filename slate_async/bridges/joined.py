"""What bridges ask of the two products that they join."""

from __future__ import annotations

import pyarrow as pa

from slate_async.collections.info import CollectionInfo
from slate_async.database.db import Db
from slate_async.database.reader import DbReader
from slate_async.errors import InvalidError
from slate_async.runtime.protocol import Runtime


def check_fits(info: CollectionInfo, data: pa.Schema) -> None:
    """Raise `InvalidError` unless a collection of ``info`` holds ``data`` at u64 times, by ``compare`` appends."""
    if info.appends != "compare":
        raise InvalidError(
            f"a relay writes collections whose appends are compare, for a feed's first snapshot depends on where its"
            f" history begins; those of {info.name} are {info.appends}"
        )
    if info.time != "u64":
        raise InvalidError(f"the times of a change feed are u64, those of {info.name} are {info.time}")
    if info.data != data:
        raise InvalidError(f"{info.name} has {shown(info.data)}; create it with data=relay_schema(envelope)")


def shown(data: type[bytes] | pa.Schema) -> str:
    """The data columns of a collection, for errors."""
    if not isinstance(data, pa.Schema):
        return "data of bytes"
    return f"the columns {', '.join(f'{field.name} {field.type}' for field in data)}"


def runtime_of(database: Db | DbReader) -> Runtime:
    """Where the clock and the threads of ``database`` come from."""
    return database._context.runtime
