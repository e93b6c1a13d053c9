"""`slate_async.collections.store.pending`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.pending import Pending
from slate_async.collections.core.names import PendingName
from slate_async.collections.store.pending import PendingStore
from slate_async.errors import CorruptionError, InternalError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from tests.engine import InlineOffload, StoreInHand
from tests.support.collection_bytes import (
    BYTES,
    COLLECTION,
    DESCRIPTION,
    OTHER_COLLECTION,
    TOKEN,
    UPDATES,
    as_bits,
    frontier,
    many,
    put_batch,
)
from tests.unit.collections.faults import next_put

NAME = PendingName("relay-a", frontier(3), frontier(10))
COMPARE_NAME = PendingName("main", frontier(3), None)
COMPARE = replace(DESCRIPTION, writer="main")


def pending(store: StoreInHand, collection: Any = COLLECTION) -> PendingStore:
    return PendingStore(store, BYTES, collection, InlineOffload())


@pytest.mark.parametrize(("name", "description"), [(NAME, DESCRIPTION), (COMPARE_NAME, COMPARE)])
async def test_a_batch_is_put_described_and_read(
    store: StoreInHand, name: PendingName, description: Description
) -> None:
    batches = pending(store)
    assert await batches.describe(name) is None
    assert await batches.read(name) is None
    assert isinstance(await put_batch(batches, name, description, UPDATES), Committed)
    assert await batches.describe(name) == description
    found = await batches.read(name)
    assert found is not None
    assert found.description == description
    assert as_bits(found.updates) == as_bits(UPDATES)
    await batches.delete([str(name), "pending_batches/relay-a/none"])
    assert await batches.read(name) is None


async def test_the_batch_that_is_there_stays(store: StoreInHand) -> None:
    """Definite: the same diffs are there, whatever their token. Compare: the token says whose they are (C8)."""
    batches = pending(store)
    await put_batch(batches, COMPARE_NAME, COMPARE, UPDATES)
    rival = replace(COMPARE, token="1" * 32, upper=frontier(7))
    assert await put_batch(batches, COMPARE_NAME, rival, UPDATES) == Conflict(COMPARE)
    assert await put_batch(batches, COMPARE_NAME, COMPARE, UPDATES) == Conflict(COMPARE)
    assert await batches.describe(COMPARE_NAME) == COMPARE


@pytest.mark.parametrize(("fault", "landed"), [("request lost", False), ("answer lost", True)])
async def test_a_lost_answer_is_unknown_and_the_same_put_tells(store: StoreInHand, fault: str, landed: bool) -> None:
    batches = pending(store)
    next_put(store, fault)
    assert isinstance(await put_batch(batches, NAME, DESCRIPTION, UPDATES), Unknown)
    assert (await batches.describe(NAME) is not None) == landed
    again = await put_batch(batches, NAME, DESCRIPTION, UPDATES)
    assert again == Conflict(DESCRIPTION) if landed else isinstance(again, Committed)


async def test_a_refused_put_is_an_error(store: StoreInHand) -> None:
    next_put(store, "refused")
    with pytest.raises(UnavailableError):
        await put_batch(pending(store), NAME, DESCRIPTION, UPDATES)
    assert await pending(store).read(NAME) is None


async def test_a_batch_that_cannot_be_looked_at_is_unknown(store: StoreInHand, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = pending(store)
    await put_batch(batches, NAME, DESCRIPTION, UPDATES)

    async def fails(*_: object) -> Any:
        raise UnavailableError("no answer from the store")

    async def vanishes(key: str, *_: object) -> Any:
        raise ObjectNotFoundError(key)

    for instead in (fails, vanishes):
        monkeypatch.setattr(store, "get", instead)
        assert isinstance(await put_batch(batches, NAME, DESCRIPTION, UPDATES), Unknown)


async def test_another_life_is_noticed(store: StoreInHand) -> None:
    """C6, C28: the uuid of what is there is compared."""
    await put_batch(pending(store), NAME, DESCRIPTION, UPDATES)
    for call in (
        put_batch(pending(store, OTHER_COLLECTION), NAME, DESCRIPTION, UPDATES),
        pending(store, OTHER_COLLECTION).describe(NAME),
        pending(store, OTHER_COLLECTION).read(NAME),
    ):
        with pytest.raises(CorruptionError, match=f"belongs to collection {COLLECTION}"):
            await call


@pytest.mark.parametrize(
    "name",
    [
        PendingName("relay-b", frontier(3), frontier(10)),
        PendingName("relay-a", frontier(2), frontier(10)),
        PendingName("relay-a", frontier(3), frontier(11)),
    ],
)
async def test_a_batch_under_another_name_is_corruption(store: StoreInHand, name: PendingName) -> None:
    """C5: a name says all that a delete is decided by, so what lies there must be what it says."""
    batches = pending(store)
    await put_batch(batches, NAME, DESCRIPTION, UPDATES)
    await store.put(str(name), (await store.get(str(NAME))).data)
    for call in (batches.describe(name), batches.read(name)):
        with pytest.raises(CorruptionError, match="it is a batch of relay-a from 3 to 10"):
            await call
    with pytest.raises(InternalError, match="is no name of a batch"):
        await put_batch(batches, name, DESCRIPTION, UPDATES)


@pytest.mark.parametrize("nbytes", [0, 50, 100])
async def test_a_batch_cut_short_is_corruption(store: StoreInHand, nbytes: int) -> None:
    batches = pending(store)
    await put_batch(batches, NAME, DESCRIPTION, UPDATES)
    await store.put(str(NAME), (await store.get(str(NAME))).data[:nbytes])
    for call in (batches.describe(NAME), batches.read(NAME)):
        with pytest.raises(CorruptionError):
            await call


async def large(batches: PendingStore, count: int) -> tuple[Description, list[PendingName]]:
    """A batch of ``count`` parts of 4 rows, and the names of its parts."""
    names = [PendingName("relay-a", frontier(3), frontier(10), TOKEN, number) for number in range(count)]
    parts = [
        await batches.put_part(name, replace(DESCRIPTION, part=number), UPDATES) for number, name in enumerate(names)
    ]
    description = replace(DESCRIPTION, rows=4 * count, parts=tuple(parts))
    assert isinstance(await put_batch(batches, NAME, description, None), Committed)
    return description, names


@pytest.mark.parametrize("count", [1, 3, 200])
async def test_a_large_batch_is_in_parts(store: StoreInHand, count: int) -> None:
    batches = pending(store)
    description, names = await large(batches, count)
    assert await batches.describe(NAME) == description
    assert await batches.read(NAME) == Pending(description, None)
    tables = [as_bits(table) async for table in batches.parts(NAME, description)]
    assert tables == [as_bits(UPDATES)] * count
    assert [listed.name async for listed in batches.list("relay-a")] == [NAME, *names]


async def test_parts_of_several_processes_make_one_batch(store: StoreInHand) -> None:
    batches, tokens = pending(store), ("ab" * 16, "cd" * 16)
    parts = []
    for token, number, updates in ((tokens[0], 0, UPDATES), (tokens[1], 0, many(4)), (tokens[1], 1, UPDATES)):
        name = PendingName("relay-a", frontier(3), frontier(10), token, number)
        part = await batches.put_part(name, replace(DESCRIPTION, token=token, part=number), updates)
        parts.append(replace(part, token=token, number=number))
    description = replace(DESCRIPTION, rows=8, parts=(parts[0], parts[2]))
    assert isinstance(await put_batch(batches, NAME, description, None), Committed)
    assert await batches.describe(NAME) == description
    assert [as_bits(table) async for table in batches.parts(NAME, description)] == [as_bits(UPDATES)] * 2
    swapped = replace(description, parts=(replace(parts[2], number=0), parts[0]))
    with pytest.raises(CorruptionError, match=r"checksum|bytes in place of"):
        await anext(batches.parts(NAME, swapped))


async def test_a_part_is_put_again_after_an_attempt_that_failed(store: StoreInHand) -> None:
    batches, name = pending(store), PendingName("relay-a", frontier(3), frontier(10), TOKEN, 0)
    for fault in ("answer lost", None):
        next_put(store, fault)
        try:
            part = await batches.put_part(name, replace(DESCRIPTION, part=0), UPDATES)
        except UnavailableError:
            continue
    assert part.rows == 4


async def test_parts_that_are_not_those_named_are_noticed(store: StoreInHand) -> None:
    batches = pending(store)
    description, names = await large(batches, 2)
    first, second = [(await store.get(str(name))).data for name in names]
    await store.put(str(names[0]), second)
    with pytest.raises(CorruptionError, match="checksum"):
        await anext(batches.parts(NAME, description))
    swapped = replace(description, parts=description.parts[::-1])
    with pytest.raises(CorruptionError, match="it is not part 0 of append"):
        await anext(batches.parts(NAME, swapped))
    await store.put(str(names[0]), first[:-1])
    with pytest.raises(CorruptionError):
        await anext(batches.parts(NAME, description))
    await store.delete([str(names[0])])
    with pytest.raises(ObjectNotFoundError):
        await anext(batches.parts(NAME, description))
    await store.put(str(NAME), second)
    with pytest.raises(CorruptionError, match="it is a batch of"):
        await batches.read(NAME)


@pytest.mark.parametrize(
    "name",
    [NAME, PendingName("relay-a", frontier(3), frontier(10), "1" * 32, 0), replace(NAME, token=TOKEN, part=1)],
)
async def test_a_part_has_a_name_of_its_append(store: StoreInHand, name: PendingName) -> None:
    with pytest.raises(InternalError, match="is no name of part 0"):
        await pending(store).put_part(name, replace(DESCRIPTION, part=0), UPDATES)


async def test_listings_are_in_order_and_leave_foreign_keys_alone(store: StoreInHand) -> None:
    batches = pending(store)
    spans = [("relay-a", 3, 10), ("relay-a", 10, 200), ("relay-b", 0, 5)]
    names = [PendingName(writer, frontier(lower), frontier(upper)) for writer, lower, upper in spans]
    for name, (writer, lower, upper) in zip(names, spans, strict=True):
        bounds = {"lower": frontier(lower), "upper": frontier(upper)}
        await put_batch(batches, name, replace(DESCRIPTION, writer=writer, **bounds), UPDATES)
    await store.put("pending_batches/relay-a/batch_3_10", b"foreign")
    await store.put("pending_batches/README", b"foreign")
    assert [listed.name async for listed in batches.list()] == names
    assert [listed.name async for listed in batches.list("relay-a")] == names[:2]
    assert [listed.name async for listed in batches.list("relay-a", after=names[0])] == names[1:2]
    sizes = [listed.nbytes async for listed in batches.list("relay-b")]
    assert sizes == [len((await store.get(str(names[2]))).data)]


async def test_a_batch_above_64_mib_is_refused(store: StoreInHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.collections.store.pending.MAX_PART_BYTES", 10_000)
    with pytest.raises(InvalidError, match="write it in parts"):
        await put_batch(pending(store), NAME, replace(DESCRIPTION, rows=50_000, diff_sum=50_000), many(50_000))
    assert await pending(store).read(NAME) is None
