"""The engines under comparison, behind one face."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from tests.benchmarks.engines.limits import Dict, Lmdb
from tests.benchmarks.engines.ours import SlateAsync, Still, Uncompacted, Uncompressed
from tests.benchmarks.engines.protocol import E
from tests.benchmarks.engines.rocks import Rocks, RocksNoWal, RocksTuned
from tests.benchmarks.engines.single import OneRocks, OneSlateAsync, OneSlateDB, with_cache
from tests.benchmarks.engines.slatedb import PromptSlateDB, SlateDB, StillSlateDB
from tests.benchmarks.rounds import Turn

__all__ = [
    "Dict",
    "Lmdb",
    "OneRocks",
    "OneSlateAsync",
    "OneSlateDB",
    "PromptSlateDB",
    "Rocks",
    "RocksNoWal",
    "RocksTuned",
    "SlateAsync",
    "SlateDB",
    "Still",
    "StillSlateDB",
    "Uncompacted",
    "Uncompressed",
    "installed",
    "missing_peers",
    "taking_turns",
    "with_cache",
]
PEERS = ("slatedb", "rocksdict", "lmdb", "deltalake", "pyiceberg")


def missing_peers() -> list[str]:
    """Packages of peers that are not installed."""
    return [name for name in PEERS if find_spec(name) is None]


def installed(module: str) -> bool:
    """Whether a peer, or this package, can be measured."""
    return module not in missing_peers()


def taking_turns(turn: Turn, *kinds: type[E]) -> Sequence[type[E]]:
    """Those of ``kinds`` that are installed and asked for, in this round's order."""
    absent = missing_peers()
    return turn.in_order([kind for kind in kinds if kind.module not in absent and turn.plan.takes(kind.name)])
