"""Metadata in an etcd: the head and the writer's register as keys, bodies as keys or, when large, as objects.

Keys, below the prefix; a database is filed under its URL, percent-encoded:

==========================================  ============================================================
``id``                                      32 hex digits, drawn by the first client: which etcd this is
``{database}/head``, ``{database}/writer``  the head, and the writer's register
``{database}/body/{version:020}.{token}``   a byte, and after 1 the body; after 0 nothing, for it is an object
==========================================  ============================================================

Ordering rules: an object before the key that stands for it, the body before the head, the head by one transaction that
compares the revision which wrote it last. Deletes go the other way: object, then key. Every read is linearizable.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from metastores import names
from metastores.bodies import ObjectBodies
from metastores.chained_register import ChainedRegister
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.etcd_client.access import EtcdAccess
from metastores.etcd_client.protocol import CompactedError
from metastores.etcd_client.records import Delete, Entry, ModifiedAt, Put, end_of
from metastores.names import Layout
from metastores.note import PlaceNote
from metastores.object_store_errors import OutcomeUnknownError
from metastores.protocol import ConditionalObjects, MetaStore, Needs, Register, StoredObject, VersionRef
from metastores.register_store import RegisterMetaStore
from metastores.runtime import MetaRuntime

if TYPE_CHECKING:
    from metastores.etcd_client.protocol import Etcd

INLINE_LIMIT_BYTES = 32_768
"""An etcd keeps all keys in memory-mapped pages and sends each through its log: larger bodies are objects."""
MAX_INLINE_LIMIT_BYTES = 1_000_000
"""Servers take requests up to 1.5 MiB."""
PAGE = 1_000
LISTED_AGAIN = 5
BATCH = 100
"""Operations that one transaction may have; servers take 128."""
_PREFIX = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*\Z")
_ID = re.compile(rb"[0-9a-f]{32}\Z")
_INLINE, _OBJECT = b"\x01", b"\x00"


def check_prefix(prefix: str) -> str:
    """Raise `MetaStoreInvalidError` unless ``prefix`` is a name of letters, digits, ``_``, ``-``, ``.`` and slashes."""
    if len(prefix) > 200 or not _PREFIX.match(prefix):
        raise MetaStoreInvalidError(
            "the prefix of an etcd's keys has 1 to 200 letters, digits, '_', '-', '.' and slashes"
        )
    return prefix


class EtcdPlace:
    """Where the keys of one database lie."""

    def __init__(self, etcd: Etcd, prefix: str, name: str, runtime: MetaRuntime) -> None:
        self.etcd = etcd
        self.name = names.database_name(name)
        self._runtime = runtime
        self._prefix = prefix
        self._below = f"{prefix}/{quote(self.name, safe='')}/"
        self._id: str | None = None

    def key(self, item: str) -> bytes:
        """Of one of the database's items."""
        return f"{self._below}{item}".encode()

    async def here(self) -> str:
        """Which etcd this is, and the prefix, as a metastore's URL without endpoints."""
        if self._id is None:
            self._id = await self._find_id()
        return f"etcd://{self._id}/{self._prefix}\n"

    async def erase(self) -> None:
        """Delete all keys of the database in one step: a later commit finds none. Raises `MetaStoreError`."""
        everything = self.key("")
        await self.etcd.write([Delete(everything, end_of(everything))])

    async def _find_id(self) -> str:
        key = f"{self._prefix}/id".encode()
        found = (await self.etcd.read(key)).entries
        if not found:
            drawn = self._runtime.token().encode()
            with contextlib.suppress(OutcomeUnknownError):  # what is there decides, whichever client wrote it
                await self.etcd.txn([ModifiedAt(key, 0)], [Put(key, drawn)])
            found = (await self.etcd.read(key)).entries
        if not found or not _ID.match(found[0].value):
            raise MetaStoreCorruptionError("is not the name of an etcd", object_name=key.decode())
        return found[0].value.decode()


class EtcdCell:
    """`CellBackend` over one key. The etag is the revision that wrote it last."""

    def __init__(self, place: EtcdPlace, item: str) -> None:
        self._place = place
        self._item = item

    @property
    def name(self) -> str:
        """The item; the database's URL is left out, as in other metastores."""
        return self._item

    async def load(self) -> StoredObject | None:
        """See `CellBackend.load`."""
        found = (await self._place.etcd.read(self._place.key(self._item))).entries
        return StoredObject(found[0].value, str(found[0].modified)) if found else None

    async def store(self, data: bytes, token: str, etag: str | None) -> str | None:
        """See `CellBackend.store`."""
        key = self._place.key(self._item)
        answer = await self._place.etcd.txn([ModifiedAt(key, 0 if etag is None else _revision(etag))], [Put(key, data)])
        return str(answer.revision) if answer.held else None

    async def close(self) -> None:
        """The client belongs to the factory; nothing to release."""


class EtcdBodies:
    """`BodyStore` in keys; bodies over ``inline_limit_bytes`` go to ``objects``."""

    def __init__(self, place: EtcdPlace, objects: ConditionalObjects, inline_limit_bytes: int, layout: Layout) -> None:
        if not 0 <= inline_limit_bytes <= MAX_INLINE_LIMIT_BYTES:
            raise MetaStoreInvalidError(f"the inline limit is 0 to {MAX_INLINE_LIMIT_BYTES} bytes")
        self._place = place
        self._layout = layout
        self._note = PlaceNote(objects, layout, place.here)
        self._spilled = ObjectBodies(objects, layout)
        self._inline_limit_bytes = inline_limit_bytes

    async def put(self, ref: VersionRef, data: bytes) -> None:
        """See `BodyStore.put`. Version 1 also leaves a note in the folder of where its head is to be."""
        if ref.version == 1:
            await self._note.leave()
        if len(data) <= self._inline_limit_bytes:
            value = _INLINE + data
        else:
            await self._spilled.put(ref, data)
            value = _OBJECT
        await self._place.etcd.write([Put(self._key(ref), value)])

    async def get(self, ref: VersionRef) -> bytes | None:
        """See `BodyStore.get`."""
        key = self._key(ref)
        found = (await self._place.etcd.read(key)).entries
        if not found:
            return None
        value = found[0].value
        if value[:1] == _INLINE:
            return value[1:]
        if value != _OBJECT:
            raise MetaStoreCorruptionError("is no body", object_name=key.decode())
        return await self._spilled.get(ref)

    async def list(self) -> Sequence[VersionRef]:
        """See `BodyStore.list`."""
        folder = self._place.key("body/")
        named = [self._ref(entry, folder) for entry in await self._entries(folder)]
        spilled = await self._spilled.list()
        return sorted({ref for ref in (*named, *spilled) if ref is not None})

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `BodyStore.delete`."""
        await self._spilled.delete(refs)
        for at in range(0, len(refs), BATCH):
            await self._place.etcd.write([Delete(self._key(ref)) for ref in refs[at : at + BATCH]])

    async def check_empty(self) -> None:
        """See `BodyStore.check_empty`."""
        await self._note.check_empty()

    def _key(self, ref: VersionRef) -> bytes:
        return self._place.key(f"body/{ref.version:020}.{ref.token}")

    def _ref(self, entry: Entry, folder: bytes) -> VersionRef | None:
        layout = self._layout
        return layout.body_ref(layout.folder + layout.before + entry.key.removeprefix(folder).decode(errors="replace"))

    async def _entries(self, folder: bytes) -> builtins.list[Entry]:
        """All keys there, without values, as of one revision: a newer one, if that is compacted meanwhile."""
        for _ in range(LISTED_AGAIN):
            with contextlib.suppress(CompactedError):
                return await self._entries_at_once(folder)
        raise MetaStoreUnavailableError(f"the etcd was compacted during each of {LISTED_AGAIN} listings")

    async def _entries_at_once(self, folder: bytes) -> builtins.list[Entry]:
        found: builtins.list[Entry] = []
        etcd, start, revision = self._place.etcd, folder, 0
        while True:
            answer = await etcd.read(start, end_of(folder), revision=revision, limit=PAGE, keys_only=True)
            found += answer.entries
            if not answer.more:
                return found
            start, revision = answer.entries[-1].key + b"\x00", revision or answer.revision


class EtcdFactory:
    """Everything in one etcd, one client for all databases; bodies over ``inline_limit_bytes`` as objects.

    endpoints: ``host:port`` of each
    prefix: what its keys begin with
    tls: whether connections are encrypted. Files and users are named by etcdctl's variables: ``ETCDCTL_CACERT``,
    ``ETCDCTL_CERT`` and ``ETCDCTL_KEY``, ``ETCDCTL_USER`` and ``ETCDCTL_PASSWORD``
    client: to use instead of one of its own
    """

    needs = Needs()

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str = "slate",
        *,
        tls: bool = False,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        runtime: MetaRuntime | None = None,
        client: Etcd | None = None,
    ) -> None:
        self._runtime = MetaRuntime() if runtime is None else runtime
        self._prefix = check_prefix(prefix)
        self._inline_limit_bytes = inline_limit_bytes
        self._access = EtcdAccess.of(endpoints, tls=tls, environment=os.environ) if client is None else None
        self._given = client
        self._client: Etcd | None = client

    def __repr__(self) -> str:
        return f"EtcdFactory({self._access!r}, {self._prefix!r})"

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = names.MANIFEST) -> MetaStore:
        """See `MetaStoreFactory.manifest`."""
        place = self._place(name)
        head = ChainedRegister(EtcdCell(place, "head"), self._runtime)
        bodies = EtcdBodies(place, objects, self._inline_limit_bytes, layout)
        return RegisterMetaStore(head, bodies, self._runtime, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """See `MetaStoreFactory.register`."""
        return ChainedRegister(EtcdCell(self._place(name), "writer"), self._runtime)

    async def erase(self, name: str) -> None:
        """See `ErasesMetadata`."""
        await self._place(name).erase()

    async def close(self) -> None:
        """See `MetaStoreFactory.close`."""
        client, self._client = self._client, self._given
        if client is not None and client is not self._given:
            await client.close()

    def _place(self, name: str) -> EtcdPlace:
        if self._client is None:
            self._client = _connected(self._access, self._runtime)
        return EtcdPlace(self._client, self._prefix, name, self._runtime)


def _connected(access: EtcdAccess | None, runtime: MetaRuntime) -> Etcd:
    try:
        from metastores.etcd_client.client import EtcdClient  # noqa: PLC0415 - optional package
    except ImportError as error:
        raise MetaStoreInvalidError(
            "metastore 'etcd://' needs the packages grpcio and protobuf: pip install 'slate-async[etcd]'"
        ) from error
    if access is None:
        raise MetaStoreInvalidError("the etcd client was closed")
    return EtcdClient(access, runtime)


def _revision(etag: str) -> int:
    """What an etag names. One that says ``superseded`` names none: revisions begin at 1, and 0 means "not there"."""
    return int(etag) if etag.isdecimal() else -1
