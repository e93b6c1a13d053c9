"""Reading several spans of one object with few requests.

`plan_reads` is pure: spans in, fetches out; `read_spans` performs a plan. Near spans travel together, because a
request costs more than the bytes of a small gap. Invariant: every part of an answer comes from the same version
of the object, or the read fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from slate_async.errors import UnavailableError
from slate_async.objectstore.keys import check_range, past_end
from slate_async.objectstore.protocol import GetResult, ObjectStore, Span

DEFAULT_GAP_BYTES = 64 * 1024
"""Spans closer than this are read together: at 100 MB/s the gap costs less than a millisecond."""
DEFAULT_MAX_BYTES = 16 * 1024 * 1024
"""Spans are not joined into fetches larger than this; larger ones run beside each other."""
DEFAULT_PARALLELISM = 8


@dataclass(frozen=True, slots=True)
class Part:
    """Where one span of the request is found: ``index`` among the spans, ``start`` inside the fetch."""

    index: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """One read of ``length`` bytes from ``offset``, and the spans it answers."""

    offset: int
    length: int
    parts: tuple[Part, ...]


def plan_reads(
    spans: Sequence[Span], gap_bytes: int = DEFAULT_GAP_BYTES, max_bytes: int = DEFAULT_MAX_BYTES
) -> list[Fetch]:
    """Fetches, by ascending offset, that cover every span once.

    Spans at most ``gap_bytes`` apart (or overlapping) share a fetch as long as it stays within ``max_bytes``; a
    span larger than that is a fetch of its own. Raises `InvalidError` for a negative offset or an empty span."""
    for span in spans:
        check_range(span)
    order = sorted(range(len(spans)), key=lambda index: (spans[index].offset, spans[index].length, index))
    fetches: list[Fetch] = []
    parts: list[Part] = []
    begin = end = 0
    for index in order:
        span = spans[index]
        span_end = span.offset + span.length
        joins = span.offset - end <= gap_bytes and max(end, span_end) - begin <= max_bytes
        if parts and not joins:
            fetches.append(Fetch(begin, end - begin, tuple(parts)))
            parts = []
        if not parts:
            begin = end = span.offset
        parts.append(Part(index, span.offset - begin, span.length))
        end = max(end, span_end)
    if parts:
        fetches.append(Fetch(begin, end - begin, tuple(parts)))
    return fetches


async def read_spans(
    store: ObjectStore,
    key: str,
    spans: Sequence[Span],
    *,
    gap_bytes: int = DEFAULT_GAP_BYTES,
    max_bytes: int = DEFAULT_MAX_BYTES,
    parallelism: int = DEFAULT_PARALLELISM,
) -> list[bytes]:
    """The bytes of ``spans`` in their order, read with as few and as parallel `get` calls as the plan allows.

    Raises what `get` raises; `InvalidError` if a span starts past the end; `UnavailableError` if the object was
    replaced between two fetches."""
    plan = plan_reads(spans, gap_bytes, max_bytes)
    answers: list[bytes] = [b""] * len(spans)
    results: list[GetResult] = []
    for first in range(0, len(plan), parallelism):
        group = plan[first : first + parallelism]
        results.extend(await _all([(store, key, fetch) for fetch in group]))
    for fetch, result in zip(plan, results, strict=True):
        if result.info.etag != results[0].info.etag:
            raise UnavailableError(f"{key!r} was replaced while being read")
        for part in fetch.parts:
            piece = result.data[part.start : part.start + part.length]
            if not piece:
                raise past_end(key, spans[part.index], result.info.size)
            answers[part.index] = piece
    return answers


async def _all(requests: list[tuple[ObjectStore, str, Fetch]]) -> list[GetResult]:
    """Run fetches beside each other; the first failure cancels the others and is raised."""
    if len(requests) == 1:
        return [await _fetch(*requests[0])]
    tasks = [asyncio.ensure_future(_fetch(*request)) for request in requests]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _fetch(store: ObjectStore, key: str, fetch: Fetch) -> GetResult:
    return await store.get(key, Span(fetch.offset, fetch.length))
