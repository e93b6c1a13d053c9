"""The register of a collection: whether it is there, which life it has, what it holds.

One object beside the folders of the lives, replaced by compare-and-set. `slate_async.commits.CommitLoop` says how an
edit is committed; an outcome that is unknown is resolved by the life's uuid and state.

Ordering rule: before a life is begun, its folder is looked at, and then the register once more. If the folder is used
and the register is as it was before, it was lost, or is of an older date: merged batches and versions bear no uuid, so
the new life would show what the lost one held. Another process that begins the life meanwhile is seen by the second
look, or makes the conditional write fail.

Rule C28 of collections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from uuid import UUID

from metastores.if_match import ObjectRegister
from metastores.names import MERGED_AREAS
from metastores.protocol import Committed, Conflict, Unknown
from metastores.runtime import MetaRuntime
from slate_async.collections.codec.life import Life, LifeState, decode_life, encode_life
from slate_async.collections.core.names import is_of_life
from slate_async.commits import CommitLoop, WriteOutcome
from slate_async.errors import CorruptionError, said_by
from slate_async.metastore_errors import translated
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor

KEY = "collection"


@dataclass(frozen=True, slots=True)
class BeginLife:
    """Begin the next life of a collection that was deleted."""

    life: Life

    def apply(self, life: Life) -> Life | None:
        """``None`` if it began already (its mark is the uuid), or if another one is open."""
        if life.uuid == self.life.uuid or life.state is LifeState.OPEN:
            return None
        return replace(self.life, number=life.number + 1, unknown=life.unknown)


@dataclass(frozen=True, slots=True)
class EndLife:
    """Mark the life with ``uuid`` as deleted."""

    uuid: UUID

    def apply(self, life: Life) -> Life | None:
        """``None`` if it is deleted, and if another life has begun since (C28)."""
        if life.uuid != self.uuid or life.state is LifeState.DELETED:
            return None
        return replace(life, state=LifeState.DELETED)


async def nothing_elsewhere(life: Life) -> str | None:
    """There are no versions outside of the store."""
    return None


class LifeRegister:
    """The register of one id, whose folder is ``store``.

    name: of the collection, for messages
    elsewhere: what a metastore outside of the store has of a life, in words; ``None``: nothing
    """

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        name: str,
        deadline_ms: int,
        elsewhere: Callable[[Life], Awaitable[str | None]] = nothing_elsewhere,
    ) -> None:
        self.name = name
        self._store = store
        self._elsewhere = elsewhere
        clock, ids = runtime.clock, runtime.ids
        metadata = MetaRuntime(
            sleep=clock.sleep, rng=runtime.rng, token=ids.token, monotonic=clock.monotonic, now_ms=clock.now_ms
        )
        self._register = ObjectRegister(MetaObjects(store), KEY, metadata)
        self._head: Life | None = None
        self._tag: str | None = None
        self.commits: CommitLoop[Life] = CommitLoop(
            self,
            runtime,
            supervisor,
            what=f"register of {name}",
            missing=f"there is no collection {name}",
            deadline_ms=deadline_ms,
        )

    @property
    def head(self) -> Life | None:
        """What was read or written last."""
        return self._head

    async def load(self) -> Life | None:
        """What the register says right now; ``None`` if nothing was ever created. Raises `UnavailableError`."""
        where = f"{KEY} of {self.name}"
        try:
            cell = await translated(self._register.read())
        except CorruptionError as error:  # the envelope of the metastore, which knows no collections
            raise CorruptionError(said_by(error), object_name=where, offset=error.offset) from error
        self._head = None if cell is None else decode_life(cell.value, object_name=where)
        self._tag = None if cell is None else cell.tag
        return self._head

    async def find(self) -> Life | None:
        """As `load`, for a collection that may be used. Raises `CorruptionError` if the register was lost, too."""
        life = await self.load()
        found = None if life is not None else await self.remains(None)
        if found is not None and (life := await self.load()) is None:
            raise self.lost(found)
        return life

    async def write(self, old: Life | None, new: Life) -> WriteOutcome[Life]:
        """See `slate_async.commits.Versions`. Raises `CorruptionError` for a life that begins where one was already."""
        begins = old is None or old.number < new.number
        if begins and (found := await self.remains(new)) is not None and await self.load() == old:
            raise self.lost(found)
        if old is not self._head:
            return Conflict(None)  # it was read again meanwhile, and the tag is of what was found then
        outcome = await translated(self._register.compare_and_set(self._tag, encode_life(new)))
        if isinstance(outcome, Committed):
            self._head, self._tag = new, outcome.value
            return Committed(new)
        if isinstance(outcome, Unknown):
            return Unknown(f"no answer to a write of the register of {self.name}: {outcome.cause}")
        return outcome

    async def remains(self, life: Life | None) -> str | None:
        """What is there of ``life``, or of any life: one of its objects, in words; ``None``: nothing.

        Foreign objects do not count. Raises `UnavailableError`."""
        folder = "" if life is None or life.number == 1 else f"{life.number}/"
        async for info in self._store.list(folder, start_after="" if folder else "0"):
            if info.key > "9~":  # behind all folders of lives; a foreign folder may be large
                break
            if is_of_a_life(info.key):
                return f"the object {self.name}/{info.key}"
        return None if life is None else await self._elsewhere(life)

    def lost(self, found: str) -> CorruptionError:
        """The error for a collection of which ``found`` is there, and the register is not."""
        return CorruptionError(
            f"the register of the collection {self.name} is missing, or older than {found}. Restore it from a backup."
            f" To begin anew, choose another name, or remove the folder {self.name}/, and what a metastore outside of"
            " the store has of it",
            object_name=f"{self.name}/{KEY}",
        )

    async def create(self, life: Life) -> Life:
        """Begin ``life``, unless the collection is there; returns what is there then: compare the uuid.

        Its number is given here. Raises `CorruptionError` if the register was lost, `UnavailableError`."""
        found = await self.commits.create(replace(life, number=1))
        if found.state is LifeState.OPEN:
            return found
        return await self.commits.commit(BeginLife(life))

    async def end(self, uuid: UUID) -> Life:
        """Mark the life with ``uuid`` as deleted; returns what is there then. Raises `NotFoundError` if nothing was
        ever created, `UnavailableError`."""
        return await self.commits.commit(EndLife(uuid))

    async def close(self) -> None:
        """Close the register. Idempotent."""
        await self._register.close()


async def littered(folder: ObjectStore, present: int) -> list[int]:
    """Numbers of the lives before ``present`` of which more is there than their tombstones: processes that slept have
    put it since. One listing of ``folder`` without the present life, however many lives there were."""
    if present == 1:
        return []
    found: set[int] = set()
    versions: Counter[int] = Counter()
    for start_after, end in (("", f"{present}/"), (f"{present}0", "9~")):
        async for info in folder.list(start_after=start_after):
            if info.key >= end:
                break
            number, _, name = info.key.partition("/")
            if not number.isdecimal() or not 0 < int(number) < present or str(int(number)) != number:
                continue
            life = int(number)
            versions[life] += MERGED_AREAS.version_of(name) is not None or MERGED_AREAS.is_of_bodies(name)
            if is_of_life(name) or versions[life] > 1:
                found.add(life)
    return sorted(found)


def is_of_a_life(key: str) -> bool:
    """Whether ``key`` is one that a life of the collection gives. What users put beside or into its folders is not."""
    number, _, name = key.partition("/")
    return number.isdecimal() and (is_of_life(name) or MERGED_AREAS.gives(name))
