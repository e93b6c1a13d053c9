"""A database with everything in it that is verified, shown and mirrored; its administration, and damage to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import slate_async as slate
from tests.engine import runtime
from tests.support.towns import CLONE, PARENT, Town, numbered


async def settled(town: Town) -> Town:
    """``town`` with such a database at `PARENT`."""
    await town.write(PARENT, numbered(0, 30, b"old"), l0=True)
    await compact(town, PARENT)
    await town.write(PARENT, {**numbered(20, 40, b"new"), b"0001": None}, l0=True, flush_parallelism=3)
    town.clock.wall_ms += 1000
    await town.write(PARENT, {b"0002": None, b"0050": b"then"})
    async with admin(town) as opened:
        await opened.checkpoints.create(name="then")
    town.clock.wall_ms += 1000
    await town.write(PARENT, {b"0050": b"now"}, l0=True)
    await town.write(PARENT, {b"0051": b"logged", b"0052": b"logged"})
    return town


@asynccontextmanager
async def admin(town: Town, name: str = PARENT) -> AsyncIterator[slate.Admin]:
    """The administration of one of the databases."""
    stores = {path: town.store(path) for path in (*town.objects, CLONE)}
    environment = slate.Environment(runtime=runtime(town.clock), stores=stores)
    async with environment, environment.open_admin(town.store(name), name=name) as opened:
        yield opened


async def compact(town: Town, name: str) -> None:
    """Everything into one run."""
    environment = slate.Environment(
        runtime=runtime(town.clock), stores={path: town.store(path) for path in town.objects}
    )
    async with environment, environment.open_compactor(town.store(name), name=name, auto_compaction=False) as compactor:
        await compactor.compact(full=True)


def alter(town: Town, key: str, data: bytes, name: str = PARENT) -> None:
    """Put other bytes into the place of an object, as a disk that fails does."""
    objects = town.objects[name]
    info = objects.objects[key][0]
    objects.objects[key] = (replace(info, size=len(data)), data)


def bytes_of(town: Town, key: str, name: str = PARENT) -> bytes:
    """What is stored there."""
    return town.objects[name].objects[key][1]


def remove(town: Town, key: str, name: str = PARENT) -> None:
    """Lose an object."""
    objects = town.objects[name]
    del objects.objects[key]
    objects.sorted_keys.remove(key)
