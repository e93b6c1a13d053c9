"""The chain of one table in its object store: links are put, and read back as contents.

At each link a reader takes the whole one beside it or itself, whichever it finds (rule T11). Contents are kept by the
key of their newest link, so a reader that follows a table reads what is new.

Rules T4, T9, T10 and T11.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import Final
from uuid import UUID

from slate_async.objectstore.protocol import CREATE, ObjectExistsError, ObjectNotFoundError, ObjectStore
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Runtime
from slate_async.tables.codec.link import (
    StoredLink,
    decode_link,
    decode_whole,
    digest_of,
    encode_link,
    encode_whole,
)
from slate_async.tables.core.chain import Contents, Link, fold
from slate_async.tables.core.head import Head, LinkRef
from slate_async.tables.core.names import link_key, whole_key
from slate_async.tables.store.puts import put_new

PARALLEL: Final = 16
KEPT_CONTENTS: Final = 4
WALKS: Final = 4
"""Times that a chain is walked of which a link is missing."""


class Chain:
    """See the module docstring. ``store``: the folder of the table ``uuid``."""

    def __init__(self, store: ObjectStore, uuid: UUID, runtime: Runtime) -> None:
        self._store = store
        self._uuid = uuid
        self._runtime = runtime
        self._known: OrderedDict[str, Contents] = OrderedDict()

    async def put(self, extends: Head, link: Link) -> LinkRef:
        """Store ``link``, which extends the version ``extends``. Each attempt of a commit puts one of its own (T4)."""
        stored = StoredLink(self._uuid, None if link.whole else extends.link, link)
        data = await self._runtime.offload.run(lambda: encode_link(stored))
        key = await put_new(self._store, data, lambda token: link_key(extends.version, token), self._runtime)
        ref = LinkRef(key, len(data), digest_of(data), link.whole)
        before = Contents() if extends.link is None else self._known.get(extends.link.key)
        if before is not None or link.whole:
            self._keep(key, (before or Contents()).after(link))
        return ref

    async def put_whole(self, head: Head) -> str | None:
        """Put a whole link beside the newest one of ``head``, unless it needs none; returns that link's key (T9)."""
        ref = head.link
        if ref is None or ref.covered:
            return None
        contents = await self.contents(head)
        stored = StoredLink(self._uuid, None, contents.as_link())
        data = await self._runtime.offload.run(lambda: encode_whole(ref.key, stored))
        with contextlib.suppress(ObjectExistsError):  # another process has put the same
            await self._store.put(whole_key(ref.key), data, mode=CREATE)
        return ref.key

    async def link(self, ref: LinkRef) -> StoredLink:
        """What one commit changed, never what stands beside it. Raises `ObjectNotFoundError` if it was deleted."""
        return decode_link((await self._store.get(ref.key)).data, ref, self._uuid)

    async def contents(self, head: Head) -> Contents:
        """All that ``head`` has. Raises `ObjectNotFoundError` if a part of the chain is not there: it was deleted, or
        the store lost it.

        While it is walked, a whole link may come and a vacuum delete what lies below: then it is walked again."""
        for _ in range(WALKS - 1):
            with contextlib.suppress(ObjectNotFoundError):
                return await self._contents(head)
        return await self._contents(head)

    async def _contents(self, head: Head) -> Contents:
        ref = head.link
        if ref is None:
            return Contents()
        refs: list[LinkRef] = []
        onto: Contents | None = None
        for known in head.links:
            if (onto := self._known.get(known.key)) is not None:
                break
            refs.append(known)
        try:
            links = await map_bounded(self._read, refs, PARALLEL)
        except ObjectNotFoundError:  # a whole link stands beside a newer one, of which the head does not know
            links = await self._walk(refs)
        last = links[-1] if links else None
        while onto is None and last is not None and not last.link.whole and last.before is not None:
            onto = self._known.get(last.before.key)
            if onto is None:
                last = await self._read(last.before)
                links.append(last)
        folded = [stored.link for stored in reversed(links)]
        contents = await self._runtime.offload.run(lambda: fold(folded, onto))
        self._keep(ref.key, contents)
        return contents

    async def taken(self, ref: LinkRef, listed: Container[str]) -> tuple[str, StoredLink]:
        """What a vacuum keeps of a link, and its name: the whole one beside it, if it was ``listed`` and is read; else
        the link (T10). Raises `ObjectNotFoundError`: it is never the end of the chain."""
        if whole_key(ref.key) in listed and (whole := await self._read_whole(ref)) is not None:
            return whole_key(ref.key), whole
        try:
            data = (await self._store.get(ref.key)).data
        except ObjectNotFoundError:  # another vacuum relies on a whole link that came after the listing
            whole = await self._read_whole(ref)
            if whole is None:
                raise
            return whole_key(ref.key), whole
        return ref.key, decode_link(data, ref, self._uuid)

    async def _walk(self, refs: Sequence[LinkRef]) -> list[StoredLink]:
        """As many of ``refs``, newest first, as there are down to a whole one, which is taken where there is one.

        Raises `ObjectNotFoundError` if a link is missing before that: it is never the end of the chain (T11)."""
        links: list[StoredLink] = []
        for ref in refs:
            whole = await self._read_whole(ref)
            links.append(await self._read(ref) if whole is None else whole)
            if links[-1].link.whole:
                break
        return links

    async def _read(self, ref: LinkRef) -> StoredLink:
        """The link, or what stands beside it for its whole chain."""
        if ref.covered and (whole := await self._read_whole(ref)) is not None:
            return whole
        try:
            data = (await self._store.get(ref.key)).data
        except ObjectNotFoundError:
            whole = await self._read_whole(ref)
            if whole is None:
                raise
            return whole
        return decode_link(data, ref, self._uuid)

    async def _read_whole(self, ref: LinkRef) -> StoredLink | None:
        key = whole_key(ref.key)
        try:
            data = (await self._store.get(key)).data
        except ObjectNotFoundError:
            return None
        return decode_whole(data, ref.key, self._uuid, object_name=key)

    def _keep(self, key: str, contents: Contents) -> None:
        self._known[key] = contents
        self._known.move_to_end(key)
        while len(self._known) > KEPT_CONTENTS:
            self._known.popitem(last=False)
