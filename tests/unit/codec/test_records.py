"""`slate_async.codec.records`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from metastores.protocol import VersionRef
from slate_async.codec.records import NO_FIELDS, Shape, no_fields


class Part(msgspec.Struct, frozen=True):
    name: str
    size: int | None = None
    unknown: Mapping[str, Any] = NO_FIELDS


@dataclass(frozen=True)
class Whole:
    id: UUID
    ref: VersionRef | None = None
    parts: tuple[Part, ...] = ()
    labels: Mapping[str, str] = field(default_factory=no_fields)
    kept_elsewhere: int = 0
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


SHAPE = Shape[Whole](Whole, besides=("kept_elsewhere",))
WHOLE = Whole(UUID(int=7), VersionRef(3, "f" * 32), (Part("a", 1), Part("b")), MappingProxyType({"k": "v"}))


def test_a_value_comes_back_through_messagepack() -> None:
    packed = SHAPE.pack(WHOLE)
    assert packed == {
        "id": UUID(int=7).bytes,
        "ref": [3, "f" * 32],
        "parts": [{"name": "a", "size": 1}, {"name": "b"}],
        "labels": {"k": "v"},
    }
    assert SHAPE.unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(packed))) == WHOLE
    assert SHAPE.unpack(SHAPE.pack(Whole(UUID(int=1)))) == Whole(UUID(int=1))


def test_fields_of_a_newer_release_are_kept_and_written_again() -> None:
    packed = {**SHAPE.pack(WHOLE), "colour": "red", "parts": [{"name": "a", "weight": 2}]}
    value = SHAPE.unpack(packed)
    assert value.unknown == {"colour": "red"}
    assert value.parts[0].unknown == {"weight": 2}
    assert SHAPE.pack(value) == packed
    with pytest.raises(TypeError):
        value.unknown["colour"] = "blue"  # type: ignore[index]


def test_one_field_alone() -> None:
    assert SHAPE.pack_field("ref", WHOLE.ref) == [3, "f" * 32]
    assert SHAPE.unpack_field("ref", [3, "f" * 32]) == WHOLE.ref
    assert SHAPE.pack_field("ref", None) is SHAPE.unpack_field("ref", None) is None


@pytest.mark.parametrize("damage", [{"id": b"short"}, {"parts": [{"size": 1}]}, {"parts": 3}, {"id": None, "ref": 1}])
def test_a_wrong_shape_raises(damage: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
        SHAPE.unpack({**SHAPE.pack(WHOLE), **damage})
