"""RocksDB through ``rocksdict``, in its raw mode: bytes as they are, no encoding of types.

By default a write goes to its WAL, which is handed to the operating system and not synced: it survives the process,
not the machine. There are no filters and values are not compressed. `RocksTuned` has what slate_async has by default:
filters of 10 bits a key and a block cache of 64 MiB; `RocksNoWal` writes nothing until its memtable is flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Self

from tests.benchmarks.rows import Pair

CACHE_BYTES = 64 << 20
FILTER_BITS_PER_KEY = 10


class Rocks:
    """Default options."""

    name = "rocksdict"
    module = "rocksdict"

    def __init__(self, db: Any, binding: Any) -> None:
        self._db = db
        self._binding = binding

    @classmethod
    def options(cls, binding: Any) -> Any:
        return binding.Options(raw_mode=True)

    @classmethod
    async def start(cls, folder: str) -> Self:
        import rocksdict as binding

        return cls(binding.Rdict(folder, cls.options(binding)), binding)

    async def put_all(self, pairs: Sequence[Pair]) -> None:
        put = self._db.put
        for key, value in pairs:
            put(key, value)

    async def write_all(self, batches: Sequence[Sequence[Pair]]) -> None:
        for pairs in batches:
            batch = self._binding.WriteBatch(raw_mode=True)
            for key, value in pairs:
                batch.put(key, value)
            self._db.write(batch)

    async def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete the keys from ``start`` (inclusive) to ``end`` (exclusive)."""
        self._db.delete_range(start, end)

    async def flush(self) -> None:
        self._db.flush()

    async def compact(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._db.get
        return [get(key) for key in keys]

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._db.get(list(keys))

    async def scan_rows(self) -> list[Pair]:
        return list(self._db.items())

    async def scan_short(self, starts: Sequence[bytes], rows: int) -> list[list[Pair]]:
        items = self._db.items
        return [list(islice(items(from_key=start), rows)) for start in starts]

    async def stop(self) -> None:
        self._db.close()


class RocksNoWal(Rocks):
    """Writes go to memory only."""

    name = "rocksdict, no WAL"

    @classmethod
    async def start(cls, folder: str) -> Self:
        engine = await super().start(folder)
        options = engine._binding.WriteOptions()
        options.disable_wal = True
        engine._db.set_write_options(options)
        return engine


class RocksTuned(Rocks):
    """With filters and a larger cache."""

    name = "rocksdict, tuned"

    @classmethod
    def options(cls, binding: Any) -> Any:
        table = binding.BlockBasedOptions()
        table.set_bloom_filter(FILTER_BITS_PER_KEY, False)
        table.set_block_cache(binding.Cache(CACHE_BYTES))
        options = super().options(binding)
        options.set_block_based_table_factory(table)
        return options
