"""Tables in a store whose puts the test may fail, as each process opens them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from metastores.protocol import MetaStoreFactory
from slate_async.errors import UnavailableError
from slate_async.runtime.opening import Opening
from slate_async.settings import Settings
from slate_async.tables.catalog import Catalog
from slate_async.tables.open import open_catalog
from slate_async.tables.table import Table
from tests.engine import StoreInHand, memory_store, runtime

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("sku", pa.string()), ("price", pa.float64())])

SHOP = "shop"


def store_in_hand() -> StoreInHand:
    """An empty store in memory, all of whose puts are watched."""
    return StoreInHand(memory_store(), watch="")


def opened(store: Any, metastore: str | MetaStoreFactory | None = None, **settings: Any) -> Opening[Catalog]:
    """The catalog in ``store``, by a runtime without threads."""
    chosen = Settings(**{"retry_deadline_ms": 5_000, **settings})
    return open_catalog(store, name="memory://lake", settings=chosen, metastore=metastore, runtime=runtime())


async def created(catalog: Catalog, name: str = "orders", schema: pa.Schema = ORDERS, **asked: Any) -> Table:
    """A table of the database `SHOP`, which is created, too."""
    await catalog.create_database(SHOP, if_not_exists=True)
    return await catalog.create_table(SHOP, name, schema, **asked)


def rows(*ids: int) -> pa.Table:
    """One row of `ORDERS` for each id."""
    return pa.table({"id": list(ids), "sku": [f"s{at}" for at in ids], "price": [at / 2 for at in ids]}, ORDERS)


def fail_puts(store: StoreInHand, part: str, fault: str | None, times: int = 1) -> None:
    """Let the next puts of keys that have ``part`` in them end so: ``request lost``, ``answer lost`` or ``refused``."""
    left = times if fault is not None else 0

    def fail(key: str, when: str) -> UnavailableError | None:
        nonlocal left
        if not left or part not in key or (when == "after") != (fault == "answer lost"):
            return None
        left -= 1
        return UnavailableError("no answer", outcome="not_applied" if fault == "refused" else "unknown")

    store.fail_before = lambda key: fail(key, "before")
    store.fail_after = lambda key: fail(key, "after")
