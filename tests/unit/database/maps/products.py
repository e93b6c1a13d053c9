"""A map of products with two indexes, and what its entries have to be."""

from __future__ import annotations

from pydantic import BaseModel

import slate_async as slate
from slate_async.database.maps.layout import layout_of
from tests.engine import contents


class Product(BaseModel):
    sku: str | None
    color: str = "red"
    price: int = 0


SKU = slate.Index[Product]("sku", unique=True)
COLOR = slate.Index[Product]("color", lambda product: (product.color, product.price))
Products = slate.Map[int, Product]


def products(db: slate.Db | slate.Namespace, *indexes: slate.Index[Product]) -> Products:
    return db.map("p", key=int, value=Product, indexes=indexes)


async def stored(db: slate.Db) -> tuple[set[bytes], set[bytes]]:
    """The entries that there are, and those that the rows make."""
    found = await contents(db)
    layout = layout_of(b"\xfdp\0")
    rows = {key[len(layout.rows) :]: data for key, data in found.items() if key.startswith(layout.rows)}
    entries = {key for key in found if key.startswith((layout.entries(b"sku"), layout.entries(b"color")))}
    wanted = set[bytes]()
    for row, data in rows.items():
        value = Product.model_validate_json(data)
        if value.sku is not None:
            wanted.add(layout.entries(b"sku") + slate.keys.pack(value.sku))
        wanted.add(layout.entries(b"color") + slate.keys.pack(value.color, value.price) + row)
    return entries, wanted


async def check(db: slate.Db) -> None:
    entries, wanted = await stored(db)
    assert entries == wanted
