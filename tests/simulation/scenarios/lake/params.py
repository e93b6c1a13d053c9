"""What one seed of a collection runs: what kind it is, who uses it, and how much goes wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.times import TimeKind

SKEW_MS = 60_000
"""How wrong clocks are."""
Metastore = Literal["put-if-absent", "if-match", "server", "dynamodb"]


@dataclass(frozen=True, slots=True)
class LakeParams:
    """What is drawn.

    edge: times are below it, in each coordinate
    page_keys: keys in one answer of a listing
    names, copies: writers, and processes of each name; ``lives``: how often each kind of process is started
    readers, listeners, pinners, controllers, verifiers: processes of each kind; pinners have one critical hold together
    faults: how often requests go wrong, in relation to `tests.simulation.faults.FaultPlan`
    lands: of what was on its way when a process crashed
    crashes, freezes: how probable each is in the life of a process
    lease_ms: of read handles; ``poll_ms``: between their looks
    parallelism: appends of a writer that are in flight at once
    part_bytes: of a large batch; 0: no batch is large
    closed: how probable it is that an append closes the collection
    sessions: how long handles of readers are used: ``short`` or ``any``
    lateness: seconds that an effect comes after its failure, at most
    pace: seconds between two appends of a writer, at most
    near: every so manieth process that reads is handed over what writers put, as if they were in it; 0: none
    lenders, workers: processes that plan reads, and processes that do them under the hold of the planner
    """

    appends: Appends
    kind: TimeKind
    metastore: Metastore
    edge: int
    page_keys: int
    names: int
    copies: int
    readers: int
    controllers: int
    active_seconds: float
    faults: float
    crashes: float
    freezes: float
    lives: int
    lease_ms: int
    poll_ms: int
    parallelism: int
    part_bytes: int
    closed: float
    sessions: str
    lateness: float
    pace: float
    listeners: int
    pinners: int
    verifiers: int
    near: int = 0
    lenders: int = 0
    workers: int = 0


def draw(rng: random.Random, fixed: Mapping[str, Any]) -> LakeParams:
    """Everything by chance but what is ``fixed``."""
    kind = rng.choice((TimeKind.U64, TimeKind.U64, TimeKind.U64X2))
    drawn = LakeParams(
        appends=rng.choice((Appends.DEFINITE, Appends.COMPARE)),
        kind=kind,
        metastore=rng.choice(("put-if-absent", "if-match", "server", "server", "dynamodb")),
        edge=40 if kind is TimeKind.U64 else 7,
        page_keys=rng.choice((4, 1000, 1000)),
        names=rng.choice((1, 2)),
        copies=rng.choice((1, 2)),
        listeners=rng.choice((0, 1)),
        pinners=rng.choice((0, 0, 1)),
        readers=rng.choice((1, 1, 2)),
        controllers=rng.choice((1, 2, 2)),
        active_seconds=rng.choice((2.0, 4.0)),
        faults=rng.choice((0.1, 0.4, 1.0)),
        crashes=rng.choice((0.0, 0.2, 0.5)),
        freezes=rng.choice((0.0, 0.2, 0.5)),
        lives=4,
        lease_ms=rng.choice((100, 200, 500)),
        poll_ms=rng.choice((20, 40)),
        parallelism=rng.choice((1, 2, 4)),
        part_bytes=0,
        closed=rng.choice((0.0, 0.01)),
        sessions=rng.choice(("short", "any")),
        lateness=rng.choice((0.5, 2.0, 10.0)),
        pace=rng.choice((0.05, 0.2)),
        verifiers=rng.choice((0, 0, 1)),
    )
    return replace(drawn, **fixed)
