"""What writes to a table did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append did.

    version: that it made; ``None`` if it was in already, and the same application has written since
    rows: that are in by it, also if it was in already
    blocks, nbytes: as they are stored; of a block that it shares with other appends, its part
    duplicate: its ``append_id`` was in already, so it changed nothing
    """

    version: int | None
    rows: int
    blocks: int
    nbytes: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What a delete did.

    version: that it made; the one that it read if no row passed; ``None`` as in `AppendResult`
    duplicate: its ``append_id`` was in already, and ``rows`` were deleted then
    """

    version: int | None
    rows: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class UpsertResult:
    """What an upsert did.

    version: that it made; ``None`` as in `AppendResult`
    rows: of which there is one for each key; ``replaced``: those that had these keys before
    duplicate: its ``append_id`` was in already, so it changed nothing
    """

    version: int | None
    rows: int
    replaced: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What a transaction did, as `UpsertResult`. ``deleted``: rows that were there before, by deletes and upserts."""

    version: int | None
    rows: int
    deleted: int
    duplicate: bool
