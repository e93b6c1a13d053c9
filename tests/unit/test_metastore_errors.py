"""Errors of metastores as errors of the engine."""

from __future__ import annotations

import pytest

from metastores.object_store_errors import reading
from slate_async.errors import CorruptionError
from slate_async.metastore_errors import translating


def test_damage_in_an_object_is_named_once_with_its_offset() -> None:
    with pytest.raises(CorruptionError) as raised, translating(), reading("the manifest"):
        raise CorruptionError("the trailer is damaged", object_name="manifest/4", offset=42)
    assert str(raised.value) == "manifest/4 at byte 42: the trailer is damaged"
    assert (raised.value.object_name, raised.value.offset) == ("manifest/4", 42)
    assert str(raised.value.__cause__) == "manifest/4: at byte 42: the trailer is damaged"
