"""How a collection is deleted: a tombstone ends its life for all, then the register says so, then all but these two is
removed. Another call goes on where one stopped.

Ordering rules:
* the tombstone is committed first: from then on nothing is committed, and handles find out by it
* of what is removed, the holds go first, listed until a listing shows none (C14), then pending batches, merged batches,
  old versions

What a writer that sleeps puts into the folder of a dead life later is removed by the next call, and read by nobody.

Rules C14, C18 and C28 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from slate_async.collections.core import names, sweep
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.holding import StoredHold
from slate_async.collections.core.times import TimeKind
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.store.lives import LifeRegister
from slate_async.errors import UnavailableError
from slate_async.objectstore.protocol import ObjectStore

LISTINGS = 1_000
"""Listings of holds until no new one appears; then it is given up, and another call goes on."""
DELETED_AT_ONCE = 1_000


async def delete_life(stores: LifeStores, register: LifeRegister, *, force: bool) -> None:
    """Delete the life of ``stores``, whose register is ``register``. Idempotent.

    Raises `ConflictError`, which names them, while readers hold the collection, unless ``force``; `UnavailableError`:
    it may be deleted, and another call goes on."""
    head = await stores.versions.load()
    if not head.deleted:
        held = () if force else tuple(described(name, found) for name, found in (await standing_holds(stores)).items())
        await stores.versions.commits.commit(Tombstone(stores.runtime.ids.token(), held))
    await register.end(stores.life.uuid)
    await remove_deleted(stores)


async def remove_deleted(stores: LifeStores) -> int:
    """Remove all that is left of a life that was deleted, but its head; returns how many objects.

    Does nothing while there is no tombstone."""
    head = await stores.versions.load()
    return await remove_dead(stores) if head.deleted else 0


async def remove_dead(stores: LifeStores) -> int:
    """As `remove_deleted`, of a life that is known to be over: another one has begun, of whatever schema."""
    removed = 0
    for _ in range(LISTINGS):  # C14: holds go before what they protect
        held = list(await stores.holds.list())
        if not held:
            break
        await stores.holds.remove(held)
        removed += len(held)
    else:
        raise _always_new(stores)
    for folder in (names.PENDING_BATCHES, names.MERGED_BATCHES):
        async for keys in _pages(stores.store, folder):
            await stores.store.delete(keys)
            removed += len(keys)
    return removed + await stores.versions.collect_dead()


async def standing_holds(stores: LifeStores) -> Mapping[str, StoredHold]:
    """All holds that were not revoked, listed until no new one appears (C18). Raises `UnavailableError`."""
    found: dict[str, StoredHold] = {}
    listing = sweep.Listing()
    for _ in range(LISTINGS):
        listing = listing.listed(await stores.holds.list())
        if listing.complete:
            break
        found |= await stores.holds.read_all(listing.unread)
        listing = listing.read()
    else:
        raise _always_new(stores)
    return {name: stored for name, stored in sorted(found.items()) if not stored.hold.revoked}


def _always_new(stores: LifeStores) -> UnavailableError:
    return UnavailableError(f"each of {LISTINGS} listings showed new holds of {stores.name}")


def described(name: str, stored: StoredHold) -> str:
    """A hold, as messages say it."""
    if stored.damage:
        return f"{name} (damaged)"
    kind = "critical" if stored.hold.is_critical else "leased"
    return f"{name} ({kind}{f': {stored.hold.note}' if stored.hold.note else ''})"


async def _pages(store: ObjectStore, folder: str) -> AsyncIterator[list[str]]:
    """Keys of batches, of either kind of times. Foreign ones are left out."""
    page: list[str] = []
    async for info in store.list(folder):
        if any(names.parse_pending(info.key, kind) or names.parse_merged(info.key, kind) for kind in TimeKind):
            page.append(info.key)
        if len(page) == DELETED_AT_ONCE:
            yield page
            page = []
    if page:
        yield page
