"""``grpc.health.v1.Health``, for probes: SERVING until the server stops. Only `Check`, and without a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from slate_async.rpc.server import Context, Method, RpcServer

SERVICE: Final = "grpc.health.v1.Health"
SERVING: Final = b"\x08\x01"
NOT_SERVING: Final = b"\x08\x02"


def health_methods(server: RpcServer) -> Mapping[str, Method]:
    """Of the service `SERVICE`."""

    async def check(request: Any, context: Context) -> bytes:
        return NOT_SERVING if server.stopping else SERVING

    return {"Check": Method(check)}
