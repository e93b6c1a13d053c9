"""Reads the drawings of planner cases.

A case::

    == four SSTs in L0 become a run
    L0   A64 B64 C64 D64
    run  E256
    busy E
    -----
    A B C D -> run

Above the line is the database, newest first: ``log`` (objects without a WAL), ``L0``, then runs of level 0 (``run``)
and of levels (``L1``...). ``A64[c-k]t50x`` is SST ``A`` of 64 MiB with keys ``c`` to ``k`` (else ``a`` to ``z``),
50 % tombstones, and a row that has expired (``y``: one that expires later). SSTs of L0 in brackets, ``(A64 B64)``, are
one ingest's. ``busy E F -> L1`` is a compaction under
way. ``config`` changes what planners decide by, ``style`` is ``leveled`` or ``size_tiered`` (the default),
``retention`` keeps all of that history, ``call`` plans by hand.

Below the line are the expected compactions in order: inputs, newest first, then what they become: ``run`` (a new one),
``L1``, ``E`` (joining the run of E), and, where it holds, ``bottom`` and ``move``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from msgspec import structs

from slate_async.engine.compaction.spec import CompactionSpec, LogSst, PlannerConfig
from slate_async.storage.manifest.state import Compaction, ManifestState, SortedRun, SstRef

MIB = 1 << 20
NOW_MS = 1_000_000
LAST_SEQ = 1_000_000
ROWS = 100

_SST = re.compile(r"([A-Z]+)(\d+(?:\.\d+)?)(?:\[(\w+)-(\w+)\])?(?:t(\d+))?([xy]?)")


@dataclass(frozen=True)
class Case:
    """One drawing."""

    name: str
    state: ManifestState
    log: tuple[LogSst, ...]
    config: PlannerConfig
    call: str
    expected: list[str]


def read_cases(path: Path) -> list[Case]:
    """All drawings of a file."""
    _, *blocks = path.read_text().split("\n== ")
    return [_read_case(block) for block in blocks]


def _read_case(text: str) -> Case:
    name, *lines = [line.split("#")[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    at = next(index for index, line in enumerate(lines) if not line.strip("-"))
    drawing = _Drawing(lines[:at])
    return Case(name, drawing.state(), drawing.log(), drawing.config(), drawing.call, lines[at + 1 :])


class _Drawing:
    def __init__(self, lines: list[str]) -> None:
        self.call = "plan"
        self._words: dict[str, list[str]] = {}
        self._runs: list[tuple[int, list[str]]] = []
        self._busy: list[str] = []
        self._seq = LAST_SEQ
        for line in lines:
            word, *rest = line.split()
            if word == "run" or re.fullmatch(r"L[1-9]", word):
                self._runs.append((0 if word == "run" else int(word[1:]), rest))
            elif word == "busy":
                self._busy.append(" ".join(rest))
            elif word == "call":
                self.call = " ".join(rest)
            else:
                self._words[word] = rest
        self._log = [LogSst(100 - index, self._sst(drawn)) for index, drawn in enumerate(self._words.get("log", []))]
        self._l0 = tuple(self._ingested(self._words.get("L0", [])))

    def log(self) -> tuple[LogSst, ...]:
        return tuple(self._log)

    def config(self) -> PlannerConfig:
        changes = dict(word.split("=") for word in self._words.get("config", []))
        scaled = {name: int(value) * (MIB if name.endswith("bytes") else 1) for name, value in changes.items()}
        return replace(PlannerConfig(sst_bytes=64 * MIB, level_base_bytes=256 * MIB), **scaled)

    def state(self) -> ManifestState:
        runs = tuple(
            SortedRun(len(self._runs) - index, tuple(self._sst(sst) for sst in ssts), level)
            for index, (level, ssts) in enumerate(self._runs)
        )
        state = ManifestState(
            database_id=UUID(int=1),
            log_protocol="contiguous",
            wal_enabled="log" not in self._words,
            created_ms=0,
            last_seq=LAST_SEQ,
            last_run_id=len(runs),
            l0=self._l0,
            runs=runs,
            retention_ms=10 * NOW_MS if "retention" in self._words else 0,
            compaction="leveled" if self._words.get("style") == ["leveled"] else "size_tiered",
        )
        return replace(state, compactions=tuple(self._compaction(state, busy) for busy in self._busy))

    def _ingested(self, words: list[str]) -> Iterator[SstRef]:
        """SSTs of L0; those between brackets are one ingest's."""
        seq: int | None = None
        for word in words:
            sst = self._sst(word.strip("()"))
            seq = sst.max_seq if word.startswith("(") else seq
            yield sst if seq is None else structs.replace(sst, global_seq=seq)
            seq = None if word.endswith(")") else seq

    def _sst(self, text: str) -> SstRef:
        match = _SST.fullmatch(text)
        assert match is not None, f"not an SST: {text}"
        name, size, first, last, tombstones, expiry = match.groups()
        expire_ms = {"": None, "x": NOW_MS - 1, "y": NOW_MS + 1}[expiry]
        self._seq -= ROWS
        return SstRef(
            location=f"sst/{name}",
            object_id=name.encode(),
            size=int(float(size) * MIB),
            rows=ROWS,
            tombstones=int(tombstones or 0),
            first_key=(first or "a").encode(),
            last_key=(last or "z").encode(),
            min_seq=self._seq + 1,
            max_seq=self._seq + ROWS,
            writer_epoch=1,
            min_expire_ms=expire_ms,
            max_expire_ms=expire_ms,
        )

    def _compaction(self, state: ManifestState, text: str) -> Compaction:
        inputs, _, target = (part.strip() for part in text.partition("->"))
        names = [name.encode() for name in inputs.split()]
        l0 = tuple(sst.object_id for sst in state.l0 if sst.object_id in names)
        positions = [logged.position for logged in self._log if logged.ref.object_id in names]
        runs = [run for run in state.runs if any(sst.object_id in names for sst in run.ssts)]
        return Compaction(
            id=UUID(bytes=inputs.encode().ljust(16)[:16]),
            epoch=1,
            base_version=1,
            expired_at_ms=0,
            keep_above=0,
            bottom=False,
            l0=l0,
            runs=tuple(run.id for run in runs),
            ssts=tuple(sst.object_id for run in runs for sst in run.ssts if sst.object_id in names),
            target_run=1000,
            target_level=int(target[1:]) if target.startswith("L") else 0,
            log_end=max(positions, default=None),
        )


def draw(state: ManifestState, log: Iterable[LogSst], specs: Iterable[CompactionSpec]) -> list[str]:
    """``specs`` as a drawing writes them."""
    return [" ".join(_words(state, list(log), spec)) for spec in specs]


def _words(state: ManifestState, log: list[LogSst], spec: CompactionSpec) -> Iterator[str]:
    yield from (
        logged.ref.object_id.decode() for logged in log if spec.log_end is not None and logged.position <= spec.log_end
    )
    yield from (name.decode() for name in spec.l0)
    for run in state.runs:
        if run.id in spec.runs:
            yield from (s.object_id.decode() for s in run.ssts if spec.ssts is None or s.object_id in spec.ssts)
    yield "->"
    target = next((run for run in state.runs if run.id == spec.target_run), None)
    if spec.target_level:
        yield f"L{spec.target_level}"
    else:
        yield "run" if target is None else target.ssts[0].object_id.decode()
    if spec.bottom:
        yield "bottom"
    if spec.move:
        yield "move"
