"""Whatever is written, planned, run side by side and committed in any order: readers see what was written, plans never
disturb each other, and every database comes to rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Literal
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slate_async.engine.compaction.planner import plan, plan_full, plan_range
from slate_async.engine.compaction.spec import CompactionSpec, LogSst, PlannerConfig
from slate_async.storage.manifest.compaction_inputs import Inputs, replace_inputs
from slate_async.storage.manifest.state import Compaction, ManifestState, SstRef
from slate_async.storage.manifest.successor import check_successor

MIB = 1 << 20
ROW_BYTES = 16 * MIB
SST_ROWS = 4
KEYS = 20
NOW_MS = 1_000
CONFIG = PlannerConfig(
    l0_compact_ssts=3,
    sst_bytes=SST_ROWS * ROW_BYTES,
    min_merge_width=3,
    max_merge_width=6,
    level_base_bytes=8 * ROW_BYTES,
    level_size_multiplier=3,
    parallelism=2,
)
Row = tuple[bytes, int, bool]
"""Key, sequence number, whether it is a tombstone."""


class Model:
    """A database of SSTs whose rows are lists, and what was written to it."""

    def __init__(self, style: Literal["size_tiered", "leveled"], wal: bool) -> None:
        self.state = ManifestState(
            database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=wal, created_ms=0, compaction=style
        )
        self.log: list[LogSst] = []
        self.written: dict[bytes, Row] = {}
        self._rows: dict[bytes, list[Row]] = {}
        self._numbers = count(1)

    def flush(self, writes: dict[int, bool]) -> None:
        """An SST of rows at the top; true is a tombstone."""
        seq = max([self.state.last_seq, *(logged.ref.max_seq for logged in self.log)])
        rows = [(b"%02d" % key, seq + number, deleted) for number, (key, deleted) in enumerate(writes.items(), 1)]
        self.written.update({row[0]: row for row in rows})
        sst = self._sst(sorted(rows))
        if self.state.wal_enabled:
            self._change(replace(self.state, l0=(sst, *self.state.l0), last_seq=rows[-1][1]))
        else:
            self.log.insert(0, LogSst(next(self._numbers), sst))

    def begin(self, specs: Sequence[CompactionSpec]) -> None:
        """Register compactions; moves are done at once."""
        for spec in specs:
            number = next(self._numbers)
            registered = Compaction(
                id=UUID(int=number),
                epoch=1,
                base_version=1,
                expired_at_ms=NOW_MS,
                keep_above=self.state.last_seq,
                bottom=spec.bottom,
                l0=spec.l0,
                runs=spec.runs,
                ssts=spec.ssts,
                target_run=spec.target_run or self.state.last_run_id + 1,
                target_level=spec.target_level,
                log_end=spec.log_end,
            )
            state = replace(self.state, compactions=(*self.state.compactions, registered))
            self._change(replace(state, last_run_id=max(state.last_run_id, registered.target_run)))
            if spec.move:
                self._commit(registered, move=True)

    def finish(self, number: int) -> None:
        """Run and commit one of those under way."""
        self._commit(self.state.compactions[number % len(self.state.compactions)], move=False)

    def _commit(self, compaction: Compaction, *, move: bool) -> None:
        inputs = Inputs.of(compaction)
        found = inputs.find(self.state)
        assert found is not None, "an input was taken away"
        from_log = [
            logged for logged in self.log if compaction.log_end is not None and logged.position <= compaction.log_end
        ]
        sources = [*([logged.ref] for logged in from_log), *found]
        self.log = [logged for logged in self.log if logged not in from_log]
        outputs = [sst for source in sources for sst in source] if move else self._merged(sources, compaction.bottom)
        state = replace(
            self.state, compactions=tuple(running for running in self.state.compactions if running is not compaction)
        )
        state = replace_inputs(
            state, inputs, outputs, target_run=compaction.target_run, target_level=compaction.target_level
        )
        last_seq = max([state.last_seq, *(logged.ref.max_seq for logged in from_log)])
        self._change(replace(state, last_seq=last_seq))

    def _merged(self, sources: Sequence[Sequence[SstRef]], bottom: bool) -> list[SstRef]:
        rows = sorted(
            (row for source in sources for sst in source for row in self._rows[sst.object_id]),
            key=lambda row: (row[0], -row[1]),
        )
        newest = [next(versions) for _, versions in groupby(rows, lambda row: row[0])]
        kept = [row for row in newest if not (bottom and row[2])]
        return [self._sst(kept[low : low + SST_ROWS]) for low in range(0, len(kept), SST_ROWS)]

    def _sst(self, rows: list[Row]) -> SstRef:
        object_id = b"%d" % next(self._numbers)
        self._rows[object_id] = rows
        seqs = [seq for _, seq, _ in rows]
        return SstRef(
            location=f"sst/{object_id.decode()}",
            object_id=object_id,
            size=len(rows) * ROW_BYTES,
            rows=len(rows),
            tombstones=sum(deleted for _, _, deleted in rows),
            first_key=rows[0][0],
            last_key=rows[-1][0],
            min_seq=min(seqs),
            max_seq=max(seqs),
            writer_epoch=1,
        )

    def _change(self, state: ManifestState) -> None:
        check_successor(self.state, state)
        self.state = state

    def check(self) -> None:
        """A reader, which stops at the first source that knows a key, sees what was written last."""
        for key in (b"%02d" % number for number in range(KEYS)):
            found = self._newest(key)
            wanted = self.written.get(key)
            if wanted is None or wanted[2]:
                assert found is None or found[2], f"{key!r} is back: {found}"
            else:
                assert found == wanted

    def _newest(self, key: bytes) -> Row | None:
        sources = [[logged.ref] for logged in self.log] + [[sst] for sst in self.state.l0]
        for source in [*sources, *(run.ssts for run in self.state.runs)]:
            for sst in source:
                if sst.first_key <= key <= sst.last_key:
                    hit = next((row for row in self._rows[sst.object_id] if row[0] == key), None)
                    if hit is not None:
                        return hit
        return None

    def rest(self) -> None:
        """Compact until nothing is left to do."""
        for _ in range(500):
            while self.state.compactions:
                self.finish(0)
            specs = plan(self.state, NOW_MS, CONFIG, self.log)
            if not specs:
                return
            self.begin(specs)
        raise AssertionError("it never comes to rest")


WRITES = st.dictionaries(st.integers(0, KEYS - 1), st.booleans(), min_size=1, max_size=8)
NARROW = st.builds(
    lambda first, writes: {min(first + key % 4, KEYS - 1): deleted for key, deleted in writes.items()},
    st.integers(0, KEYS - 1),
    WRITES,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("flush"), WRITES | NARROW),
        st.tuples(st.just("flush"), WRITES | NARROW),
        st.tuples(st.just("plan"), st.none()),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("range"), st.tuples(st.integers(0, KEYS), st.integers(1, 5))),
        st.tuples(st.just("full"), st.none()),
        st.tuples(st.just("style"), st.sampled_from(["leveled", "size_tiered"])),
    ),
    min_size=20,
    max_size=60,
)


BESIDE_AN_OLD_RUN = [
    *[("flush", {0: False})] * 3,
    ("full", None),
    ("finish", 0),
    *[("flush", {1: False}), *[("flush", {0: False})] * 3],
    ("style", "leveled"),
    ("range", (1, 1)),
]
"""Of the top only key 1 is compacted, which a run that a size-tiered past has left does not have."""


@settings(max_examples=100, deadline=None)
@example(style="size_tiered", wal=True, steps=BESIDE_AN_OLD_RUN)
@given(style=st.sampled_from(["size_tiered", "leveled"]), wal=st.booleans(), steps=STEPS)
def test_readers_see_what_was_written(
    style: Literal["size_tiered", "leveled"], wal: bool, steps: list[tuple[str, object]]
) -> None:
    model = Model(style, wal)
    for step in steps:
        match step:
            case "flush", dict() as writes:
                model.flush(writes)
            case "plan", _:
                model.begin(plan(model.state, NOW_MS, CONFIG, model.log))
            case "finish", int() as number if model.state.compactions:
                model.finish(number)
            case "range", (int() as start, int() as width):
                ends = b"%02d" % start, b"%02d" % (start + width)
                model.begin(plan_range(model.state, *ends, NOW_MS, CONFIG, model.log))
            case "full", _:
                model.begin(plan_full(model.state, NOW_MS, CONFIG, model.log))
            case "style", ("leveled" | "size_tiered") as other:
                model.state = replace(model.state, compaction=other)
        if step[0] != "flush":
            model.check()
    model.rest()
    model.check()
    assert len(model.log) + len(model.state.l0) < CONFIG.l0_compact_ssts
    if model.state.compaction == "leveled":
        levels = [run.level for run in model.state.runs]
        assert levels == sorted(set(levels))
        assert 0 not in levels
