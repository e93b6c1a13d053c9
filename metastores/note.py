"""The note in a database's folder that says where its head is, when that is no object.

Purpose: a database is created once. Two creators at once, whose heads would lie in two places, have one conditional
write in common, that of this note; and the error of one that looks for the head in a wrong place names the right one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from metastores.bodies import check_no_others
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.names import Layout
from metastores.object_store_errors import OutcomeUnknownError, reading, writing
from metastores.protocol import ConditionalObjects

_NOTE = re.compile(
    r"(?:dynamodb://[A-Za-z0-9_.-]{3,255}\?region=[A-Za-z0-9-]{1,64}|etcd://[0-9a-f]{32}/[!-~]{1,255})\n\Z"
)


class PlaceNote:
    """See the module docstring. ``here``: what it says of this very place: neither endpoints nor credentials."""

    def __init__(self, objects: ConditionalObjects, layout: Layout, here: Callable[[], Awaitable[str]]) -> None:
        self._objects = objects
        self._layout = layout
        self._here = here

    async def check_empty(self) -> None:
        """Raise `MetaStoreInvalidError` if the folder belongs to another metastore, or to this kind in another place.
        The note of an unfinished creation in this very place may be there."""
        await check_no_others(self._objects, self._layout, expected=self._layout.elsewhere)
        await self._check()

    async def leave(self) -> None:
        """Say in the folder where the head is: by a conditional write, and by reading it back, for what is there
        decides, whichever process wrote it. Raises `MetaStoreInvalidError` if that is another place."""
        note, key = (await self._here()).encode(), self._layout.elsewhere
        try:
            with writing(f"creating {key}"):
                await self._objects.create(key, note)
        except OutcomeUnknownError:
            pass
        except MetaStoreInvalidError:  # a store without conditional writes
            if not await self._check():
                with reading(f"writing {key}"):
                    await self._objects.put(key, note)
        if not await self._check():
            raise MetaStoreUnavailableError(f"{key}, which says where the {self._layout.what} is, could not be written")

    async def _check(self) -> bool:
        """Whether there is a note; raises `MetaStoreInvalidError` if it names another place than this one."""
        key = self._layout.elsewhere
        with reading(f"reading {key}"):
            stored = await self._objects.get(key)
        if stored is None:
            return False
        try:
            noted = _NOTE.match(stored.data.decode("ascii"))
        except UnicodeDecodeError:
            noted = None
        if noted is None:
            raise MetaStoreCorruptionError("does not name a table and a region, or an etcd", object_name=key)
        here = await self._here()
        if noted[0] != here:
            what, owner = self._layout.what, self._layout.owner
            raise MetaStoreInvalidError(
                f"there is no {what} of this {owner} in {here.strip()}: {key!r} says that it is in"
                f" {noted[0].strip()}; name that one (metastore=...)"
            )
        return True
