"""One watch at one endpoint, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import grpc
import grpc.aio

from metastores.etcd_client.endpoints import Connection
from metastores.etcd_client.errors import translate
from metastores.etcd_client.messages import event_of
from metastores.etcd_client.protocol import CompactedError
from metastores.etcd_client.records import WatchAnswer, end_of
from metastores.etcd_client.wire import etcd_pb2 as wire
from metastores.object_store_errors import OutcomeUnknownError

PROGRESS_S = 1.0
"""How often it is asked how far the watch is."""
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_ANY_LEADER = ("hasleader", "true")
"""Ends a watch at a member that has no leader, and so would say nothing for ever."""


def progress_is_right(version: str) -> bool:
    """Whether what a server of ``version`` says of progress comes after all events up to there: before 3.4.25 and 3.5.8
    it may come first."""
    found = _VERSION.match(version)
    number = tuple(map(int, found.groups())) if found else (0, 0, 0)
    return number >= (3, 5, 8) or (3, 4, 25) <= number < (3, 5, 0)


async def watch_once(
    connection: Connection,
    metadata: Sequence[tuple[str, str]],
    prefix: bytes,
    revision: int,
    pause: Callable[[float], Awaitable[None]] | None,
) -> AsyncGenerator[WatchAnswer, None]:
    """All events from ``revision`` on, and with ``pause`` how far the watch is after each pause.

    Ends by `CompactedError` or `OutcomeUnknownError`."""
    stream = connection.channel.stream_stream(
        "/etcdserverpb.Watch/Watch", wire.WatchRequest.SerializeToString, wire.WatchResponse.FromString
    )
    call = stream(metadata=(*metadata, _ANY_LEADER))
    asking: asyncio.Task[None] | None = None
    try:
        created = wire.WatchCreateRequest(key=prefix, range_end=end_of(prefix), start_revision=revision)
        await call.write(wire.WatchRequest(create_request=created))
        async for answer in call:
            if answer.canceled:
                if answer.compact_revision:
                    raise CompactedError(answer.compact_revision)
                break
            if answer.created:
                if pause is not None:
                    asking = asyncio.get_running_loop().create_task(_ask(call, pause), name="slate/etcd watch")
            elif answer.events:
                # not the header's revision: what is read later than it happened has the newest one
                yield WatchAnswer(answer.events[-1].kv.mod_revision, [event_of(event) for event in answer.events])
            elif pause is not None:
                yield WatchAnswer(answer.header.revision, ())
    except grpc.aio.AioRpcError as error:
        raise translate(error, connection.where) from error
    finally:
        if asking is not None:
            asking.cancel()
        call.cancel()
    raise OutcomeUnknownError(f"etcd at {connection.where} ended a watch")


async def _ask(call: grpc.aio.StreamStreamCall, pause: Callable[[float], Awaitable[None]]) -> None:
    """Have the server say how far the watch is, until the call ends."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await pause(PROGRESS_S)
            await call.write(wire.WatchRequest(progress_request=wire.WatchProgressRequest()))
