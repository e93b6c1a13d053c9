"""Operands in compactions: whatever is folded, no read sees another value."""

from __future__ import annotations

import random
from itertools import groupby, pairwise

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.compaction import rounds
from slate_async.engine.read.operands import merged_hit
from slate_async.errors import InternalError
from slate_async.merge_operators.guarded import Guarded, MergeError
from slate_async.merge_operators.registry import merge_operator
from slate_async.merge_operators.values import pack_i64
from slate_async.types import DELETE, MERGE, PUT, RowHit
from tests.engine import memory_store
from tests.read_model import Version, newest_first
from tests.support.merge_harness import MergeHarness


@pytest.fixture
def harness() -> MergeHarness:
    return MergeHarness(memory_store())


def seen(rows: list[Version], operator: str, max_seq: int, now_ms: int) -> dict[bytes, bytes | str]:
    """What a read sees, key by key."""
    found: dict[bytes, bytes | str] = {}
    for key, history in groupby(newest_first(rows), key=lambda row: row.key):
        chain = [
            RowHit(row.value, row.seq, row.kind, row.expire_ms, row.create_ms) for row in history if row.seq <= max_seq
        ]
        try:
            hit = merged_hit(Guarded(merge_operator(operator)), key, chain, now_ms)
        except MergeError:
            found[key] = "refused"
        else:
            if hit is not None:
                found[key] = hit.value
    return found


def random_sources(rng: random.Random, operator: str) -> list[list[Version]]:
    rows = []
    for seq in range(1, rng.randrange(2, 150)):
        kind = rng.choice([PUT, MERGE, MERGE, MERGE, MERGE, DELETE])
        expire = NO_EXPIRY if kind == DELETE else rng.choice([NO_EXPIRY, NO_EXPIRY, NO_EXPIRY, 50, 150, 250])
        value = pack_i64(rng.randrange(100)) if operator == "add_i64" else b'{"%d":%d}' % (seq % 3, seq)
        if kind == PUT and rng.random() < 0.1:
            value = b"bad"
        rows.append(
            Version(
                b"%03d" % rng.randrange(rng.choice([2, 30])), b"" if kind == DELETE else value, seq, kind, expire, seq
            )
        )
    cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(rng.randrange(4)))
    return [rows[low:high] for low, high in pairwise([0, *cuts, len(rows)]) if low < high][::-1]


@pytest.mark.parametrize("operator", ["add_i64", "json_merge_patch"])
@pytest.mark.parametrize("seed", range(40))
async def test_no_read_sees_another_value(
    seed: int, operator: str, harness: MergeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    if rng.random() < 0.3:  # rows too large to be joined, so that keys come in pieces
        monkeypatch.setattr(rounds, "MAX_JOINED_BYTES", 100)
    sources = random_sources(rng, operator)
    highest = max(row.seq for rows in sources for row in rows)
    task = await harness.task(
        *sources,
        keep_above=rng.choice([0, highest // 2, highest, highest]),
        expired_at_ms=rng.choice([0, 100]),
        bottom=rng.random() < 0.5,
        merge_operator=operator,
    )
    found = await harness.rows(await harness.run(task))
    inputs = [row for rows in sources for row in rows]
    assert found == newest_first(found)
    below = [b"%03d" % number for number in range(30)]
    older = [] if task.bottom else [Version(key, pack_i64(1) if operator == "add_i64" else b"{}", 0) for key in below]
    for max_seq in {task.keep_above, highest, (task.keep_above + highest) // 2} - {0}:
        if max_seq >= task.keep_above:
            for now_ms in (task.expired_at_ms, 100, 200, 10**6):
                now = max(now_ms, task.expired_at_ms)
                assert seen([*found, *older], operator, max_seq, now) == seen([*inputs, *older], operator, max_seq, now)


def add(seq: int, number: int, expire_ms: int = NO_EXPIRY, key: bytes = b"a") -> Version:
    return Version(key, pack_i64(number), seq, MERGE, expire_ms, seq)


def put(seq: int, number: int, expire_ms: int = NO_EXPIRY, key: bytes = b"a") -> Version:
    return Version(key, pack_i64(number), seq, PUT, expire_ms, seq)


async def folded(
    harness: MergeHarness, *rows: Version, operator: str | None = "add_i64", **changes: object
) -> list[Version]:
    """What is left of ``rows``, and of a key after them, so that no round has a single row."""
    task = await harness.task(
        [*rows, Version(b"z", b"", 1)], **{"keep_above": 100, "bottom": False, "merge_operator": operator, **changes}
    )
    return [row for row in await harness.rows(await harness.run(task)) if row.key != b"z"]


async def test_operands_alone_become_one(harness: MergeHarness) -> None:
    assert await folded(harness, add(3, 1), add(4, 2), add(9, 4)) == [add(9, 7)]


async def test_with_their_base_they_become_a_value(harness: MergeHarness) -> None:
    assert await folded(harness, put(2, 10), add(3, 1), add(4, 2)) == [put(4, 13)]
    deleted = Version(b"a", b"", 2, DELETE)
    assert await folded(harness, put(1, 10), deleted, add(3, 1)) == [put(3, 1)]
    assert await folded(harness, add(3, 1), add(4, 2), bottom=True) == [put(4, 3)]


async def test_between_them_nobody_reads(harness: MergeHarness) -> None:
    assert await folded(harness, put(2, 10), add(3, 1), add(4, 2), add(5, 3), keep_above=3) == [
        add(5, 3),
        add(4, 2),
        put(3, 11),
    ]


async def test_their_expiry_is_equal(harness: MergeHarness) -> None:
    assert await folded(harness, put(2, 10), add(3, 1, 500), add(4, 2, 500), add(5, 3)) == [
        add(5, 3),
        add(4, 3, 500),
        put(2, 10),
    ]
    assert await folded(harness, add(3, 1, 500), add(5, 3), bottom=True) == [add(5, 3), put(3, 1, 500)]


async def test_expired_operands_go(harness: MergeHarness) -> None:
    assert await folded(harness, put(2, 10), add(3, 1, 40), add(4, 2), expired_at_ms=50) == [put(4, 12)]
    assert await folded(harness, add(3, 1, 40), expired_at_ms=50) == []


async def test_an_expired_operand_goes_that_is_alone(harness: MergeHarness) -> None:
    """An SST of such rows counts as one to be rewritten: if they stayed, that would have no end."""
    changes = {"keep_above": 100, "bottom": True, "merge_operator": "add_i64"}
    for row, expired_at_ms, stays in (
        (add(3, 1, 40), 50, False),
        (add(3, 1, 60), 50, True),
        (add(101, 1, 40), 50, True),
    ):
        task = await harness.task([row], **{**changes, "expired_at_ms": expired_at_ms})
        assert bool(await harness.rows(await harness.run(task))) == stays


async def test_what_cannot_be_folded_stays(harness: MergeHarness) -> None:
    bad = Version(b"a", b"bad", 2)
    assert await folded(harness, bad, add(3, 1), add(4, 2)) == [add(4, 2), add(3, 1), bad] or await folded(
        harness, bad, add(3, 1), add(4, 2)
    ) == [add(4, 3), bad]


async def test_patches_wait_for_their_base(harness: MergeHarness) -> None:
    patches = [Version(b"a", b'{"x":%d}' % seq, seq, MERGE) for seq in (3, 4)]
    assert await folded(harness, *patches, operator="json_merge_patch") == patches[::-1]
    [value] = await folded(harness, Version(b"a", b'{"y":1}', 2), *patches, operator="json_merge_patch")
    assert (value.kind, value.seq, value.value) == (PUT, 4, b'{"y":1,"x":4}')


async def test_a_database_without_an_operator_has_none(harness: MergeHarness) -> None:
    with pytest.raises(InternalError, match="no merge operator"):
        await folded(harness, add(3, 1), operator=None)
