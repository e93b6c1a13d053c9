"""A register whose every value names the writes before it, over any cell that can be written conditionally.

Purpose: say *certainly* what became of a conditional write although an answer was lost or a layer below sent the
request twice. A value carries its own number and token and the last `LINKS` before it. So any later value shows which
write succeeded the value that a write had expected:

* this write: it is in (perhaps superseded since), whatever the answer said;
* another one: this write is not in and never will be, because tags never repeat;
* the expected value still stands: the write may yet land;
* too much happened since: not known.

Ordering rule: the value is read only after the write was answered or given up. A refusal is never believed before
that read: a resent request may have met its own first copy.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from metastores.envelope import Kind, Sealed, seal, unseal
from metastores.errors import MetaStoreError, MetaStoreInvalidError
from metastores.object_store_errors import OutcomeUnknownError
from metastores.protocol import CasOutcome, Cell, Committed, Conflict, StoredObject, Unknown, VersionRef
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

LINKS = 8
MAX_VALUE_BYTES = 350 * 1024


class CellBackend(Protocol):
    """One stored blob with a conditional write. The etag changes with every write."""

    @property
    def name(self) -> str:
        """Identity sealed into the blob and used in messages."""

    async def load(self) -> StoredObject | None:
        """The newest blob, linearizably."""

    async def store(self, data: bytes, token: str, etag: str | None) -> str | None:
        """Write iff the blob carries ``etag`` (``None``: iff there is none); sent once. The new etag, or ``None``
        when refused. Raises `OutcomeUnknownError` if it may have run, `MetaStoreError` if it certainly did not."""

    async def close(self) -> None:
        """Release what this object owns."""


class Fate(Enum):
    """What a later value tells of a conditional write."""

    MINE = auto()
    LOST = auto()
    OPEN = auto()
    UNCLEAR = auto()


def judge(current: Sealed | None, expected: VersionRef | None, mine: VersionRef) -> Fate:
    """The fate of write ``mine``, which expected ``expected``, from a value read after it."""
    if current is None:
        return Fate.OPEN if expected is None else Fate.LOST
    lineage = (current.ref, *current.links)
    if mine in lineage:
        return Fate.MINE
    if expected is not None and current.ref == expected:
        return Fate.OPEN
    if current.ref.version < mine.version:
        return Fate.LOST
    return Fate.LOST if any(link.version == mine.version for link in lineage) else Fate.UNCLEAR


def check_size(value: bytes) -> None:
    """Raise `MetaStoreInvalidError` for more than a register holds."""
    if len(value) > MAX_VALUE_BYTES:
        raise MetaStoreInvalidError(f"a register holds at most {MAX_VALUE_BYTES} bytes, not {len(value)}")


def format_tag(ref: VersionRef, etag: str) -> str:
    """The tag of a value: its number, its token, the backend's etag."""
    return f"{ref.version}.{ref.token}.{etag}"


def parse_tag(tag: str) -> tuple[VersionRef, str]:
    """Back from `format_tag`. Raises `MetaStoreInvalidError`."""
    number, _, rest = tag.partition(".")
    token, _, etag = rest.partition(".")
    if not number.isdecimal() or len(token) != 32:
        raise MetaStoreInvalidError("the expected tag is not one this register gave out")
    return VersionRef(int(number), token), etag


class ChainedRegister:
    """`metastores.protocol.Register` over a `CellBackend`. ``stats`` counts its outcomes."""

    def __init__(self, backend: CellBackend, runtime: MetaRuntime, stats: MetaStats | None = None) -> None:
        self._backend = backend
        self._runtime = runtime
        self._seen: tuple[str, tuple[VersionRef, ...]] | None = None
        self.stats = MetaStats() if stats is None else stats

    async def read(self) -> Cell | None:
        """See `Register.read`."""
        loaded = await self._load()
        return None if loaded is None else loaded[1]

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        """See `Register.compare_and_set`. Raises `MetaStoreError` only if certainly nothing was written."""
        check_size(value)
        return self.stats.counted(await self._compare_and_set(expected_tag, value))

    async def _compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        expected: VersionRef | None = None
        etag: str | None = None
        links: tuple[VersionRef, ...] = ()
        if expected_tag is not None:
            expected, etag = parse_tag(expected_tag)
            if self._seen is None or self._seen[0] != expected_tag:
                cell = await self.read()
                if cell is None or cell.tag != expected_tag:
                    return Conflict(cell)
            if self._seen is not None and self._seen[0] == expected_tag:
                links = (expected, *self._seen[1])[:LINKS]
        mine = VersionRef(1 if expected is None else expected.version + 1, self._runtime.token())
        data = seal(Sealed(Kind.CELL, self._backend.name, mine, value, links))
        try:
            new_etag = await self._backend.store(data, mine.token, etag)
        except OutcomeUnknownError as error:
            return await self._find_out(expected, mine, str(error))
        if new_etag is None:
            return await self._find_out(expected, mine, "refused, yet the value expected still stands")
        tag = format_tag(mine, new_etag)
        self._seen = (tag, links)
        return Committed(tag)

    async def _find_out(self, expected: VersionRef | None, mine: VersionRef, cause: str) -> CasOutcome:
        try:
            loaded = await self._load()
        except MetaStoreError as error:
            return Unknown(f"{cause}; then {error}")
        sealed, cell = (None, None) if loaded is None else loaded
        fate = judge(sealed, expected, mine)
        if fate is Fate.MINE and sealed is not None and cell is not None:
            return Committed(cell.tag if sealed.ref == mine else format_tag(mine, "superseded"))
        if fate is Fate.LOST:
            return Conflict(cell)
        return Unknown(cause)

    async def _load(self) -> tuple[Sealed, Cell] | None:
        stored = await self._backend.load()
        if stored is None:
            return None
        sealed = unseal(stored.data, kind=Kind.CELL, name=self._backend.name)
        tag = format_tag(sealed.ref, stored.etag)
        self._seen = (tag, sealed.links)
        return sealed, Cell(sealed.payload, tag)

    async def close(self) -> None:
        """See `Register.close`."""
        await self._backend.close()
