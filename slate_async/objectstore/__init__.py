"""Object stores: the protocol, its backends, and the conformance suite they all pass.

What a store of another package implements and raises is exported here; `slate_async.objectstore.protocol` has the
contract. The engine imports the modules themselves.
"""

from slate_async.objectstore.clients import StorePath
from slate_async.objectstore.costs import MonthlyRequests, RequestPrices
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.protocol import (
    CREATE,
    OVERWRITE,
    ByteRange,
    Create,
    GetResult,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    Overwrite,
    PutMode,
    Span,
    Suffix,
)
from slate_async.objectstore.store_url import StoreURL
from slate_async.objectstore.url import StoreFactory
from slate_async.types import Buffer

__all__ = [
    "CREATE",
    "OVERWRITE",
    "Buffer",
    "ByteRange",
    "Create",
    "GetResult",
    "Match",
    "MemoryObjects",
    "MemoryStore",
    "MonthlyRequests",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectStore",
    "Overwrite",
    "PutMode",
    "RequestPrices",
    "Span",
    "StoreFactory",
    "StorePath",
    "StoreURL",
    "Suffix",
]
