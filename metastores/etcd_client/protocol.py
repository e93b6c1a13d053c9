"""The narrow view of an etcd that metastores and the replicated block store have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from metastores.etcd_client.records import Condition, Operation, RangeAnswer, TxnAnswer, WatchAnswer


class CompactedError(Exception):
    """A revision that was asked for is compacted away. ``revision``: the first that is left."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"revisions before {revision} are compacted")
        self.revision = revision


class Etcd(Protocol):
    """One etcd, by whatever endpoints.

    Reads are repeated inside, bounded, at one endpoint after another; a transaction that writes is sent once. All raise
    `metastores.errors.MetaStoreError`: of a transaction it says that it certainly did not run. Each call may be
    cancelled; a transaction that was sent may then have run."""

    async def read(
        self, key: bytes, end: bytes | None = None, *, revision: int = 0, limit: int = 0, keys_only: bool = False
    ) -> RangeAnswer:
        """``key``, or all keys from it up to before ``end``; linearizable. With ``revision`` as of that one, and
        raises `CompactedError` if it is compacted."""

    async def txn(
        self, conditions: Sequence[Condition], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnAnswer:
        """Do ``then`` if all conditions hold, else ``otherwise``: one step, at one revision. Raises
        `OutcomeUnknownError` if it may have run, or may run later."""

    async def write(self, operations: Sequence[Operation]) -> int:
        """Do what may be done twice, the second time late: it is repeated until it is answered. Returns a revision
        that has it."""

    def watch(self, prefix: bytes, revision: int) -> AsyncIterator[WatchAnswer]:
        """All events of keys with this prefix from ``revision`` on, each once, at whichever endpoint. Progress is said
        although nothing happens. Ends by `CompactedError` if what comes next is compacted, and by `MetaStoreError`
        after the deadline without an endpoint."""

    async def compact(self, revision: int) -> None:
        """Forget what is older than ``revision``. One that is compacted already is no error."""

    async def grant(self, seconds: int) -> int:
        """A lease, which ends so long after it was renewed last."""

    async def renew(self, lease: int) -> bool:
        """Whether it is renewed; ``False``: it has ended, and its keys with it."""

    async def revoke(self, lease: int) -> None:
        """End a lease and its keys. One that has ended is no error."""

    async def close(self) -> None:
        """Close connections. Idempotent."""
