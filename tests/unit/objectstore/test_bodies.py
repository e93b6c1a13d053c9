"""Bodies of puts: what is joined, what is copied, what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slate_async.errors import InvalidError
from slate_async.objectstore.bodies import SMALL_BYTES, joined, joined_in_turns, parts_of
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.local.file import PARTS_AT_ONCE
from slate_async.objectstore.memory import MemoryStore
from slate_async.runtime.system import system_runtime

LARGE = [bytes([number % 256]) * 3000 for number in range(3 * PARTS_AT_ONCE)]


def test_small_bodies_are_joined_and_large_ones_are_not() -> None:
    assert parts_of([b"one", memoryview(b"two"), bytearray(b"three")]) == [b"onetwothree"]
    assert parts_of([]) == [b""]
    assert parts_of(LARGE) == LARGE
    assert all(part is given for part, given in zip(parts_of(LARGE), LARGE, strict=True))


def test_what_may_change_is_copied() -> None:
    changing = bytearray(SMALL_BYTES)
    [alone], [first, _] = parts_of(changing), parts_of([memoryview(changing), b"rest"])
    changing[:] = b"\xff" * SMALL_BYTES
    assert alone == first == bytes(SMALL_BYTES)


@pytest.mark.parametrize("body", ["text", ["text"], [1], None, 5])
def test_what_is_not_bytes_is_refused(body: Any) -> None:
    with pytest.raises(InvalidError):
        joined(body)


async def test_others_have_turns_while_a_large_body_is_copied() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    parts: list[bytes | memoryview] = [b"x", bytes(5 << 20), b"y" * 100, memoryview(b"z" * (2 << 20))]
    whole = await joined_in_turns(parts)
    counting.cancel()
    assert bytes(whole) == b"".join(parts)
    assert turns >= 6


async def test_large_bodies_in_parts_are_stored_whole(tmp_path: Path) -> None:
    runtime = system_runtime()
    local, memory = LocalStore(tmp_path, runtime), MemoryStore(runtime.clock)
    for store in (local, memory):
        await store.put("key", LARGE)
        result = await store.get("key")
        assert result.data == b"".join(LARGE)
        assert result.info.size == len(result.data)
        await store.close()
