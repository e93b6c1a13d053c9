"""What may happen to one request, and how a test says which one it happens to.

==================  ===============================  ==========================
fault               the server                       the client
==================  ===============================  ==========================
`Pass`              gets the request                 gets the response
`CutBefore`         sees nothing                     loses its connection
`CutInRequest`      gets a part, then a lost          loses its connection
                    connection
`CutAfter`          carries the request out          loses its connection
`CutInResponse`     carries the request out          gets headers and a part of
                                                     the body, then loses its
                                                     connection
`DeliverLate`       gets the request later           loses its connection at
                                                     once
`Delay`             gets the request later           gets the response later
`Throttle`          gets the request                 gets the response slowly
`Answer`            sees nothing                     gets the answer given here
==================  ===============================  ==========================

Cuts end the connection in order (FIN), or with ``reset=True`` by a reset (RST).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.netproxy.http import Request


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing happens."""


@dataclass(frozen=True, slots=True)
class CutBefore:
    """The server never sees the request. The client's body is not read either."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class CutInRequest:
    """The server gets the head and ``fraction`` (0 to 1) of the body."""

    fraction: float = 0.5
    reset: bool = False


@dataclass(frozen=True, slots=True)
class CutAfter:
    """The server carries the request out and its response is lost."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class CutInResponse:
    """The client gets the response's head and ``body_bytes`` of its body."""

    body_bytes: int = 0
    reset: bool = False


@dataclass(frozen=True, slots=True)
class DeliverLate:
    """The client loses its connection; the server gets the request ``seconds`` later."""

    seconds: float
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds waited before the request goes on, and before the response goes back."""

    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Throttle:
    """The response's body travels at this rate."""

    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The proxy answers itself, after reading the whole request."""

    status: int
    reason: str
    body: bytes = b""
    content_type: str = "application/xml"
    headers: tuple[tuple[str, str], ...] = ()


Fault: TypeAlias = Pass | CutBefore | CutInRequest | CutAfter | CutInResponse | DeliverLate | Delay | Throttle | Answer
Chooser: TypeAlias = Callable[[Request], Fault]
Weighted: TypeAlias = tuple[float, Fault]

PASS = Pass()


def _s3_error(status: int, reason: str, code: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return Answer(status, reason, body.encode())


SLOW_DOWN = _s3_error(503, "Slow Down", "SlowDown")
"""S3's throttling; the request was not carried out."""
INTERNAL_ERROR = _s3_error(500, "Internal Server Error", "InternalError")
"""S3's own failure; here the request was not carried out, though S3 does not promise that."""
CONDITIONAL_CONFLICT = _s3_error(409, "Conflict", "ConditionalRequestConflict")
"""S3's answer to a conditional write that met another one in progress; it was not carried out."""
DYNAMODB_THROTTLED = Answer(
    400,
    "Bad Request",
    b'{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"throttled"}',
    "application/x-amz-json-1.0",
)
"""DynamoDB's throttling; the request was not carried out."""


def pass_all(request: Request) -> Fault:
    """Break nothing."""
    return PASS


def scripted(faults: Iterable[Fault], only: Callable[[Request], bool] = lambda request: True) -> Chooser:
    """The n-th request for which ``only`` holds meets the n-th fault; all others pass."""
    remaining = iter(faults)
    return lambda request: next(remaining, PASS) if only(request) else PASS


def seeded(
    rng: random.Random, faults: Sequence[Weighted], only: Callable[[Request], bool] = lambda request: True
) -> Chooser:
    """Each request for which ``only`` holds meets one of ``faults`` with its probability, else passes.

    Raises `ValueError` if the probabilities are negative or sum to more than 1."""
    if any(weight < 0 for weight, _ in faults) or sum(weight for weight, _ in faults) > 1 + 1e-9:
        raise ValueError("probabilities must not be negative and must sum to at most 1")

    def choose(request: Request) -> Fault:
        if not only(request):
            return PASS
        draw = rng.random()
        for weight, fault in faults:
            draw -= weight
            if draw < 0:
                return fault
        return PASS

    return choose
