"""What an error of gRPC means for the request that met it.

Rule: a `MetaStoreError` says that a write certainly did not run. Only what the server says before it proposes a
transaction, or of one that it has judged, is that. All else may have run.
"""

from __future__ import annotations

import grpc

from metastores.errors import MetaStoreError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.etcd_client.protocol import CompactedError
from metastores.object_store_errors import OutcomeUnknownError
from metastores.redaction import redacted

REFUSED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
COMPACTED = "required revision has been compacted"
LEASE_ENDED = "requested lease not found"
NO_SPACE = "database space exceeded"


class TokenRefusedError(Exception):
    """The token is not valid any more; a new one is needed. Never leaves this package."""


class LeaseEndedError(MetaStoreInvalidError):
    """There is no such lease any more."""


def translate(
    error: grpc.aio.AioRpcError, where: str
) -> MetaStoreError | OutcomeUnknownError | CompactedError | TokenRefusedError:
    """What ``error`` means, of a request that was sent to ``where``."""
    code, said = error.code(), redacted(error.details() or "")
    if COMPACTED in said:
        return CompactedError(0)
    if LEASE_ENDED in said:
        return LeaseEndedError(f"etcd at {where}: {said}")
    if code is grpc.StatusCode.UNAUTHENTICATED and "invalid auth token" in said:
        return TokenRefusedError(said)
    if code in REFUSED:
        return MetaStoreInvalidError(f"etcd at {where} refused the request: {code.name}: {said}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        hint = "; compact and defragment it, then disarm its alarm" if NO_SPACE in said else ""
        return MetaStoreUnavailableError(f"etcd at {where} took no more: {said}{hint}")
    return OutcomeUnknownError(f"etcd at {where}: {code.name}: {said}")
