"""Compactors of databases in a store: opened, abandoned, given something to do."""

from __future__ import annotations

import random

import slate_async as slate
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import ManualClock, on, runtime


def open_compactor(
    store: ObjectStore, clock: ManualClock | None = None, **options: object
) -> slate.Opening[slate.DbCompactor]:
    """A compactor of the database in the root of ``store``; ``progress`` is no setting."""
    progress = options.pop("progress", None)
    settings = slate.Settings(**{"manifest_poll_interval_ms": 5, **options})
    return on(runtime(clock)).open_compactor(
        store,
        name="memory://test",
        settings=settings,
        progress=progress,  # type: ignore[arg-type]
    )


async def abandon(compactor: slate.DbCompactor) -> None:
    """What a crash leaves: every task ends where it stands."""
    await compactor._supervisor.close()


async def fill(db: slate.Db, *, rounds: int = 6, keys: int = 100, seed: int = 1) -> dict[bytes, bytes]:
    """Puts, overwrites and deletes, an L0 SST (or several) for each round; what a scan shows afterwards."""
    rng = random.Random(seed)
    model: dict[bytes, bytes] = {}
    for number in range(rounds):
        for _ in range(keys):
            key = b"k%02d" % rng.randrange(keys)
            if rng.random() < 0.3:
                model.pop(key, None)
                await db.delete(key, await_durable=False)
            else:
                model[key] = b"%d of round %d" % (rng.getrandbits(60), number)
                await db.put(key, model[key], await_durable=False)
        await db.flush(l0=True)
    return dict(sorted(model.items()))


async def at_rest(compactor: slate.DbCompactor) -> None:
    await compactor.compact()
    assert compactor.status().registered == 0
