"""The shop as a web service: what comes as HTTP, and what goes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field
from shop import KeyReusedError, Listing, NoProductError, OtherRevisionError, Product, Shop, SkuTakenError

import slate_async as slate

logger = logging.getLogger("uvicorn.error")

REFUSED: dict[type[Exception], tuple[int, str]] = {
    SkuTakenError: (409, "a product with this SKU is there already"),
    NoProductError: (404, "there is no such product"),
    OtherRevisionError: (412, "the product was changed; get it, and decide again"),
    KeyReusedError: (422, "this Idempotency-Key came with another request before"),
}
NOT_NOW = (slate.UnavailableError, slate.ConflictError, slate.ClosedError, slate.FencedError)
"""The same request may do later: of a write nobody knows whether it is in, so it comes with an Idempotency-Key, or its
client looks first."""


router = APIRouter()


class SignIn(BaseModel):
    """Who is it? (A real shop asks for a password.)"""

    user: str = Field(min_length=1, max_length=100)


class NewProduct(Product):
    """A product, and the SKU that it is to have."""

    sku: str = Field(min_length=1, max_length=100)


class Increment(BaseModel):
    """By how much a counter is to go up."""

    by: int = Field(default=1, ge=1, le=1_000_000)


def shop_of(request: Request) -> Shop:
    """The shop that this process has open."""
    shop: Shop = request.app.state.shop
    return shop


OpenShop = Annotated[Shop, Depends(shop_of)]
Token = Annotated[HTTPAuthorizationCredentials, Security(HTTPBearer())]
Name = Annotated[str, Field(min_length=1, max_length=100)]


async def user_of(shop: OpenShop, token: Token) -> str:
    """Who asks. The session lives on."""
    user = await shop.user_of(token.credentials)
    if user is None:
        raise HTTPException(401, "this session has ended; sign in", {"WWW-Authenticate": "Bearer"})
    return user


User = Annotated[str, Depends(user_of)]


def seen(if_match: Annotated[str | None, Header()] = None) -> set[str] | None:
    """The revisions of ``If-Match``; ``None`` is any."""
    if if_match is None:
        raise HTTPException(428, "say in If-Match which revision you have seen")
    return None if if_match.strip() == "*" else {tag.strip().strip('"') for tag in if_match.split(",")}


Seen = Annotated[set[str] | None, Depends(seen)]


async def feed(shop: OpenShop, last_event_id: Annotated[int | None, Header(ge=0)] = None) -> AsyncIterator[slate.Watch]:
    """Changes behind those that the client has."""
    try:
        async with shop.feed(last_event_id) as watch:
            yield watch
    except slate.NotFoundError as error:
        raise HTTPException(410, f"events since then are not kept any longer: {error}") from error


Feed = Annotated[slate.Watch, Depends(feed)]


def tagged(response: Response, listing: Listing) -> Product:
    """A product with its ETag."""
    response.headers["ETag"] = f'"{listing.revision}"'
    return listing.product


# ---- errors


async def refused(_: Request, error: Exception) -> JSONResponse:
    """It is certain that nothing was done, and why."""
    status, detail = REFUSED[type(error)]
    return JSONResponse({"detail": detail}, status)


async def not_now(_: Request, error: Exception) -> JSONResponse:
    """503, and whether a write may be in all the same."""
    outcome = error.outcome if isinstance(error, slate.SlateError) else None
    return JSONResponse({"detail": str(error), "outcome": outcome}, 503, {"Retry-After": "1"})


async def invalid(_: Request, error: Exception) -> JSONResponse:
    """Such a request will never do."""
    return JSONResponse({"detail": str(error)}, 400)


# ---- sessions


@router.post("/sessions", status_code=201)
async def sign_in(shop: OpenShop, who: SignIn) -> dict[str, str]:
    """A new session."""
    return {"token": await shop.sign_in(who.user)}


@router.get("/sessions/me")
async def me(user: User) -> dict[str, str]:
    """Whose session this is."""
    return {"user": user}


@router.delete("/sessions/me", status_code=204)
async def sign_out(shop: OpenShop, token: Token) -> None:
    """End the session."""
    await shop.sign_out(token.credentials)


# ---- products


@router.post("/products", status_code=201)
async def add(shop: OpenShop, user: User, new: NewProduct, response: Response) -> Product:
    """A new product; 409 if its SKU is taken."""
    response.headers["Location"] = f"/products/{new.sku}"
    return tagged(response, await shop.add(new.sku, Product(name=new.name, cents=new.cents)))


@router.get("/products")
async def page(
    shop: OpenShop, after: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> dict[str, Any]:
    """Products by SKU; ``next`` is ``after`` of the next page."""
    found = await shop.page(after, limit)
    items = [{"sku": sku, **listing.product.model_dump()} for sku, listing in found.items]
    return {"items": items, "next": found.next}


@router.get("/products/{sku}", response_model=Product)
async def find(
    shop: OpenShop, sku: Name, response: Response, if_none_match: Annotated[str | None, Header()] = None
) -> Any:
    """A product; 304 if it is as the client has it."""
    listing = await shop.find(sku)
    if listing is None:
        raise NoProductError
    product = tagged(response, listing)
    if if_none_match is not None and f'"{listing.revision}"' in if_none_match:
        return Response(status_code=304, headers=dict(response.headers))
    return product


@router.put("/products/{sku}")
async def change(
    shop: OpenShop, user: User, sku: Name, product: Product, seen: Seen, response: Response
) -> Product | None:
    """Replace a product; 412 if it was changed since."""
    listing = await shop.change(sku, product, seen)
    return None if listing is None else tagged(response, listing)


@router.delete("/products/{sku}", status_code=204)
async def remove(shop: OpenShop, user: User, sku: Name, seen: Seen) -> None:
    """Remove a product; 412 if it was changed since."""
    await shop.change(sku, None, seen)


# ---- counters


@router.post("/counters/{counter}")
async def count(
    shop: OpenShop,
    user: User,
    counter: Name,
    increment: Increment,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
) -> dict[str, int]:
    """Increment a counter, once for each Idempotency-Key."""
    counted = await shop.count(user, counter, increment.by, idempotency_key)
    return {"value": counted.value}


@router.get("/counters/{counter}")
async def counter(shop: OpenShop, counter: Name) -> dict[str, int]:
    """The value of a counter."""
    return {"value": await shop.counter(counter)}


@router.get("/events", response_class=EventSourceResponse)
async def events(shop: OpenShop, feed: Feed) -> AsyncIterator[ServerSentEvent]:
    """Each change of a counter, once, in order."""
    try:
        async for change in feed:
            name, value = shop.counter_of(change)
            yield ServerSentEvent(id=str(change.seq), data={"counter": name, "value": value})
    except slate.SlateError:
        return  # the client comes again, with the Last-Event-ID that it has


@router.get("/health")
async def health(shop: OpenShop) -> dict[str, str]:
    """Whether the database is open."""
    return {"database": shop.db.status().state}


# ---- all of it


def make_app(url: str, metastore: str | None, session_seconds: float) -> FastAPI:
    """The service of the shop at ``url``. It opens the database when it starts, and closes it when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings = slate.Settings(retention_ms=3_600_000)  # so long is a Last-Event-ID good
        db = await slate.open(url, metastore=metastore, settings=settings)
        app.state.shop = Shop(db, session_seconds)
        app.state.ended = ended = asyncio.create_task(db.wait_closed())
        try:
            yield
        finally:
            ended.cancel()
            await asyncio.wait([ended])
            if not ended.cancelled():
                logger.warning("the shop ends, because its database has: %s", ended.exception())
            try:
                await db.close()
            except slate.SlateError as error:  # nobody waited for it: at most a session ends earlier
                logger.warning("not everything is durable: %s", error)

    app = FastAPI(title="Shop", lifespan=lifespan)
    for kind in REFUSED:
        app.add_exception_handler(kind, refused)
    for kind in NOT_NOW:
        app.add_exception_handler(kind, not_now)
    app.add_exception_handler(slate.InvalidError, invalid)
    app.include_router(router)
    return app
