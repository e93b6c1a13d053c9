"""As `tests.property.test_ingests`, with range deletes among everything else, alone and in batches, and readers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

import slate_async as slate
from slate_async.types import Row
from tests.engine import CONTIGUOUS, EPOCHS, Kind, on, runtime
from tests.property.machines import run_machine
from tests.property.test_database import BOUNDS, KEYS, PREFIXES, TTLS, VALUES, View, Write
from tests.property.test_ingests import IngestMachine

RANGES = st.tuples(BOUNDS, BOUNDS).filter(lambda pair: pair[1] is None or (pair[0] or b"\0") < pair[1])
STEPS = st.tuples(KEYS, st.none() | VALUES, TTLS) | st.tuples(st.just("range"), RANGES)


class RangeDeleteMachine(IngestMachine):
    """See the module docstring. In the list of writes a range delete is a delete of each key of its range, all of them
    with its number."""

    @rule(bounds=RANGES, durable=st.booleans())
    def delete_range(self, bounds: tuple[bytes | None, bytes | None], durable: bool) -> None:
        self.wrote_steps(self.run(self.db.delete_range(*bounds, await_durable=durable)), [("range", bounds)], durable)

    @rule(prefix=PREFIXES, durable=st.booleans())
    def delete_prefix(self, prefix: bytes | None, durable: bool) -> None:
        own = prefix or b""
        handle = self.run(self.db.delete_prefix(own, await_durable=durable))
        end = own[:-1] + bytes([own[-1] + 1]) if own and own[-1] < 255 else None
        self.wrote_steps(handle, [("range", (own, end))], durable)

    @rule(steps=st.lists(STEPS, min_size=1, max_size=7), durable=st.booleans())
    def batch_with_ranges(self, steps: list[Any], durable: bool) -> None:
        batch = slate.WriteBatch()
        for step in steps:
            if step[0] == "range":
                batch.delete_range(*step[1])
            elif step[1] is None:
                batch.delete(step[0])
            else:
                batch.put(step[0], step[1], ttl=None if step[2] is None else step[2] / 1000)
        self.wrote_steps(self.run(self.db.write(batch, await_durable=durable)), steps, durable)

    def wrote_steps(self, handle: slate.WriteHandle, steps: list[Any], durable: bool) -> None:
        """As `wrote`, which then gets a row for each key that a range delete deletes."""
        first = handle.seq - len(steps) + 1
        self.catch_up(first)
        plain = [(b"\0", None, None) if step[0] == "range" else step for step in steps]
        at = len(self.writes)
        self.wrote(handle, plain, durable)
        made, self.writes = self.writes[at:], self.writes[:at]
        for step, write in zip(steps, made, strict=True):
            if step[0] != "range":
                self.writes.append(write)
                continue
            start, end = step[1]
            keys = {known.key for known in self.writes} | {start or b"\0"}
            hidden = [key for key in sorted(keys) if (start or b"") <= key and (end is None or key < end)]
            self.writes += [Write(key, None, write.seq, write.create_ms, None, write.last_of_batch) for key in hidden]

    @rule()
    def a_reader_looks(self) -> None:
        """A reader of its own, which has to find what is durable."""

        async def rows() -> tuple[int, list[Row], list[Row]]:
            environment = on(runtime(self.clock))
            async with environment.open_reader(self.store, name="memory://test") as reader:
                forwards = [row async for row in reader.scan().rows()]
                backwards = [row async for row in reader.scan(reverse=True).rows()]
                return reader.status().last_seq, forwards, backwards[::-1]

        self.flush(l0=False)
        view = self.current()
        seq, forwards, backwards = self.run(rows())
        assert seq == view.max_seq
        assert forwards == backwards == list(view.rows().values())

    @rule(back=st.integers(0, 12), key=KEYS)
    def look_back(self, back: int, key: bytes) -> None:
        """As of an earlier number: exactly as it was, or refused."""
        view = self.current()
        view.max_seq = max(0, view.max_seq - back)
        try:
            snapshot = self.run(self.as_of(view.max_seq))
        except slate.NotFoundError:
            return
        rows = View(view.writes, view.max_seq, view.now_ms).rows()
        lasting = {key: row for key, row in rows.items() if row.expire_time is None}
        found = self.run(self.rows_of(snapshot))
        assert {row.key: row for row in found if row.expire_time is None} == lasting
        if key in lasting:
            assert self.run(snapshot.get(key)) == lasting[key].value
        snapshot.close()

    async def as_of(self, seq: int) -> slate.Snapshot:
        return self.db.as_of(seq=seq)

    async def rows_of(self, snapshot: slate.Snapshot) -> list[Row]:
        return [row async for row in snapshot.scan().rows()]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
def test_a_database_with_range_deletes_agrees_with_its_list_of_writes(kind: Kind, full: bool, slice_seed: int) -> None:
    run_machine(RangeDeleteMachine, kind, slice_seed, examples=1000 if full else 30, steps=60)
