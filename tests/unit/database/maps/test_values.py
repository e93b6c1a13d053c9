"""What a put acknowledges can be read as an equal value; all else is refused, and nothing is applied."""

from __future__ import annotations

import math
from collections import UserString
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

import slate_async as slate
from tests.engine import contents, memory_store, open_db


class Base(BaseModel):
    a: int


class Derived(Base):
    secret: int = 2


class Aliased(BaseModel):
    name: str = Field(alias="n")
    other: int = Field(validation_alias="read", serialization_alias="written")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class Parsed(BaseModel):
    x: Json[dict[str, int]]


class Hidden(BaseModel):
    a: int = Field(default=0, exclude=True)


class Number(BaseModel):
    x: float | None


class Constants(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    x: float


class Typed(TypedDict):
    a: int


@dataclass
class Data:
    a: int


@dataclass(eq=False)
class Same:
    a: int


@pydantic_dataclass
class Checked:
    a: int


class Struct(msgspec.Struct):
    a: int
    f: float | None = 0.0


class Pair(NamedTuple):
    one: int
    two: str


class Other(msgspec.Struct):
    model: Base


@dataclass
class Holder:
    model: Base


def changed() -> Base:
    base = Base(a=1)
    base.a = "cheap"  # type: ignore[assignment]
    return base


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


GOOD: list[tuple[Any, Any]] = [
    (Aliased, Aliased(n="x", read=7)),  # type: ignore[call-arg]
    (Computed, Computed(a=1)),
    (Parsed, Parsed(x='{"a":1}')),
    (Hidden, Hidden()),
    (Number, Number(x=None)),
    (Typed, {"a": 1}),
    (Any, {"a": 1}),
    (Base | None, Base(a=1)),
    (Base | None, None),
    (list[Base], [Base(a=1)]),
    (Base | Number, Number(x=1.5)),
    (dict[str, Base], {"a": Base(a=1)}),
    (Holder, Holder(Base(a=1))),
    (Checked, Checked(1)),
    (list[Checked], [Checked(1)]),
    (Pair, Pair(1, "a")),
    (dict[str, object], {"a": [1]}),
    (float, 1),
    (int, 2**70),
]


@pytest.mark.parametrize(("kind", "value"), GOOD)
async def test_what_comes_back_is_equal(kind: Any, value: Any) -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=str, value=kind)
        await found.put("k", value)
        assert await found.get("k") == value
        assert (await found.page()).items == [("k", value)]
        assert await found.update("k", lambda now: now) == value


async def test_parts_are_compared_where_there_is_nothing_else() -> None:
    async with open_db(memory_store()) as db:
        found = db.map("s", key=int, value=list[Same])
        await found.put(1, [Same(7)])
        assert [same.a for same in await found.get(1) or []] == [7]
        numbers = db.map("n", key=int, value=Constants)
        await numbers.put(1, Constants(x=math.nan))
        number = await numbers.get(1)
        assert number is not None
        assert math.isnan(number.x)


BAD: list[tuple[Any, Any]] = [
    (Base, Derived(a=1)),
    (list[Base], [Derived(a=1)]),
    (Base, changed()),
    (Base, Base.model_construct(a="x")),
    (Base, {"a": 1}),
    (Base | Computed, Computed(a=1)),
    (Hidden, Hidden(a=1)),
    (Number, Number(x=math.nan)),
    (Number, Number(x=math.inf)),
    (Struct, Struct(1, math.nan)),
    (Struct, Struct("x")),  # type: ignore[arg-type]
    (Data, Data("x")),  # type: ignore[arg-type]
    (list[Data], [Data("x")]),  # type: ignore[arg-type]
    (Same, Same("x")),  # type: ignore[arg-type]
    (Typed, {"a": "x"}),
    (Typed, Data(1)),
    (int, True),
    (float, math.nan),
    (float | None, math.inf),
    (object, {1: 2}),
    (dict, {1: 2}),
    (object, (1, 2)),
    (Any, UserString("a")),
    (object, deep()),
]


@pytest.mark.parametrize(("kind", "value"), BAD, ids=range(len(BAD)))
async def test_what_would_come_back_changed_is_refused(kind: Any, value: Any) -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=int, value=kind)
        batch, tx = slate.WriteBatch(), db.transaction()
        async with tx:
            for call in (
                lambda: found.put(1, value),
                lambda: found.update(1, lambda _: value),
                lambda: found.within(tx).put(1, value),
            ):
                with pytest.raises(slate.InvalidError, match="cannot store the value") as caught:
                    await call()
                assert caught.value.outcome == "not_applied"
        with pytest.raises(slate.InvalidError, match="cannot store the value"):
            found.within(batch).put(1, value)
        assert await contents(db) == {}


@pytest.mark.parametrize("kind", [Other, UserString, list[UserString], Iterator[int], 7, dict[str, "Unknown"]])  # type: ignore[name-defined] # noqa: F821
async def test_types_without_a_way_back_are_refused_at_once(kind: Any) -> None:
    async with open_db(memory_store()) as db:
        with pytest.raises(slate.InvalidError, match="values of a map cannot be"):
            db.map("m", key=int, value=kind)


async def test_an_index_has_what_will_be_read() -> None:
    """An integer in a field of floats is read as a float, which is another part of a key."""
    async with open_db(memory_store()) as db:
        found = db.map("m", key=int, value=Struct, indexes=[slate.Index("f")])
        await found.put(1, Struct(1, 7))
        await found.update(2, lambda _: Struct(2, 8))
        async with db.transaction() as tx:
            await found.within(tx).put(3, Struct(3, 9))
        batch = slate.WriteBatch()
        found.within(batch).put(4, Struct(4, 10))
        await db.write(batch)
        assert [key for key, _ in (await found.by("f").page()).items] == [1, 2, 3, 4]
        for key in range(1, 5):
            await found.delete(key)
        assert len(await contents(db)) == 1  # the catalogue: no entry is left behind
