"""Records as messages of etcd, and back."""

from __future__ import annotations

from collections.abc import Sequence

from metastores.etcd_client.records import (
    Condition,
    Delete,
    Entry,
    Event,
    Get,
    ModifiedAt,
    Operation,
    Put,
    RangeAnswer,
    TxnAnswer,
)
from metastores.etcd_client.wire import etcd_pb2 as wire


def range_request(
    key: bytes, end: bytes | None, *, revision: int = 0, limit: int = 0, keys_only: bool = False
) -> wire.RangeRequest:
    """Asks for keys; linearizable."""
    return wire.RangeRequest(key=key, range_end=end or b"", revision=revision, limit=limit, keys_only=keys_only)


def range_answer(answer: wire.RangeResponse) -> RangeAnswer:
    """What it says."""
    return RangeAnswer(answer.header.revision, [entry_of(found) for found in answer.kvs], answer.more)


def txn_request(
    conditions: Sequence[Condition], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> wire.TxnRequest:
    """Asks for one step."""
    return wire.TxnRequest(
        compare=[_compare(condition) for condition in conditions],
        success=[_operation(operation) for operation in then],
        failure=[_operation(operation) for operation in otherwise],
    )


def txn_answer(answer: wire.TxnResponse) -> TxnAnswer:
    """What became of it."""
    read = [
        [entry_of(found) for found in response.response_range.kvs]
        for response in answer.responses
        if response.WhichOneof("response") == "response_range"
    ]
    return TxnAnswer(answer.header.revision, answer.succeeded, read)


def entry_of(found: wire.KeyValue) -> Entry:
    """A key with its value."""
    return Entry(found.key, found.value, found.create_revision, found.mod_revision, found.lease)


def event_of(event: wire.Event) -> Event:
    """A key that was written or deleted."""
    deleted = event.type == wire.Event.DELETE
    return Event(event.kv.key, event.kv.mod_revision, None if deleted else entry_of(event.kv))


def _compare(condition: Condition) -> wire.Compare:
    if isinstance(condition, ModifiedAt):
        return wire.Compare(target=wire.Compare.MOD, key=condition.key, mod_revision=condition.revision)
    return wire.Compare(target=wire.Compare.VALUE, key=condition.key, value=condition.value)


def _operation(operation: Operation) -> wire.RequestOp:
    match operation:
        case Put(key, value, lease):
            return wire.RequestOp(request_put=wire.PutRequest(key=key, value=value, lease=lease))
        case Delete(key, end):
            return wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key, range_end=end or b""))
        case Get(key, end):
            return wire.RequestOp(request_range=range_request(key, end))
