"""A proxy on the wire in front of an HTTP server: it counts requests and breaks them on purpose.

    async with WireProxy(s3_endpoint, lambda request: CutAfter() if request.method == "PUT" else PASS) as proxy:
        client = make_client(endpoint_url=proxy.url)
        ...
        assert proxy.count("PUT") == 1

Each request travels to the server at most once, over a connection of its own: the proxy never repeats one.
"""

from tests.netproxy.faults import (
    CONDITIONAL_CONFLICT,
    DYNAMODB_THROTTLED,
    INTERNAL_ERROR,
    PASS,
    SLOW_DOWN,
    Answer,
    Chooser,
    CutAfter,
    CutBefore,
    CutInRequest,
    CutInResponse,
    Delay,
    DeliverLate,
    Fault,
    Pass,
    Throttle,
    Weighted,
    pass_all,
    scripted,
    seeded,
)
from tests.netproxy.http import ProtocolError, Request
from tests.netproxy.proxy import Seen, ThreadedProxy, WireProxy

__all__ = [
    "CONDITIONAL_CONFLICT",
    "DYNAMODB_THROTTLED",
    "INTERNAL_ERROR",
    "PASS",
    "SLOW_DOWN",
    "Answer",
    "Chooser",
    "CutAfter",
    "CutBefore",
    "CutInRequest",
    "CutInResponse",
    "Delay",
    "DeliverLate",
    "Fault",
    "Pass",
    "ProtocolError",
    "Request",
    "Seen",
    "ThreadedProxy",
    "Throttle",
    "Weighted",
    "WireProxy",
    "pass_all",
    "scripted",
    "seeded",
]
