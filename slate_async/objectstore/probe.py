"""The capability probe: does this store keep the promise of exclusive conditional writes?

Some stores accept conditional puts and ignore the condition; some never let one succeed. Both would look well until
data is lost, so a store is asked before a protocol relies on it: racing creates and racing replaces of a probe
object, under ``gc/probe/``, must have one winner each, whose bytes are then read back, and a stale etag must lose.

Only what the store did answer counts against it: a request without an answer makes the probe try that step again,
and in the end `UnavailableError`, never the verdict "broken". Such a request may still arrive, so each try has an
object of its own, and nothing is put there unconditionally.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from slate_async.errors import ConfigError, ConflictError, InvalidError, SlateError, UnavailableError
from slate_async.objectstore.protocol import CREATE, OVERWRITE, Match, ObjectNotFoundError, ObjectStore, PutMode
from slate_async.runtime.protocol import Ids

PROBE_FOLDER = "gc/probe"
RACERS = 3
ROUNDS = 8
"""How often a step is tried in which requests had no answer."""

WAY_OUT_CREATE = (
    "keep the metadata elsewhere (metastore='dynamodb://TABLE') and use the log that needs no conditional puts"
    " (log_protocol='epoch_prefixed')"
)
WAY_OUT_REPLACE = "use metastore='dynamodb://TABLE', or the default metastore, which needs put-if-absent only"

_Answer: TypeAlias = str | SlateError


async def probe(store: ObjectStore, *, need_create: bool, need_replace: bool, ids: Ids) -> None:
    """Return if ``store`` keeps what is needed of it.

    ``need_create``: `CREATE` must be exclusive; ``need_replace``: `Match` must be. Raises `InvalidError` naming what
    is broken and the way out, `UnavailableError` if the store did not answer, `InvalidError` of the store itself
    (no such bucket, not allowed) as it is."""
    if not (need_create or need_replace):
        return
    keys: list[str] = []
    try:
        if need_create:
            await _until_answered(store, _probe_create, ids, keys)
        if need_replace:
            await _until_answered(store, _probe_replace, ids, keys)
    finally:
        with contextlib.suppress(SlateError):  # leaving a probe object behind is no reason to fail
            await store.delete(keys)


class _UnansweredError(Exception):
    """A step could not be judged: a conditional put had no answer. ``__cause__`` says which."""


async def _until_answered(
    store: ObjectStore, step: Callable[[ObjectStore, str, Ids], Awaitable[None]], ids: Ids, keys: list[str]
) -> None:
    silence: BaseException | None = None
    for _ in range(ROUNDS):
        key = f"{PROBE_FOLDER}/{ids.token()}"
        keys += [key, f"{key}.access"]
        await store.put(f"{key}.access", _body(ids), mode=OVERWRITE)  # an error here says nothing of conditions
        try:
            return await step(store, key, ids)
        except _UnansweredError as error:
            silence = error.__cause__
    raise UnavailableError(
        f"{store!r} did not decide the probe of conditional writes in {ROUNDS} rounds: {silence}"
    ) from silence


async def _probe_create(store: ObjectStore, key: str, ids: Ids) -> None:
    etag, body = await _race(store, key, CREATE, ids, way_out=WAY_OUT_CREATE)
    await _must_hold(store, key, etag, body, "create-if-absent", WAY_OUT_CREATE)
    await _must_lose(store, key, CREATE, ids, "create-if-absent overwrites an existing object", WAY_OUT_CREATE)
    await _must_hold(store, key, etag, body, "create-if-absent", WAY_OUT_CREATE)


async def _probe_replace(store: ObjectStore, key: str, ids: Ids) -> None:
    stale = await _first(store, key, ids)
    etag, body = await _race(store, key, Match(stale), ids, way_out=WAY_OUT_REPLACE)
    await _must_hold(store, key, etag, body, "replace-if-match", WAY_OUT_REPLACE)
    await _must_lose(store, key, Match(stale), ids, "replace-if-match ignores a stale etag", WAY_OUT_REPLACE)
    await _must_hold(store, key, etag, body, "replace-if-match", WAY_OUT_REPLACE)


async def _first(store: ObjectStore, key: str, ids: Ids) -> str:
    """Put the object to be replaced. Created where that works: a late copy of the request changes nothing."""
    answer = await _answer(store, key, _body(ids), CREATE)
    if isinstance(answer, str):
        return answer
    if isinstance(answer, UnavailableError):
        raise _UnansweredError from answer
    return await store.put(key, _body(ids), mode=OVERWRITE)


async def _race(store: ObjectStore, key: str, mode: PutMode, ids: Ids, *, way_out: str) -> tuple[str, bytes]:
    """Let `RACERS` put at once under one condition; the etag and body of the one winner."""
    name = "replace-if-match" if isinstance(mode, Match) else "create-if-absent"
    bodies = [_body(ids) for _ in range(RACERS)]
    answers = await asyncio.gather(*(_answer(store, key, body, mode) for body in bodies))
    won = [(answer, body) for answer, body in zip(answers, bodies, strict=True) if isinstance(answer, str)]
    for answer in answers:
        if isinstance(answer, InvalidError):
            raise ConfigError(f"{store!r} refuses {name}: {answer}; {way_out}") from answer
    if len(won) > 1:
        raise _broken(store, f"{len(won)} of {RACERS} racing {name} puts succeeded", way_out)
    if len(won) == 1:
        return won[0]
    for answer in answers:
        if isinstance(answer, UnavailableError):
            raise _UnansweredError from answer
    raise _broken(store, f"no {name} put succeeds, though its condition holds", way_out)


async def _answer(store: ObjectStore, key: str, body: bytes, mode: PutMode) -> _Answer:
    """The etag of a put that won, or the error it met."""
    try:
        return await store.put(key, body, mode=mode)
    except (ConflictError, UnavailableError, InvalidError) as error:
        return error


async def _must_lose(store: ObjectStore, key: str, mode: PutMode, ids: Ids, fault: str, way_out: str) -> None:
    answer = await _answer(store, key, _body(ids), mode)
    if isinstance(answer, str):
        raise _broken(store, fault, way_out)
    if isinstance(answer, UnavailableError):
        raise _UnansweredError from answer
    if not isinstance(answer, ConflictError):
        raise answer


async def _must_hold(store: ObjectStore, key: str, etag: str, body: bytes, name: str, way_out: str) -> None:
    """The object is the one whose put succeeded."""
    try:
        result = await store.get(key)
    except ObjectNotFoundError as error:
        raise _broken(store, f"the object of a successful {name} put is not there", way_out) from error
    if result.data != body or result.info.etag != etag:
        raise _broken(store, f"the object is not the one whose {name} put succeeded", way_out)


def _broken(store: ObjectStore, fault: str, way_out: str) -> InvalidError:
    return ConfigError(f"{store!r} cannot be relied on for conditional writes: {fault}; {way_out}")


def _body(ids: Ids) -> bytes:
    return ids.token().encode()
