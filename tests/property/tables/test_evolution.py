"""Any sequence of allowed changes of columns, with rows appended in between: each row is read as the changes say, and
each version still has the columns that it had."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables import created, opened, store_in_hand

WIDER = {pa.int8(): pa.int16(), pa.int16(): pa.int32(), pa.int32(): pa.int64()}
Rows = list[dict[str, Any]]


class Model:
    """Columns by name, in order, and all rows as they are read now."""

    def __init__(self) -> None:
        self.kinds: dict[str, pa.DataType] = {"a": pa.int8(), "b": pa.string()}
        self.rows: Rows = []
        self.versions: dict[int, tuple[list[str], Rows]] = {}
        self.named = 0

    def note(self, version: int) -> None:
        """What the table is at ``version``."""
        self.versions[version] = (list(self.kinds), [dict(row) for row in self.rows])

    def changes(self, data: st.DataObject) -> dict[str, Any]:
        """A change that is allowed, made here, too."""
        kind = data.draw(st.sampled_from(["add", "default", "drop", "rename", "widen", "reorder"]))
        names = list(self.kinds)
        name = data.draw(st.sampled_from(names))
        if kind == "drop" and len(names) > 1:
            del self.kinds[name]
            self.rows = [{key: value for key, value in row.items() if key != name} for row in self.rows]
            return {"drop": [name]}
        if kind == "rename":
            new = self._new_name()
            self.kinds = {new if key == name else key: found for key, found in self.kinds.items()}
            self.rows = [{new if key == name else key: value for key, value in row.items()} for row in self.rows]
            return {"rename": {name: new}}
        if kind == "widen" and self.kinds[name] in WIDER:
            self.kinds[name] = WIDER[self.kinds[name]]
            return {"widen": {name: self.kinds[name]}}
        if kind == "reorder":
            order = data.draw(st.permutations(names))
            self.kinds = {key: self.kinds[key] for key in order}
            return {"reorder": order}
        new = data.draw(st.sampled_from(["a", "b"])) if kind == "default" else self._new_name()
        new = self._new_name() if new in self.kinds else new  # a name that was dropped is another column
        default = 7 if kind == "default" else None
        self.kinds[new] = pa.int8()
        self.rows = [{**row, new: default} for row in self.rows]
        return {"add": {new: pa.int8()}, **({} if default is None else {"defaults": {new: default}})}

    def _new_name(self) -> str:
        self.named += 1
        return f"c{self.named}"


@pytest.mark.timeout(600)
@settings(max_examples=20)
@given(st.data())
def test_rows_are_read_as_the_changes_say(data: st.DataObject) -> None:
    async def run() -> None:
        model = Model()
        async with opened(store_in_hand()) as catalog:
            table = await created(catalog, schema=pa.schema(list(model.kinds.items())))
            model.note(1)
            for _ in range(data.draw(st.integers(1, 8), "steps")):
                if data.draw(st.booleans(), "append"):
                    row = {name: "x" if kind == pa.string() else 3 for name, kind in model.kinds.items()}
                    await table.append(pa.Table.from_pylist([row], schema=pa.schema(list(model.kinds.items()))))
                    model.rows.append(row)
                else:
                    await table.alter(**model.changes(data))
                model.note(await table.version())
            for version, (names, rows) in model.versions.items():
                async with table.snapshot(version=version) as snapshot:
                    found = await snapshot.scan().read()
                assert (found.column_names, found.to_pylist()) == (names, [{n: row[n] for n in names} for row in rows])

    asyncio.run(run())
