"""A collection that its writers, readers and the product's controller have used, and ways to damage it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from metastores.envelope import Kind, seal, unseal
from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.version import decode_version, encode_version
from slate_async.collections.controller.controller import Controller
from slate_async.collections.core.area import Area
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.verify.report import CollectionVerifyReport
from slate_async.collections.verify.verifier import verify
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import SystemIds
from slate_async.types import Finding
from tests.engine import InlineOffload
from tests.support.collection_bytes import BYTES, U64
from tests.unit.collections.kept import KeptLake, Rows

TOKEN = "ab" * 16


def random_rows(rng: random.Random, end: int) -> Rows:
    """Data that come, go and change."""
    return [
        (b"%d" % rng.randrange(8), time, rng.choice((1, 1, -1, 2)))
        for time in range(end)
        for _ in range(rng.choice((0, 1, 1, 3)))
    ]


ROWS = random_rows(random.Random(5), 40)


@dataclass
class UsedLake(KeptLake):
    """A collection that is verified."""

    readers: list[ReadHandle] = field(default_factory=list)

    def reading(self, appends: Appends = Appends.DEFINITE, **options: Any) -> ReaderContext:
        """What a reader, or a verification, works with."""
        clock = options.pop("clock", self.clock)
        runtime = Runtime(clock, random.Random(7), SystemIds(), InlineOffload(), InlineOffload())
        given = {"deadline_ms": 600_000, **options}
        return ReaderContext(
            "orders", BYTES, appends, self.store, self.pending(), self.holds(), self.versions(), runtime, **given
        )

    async def reader(self, appends: Appends = Appends.DEFINITE) -> ReadHandle:
        """One more process that reads."""
        self.readers.append(await open_reader(self.reading(appends)))
        return self.readers[-1]

    async def put_from(self, lower: int, upper: int, writer: str = "a") -> None:
        """Append those of `ROWS`."""
        await self.put([row for row in ROWS if lower <= row[1] < upper], lower, upper, writer)

    async def filled(self) -> Controller:
        """Write, absorb, compact. A hold keeps an older version, so there are several of them."""
        await self.put_from(0, 10)
        controller = await self.controller()
        await controller.round()
        head = await self.head()
        await self.hold("r" * 32, head.version, 0)
        await self.put_from(10, 20)
        await controller.round()
        await controller.merge(everything=True)
        await self.put_from(20, 30)
        await self.put_from(20, 30, "b")
        await controller.round()
        await self.put_from(30, 35)
        await self.put_from(35, 40)
        return controller

    async def compared(self) -> Controller:
        """The same with compare appends: what is pending goes from 10 to 25, the merged area to 15."""
        async with await self.writer(Appends.COMPARE) as writer:
            for upper in (5, 10):
                await writer.append([(b"x", upper - 1, 1)], lower=upper - 5, upper=upper)
            controller = await self.controller(Appends.COMPARE)
            await controller.round()
            await self.hold("r" * 32, (await self.head()).version, 0)
            await writer.append([(b"y", 12, 1)], lower=10, upper=15)
            await controller.round()
            for upper in (20, 25):
                await writer.append([(b"z", upper - 1, 1)], lower=upper - 5, upper=upper)
        return controller

    async def verified(self, appends: Appends = Appends.DEFINITE) -> CollectionVerifyReport:
        """What a verification finds."""
        return await verify(self.reading(appends))

    async def change(self, key: str, edit: Callable[[bytes], bytes]) -> None:
        """Put other bytes there."""
        await self.store.put(key, edit((await self.store.get(key)).data))

    async def change_head(self, edit: Callable[[Area], Area]) -> int:
        """Put another head in the place of the one that there is, in its metastore's envelope; its number."""
        key = (await self.keys("merged_areas/v0"))[-1]

        def changed(data: bytes) -> bytes:
            sealed = unseal(data, kind=Kind.MANIFEST, name=key)
            area = edit(decode_version(sealed.payload, sealed.ref.version, U64, object_name=key))
            return seal(replace(sealed, payload=encode_version(area)))

        await self.change(key, changed)
        return int(key[-20:])


def texts(findings: Iterable[Finding]) -> list[str]:
    """Findings as lines."""
    return [f"{finding.object_name}: {finding.what}" for finding in findings]


def flipped(place: int) -> Callable[[bytes], bytes]:
    """Bytes of which one bit is another."""

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[place] ^= 1
        return bytes(changed)

    return flip


async def closed(lake: UsedLake) -> None:
    """All that was opened in it is closed."""
    for reader in lake.readers:
        await reader.expire()
    for controller in lake.controllers:
        await controller.close()
    for writer in lake.opened:
        await writer.close()
    await lake.supervisor.close()
