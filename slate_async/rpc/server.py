"""`RpcServer`: a grpc.aio server that says every failure as one status, counts, and stops without cutting streams off.

Messages pass as bytes; a service names its methods with their handlers. What a handler raises ends its call: an error
of `slate_async.errors` with the status of its kind, anything else as INTERNAL, logged. So a call cannot end the server.

Back-pressure is HTTP/2's: a message is read from the connection only when a handler asks for it, and one is handed to
it only once the last one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from slate_async.errors import ConfigError, SlateError, UnavailableError
from slate_async.rpc.statuses import TRAILER, StatusError, status_of
from slate_async.rpc.tls import ServerTls

logger = logging.getLogger(__name__)
Context = Any
"""A `grpc.aio.ServicerContext` of messages as bytes."""
Handler = Callable[[Any, Context], Awaitable[Any]]
"""Of unary requests it is given the request's bytes, of streams nothing to be used: it calls ``context.read()``. It
returns the bytes of a unary answer, or calls ``context.write()``."""
KEEPALIVE_MS: Final = 20_000
FRAMING_BYTES: Final = 64 * 1024
"""Beside the data in a message."""


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """What a server takes.

    message_bytes: of one message, either way. streams: that run at once, over all connections; more are refused.
    connection_streams: of one connection; more wait in the client. idle_ms: a stream that waits for its client for so
    long ends"""

    message_bytes: int
    streams: int
    connection_streams: int
    idle_ms: int


@dataclass(slots=True)
class RpcStats:
    """What a server counts."""

    calls: int = 0
    failed: int = 0
    refused: int = 0
    idle: int = 0
    streams: int = 0
    codes: dict[str, int] = field(default_factory=dict)

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        return {
            "rpc.calls": self.calls,
            "rpc.failed": self.failed,
            "rpc.streams": self.streams,
            "rpc.streams_refused": self.refused,
            "rpc.streams_idle": self.idle,
            **{f"rpc.status.{name.lower()}": count for name, count in sorted(self.codes.items())},
        }


@dataclass(frozen=True, slots=True)
class Method:
    """One call of a service. ``requests`` and ``answers``: whether these are streams.

    long: it counts as a stream, of which only so many run at once"""

    handler: Handler
    requests: bool = False
    answers: bool = False
    long: bool = False


class RpcServer:
    """Made in its event loop, then `start`, then `stop`."""

    def __init__(self, limits: RpcLimits) -> None:
        self.limits = limits
        self.stats = RpcStats()
        self._stopping = False
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes + FRAMING_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", limits.connection_streams),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ]
        )

    def add(self, service: str, methods: Mapping[str, Method]) -> None:
        """Serve ``methods``, by name, as ``service``."""
        handlers = {name: self._handler(method) for name, method in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    async def start(self, listen: str, tls: ServerTls | None) -> int:
        """Listen on ``host:port`` and return the port; 0 chooses one. Raises `ConfigError` if that is not possible."""
        try:
            if tls is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, tls.credentials())
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {listen}: {error}") from error
        if port == 0:
            raise ConfigError(f"cannot listen on {listen}: the address is taken, or the TLS files do not fit")
        await self._server.start()
        return int(port)

    @property
    def stopping(self) -> bool:
        """Whether it takes no more calls."""
        return self._stopping

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and wait for those that run; cancel those that have not ended after ``grace_s``."""
        self._stopping = True
        await self._server.stop(grace_s)

    async def read(self, context: Context) -> bytes | None:
        """The next message of a stream; ``None`` once the client has ended its side. Raises `StatusError` when it is
        idle for too long."""
        try:
            async with asyncio.timeout(self.limits.idle_ms / 1_000):
                message = await context.read()
        except TimeoutError:
            raise self._idle("sent") from None
        return None if message is grpc.aio.EOF else message

    async def write(self, context: Context, message: bytes) -> None:
        """Hand ``message`` to the connection. Raises `StatusError` when the client takes none for too long."""
        try:
            async with asyncio.timeout(self.limits.idle_ms / 1_000):
                await context.write(message)
        except TimeoutError:
            raise self._idle("taken") from None

    def _idle(self, done: str) -> StatusError:
        self.stats.idle += 1
        said = f"the client has {done} no message for {self.limits.idle_ms / 1_000:g} s; call again"
        return StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, said)

    def _handler(self, method: Method) -> Any:
        async def handle(request: Any, context: Context) -> Any:
            self.stats.calls += 1
            try:
                if not method.long:
                    return await method.handler(request, context)
                if self.stats.streams >= self.limits.streams:
                    self.stats.refused += 1
                    said = f"{self.limits.streams} streams run already; try again"
                    raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
                self.stats.streams += 1
                try:
                    return await method.handler(request, context)
                finally:
                    self.stats.streams -= 1
            except (SlateError, asyncio.CancelledError, grpc.aio.AbortError) as error:
                failure: BaseException = error
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends this call and no other
                failure = error
            await self._fail(context, failure)

        return _SHAPES[method.requests, method.answers](handle)

    async def _fail(self, context: Context, failure: BaseException) -> None:
        if isinstance(failure, asyncio.CancelledError):
            task = asyncio.current_task()
            if self._stopping and task is not None and not context.cancelled():
                failure = UnavailableError("the server is stopping; call another one", outcome="unknown")
            else:
                raise failure
        self.stats.failed += 1
        if isinstance(failure, SlateError):
            code, text, trailer = status_of(failure, getattr(failure, "code", None))
        else:
            if not isinstance(failure, grpc.aio.AbortError):
                logger.error("a call failed: %r", failure, exc_info=failure)
            code, text, trailer = grpc.StatusCode.INTERNAL, "the server failed; its log says how", b""
        self.stats.codes[code.name] = self.stats.codes.get(code.name, 0) + 1
        await context.abort(code, text, ((TRAILER, trailer),) if trailer else ())


_SHAPES: Final[Mapping[tuple[bool, bool], Callable[..., Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
