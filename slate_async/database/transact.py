"""`Transact`: functions run as transactions until they commit, updates of one key, and conditional writes.

All three are transactions. What takes no waiting is done in one step without one: the row is looked up, judged and
written before anybody else can write.

Rule 32: docs/design/protocol-rules.md
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from inspect import isawaitable, iscoroutine
from typing import TypeAlias, TypeVar, cast

from slate_async.arguments import BytesLike, key_bytes, value_bytes
from slate_async.database.transaction import Isolation, Transaction
from slate_async.database.transaction_operands import take_rows
from slate_async.database.transaction_space import TransactionSpace
from slate_async.engine.read.live import live_value
from slate_async.engine.transactions.condition import Condition
from slate_async.engine.write.batch import BatchRows, BatchStep
from slate_async.engine.write.commit_group import CommitGroup, NoRowsHandle, WriteHandle, handle_of
from slate_async.engine.write.errors import raise_not_applied
from slate_async.engine.write.open_transactions import TransactionStats, shown_key
from slate_async.errors import ConflictError, InvalidError, SlateError
from slate_async.types import DELETE, MAX_SEQ, NEEDS_IO, PUT, RowHit

T = TypeVar("T")
MakeTransaction: TypeAlias = Callable[[TransactionSpace, bool, bool, bool], Transaction]
"""As `Transaction` is made."""

RETRIES = 32
"""How often `Db.transact` runs a function again, unless the call says."""

ALONE_AFTER = 5
"""After so many conflicts a function runs alone."""

FIRST_PAUSE_S = 0.001
MOST_PAUSE_S = 0.05
"""Between two attempts passes a random part of a pause that doubles."""

ATTEMPTS = 100
"""So often an update or a conditional write begins anew when other writes come between its read and its write."""

BROKEN = {
    "present": "is there already",
    "absent": "is not there",
    "changed": "is not as the condition has it",
}


class UpdateHandle(WriteHandle):
    """What an update returns."""

    __slots__ = ("value",)

    value: bytes | None
    """What the key has now; ``None``: the update deleted it, or left it absent."""

    @classmethod
    def of(cls, handle: WriteHandle, value: bytes | None) -> UpdateHandle:
        """The handle of an update that was applied as ``handle`` says."""
        kind = _NothingUpdated if isinstance(handle, NoRowsHandle) else UpdateHandle
        made = handle_of(handle.seq, handle._create_ms, handle._group, kind)
        assert isinstance(made, UpdateHandle)
        made.value = value
        return made

    def __repr__(self) -> str:
        return f"<UpdateHandle seq={self.seq}{' durable' if self.is_durable else ''}>"


class _NothingUpdated(UpdateHandle, NoRowsHandle):
    __slots__ = ()


class Transact:
    """See the module docstring. ``space``: what its transactions share."""

    def __init__(self, space: TransactionSpace) -> None:
        self.space = space

    def begin(
        self,
        isolation: Isolation,
        await_durable: bool,
        make: MakeTransaction = Transaction,
        *,
        waiting: bool = False,
    ) -> Transaction:
        """A new transaction; ``waiting``: it begins with its first read, maybe after a wait for the turn of the key.
        Raises `InvalidError` for wrong arguments."""
        if isolation != "serializable" and isolation != "snapshot":
            raise InvalidError(f"isolation is 'serializable' or 'snapshot', not {isolation!r}", outcome="not_applied")
        self.space.check("not_applied")
        return make(self.space, isolation == "serializable", await_durable, waiting)

    async def transact(
        self,
        function: Callable[[Transaction], Awaitable[T]],
        retries: int,
        isolation: Isolation,
        await_durable: bool,
        make: MakeTransaction = Transaction,
    ) -> T:
        """See `Db.transact`."""
        if type(retries) is not int or retries < 0:
            raise InvalidError(f"retries is a number of times, not {retries!r}", outcome="not_applied")
        if not callable(function):
            raise InvalidError(f"transact takes a function, not {type(function).__name__}", outcome="not_applied")
        space, keys = self.space, set[bytes]()
        for attempt in range(retries + 1):
            if attempt:
                self._stats.retries += 1
                pause = min(MOST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
                await space.runtime.clock.sleep(pause * space.runtime.rng.random())
            tx: Transaction | None = None
            try:
                async with self._turn(attempt, keys) if attempt else nullcontext():
                    tx = self.begin(isolation, await_durable, make, waiting=not attempt and space.takes_turns)
                    token = space.hold()
                    try:
                        running = function(tx)
                        if not isawaitable(running):
                            raise InvalidError("transact takes an `async def`; use update", outcome="not_applied")
                        result = await running
                        handle = tx._apply_now()
                        if handle is None and tx.is_open:
                            handle = await tx._apply()
                    finally:
                        space.release(token)
                        tx.rollback()
            except ConflictError as conflict:
                if tx is None or conflict is not tx._conflict or attempt == retries:
                    raise
                if conflict.key is not None:
                    keys.add(conflict.key)
                continue
            if handle is not None:
                if await_durable:
                    await handle.durable()
                elif space.yield_budget.spent():
                    await space.yield_budget.yield_now()
            return result
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _turn(self, attempt: int, keys: Iterable[bytes]) -> AsyncIterator[None]:
        """What a later attempt waits for: others that change the keys of earlier conflicts, in the end until it may run
        alone."""
        space = self.space
        if not space.takes_turns:
            yield
        elif attempt < ALONE_AFTER:
            async with space.turns.of(keys):
                yield
        else:
            self._stats.alone += 1
            async with space.gate.alone(space.reads.writer.transactions.lifetime_s):
                with space.alone():
                    yield

    # ---- writes of one row

    def put_now(self, key: bytes, value: bytes, life_ms: int | None) -> WriteHandle | None:
        """A plain put in one step, whose arguments are checked here; ``None`` if that takes waiting."""
        space = self.space
        space.check("not_applied")
        max_key_bytes, max_value_bytes = space.limits
        if len(key) > max_key_bytes:
            key_bytes(key, space.limits)
        if type(value) is not bytes or len(value) > max_value_bytes:
            value = value_bytes(value, space.limits)
        return space.reads.writer.sequencer.row_now(key, value, PUT, life_ms)

    async def update(
        self, key: bytes, function: Callable[[bytes | None], BytesLike | None], life_ms: int | None, await_durable: bool
    ) -> UpdateHandle:
        """See `Db.update`."""
        space = self.space
        space.check("not_applied")
        self._stats.updates += 1
        queued = self._queued(key)
        try:
            made = None if queued else self._update_now(key, function, life_ms)
            if made is None:

                async def in_turn() -> UpdateHandle:
                    made = self._update_now(key, function, life_ms) if queued and not space.shut_out else None
                    return await self._update(key, function, life_ms) if made is None else made

                made = await self._in_turn(key, in_turn)
        except SlateError as error:
            raise_not_applied(error)
        await self.settled(made, await_durable)
        return made

    async def queued(
        self, key: bytes, attempt: Callable[[Transaction], Awaitable[UpdateHandle]], await_durable: bool
    ) -> UpdateHandle:
        """An update of ``key`` by ``attempt``, which may read and write other keys, and applies the transaction."""
        self.space.check("not_applied")
        self._stats.updates += 1
        try:
            made = await self._in_turn(key, lambda: self._until_applied(attempt))
        except SlateError as error:
            raise_not_applied(error)
        await self.settled(made, await_durable)
        return made

    async def _in_turn(self, key: bytes, step: Callable[[], Awaitable[T]]) -> T:
        space = self.space
        if not space.takes_turns:
            return await step()
        turn = await space.turns.take(key)
        try:
            return await step()
        finally:
            if turn is not None:
                space.turns.give(turn)

    def _queued(self, key: bytes) -> bool:
        """Whether a change of ``key`` has to wait for others."""
        space = self.space
        return space.shut_out or (key in space.turns and space.takes_turns)

    def _update_now(
        self, key: bytes, function: Callable[[bytes | None], BytesLike | None], life_ms: int | None
    ) -> UpdateHandle | None:
        """The update in one step; ``None`` if that takes waiting."""
        space = self.space
        writer = space.reads.writer
        found = writer.state.view.look_up(key, MAX_SEQ)
        if found is NEEDS_IO:
            return None
        value = found if type(found) is bytes else live_value(found, space.reads.clock.now_ms())
        if value is NEEDS_IO:
            return None
        new = function(value)
        if type(new) is not bytes or len(new) > space.limits.max_value_bytes:
            new = self._new_value(new)
        if new is None and value is None:
            return self._nothing(writer.sequencer.newest_group)
        handle = writer.sequencer.row_now(key, new or b"", DELETE if new is None else PUT, life_ms)
        return None if handle is None else UpdateHandle.of(handle, new)

    async def _update(
        self, key: bytes, function: Callable[[bytes | None], BytesLike | None], life_ms: int | None
    ) -> UpdateHandle:
        async def attempt(tx: Transaction) -> UpdateHandle:
            value = await tx.get(key)
            new = self._new_value(function(value))
            if new is not None:
                tx.put(key, new, ttl=math.inf if life_ms is None else life_ms / 1000)
            elif value is not None:
                tx.delete(key)
            return UpdateHandle.of(await tx._apply(), new)

        return await self._until_applied(attempt)

    def _new_value(self, made: object) -> bytes | None:
        if iscoroutine(made):
            made.close()
        if isawaitable(made):
            raise InvalidError(
                "update takes a function that returns a value without await; use transact", outcome="not_applied"
            )
        return None if made is None else value_bytes(cast("BytesLike", made), self.space.limits)

    def _nothing(self, group: CommitGroup | None) -> UpdateHandle:
        writer = self.space.reads.writer
        handle = handle_of(
            writer.sequencer.last_seq, self.space.reads.clock.now_ms(), group or CommitGroup.resolved(), _NothingUpdated
        )
        assert isinstance(handle, UpdateHandle)
        handle.value = None
        return handle

    # ---- batches that look at what they change

    async def write_batch(self, rows: BatchRows, steps: Sequence[BatchStep], await_durable: bool) -> WriteHandle:
        """Apply ``rows``, and what ``steps`` write in a transaction, in one step."""
        if rows.ranges:
            raise InvalidError(
                "a batch with rows of maps deletes no range of keys; write two batches", outcome="not_applied"
            )

        async def run(tx: Transaction) -> WriteHandle:
            take_rows(tx._writes, rows, tx._writer.state.merging)
            try:
                for step in steps:
                    await step(tx)
                return await tx._apply()
            except SlateError as error:
                raise_not_applied(error)

        handle = await self.transact(run, RETRIES, "serializable", False)
        await self.settled(handle, await_durable)
        return handle

    # ---- conditional writes

    async def write_if(
        self, key: bytes, value: bytes | None, life_ms: int | None, condition: Condition, await_durable: bool
    ) -> WriteHandle:
        """Put ``value``, or delete if it is ``None``, if the condition holds when that is applied."""
        space = self.space
        space.check("not_applied")
        self._stats.conditional += 1

        async def attempt(tx: Transaction) -> WriteHandle:
            self._judge(key, condition, await tx._read_row(key))
            if value is None:
                tx.delete(key)
            else:
                tx.put(key, value, ttl=math.inf if life_ms is None else life_ms / 1000)
            return await tx._apply()

        try:
            made = None if self.space.shut_out else self._write_now(key, value, life_ms, condition)
            if made is None:
                made = await self._until_applied(attempt)
        except SlateError as error:
            raise_not_applied(error)
        await self.settled(made, await_durable)
        return made

    def _write_now(
        self, key: bytes, value: bytes | None, life_ms: int | None, condition: Condition
    ) -> WriteHandle | None:
        """The write in one step; ``None`` if that takes waiting."""
        reads = self.space.reads
        sequencer = reads.writer.sequencer
        hit = reads.writer.state.view.get_now(key, reads.clock.now_ms(), sequencer.last_seq)
        if hit is NEEDS_IO:
            return None
        self._judge(key, condition, hit)
        return sequencer.row_now(key, value or b"", DELETE if value is None else PUT, life_ms)

    def _judge(self, key: bytes, condition: Condition, hit: RowHit | None) -> None:
        reason = condition.broken(hit)
        if reason is not None:
            self._stats.conflicts += 1
            raise ConflictError(f"key {shown_key(key)} {BROKEN[reason]}", outcome="not_applied", key=key, reason=reason)

    # ---- what both need

    async def _until_applied(self, attempt: Callable[[Transaction], Awaitable[T]]) -> T:
        """``attempt`` in transactions, until nothing was written between its read and its write."""
        last: ConflictError | None = None
        for _ in range(ATTEMPTS):
            tx = Transaction(self.space, True, False)
            try:
                return await attempt(tx)
            except ConflictError as conflict:
                if conflict is not tx._conflict:
                    raise
                last = conflict
            finally:
                tx.rollback()
        assert last is not None
        raise last

    async def settled(self, handle: WriteHandle, await_durable: bool) -> None:
        """Wait until what was written is durable, or, if the loop is due, for others."""
        if await_durable:
            await handle.durable()
        elif self.space.yield_budget.spent():
            await self.space.yield_budget.yield_now()

    @property
    def _stats(self) -> TransactionStats:
        return self.space.reads.writer.transactions.stats
