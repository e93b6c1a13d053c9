"""Ceilings that no engine with object storage behind it is expected to reach: a mapped file, and a dict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Self

from tests.benchmarks.rows import Pair

MAP_BYTES = 8 << 30


class Lmdb:
    """``lmdb``: everything put in one transaction, everything read in one; not synced."""

    name = "lmdb"
    module = "lmdb"

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    @classmethod
    async def start(cls, folder: str) -> Self:
        import lmdb

        return cls(lmdb.open(folder, map_size=MAP_BYTES, sync=False, metasync=False))

    async def put_all(self, pairs: Sequence[Pair]) -> None:
        with self._environment.begin(write=True) as transaction:
            put = transaction.put
            for key, value in pairs:
                put(key, value)

    async def write_all(self, batches: Sequence[Sequence[Pair]]) -> None:
        for pairs in batches:
            with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(pairs)

    async def flush(self) -> None:
        self._environment.sync()

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._environment.begin() as transaction:
            get = transaction.get
            return [get(key) for key in keys]

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            found = dict(cursor.getmulti(keys))
        return [found.get(key) for key in keys]

    async def scan_rows(self) -> list[Pair]:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return list(cursor)

    async def scan_short(self, starts: Sequence[bytes], rows: int) -> list[list[Pair]]:
        found = []
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            for start in starts:
                cursor.set_range(start)
                found.append(list(islice(cursor, rows)))
        return found

    async def stop(self) -> None:
        self._environment.close()


class Dict:
    """A dict of the interpreter."""

    name = "dict"
    module = "builtins"

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}

    @classmethod
    async def start(cls, folder: str) -> Self:
        return cls()

    async def put_all(self, pairs: Sequence[Pair]) -> None:
        rows = self._rows
        for key, value in pairs:
            rows[key] = value

    async def write_all(self, batches: Sequence[Sequence[Pair]]) -> None:
        for pairs in batches:
            self._rows.update(pairs)

    async def flush(self) -> None:
        """Nothing to do."""

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._rows.get
        return [get(key) for key in keys]

    async def stop(self) -> None:
        """Nothing to do."""
