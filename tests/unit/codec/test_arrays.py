"""Arrays made from buffers equal those pyarrow makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.arrays import (
    binary_array,
    binary_scalar,
    is_larger,
    mask_array,
    mask_of,
    number_array,
    numbers_of,
    where_true,
)


@pytest.mark.parametrize("items", [[], [b""], [b"a", b"", b"\x00\xff" * 100, b"b"]])
def test_binary(items: list[bytes]) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        made = binary_array(items, kind)
        made.validate(full=True)
        assert made.equals(pa.array(items, kind))
    assert binary_array([b"put", b"delete"], pa.string()).to_pylist() == ["put", "delete"]


def test_binary_refuses_what_is_not_bytes() -> None:
    with pytest.raises(TypeError):
        binary_array([b"a", "b"])  # type: ignore[list-item]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers_and_masks(count: int) -> None:
    numbers = np.arange(count, dtype=np.int64)
    odd = numbers % 2 == 1
    when = pa.timestamp("ms", "UTC")
    for made, expected in (
        (number_array(numbers.astype(np.uint64)), pa.array(numbers.astype(np.uint64))),
        (number_array(numbers[::-1]), pa.array(numbers[::-1])),
        (number_array(numbers, when), pa.array(numbers).cast(when)),
        (number_array(numbers, when, missing=odd), pa.array(numbers, mask=odd).cast(when)),
        (mask_array(odd), pa.array(odd, pa.bool_())),
    ):
        made.validate(full=True)
        assert made.equals(expected)
        assert made.null_count == expected.null_count


@pytest.mark.parametrize("cut", [slice(0, 0), slice(0, None), slice(3, 20), slice(9, None), slice(16, 17)])
def test_what_is_read_of_an_array_or_a_part_of_it(cut: slice) -> None:
    numbers = np.arange(40)
    for kind in (pa.int32(), pa.int64(), pa.uint64(), pa.float64()):
        found = numbers_of(pa.array(numbers, kind)[cut])
        assert found.dtype == kind.to_pandas_dtype()
        assert found.tolist() == numbers[cut].tolist()
    mask = mask_of(pa.array(numbers % 3 == 0)[cut])
    assert mask.dtype == np.bool_
    assert mask.tolist() == (numbers % 3 == 0)[cut].tolist()


def test_a_scalar() -> None:
    for item in (b"", b"a\xff"):
        assert binary_scalar(item).equals(pa.scalar(item, pa.binary()))


def test_the_size_of_a_slice_is_its_own() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(1000))], names=["n"])
    for updates in (batch, pa.Table.from_batches([batch])):
        assert is_larger(updates, 7_999)
        assert not is_larger(updates, 8_000)
        assert not is_larger(updates.slice(10, 100), 1_000)
        assert is_larger(updates.slice(10, 100), 700)


def test_where_a_column_is_true_and_not_null() -> None:
    column = pa.array([True, None, False, True, None, False, True, True, None, True])
    for part in (column, column.slice(1), column.slice(3, 2), column.slice(5, 3), column.slice(10)):
        assert where_true(part).tolist() == part.fill_null(False).to_pylist()
