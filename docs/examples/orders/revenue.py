"""Revenue per customer: kept up to date by what changed, and computed anew from all there is.

An update is ``(time, row, diff)``: how often a row was added or taken away at a time. The view is a sum over updates,
so each of them is added once, and its diff says whether it adds or takes away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from places import customer_key, decode

Update = tuple[int, tuple[bytes, bytes], int]
"""Time, key and value, diff."""
Row = tuple[str, str, int, int]
"""Customer, name, number of orders, cents: a row of the view."""


class Revenue:
    """The view at one time."""

    def __init__(self) -> None:
        self.names: dict[str, Counter[str]] = {}
        self.orders: Counter[str] = Counter()
        self.cents: Counter[str] = Counter()

    def row(self, customer: str) -> Row | None:
        """Of a customer who has a name and orders."""
        names = +self.names.get(customer, Counter())
        if not names or not self.orders[customer]:
            return None
        (name,) = names
        return customer, name, self.orders[customer], self.cents[customer]

    def add(self, updates: Iterable[Update]) -> list[tuple[Row, int, int]]:
        """Go on by ``updates``, time by time; what that does to the view, as ``(row, time, diff)``."""
        changes: list[tuple[Row, int, int]] = []
        for time, at_once in groupby(sorted(updates), key=lambda update: update[0]):
            found = [(_of(row), diff) for _, row, diff in at_once]
            customers = sorted({customer for (customer, _, _), _ in found})
            before = {customer: self.row(customer) for customer in customers}
            for change, diff in found:
                self._count(*change, diff)
            for customer in customers:
                old, new = before[customer], self.row(customer)
                if old != new:
                    changes += [(row, time, diff) for row, diff in ((old, -1), (new, 1)) if row is not None]
        return changes

    def _count(self, customer: str, name: str | None, cents: int, diff: int) -> None:
        if name is None:
            self.orders[customer] += diff
            self.cents[customer] += diff * cents
        else:
            self.names.setdefault(customer, Counter())[name] += diff


def computed(orders: Iterable[tuple[bytes, bytes]], customers: Iterable[tuple[bytes, bytes]]) -> set[Row]:
    """The view of these keys and values, from nothing: what `Revenue` has to be equal to."""
    names = {key: decode(value)["name"] for key, value in customers}
    rows: dict[str, Row] = {}
    for _, value in orders:
        order = decode(value)
        customer, name = order["customer"], names.get(customer_key(order["customer"]))
        if name is not None:
            _, _, count, cents = rows.get(customer, (customer, name, 0, 0))
            rows[customer] = (customer, name, count + 1, cents + order["cents"])
    return set(rows.values())


def _of(row: tuple[bytes, bytes]) -> tuple[str, str | None, int]:
    """Customer, and name or cents, of a key and value of the database."""
    key, value = row
    found: dict[str, Any] = decode(value)
    if key.startswith(b"order/"):
        return found["customer"], None, found["cents"]
    return key.removeprefix(b"customer/").decode(), found["name"], 0
