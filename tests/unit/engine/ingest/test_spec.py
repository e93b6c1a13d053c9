"""The specs that tasks get, and the results they report, survive the way."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from uuid import UUID

import pytest

from slate_async.engine.ingest.spec import IngestedSst, IngestSpec, references
from slate_async.errors import InvalidError
from slate_async.storage.sst.names import sst_key

SPEC = IngestSpec("job", UUID(int=7), 12, 3, 1_750_000_000_000, 64 << 20, 64 << 10, "zstd", 10)


def sst(number: int, key: bytes, base: int = 12) -> IngestedSst:
    object_id = number.to_bytes(16, "big")
    return IngestedSst(sst_key(base, object_id), object_id, 1000, 10, 2, key, key + b"\xff", 1, 10, 3, 5, None, "one")


def test_both_survive_json_and_pickle() -> None:
    for stored in (SPEC, sst(1, b"\0\xff")):
        assert type(stored).from_json(stored.to_json()) == stored
        assert type(stored).from_json(stored.to_json().encode()) == stored
        assert pickle.loads(pickle.dumps(stored)) == stored


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({**json.loads(SPEC.to_json()), "database_id": "?"}),
        SPEC.to_json()[:-1] + ',"more":1}',
    ],
)
def test_what_is_no_specification_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        IngestSpec.from_json(text)


def test_an_sst_that_is_no_hexadecimal_is_refused() -> None:
    with pytest.raises(InvalidError, match="cannot be read"):
        IngestedSst.from_json(sst(1, b"a").to_json().replace("61", "xx", 1))


def test_references_are_in_key_order_and_each_counts_once() -> None:
    told = [sst(2, b"m"), sst(1, b"a"), sst(2, b"m")]
    refs = references(SPEC, told)
    assert [ref.first_key for ref in refs] == [b"a", b"m"]
    assert all(
        getattr(refs[0], name) == value for name, value in asdict(told[1]).items() if name not in ("part", "digest")
    )


@pytest.mark.parametrize(
    "foreign",
    [sst(1, b"a", base=11), replace(sst(1, b"a"), location="sst/x"), replace(sst(1, b"a"), object_id=b"?" * 16)],
)
def test_another_jobs_sst_is_refused(foreign: IngestedSst) -> None:
    with pytest.raises(InvalidError, match="not made by a task"):
        references(SPEC, [foreign])
