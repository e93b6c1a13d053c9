"""Increments: updates of 64-bit numbers, which a token lets count once however often they are repeated.

Decision 37: docs/decisions/0037-an-operand-is-a-row-until-it-meets-its-base.md
"""

from __future__ import annotations

import math
from typing import NamedTuple

from slate_async.database.transact import Transact, UpdateHandle
from slate_async.database.transaction import Transaction
from slate_async.engine.write.open_transactions import shown_key
from slate_async.errors import InvalidError
from slate_async.merge_operators.values import pack_i64, unpack_i64

LEAST, MOST = -(2**63), 2**63 - 1


class Increment(NamedTuple):
    """What is added to which key. ``life_ms``, ``token_life_ms``: times to live of the rows put, ``None`` for ever."""

    key: bytes
    by: int
    life_ms: int | None
    token: bytes | None
    token_life_ms: int | None


async def increment(transact: Transact, asked: Increment, await_durable: bool) -> int:
    """See `slate_async.Db.increment`."""
    _check(asked)
    if asked.token is None:
        made = await transact.update(
            asked.key, lambda value: pack_i64(_number(asked.key, value) + asked.by), asked.life_ms, await_durable
        )
    else:
        made = await transact.queued(asked.key, lambda tx: _once(tx, asked, asked.token or b""), await_durable)
    return _number(asked.key, made.value)


async def _once(tx: Transaction, asked: Increment, token: bytes) -> UpdateHandle:
    """Add in ``tx`` and commit, unless the token is there: what it says then counts."""
    known = await tx.get(token)
    if known is not None:
        _number(token, known)
        return UpdateHandle.of(await tx._apply(), known)
    new = pack_i64(_number(asked.key, await tx.get(asked.key)) + asked.by)
    tx.put(asked.key, new, ttl=_seconds(asked.life_ms))
    tx.put(token, new, ttl=_seconds(asked.token_life_ms))
    return UpdateHandle.of(await tx._apply(), new)


def _check(asked: Increment) -> None:
    by = asked.by
    if isinstance(by, bool) or not isinstance(by, int) or not LEAST <= by <= MOST:
        raise InvalidError(f"increment adds an int of 64 bits, not {by!r}", outcome="not_applied")
    if asked.token == asked.key:
        raise InvalidError("the token is a key of its own, not the one that is incremented", outcome="not_applied")


def _number(key: bytes, value: bytes | None) -> int:
    try:
        return 0 if value is None else unpack_i64(value)
    except ValueError as error:
        raise InvalidError(f"key {shown_key(key)} holds no number: {error}", outcome="not_applied") from error


def _seconds(life_ms: int | None) -> float:
    return math.inf if life_ms is None else life_ms / 1000
