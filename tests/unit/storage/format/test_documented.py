"""The pinned SST taken apart by hand as ``docs/format`` describes it, with nothing of the formats' own code."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import xxhash
from crc32c import crc32c

from tests.support.rows import DATABASE, OBJECT, R, sample_rows

GOLDEN = Path(__file__).parents[3] / "golden"
DATA = (GOLDEN / "sst-none.bin").read_bytes()
NEVER = 2**63 - 1


def padded(length: int) -> int:
    return (length + 7) // 8 * 8


def column(raw: bytes, at: int, code: str, count: int) -> tuple[tuple[int, ...], int]:
    """``count`` integers at ``at`` and where the next column begins."""
    width = struct.calcsize(code) * count
    return struct.unpack_from(f"<{count}{code}", raw, at), at + padded(width)


def block_rows(stored: bytes) -> list[R]:
    raw = stored[:-16]
    transformer, codec, zero, raw_bytes, zero2, crc = struct.unpack("<BBHIII", stored[-16:])
    assert (transformer, codec, zero, raw_bytes, zero2) == (0, 0, 0, len(raw), 0)
    assert crc == crc32c(stored[:-4])
    n, flags, base_seq, base_create, key_bytes, value_bytes, kind = struct.unpack_from("<IIQqIIB7x", raw)
    key_offsets, at = column(raw, 40, "I", n + 1)
    value_offsets, at = column(raw, at, "I", n + 1)
    seqs: tuple[int, ...] = tuple(range(base_seq, base_seq + n))
    expires, creates, kinds = (NEVER,) * n, (base_create,) * n, (kind,) * n
    if not flags & 1:
        seqs, at = column(raw, at, "Q", n)
    if flags & 2:
        expires, at = column(raw, at, "q", n)
    if flags & 4:
        creates, at = column(raw, at, "q", n)
    if flags & 8:
        kinds, at = column(raw, at, "B", n)
    keys = raw[at : at + key_bytes]
    at += padded(key_bytes)
    values = raw[at : at + value_bytes]
    assert at + padded(value_bytes) == len(raw)
    return [
        R(
            keys[key_offsets[i] : key_offsets[i + 1]],
            values[value_offsets[i] : value_offsets[i + 1]],
            seqs[i],
            kinds[i],
            expires[i],
            creates[i],
        )
        for i in range(n)
    ]


def test_header() -> None:
    magic, version, kind, flags, database, object_id, epoch, body, manifest, body_crc, crc = struct.unpack_from(
        "<8sHHI16s16sQQQII", DATA
    )
    assert (magic, version, kind, flags) == (b"SLATEOBJ", 1, 3, 0)
    assert (UUID(bytes=database), object_id, epoch, manifest) == (DATABASE, OBJECT, 7, 42)
    assert (body, body_crc, crc) == (len(DATA) - 80, crc32c(DATA[80:]), crc32c(DATA[:76]))


def sections() -> dict[int, bytes]:
    """The sections by id, from the footer on."""
    fields = struct.unpack("<16s16sQQQQQIIHHIII8s", DATA[-104:])
    assert fields[:5] == (DATABASE.bytes, OBJECT, 7, 42, len(DATA))
    meta, at, length, crc, version, zero, flags, zero2, footer_crc, magic = fields[5:]
    assert (version, zero, flags, zero2, magic) == (1, 0, 0, 0, b"SLATESST")
    assert footer_crc == crc32c(DATA[-104:-12])
    assert at + length == len(DATA) - 104
    assert crc32c(DATA[at : at + length]) == crc
    found = {}
    for number, must, offset, size, section_crc, zero in struct.iter_unpack("<IIQQII", DATA[at : at + length]):
        assert (must, zero) == (int(number != 1), 0)
        assert meta <= offset <= at - size
        assert crc32c(DATA[offset : offset + size]) == section_crc
        found[number] = DATA[offset : offset + size]
    return found


def test_index_and_blocks() -> None:
    index = sections()[2]
    n, key_bytes = struct.unpack_from("<II", index)
    offsets, at = column(index, 8, "Q", n)
    stored, at = column(index, at, "I", n)
    rows, at = column(index, at, "I", n)
    crcs, at = column(index, at, "I", n)
    cuts, at = column(index, at, "I", n + 2)
    continues, at = column(index, at, "B", n)
    keys = [index[at:][cuts[i] : cuts[i + 1]] for i in range(n + 1)]
    assert at + padded(key_bytes) == len(index)
    found: list[R] = []
    for i in range(n):
        block = DATA[offsets[i] : offsets[i] + stored[i]]
        assert offsets[i] % 8 == 0
        assert struct.unpack("<I", block[-4:]) == (crcs[i],)
        decoded = block_rows(block)
        assert (len(decoded), decoded[0].key) == (rows[i], keys[i])
        assert continues[i] == (bool(found) and found[-1].key == keys[i])
        found += decoded
    assert found == sample_rows()
    assert keys[-1] == found[-1].key


def test_filter() -> None:
    data = sections()[1]
    kind, probes, log2_bits, keys = struct.unpack_from("<HHIQ", data)
    assert (kind, probes, keys, len(data)) == (1, 7, 8, 16 + 2**log2_bits // 8)
    marked = set()
    for row in sample_rows():
        h = xxhash.xxh3_64_intdigest(row.key)
        low, step = h % 2**32, h // 2**32 | 1
        marked |= {(low + i * step) % 2**log2_bits for i in range(probes)}
    assert {b for b in range(2**log2_bits) if data[16 + b // 8] >> b % 8 & 1} == marked


def test_filter_of_exact_size() -> None:
    data = (GOLDEN / "filter-exact.bin").read_bytes()
    kind, probes, words, keys = struct.unpack_from("<HHIQ", data)
    bits = 64 * words
    assert (kind, probes, keys, bits, len(data)) == (2, 7, 8, 128, 16 + bits // 8)
    marked = set()
    for row in sample_rows():
        h = xxhash.xxh3_64_intdigest(row.key)
        low, step = h % 2**32, h // 2**32 | 1
        marked |= {(low + i * step) % 2**32 * bits // 2**32 for i in range(probes)}
    assert {b for b in range(bits) if data[16 + b // 8] >> b % 8 & 1} == marked


def test_stats() -> None:
    rows = sample_rows()
    values = struct.unpack("<QQQQQQqqQqqQQ", sections()[3])
    key_bytes, value_bytes = (sum(map(len, part)) for part in (zip(*((r.key, r.value) for r in rows), strict=True)))
    assert values[:11] == (8, 1, key_bytes, value_bytes, 3, 2**63 - 2, -7, 1000, 1, 99_000, 99_000)
    assert values[11] == struct.unpack_from("<I", sections()[2])[0]
