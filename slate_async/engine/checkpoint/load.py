"""What a checkpoint keeps, read back: the manifest version it names and the log that belongs to it.

Ordering rule (rules 13 and 22): manifest version -> log objects up to ``log_end`` and not one more -> read the head
again. What was read counts iff that head still holds the checkpoint, which until then keeps collectors away.

Rules 12, 13 and 22: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.codec.header import ObjectKind
from slate_async.errors import CorruptionError, InvalidError, NotFoundError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.log.extent import log_keys
from slate_async.storage.log.names import parse_epoch_prefixed
from slate_async.storage.log.protocol import Inherited, LogObject
from slate_async.storage.log.reader import LogReader
from slate_async.storage.log.recovery import ContiguousWalk, Verdict
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import Checkpoint, ManifestState


async def load_checkpoint(store: ObjectStore, driver: ManifestDriver, checkpoint: Checkpoint) -> Inherited:
    """The state ``checkpoint`` names, and the log objects to replay on it (fences and zombies left out), in order;
    without a WAL only their headers are read.

    Raises `InvalidError` if the checkpoint does not exist, or is a writer's or reader's own, whose log has no end;
    `CorruptionError` for what is missing although the checkpoint is there; `UnavailableError`."""
    if checkpoint.log_end is None:
        raise InvalidError(
            f"checkpoint {checkpoint.id} is a {checkpoint.owner}'s own and does not say where its log ends; make one"
            " with checkpoints.create"
        )
    state = await driver.read(checkpoint.ref)
    if state is None:
        await _still_there(driver, checkpoint)
        raise CorruptionError(
            f"is missing, though checkpoint {checkpoint.id} names it",
            object_name=f"manifest version {checkpoint.ref.version}",
        )
    wanted = log_keys(state.log_protocol, checkpoint.log_ranges, checkpoint.log_start, checkpoint.log_end)
    reader = LogReader(store, state.database_id, whole=state.wal_enabled)
    found = await reader.read_many(wanted) if wanted else []
    await _still_there(driver, checkpoint)
    present = _all_present(wanted, found, checkpoint)
    objects = _contiguous(state, present) if state.log_protocol == "contiguous" else _by_epoch(present, wanted)
    return Inherited(state, tuple(objects), checkpoint.log_end + 1)


async def _still_there(driver: ManifestDriver, checkpoint: Checkpoint) -> None:
    head = await driver.load()
    if head is None or head.checkpoint(checkpoint.id) is None:
        raise NotFoundError(f"checkpoint {checkpoint.id} was deleted, or expired and was collected; make another one")


def _all_present(
    wanted: Sequence[tuple[int, str]], found: Sequence[LogObject | None], checkpoint: Checkpoint
) -> list[LogObject]:
    present = [logged for logged in found if logged is not None]
    if len(present) < len(wanted):
        key = next(key for (_, key), logged in zip(wanted, found, strict=True) if logged is None)
        raise CorruptionError(f"is missing, though checkpoint {checkpoint.id} holds it", object_name=key)
    return present


def _contiguous(state: ManifestState, present: Sequence[LogObject]) -> list[LogObject]:
    """Rule 12: objects of an epoch below one seen at a lower position, or below ``log_floor``, are a zombie's."""
    walk = ContiguousWalk(state.log_start, state.log_floor)
    valid = [logged for logged in present if walk.offer(logged.id, logged.header.writer_epoch) is Verdict.VALID]
    return [logged for logged in valid if logged.header.kind is not ObjectKind.FENCE]


def _by_epoch(present: Sequence[LogObject], wanted: Sequence[tuple[int, str]]) -> list[LogObject]:
    """The name says whose each object must be."""
    for logged, (_, key) in zip(present, wanted, strict=True):
        named = parse_epoch_prefixed(key)[0]
        if logged.header.writer_epoch != named:
            raise CorruptionError(
                f"was written by epoch {logged.header.writer_epoch}, not by its position's owner", object_name=key
            )
    return list(present)
