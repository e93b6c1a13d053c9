"""`RpcChannel`: calls of a server, of messages as bytes, with deadlines and the server's own errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from slate_async.errors import Outcome, SlateError
from slate_async.rpc.server import KEEPALIVE_MS
from slate_async.rpc.statuses import KINDS, error_of
from slate_async.rpc.tls import ClientTls


class RpcChannel:
    """One connection to ``target``, ``host:port``; `close` ends it.

    token: sent with each call, if there is one
    timeout_ms: of a unary call
    kinds: errors of services that may come, by name"""

    def __init__(
        self,
        target: str,
        tls: ClientTls | None,
        *,
        token: str | None = None,
        timeout_ms: int,
        kinds: Mapping[str, type[SlateError]] = KINDS,
    ) -> None:
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, tls.credentials(), options)
        self._metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
        self._timeout_s = timeout_ms / 1_000
        self._kinds = kinds

    async def unary(self, method: str, request: bytes, *, outcome: Outcome | None = None) -> bytes:
        """The answer. ``outcome``: of a write that gets none. Raises what the server says."""
        call = self._channel.unary_unary(method)
        async with self._errors(outcome):
            answer: bytes = await call(request, timeout=self._timeout_s, metadata=self._metadata)
            return answer

    async def answers(
        self, method: str, request: bytes, *, outcome: Outcome | None = None, timeout_s: float | None = None
    ) -> AsyncGenerator[bytes]:
        """A stream of answers, read as they are asked for; to close it early cancels the call."""
        call = self._channel.unary_stream(method)(request, timeout=timeout_s, metadata=self._metadata)
        try:
            async with self._errors(outcome):
                while (message := await call.read()) is not grpc.aio.EOF:
                    yield message
                await _checked(call)
        finally:
            call.cancel()

    async def upload(
        self,
        method: str,
        messages: AsyncIterable[bytes],
        *,
        outcome: Outcome | None = "unknown",
        accepted: bool = False,
    ) -> list[bytes]:
        """All answers to a stream of messages. ``outcome``: of a call that breaks once its end is sent; one that breaks
        before was not applied, because servers commit at the end of a stream. Raises what the server says.

        accepted: the server answers the first message, and the others wait for that. Without it a refusal may be lost:
        gRPC says of a call that ended while a message was on its way only that it ended"""
        call = self._channel.stream_stream(method)(metadata=self._metadata)
        try:
            async with self._errors("not_applied"):
                try:
                    async for message in messages:
                        await call.write(message)
                        if accepted:
                            accepted = False
                            if await call.read() is grpc.aio.EOF:
                                await _checked(call)
                except asyncio.InvalidStateError:  # the server has ended the call
                    await _checked(call)
            async with self._errors(outcome):
                await call.done_writing()
                answers: list[bytes] = []
                while (answer := await call.read()) is not grpc.aio.EOF:
                    answers.append(answer)
                await _checked(call)
                return answers
        finally:
            call.cancel()

    @asynccontextmanager
    async def both(self, method: str, *, outcome: Outcome | None = None) -> AsyncGenerator[Any]:
        """A call of which both sides are streams, as grpc.aio has it; it is cancelled at the end if it still runs."""
        call = self._channel.stream_stream(method)(metadata=self._metadata)
        try:
            async with self._errors(outcome):
                yield call
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all calls."""
        await self._channel.close()

    @asynccontextmanager
    async def _errors(self, outcome: Outcome | None) -> AsyncGenerator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise error_of(error, outcome=outcome, kinds=self._kinds) from error


async def _checked(call: Any) -> None:
    """Raise the status of a call whose messages have ended."""
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
        )
