"""The plan of coalesced reads, as text: ``offset+length`` spans in, ``offset+length[indices]`` fetches out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectStore, Span
from slate_async.objectstore.ranges import plan_reads, read_spans
from slate_async.runtime.system import SystemClock


def _spans(text: str) -> list[Span]:
    return [Span(*map(int, word.split("+"))) for word in text.split()]


def _shown(spans: str, gap: int, most: int) -> str:
    fetches = plan_reads(_spans(spans), gap, most)
    return " ".join(f"{f.offset}+{f.length}{[part.index for part in f.parts]}" for f in fetches)


@pytest.mark.parametrize(
    ("spans", "gap", "most", "plan"),
    [
        ("", 10, 100, ""),
        ("5+5", 10, 100, "5+5[0]"),
        ("0+5 5+5", 0, 100, "0+10[0, 1]"),
        ("0+5 6+4", 0, 100, "0+5[0] 6+4[1]"),
        ("0+5 6+4", 1, 100, "0+10[0, 1]"),
        ("90+5 0+5 6+4", 1, 100, "0+10[1, 2] 90+5[0]"),
        ("0+60 50+60", 10, 100, "0+60[0] 50+60[1]"),
        ("0+500", 10, 100, "0+500[0]"),
        ("0+500 10+5", 10, 1000, "0+500[0, 1]"),
        ("7+3 7+3", 0, 100, "7+3[0, 1]"),
        ("0+40 40+40 80+40", 0, 100, "0+80[0, 1] 80+40[2]"),
    ],
)
def test_plan(spans: str, gap: int, most: int, plan: str) -> None:
    assert _shown(spans, gap, most) == plan


@pytest.mark.parametrize("wrong", [Span(-1, 4), Span(0, 0), Span(3, -3)])
def test_wrong_spans(wrong: Span) -> None:
    with pytest.raises(InvalidError):
        plan_reads([Span(0, 1), wrong], 10, 100)


@given(
    spans=st.lists(st.tuples(st.integers(0, 999), st.integers(1, 300)), max_size=12),
    gap=st.integers(0, 200),
    most=st.integers(1, 600),
    parallelism=st.integers(1, 3),
)
async def test_read_spans_reads_what_was_asked(
    spans: list[tuple[int, int]], gap: int, most: int, parallelism: int
) -> None:
    body = bytes(index * 7 % 251 for index in range(1000))
    store = MemoryStore(SystemClock())
    await store.put("key", body)
    asked = [Span(*span) for span in spans]
    pieces = await read_spans(store, "key", asked, gap_bytes=gap, max_bytes=most, parallelism=parallelism)
    assert pieces == [body[span.offset : span.offset + span.length] for span in asked]


async def test_an_object_replaced_between_two_fetches_is_not_mixed() -> None:
    class Replacing(MemoryStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
            result = await super().get(key, byte_range)
            await self.put(key, b"other" * 100)
            return result

    store: ObjectStore = Replacing(SystemClock())
    await store.put("key", b"first" * 100)
    with pytest.raises(UnavailableError, match="replaced"):
        await read_spans(store, "key", [Span(0, 4), Span(400, 4)], gap_bytes=0, parallelism=1)


async def test_a_span_past_the_end_inside_a_joined_fetch_is_refused() -> None:
    store = MemoryStore(SystemClock())
    await store.put("key", b"x" * 500)
    with pytest.raises(InvalidError, match="500 bytes"):
        await read_spans(store, "key", [Span(0, 10), Span(900, 10)], gap_bytes=2000)
