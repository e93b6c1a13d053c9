"""The fold of a chain equals its links one after another, from the start or from any whole link, and a plain model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slate_async.tables.core.chain import BLOCK, DELETE_FILE, Contents, Link, fold, placed
from slate_async.tables.core.row_ids import RowIds, alive, between, contained, difference, is_set, set_of, union

IDS = st.sets(st.integers(0, 40), max_size=12).map(set_of)


@given(st.lists(IDS, max_size=4), IDS)
def test_sets_of_rows_are_sets(sets: list[RowIds], other: RowIds) -> None:
    whole: set[int] = set().union(*(set(part.tolist()) for part in sets))
    made = union(sets)
    assert set(made.tolist()) == whole
    assert is_set(made)
    assert set(difference(made, other).tolist()) == whole - set(other.tolist())
    asked = np.array([7, 3, 3, 40, 0], np.int64)
    assert contained(asked, made).tolist() == [row in whole for row in asked.tolist()]
    assert set(between(made, 3, 9).tolist()) == {row for row in whole if 3 <= row < 9}
    mask = alive(3, 6, made)
    assert [row in whole for row in range(3, 9)] == ([False] * 6 if mask is None else (~mask).tolist())


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[Link, dict[str, int], set[int]]]:
    """Links as commits make them, each with the live blocks and deleted rows after it, by a model of plain sets.

    Deletes may name rows that a merge has dropped, which no block has any more: the model leaves them out."""
    links, next_row = [], 0
    live: dict[str, int] = {}
    deleted: set[int] = set()
    retired: set[int] = set()
    for number in range(draw(st.integers(0, 8))):
        sizes = draw(st.lists(st.integers(1, 5), max_size=3))
        blocks, next_row = placed(_blocks(number, sizes, draw(st.booleans())), next_row)
        gone = draw(st.lists(st.sampled_from(sorted(live)), unique=True)) if live else []
        fresh = set(draw(st.lists(st.integers(0, max(0, next_row - 1))))) if next_row else set()
        filed = set(draw(st.lists(st.integers(0, max(0, next_row - 1))))) if next_row else set()
        dropped = set(draw(st.lists(st.sampled_from(sorted(deleted)), unique=True))) if deleted else set()
        fresh, filed = fresh - dropped, filed - dropped
        retired |= dropped
        deleted = (deleted | fresh | filed) - retired
        live = {key: rows for key, rows in live.items() if key not in gone}
        live.update(zip(blocks.column("key").to_pylist(), sizes, strict=True))
        link = Link(blocks, pa.array(gone, pa.string()), set_of(fresh), _files(number, filed), set_of(dropped))
        links.append((link, dict(live), set(deleted)))
    return links


FILES: dict[str, set[int]] = {}


def _blocks(number: int, sizes: list[int], statistics: bool) -> pa.Table:
    rows = [
        {"key": f"b{number}-{at}", "first_row": -1, "last_row": -1, "carried": False, "rows": size, "size": size * 10}
        | {"footer_size": 1, "footer_hash": bytes(16), "chunk_sums": b"", "schema_id": 0}
        for at, size in enumerate(sizes)
    ]
    made = pa.Table.from_pylist(rows, schema=BLOCK)
    return made.append_column("low.1", pa.array([1] * len(rows), pa.int32())) if statistics else made


def _files(number: int, ids: set[int]) -> pa.Table:
    if not ids:
        return DELETE_FILE.empty_table()
    FILES[f"d{number}"] = ids
    row = {"key": f"d{number}", "first_row": min(ids), "last_row": max(ids), "rows": len(ids), "size": 1}
    return pa.Table.from_pylist([row | {"hash": bytes(16)}], schema=DELETE_FILE)


def _deleted(contents: Contents) -> set[int]:
    filed: set[int] = set().union(*(FILES[key] for key in contents.delete_files.column("key").to_pylist()))
    return (set(contents.deleted.tolist()) | filed) - set(contents.retired.tolist())


@given(st.data(), chains())
def test_a_fold_is_its_links_one_after_another(
    data: st.DataObject, chain: list[tuple[Link, dict[str, int], set[int]]]
) -> None:
    links = [link for link, _, _ in chain]
    contents = Contents()
    for link in links:
        contents = contents.after(link)
    cut = data.draw(st.integers(0, len(links)))
    ways = [fold(links), contents, fold(links[cut:], fold(links[:cut]))]
    if cut:
        ways.append(fold([*links[: cut - 1], fold(links[:cut]).as_link(), *links[cut:]]))
        ways.append(fold([fold(links[:cut]).as_link(), *links[cut:]]))
    live, deleted = (chain[-1][1], chain[-1][2]) if chain else ({}, set())
    retired = set().union(*(set(link.retired.tolist()) for link in links))
    for way in ways:
        assert (
            dict(zip(way.blocks.column("key").to_pylist(), way.blocks.column("rows").to_pylist(), strict=True)) == live
        )
        assert _deleted(way) - retired == deleted
        assert way.retired.tolist() == ways[0].retired.tolist()
        assert way.deleted.tolist() == ways[0].deleted.tolist()
        assert way.rows == sum(live.values())
        assert way.has(pa.array(sorted(live), pa.string()))
        assert not way.has(pa.array(["no block"], pa.string()))


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=6), st.integers(0, 100))
def test_rows_get_ids_in_order_and_carried_ones_keep_theirs(blocks: list[tuple[int, bool]], next_row: int) -> None:
    made = _blocks(0, [rows for rows, _ in blocks], statistics=False)
    made = made.set_column(3, BLOCK.field("carried"), pa.array([carried for _, carried in blocks], pa.bool_()))
    given_, end = placed(made, next_row)
    expected = next_row
    for row, (rows, carried) in zip(given_.to_pylist(), blocks, strict=True):
        if carried:
            assert (row["first_row"], row["last_row"]) == (-1, -1)
            continue
        assert (row["first_row"], row["last_row"]) == (expected, expected + rows - 1)
        expected += rows
    assert end == expected
