"""Where everything lies, and what the keys and values of the shop are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

ORDERS, CUSTOMERS, REVENUE = "orders", "customers", "revenue"
KEYS = {ORDERS: (b"order/", b"order0"), CUSTOMERS: (b"customer/", b"customer0")}
"""From which key on, and before which; ``0`` comes after ``/``."""
REVENUE_ROWS = pa.schema(
    [
        pa.field("customer", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("orders", pa.int64(), nullable=False),
        pa.field("cents", pa.int64(), nullable=False),
    ]
)


def database(url: str) -> str:
    """The shop's database."""
    return f"{url}/shop"


def lake(url: str) -> str:
    """The folder of the collections."""
    return f"{url}/lake"


def order_key(number: int) -> bytes:
    """Of one order."""
    return f"order/{number:06}".encode()


def customer_key(customer: str) -> bytes:
    """Of one customer."""
    return f"customer/{customer}".encode()


def encode(value: dict[str, Any]) -> bytes:
    """A value of the database."""
    return json.dumps(value, sort_keys=True).encode()


def decode(value: bytes) -> dict[str, Any]:
    """What `encode` was given."""
    found: dict[str, Any] = json.loads(value)
    return found
