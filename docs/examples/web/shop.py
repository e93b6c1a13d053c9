"""The shop: what it keeps in its database, and how. It knows nothing of HTTP.

Each method is one step: others see all of it, or nothing. What a method answers is durable, refusals included."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel, Field

import slate_async as slate

DAY = 86_400.0


class Product(BaseModel):
    """What a seller says of it."""

    name: str = Field(max_length=200)
    cents: int = Field(ge=0)


class Listing(BaseModel):
    """A product as it is stored. ``revision``: another one after each change, and never the same again."""

    product: Product
    revision: str


class Counted(BaseModel):
    """What an increment has made of a counter."""

    counter: str
    by: int
    value: int


class SkuTakenError(Exception):
    """A product with this SKU is there already."""


class NoProductError(Exception):
    """No product has this SKU."""


class OtherRevisionError(Exception):
    """The product is not as the caller has seen it."""


class KeyReusedError(Exception):
    """The Idempotency-Key came with another request before."""


class Shop:
    """One open database. ``session_seconds``: a session ends when nobody has used it for so long."""

    def __init__(self, db: slate.Db, session_seconds: float) -> None:
        self.db = db
        self._sessions = db.namespace("sessions", default_ttl=session_seconds)
        self._products = db.map("products", key=str, value=Listing)
        self._counters = db.namespace("counters")
        self._requests = db.namespace("requests", default_ttl=DAY)
        self._feeds: set[slate.Watch] = set()
        self._closing = False

    # ---- sessions

    async def sign_in(self, user: str) -> str:
        """The token of a new session."""
        token = secrets.token_urlsafe(32)
        await self._sessions.put(_digest(token), user.encode())
        return token

    async def user_of(self, token: str) -> str | None:
        """Whose session it is, which lives on from now; ``None`` if it has ended."""
        handle = await self._sessions.touch(_digest(token), await_durable=False)  # a lost renewal ends it earlier
        return None if handle.value is None else handle.value.decode()

    async def sign_out(self, token: str) -> None:
        """End the session."""
        await self._sessions.delete(_digest(token))

    # ---- products

    async def add(self, sku: str, product: Product) -> Listing:
        """A new product. Raises `SkuTakenError`."""
        listing = _listing(product)
        try:
            await self._products.put(sku, listing, if_absent=True)
        except slate.ConflictError:
            await self._settled()
            raise SkuTakenError from None
        return listing

    async def find(self, sku: str) -> Listing | None:
        """The product, if there is one."""
        return await self._products.get(sku, durable=True)

    async def page(self, after: str | None, limit: int) -> slate.Page[str, Listing]:
        """Products by SKU. Raises `slate.InvalidError` for a cursor that is none."""
        return await self._products.page(after=after, limit=limit, durable=True)

    async def change(self, sku: str, product: Product | None, seen: set[str] | None) -> Listing | None:
        """Replace a product, or with ``None`` remove it, if its revision is one of ``seen``; ``None`` is any. Raises
        `NoProductError`, `OtherRevisionError`."""
        new = None if product is None else _listing(product)

        def changed(old: Listing | None) -> Listing | None:
            if old is None:
                raise NoProductError
            if seen is not None and old.revision not in seen:
                raise OtherRevisionError
            return new

        try:
            return await self._products.update(sku, changed)
        except (NoProductError, OtherRevisionError):
            await self._settled()
            raise

    # ---- counters

    async def count(self, user: str, counter: str, by: int, key: str) -> Counted:
        """Add ``by``; once, however often ``user`` comes with the same ``key`` within a day. Raises
        `KeyReusedError`."""
        at = self._counters.prefix + counter.encode()
        request = self._requests.prefix + _digest(f"{user}\0{key}")

        async def step(tx: slate.Transaction) -> Counted:
            value = int(await tx.get(at) or b"0")  # first what others want too: then they take turns
            if (answered := await tx.get(request)) is not None:
                return Counted.model_validate_json(answered)
            counted = Counted(counter=counter, by=by, value=value + by)
            tx.put(at, b"%d" % counted.value)
            tx.put(request, counted.model_dump_json().encode(), ttl=DAY)
            return counted

        counted = await self.db.transact(step)
        if (counted.counter, counted.by) != (counter, by):
            raise KeyReusedError
        return counted

    async def counter(self, counter: str) -> int:
        """Its value."""
        return int(await self._counters.get(counter.encode(), durable=True) or b"0")

    # ---- the feed

    @asynccontextmanager
    async def feed(self, after: int | None) -> AsyncIterator[slate.Watch]:
        """Changes of counters above the sequence number ``after``, or from now on."""
        if self._closing:
            raise slate.ClosedError("the shop is closing")
        watch = self.db.watch(prefix=self._counters.prefix, from_seq="now" if after is None else after)
        self._feeds.add(watch)
        try:
            async with watch:
                yield watch
        finally:
            self._feeds.discard(watch)

    def end_feeds(self) -> None:
        """No feed goes on, and none begins: the shop is closing."""
        self._closing = True
        for watch in list(self._feeds):
            watch.close()

    def counter_of(self, change: slate.Change) -> tuple[str, int]:
        """Name and value of a counter that changed."""
        return change.key.removeprefix(self._counters.prefix).decode(), int(change.value or b"0")

    async def _settled(self) -> None:
        """What a refusal was judged by may not be durable yet: return when it is."""
        async with self.db.transaction():
            pass


def _digest(text: str) -> bytes:
    """A key that has any text's place, and does not show it."""
    return hashlib.sha256(text.encode()).digest()


def _listing(product: Product) -> Listing:
    return Listing(product=product, revision=secrets.token_hex(8))
