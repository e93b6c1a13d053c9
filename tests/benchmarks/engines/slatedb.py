"""SlateDB through its Python binding."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, Self

from tests.benchmarks.rows import Pair
from tests.servers.moto import AWS_ENVIRONMENT

BATCH_ROWS = 1024
READ_AHEAD_BYTES, READS_AHEAD = 4 << 20, 4
PROMPT = "50ms"
LOOK_S = 0.02
LONGEST_COMPACTION_S = 300
FIRST_RUN = 0
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


class SlateDB:
    """The ``slatedb`` package (Rust through UniFFI) on a local folder, default settings."""

    name = "slatedb"
    module = "slatedb"

    def __init__(self, db: Any, binding: Any, store: Any, path: str) -> None:
        self._db = db
        self._binding = binding
        self._store = store
        self._path = path

    @classmethod
    async def start(cls, folder: str) -> Self:
        import slatedb.uniffi as binding

        return await cls._open(binding, binding.ObjectStore.resolve("file:///"), f"{folder.lstrip('/')}/db")

    @classmethod
    async def _open(cls, binding: Any, store: Any, path: str) -> Self:
        builder = binding.DbBuilder(path, store)
        builder.with_settings(cls.settings(binding))
        cls.configure(builder, binding)
        return cls(await builder.build(), binding, store, path)

    @classmethod
    def settings(cls, binding: Any) -> Any:
        return binding.Settings.default()

    @classmethod
    def configure(cls, builder: Any, binding: Any) -> None:
        """What is not among the settings."""

    @classmethod
    async def start_on_s3(cls, endpoint: str, bucket: str, path: str) -> Self:
        """See `OnS3`."""
        import slatedb.uniffi as binding

        builder = binding.ObjectStoreBuilder(binding.ObjectStoreType.S3)
        builder.with_url(f"s3://{bucket}")
        options = {"aws_endpoint": endpoint, "aws_allow_http": "true", "aws_conditional_put": "etag"}
        credentials = {name.lower(): AWS_ENVIRONMENT[name] for name in CREDENTIALS}
        for name, value in {**options, **credentials}.items():
            builder.with_config(name, value)
        return await cls._open(binding, builder.build(), path)

    async def put_all(self, pairs: Sequence[Pair]) -> None:
        put = self._db.put
        for key, value in pairs:
            await put(key, value)

    async def write_all(self, batches: Sequence[Sequence[Pair]]) -> None:
        for pairs in batches:
            batch = self._binding.WriteBatch()
            for key, value in pairs:
                batch.put(key, value)
            await self._db.write(batch)

    async def put_durable(self, pair: Pair) -> None:
        handle = await self._db.put(*pair)
        await handle.await_durable()

    async def read_write_all(self, pairs: Sequence[Pair]) -> None:
        get, put = self._db.get, self._db.put
        for key, value in pairs:
            await get(key)
            await put(key, value)

    async def transact_all(self, pairs: Sequence[Pair]) -> None:
        begin, level = self._db.begin, self._binding.IsolationLevel.SERIALIZABLE_SNAPSHOT
        for key, value in pairs:
            tx = await begin(level)
            await tx.get(key)
            await tx.put(key, value)
            await tx.commit()

    async def increment(self, key: bytes) -> None:
        binding = self._binding
        while True:
            tx = await self._db.begin(binding.IsolationLevel.SERIALIZABLE_SNAPSHOT)
            number = int(await tx.get(key) or b"0")
            await asyncio.sleep(0)
            await tx.put(key, b"%d" % (number + 1))
            try:
                await tx.commit()
            except binding.Error.Transaction:
                continue
            return

    async def flush(self) -> None:
        options = self._binding.FlushOptions(flush_type=self._binding.FlushType.MEM_TABLE)
        await self._db.flush_with_options(options)

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._db.get
        return [await get(key) for key in keys]

    def _from(self, start: bytes | None) -> Any:
        return self._binding.KeyRange(start=start, start_inclusive=True, end=None, end_inclusive=False)

    async def _scan(self, start: bytes | None) -> Any:
        return await self._db.scan(self._from(start))

    async def scan_rows(self) -> list[Pair]:
        rows = await self._scan(None)
        found = []
        while (row := await rows.next()) is not None:
            found.append((row.key, row.value))
        return found

    async def scan_short(self, starts: Sequence[bytes], rows: int) -> list[list[Pair]]:
        return [[(row.key, row.value) for row in await (await self._scan(start)).next_batch(rows)] for start in starts]

    async def scan_batches(self) -> int:
        rows = await self._scan(None)
        total = 0
        while batch := await rows.next_batch(BATCH_ROWS):
            total += len(batch)
        return total

    async def stop(self) -> None:
        await self._db.shutdown()


class StillSlateDB(SlateDB):
    """It asks the store for nothing by itself for a while, and does not compact; its scans read ahead.

    By default a scan of slatedb's asks for one block of 4 KiB after the other."""

    @classmethod
    def settings(cls, binding: Any) -> Any:
        changed = json.loads(super().settings(binding).to_json_string())
        changed.update(manifest_poll_interval="60s", compactor_options=None, garbage_collector_options=None)
        return binding.Settings.from_json_string(json.dumps(changed))

    async def _scan(self, start: bytes | None) -> Any:
        binding = self._binding
        options = binding.ScanOptions(
            durability_filter=binding.DurabilityLevel.MEMORY,
            dirty=False,
            read_ahead_bytes=READ_AHEAD_BYTES,
            cache_blocks=False,
            max_fetch_tasks=READS_AHEAD,
        )
        return await self._db.scan_with_options(self._from(start), options)


class PromptSlateDB(SlateDB):
    """Its compactor looks every 50 ms for what it is asked to compact, instead of every 5 s."""

    @classmethod
    def settings(cls, binding: Any) -> Any:
        changed = json.loads(super().settings(binding).to_json_string())
        changed["compactor_options"]["poll_interval"] = PROMPT
        changed["compactor_options"]["worker"]["compactions_poll_interval"] = PROMPT
        return binding.Settings.from_json_string(json.dumps(changed))

    async def compact(self) -> None:
        """Flush, and merge every L0 SST into one sorted run."""
        await self.flush()
        binding = self._binding
        admin = binding.AdminBuilder(self._path, self._store).build()
        manifest = await admin.read_manifest(None)
        sources = [binding.SourceId.SST_VIEW(view.id) for view in manifest.l0]
        asked = await admin.submit_compaction(binding.CompactionSpec.TIERED(b"", sources, FIRST_RUN))
        end = time.monotonic() + LONGEST_COMPACTION_S
        while time.monotonic() < end:
            now = await admin.read_compaction(asked.id, None)
            if now is not None and now.status == binding.CompactionStatus.COMPLETED:
                return
            if now is not None and now.status == binding.CompactionStatus.FAILED:
                break
            await asyncio.sleep(LOOK_S)
        raise RuntimeError("slatedb did not compact")
