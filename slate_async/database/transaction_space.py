"""`TransactionSpace`: what all transactions of one open database share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

from slate_async.database.plain_writes import PlainWritesByMap
from slate_async.engine.transactions.turns import Gate, KeyTurns
from slate_async.engine.write.reads import WriterReads
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Runtime
from slate_async.types import RowLimits

_alone: ContextVar[frozenset[object]] = ContextVar("slate_async_runs_alone", default=frozenset())
_held: ContextVar[frozenset[object]] = ContextVar("slate_async_turns_held", default=frozenset())


class TransactionSpace:
    """See the module docstring.

    guard, check: whether the database is open and called from its own loop; raise unless it is
    reads: whose ``writer`` is the current one
    default_life_ms: of rows that are put without a time to live, ``None`` for ever
    turns: of those that change the same keys; gate: shut while one runs alone
    plain_writes: of maps that have no index
    """

    def __init__(
        self,
        reads: WriterReads,
        guard: LoopGuard,
        limits: RowLimits,
        runtime: Runtime,
        default_life_ms: int | None = None,
    ) -> None:
        self.reads = reads
        self.guard, self.check = guard, guard.check
        self.limits = limits
        self.max_key_bytes, self.max_value_bytes = limits  # faster to read than of a named tuple
        self.default_life_ms = default_life_ms
        self.runtime = runtime
        self.yield_budget = reads.yield_budget
        self.turns = KeyTurns(reads.writer.transactions.lifetime_s)
        self.gate = Gate()
        self.plain_writes = PlainWritesByMap()
        self._itself = frozenset[object]((self,))

    @property
    def shut_out(self) -> bool:
        """Whether the caller has to wait until somebody else no longer runs alone."""
        return self.gate.shut and self not in _alone.get()

    @property
    def takes_turns(self) -> bool:
        """Whether the caller waits for turns: not inside of what holds some already, which might wait for itself."""
        return self not in _held.get()

    def hold(self) -> Token[frozenset[object]]:
        """From here on the caller takes no turns: it holds some, or may. Until `release`."""
        held = _held.get()
        return _held.set(held | self._itself if held else self._itself)

    def release(self, token: Token[frozenset[object]]) -> None:
        """See `hold`."""
        _held.reset(token)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The caller runs alone for the block."""
        token = _alone.set(_alone.get() | self._itself)
        try:
            yield
        finally:
            _alone.reset(token)
