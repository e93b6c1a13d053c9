"""`codec.compression.Packer`: what does not shrink is soon tried seldom, what does is missed briefly."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from slate_async.codec.compression import TRIES_APART, VAIN_BLOCKS, Compression, Packer
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.types import Buffer
from tests.support.rows import DATABASE, OBJECT, R, columns_of

RANDOM = random.Random(1).randbytes(4000)
PLAIN = b"plain" * 800


def tried(blocks: list[bytes], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of ``blocks``, each in two parts, which the packer handed to the codec."""
    seen: list[bytes] = []

    def compress(raw: bytes, codec: Compression) -> bytes | None:
        seen.append(raw)
        return b"packed" if raw == PLAIN else None

    monkeypatch.setattr("slate_async.codec.compression.compress", compress)
    packer, found = Packer("zstd"), []
    for block in blocks:
        before = len(seen)
        parts: list[Buffer] = [block[:10], block[10:]]
        stored = packer.pack(parts)
        assert stored == ((Compression.ZSTD, [b"packed"]) if seen[before:] == [PLAIN] else (Compression.NONE, parts))
        found.append(len(seen) > before)
    return found


def test_of_random_blocks_few_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    rhythm = [False] * (TRIES_APART - 1) + [True]
    assert tried([RANDOM] * (VAIN_BLOCKS + 3 * TRIES_APART), monkeypatch) == [True] * VAIN_BLOCKS + 3 * rhythm


def test_blocks_that_shrink_are_all_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [RANDOM] * VAIN_BLOCKS + [PLAIN] * 20
    missed = TRIES_APART - 1
    assert tried(blocks, monkeypatch) == [True] * VAIN_BLOCKS + [False] * missed + [True] * (20 - missed)
    assert all(tried([PLAIN, RANDOM, RANDOM, RANDOM] * 5, monkeypatch))


def built(rows: list[R], pieces: int) -> bytes:
    """An SST of ``rows``, handed over in so many pieces."""
    builder = SstBuilder(
        database_id=DATABASE,
        object_id=OBJECT,
        writer_epoch=1,
        manifest_version=1,
        block_bytes=2_000,
        compression="zstd",
    )
    columns = columns_of(rows)
    cuts = [len(rows) * piece // pieces for piece in range(pieces + 1)]
    for start, stop in pairwise(cuts):
        builder.add(columns.slice(start, stop))
    return b"".join(builder.finish().buffers)


def test_what_is_compressed_does_not_depend_on_how_rows_came() -> None:
    rng = random.Random(2)
    values = [rng.randbytes(500) if number < 300 or number % 50 else bytes(4000) for number in range(600)]
    rows = [R(b"%06d" % number, value) for number, value in enumerate(values)]
    whole = built(rows, 1)
    assert built(rows, 7) == built(rows, 600) == whole
