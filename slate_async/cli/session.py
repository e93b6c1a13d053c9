"""The one place where the command line opens a database, and how a command runs from start to exit code.

`writing` opens it as its writer, which **takes it over from a running writer**. `reading` opens a reader, which
disturbs no other process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import AsyncIterable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import slate_async
from slate_async.cli import error_text
from slate_async.cli.exit_codes import BROKEN_PIPE, exit_code
from slate_async.cli.output import Output
from slate_async.cli.reach import check_reachable, endpoints_of
from slate_async.cli.signals import Terminated, interruptible, until_terminated
from slate_async.engine.compaction.executor import Executor
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.ingest.watch import IngestMode
from slate_async.engine.write.batch import WriteBatch
from slate_async.errors import InvalidError
from slate_async.settings import Settings
from slate_async.settings.collections import CollectionSettings
from slate_async.storage.liveness.observer import WriterLife


class Written(Protocol):
    """What the command line uses of a `WriteHandle`."""

    @property
    def seq(self) -> int:
        """Sequence number of the write's last row."""

    async def durable(self) -> None:
        """Return once the write is durable."""


class ReadableDatabase(Protocol):
    """What the commands that only look use of a database."""

    async def get(self, key: bytes) -> bytes | None:
        """The value, or ``None``."""

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterable[tuple[bytes, bytes]]:
        """Rows in key order; the end is exclusive."""

    def status(self) -> Any:
        """A dataclass."""

    def metrics(self) -> Mapping[str, Any]:
        """Counters since the opening."""


class FollowedDatabase(ReadableDatabase, Protocol):
    """What the commands that look use besides."""

    async def writer_life(self) -> WriterLife:
        """Whether it has a writer that lives."""


class WritableDatabase(ReadableDatabase, Protocol):
    """What the commands that change something use besides."""

    async def put(self, key: bytes, value: bytes, *, ttl: float | None = None, await_durable: bool = True) -> Written:
        """Set a key."""

    async def delete(self, key: bytes, *, await_durable: bool = True) -> Written:
        """Remove a key."""

    async def delete_range(self, start: bytes | None, end: bytes | None, *, await_durable: bool = True) -> Written:
        """Remove the keys from start to end, exclusive."""

    async def delete_prefix(self, prefix: bytes, *, await_durable: bool = True) -> Written:
        """Remove the keys that begin so."""

    async def merge(
        self, key: bytes, operand: bytes, *, ttl: float | None = None, await_durable: bool = True
    ) -> Written:
        """Merge an operand."""

    async def increment(
        self,
        key: bytes,
        by: int,
        *,
        ttl: float | None = None,
        token: bytes | None = None,
        token_ttl: float | None = None,
        await_durable: bool = True,
    ) -> int:
        """Add to a number."""

    async def write(self, batch: WriteBatch, *, await_durable: bool = True) -> Written:
        """Apply a batch as a whole."""


@dataclass(frozen=True, slots=True)
class Session:
    """What the options of every command say."""

    path: str | None
    metastore: str | None
    settings_file: str | None
    verbose: bool
    output: Output

    def settings(self) -> Settings:
        """From the file named, if any, and the environment. Raises `InvalidError`."""
        return Settings() if self.settings_file is None else Settings.from_toml(self.settings_file)

    def writing(self, *, create: bool) -> AbstractAsyncContextManager[WritableDatabase]:
        """The database, opened as its writer. With ``create`` a missing one is made."""
        return slate_async.open(self.database(), metastore=self.metastore, settings=self.settings(), create=create)

    def reading(
        self, *, checkpoint: str | None = None, pin: bool = False
    ) -> AbstractAsyncContextManager[FollowedDatabase]:
        """The database, to look at as it is now, or at a checkpoint. With ``pin`` what is read is kept from being
        deleted meanwhile, which writes to the manifest."""
        return slate_async.open_reader(
            self.database(), checkpoint=checkpoint, pin=pin, metastore=self.metastore, settings=self.settings()
        )

    def scanning(
        self, *, checkpoint: str | None = None, pin: bool = False
    ) -> AbstractAsyncContextManager[slate_async.Readable]:
        """As `reading`, for scans in record batches."""
        return slate_async.open_reader(
            self.database(), checkpoint=checkpoint, pin=pin, metastore=self.metastore, settings=self.settings()
        )

    def reader(self) -> AbstractAsyncContextManager[slate_async.DbReader]:
        """The database, followed; what is read is kept from being deleted meanwhile."""
        return slate_async.open_reader(self.database(), metastore=self.metastore, settings=self.settings())

    def compacting(
        self, progress: EventSink, *, auto_compaction: bool = True, executor: Executor | None = None
    ) -> AbstractAsyncContextManager[slate_async.DbCompactor]:
        """The database's compactor, from now on; with ``auto_compaction`` it compacts what is due without being asked.

        executor: what merges key ranges; ``None`` for this process"""
        return slate_async.open_compactor(
            self.database(),
            metastore=self.metastore,
            settings=self.settings(),
            executor=executor,
            progress=progress,
            auto_compaction=auto_compaction,
        )

    def ingesting(
        self, job_id: str | None, *, replace: bool, mode: IngestMode
    ) -> AbstractAsyncContextManager[slate_async.IngestJob]:
        """A bulk ingest into the database, begun or resumed."""
        return slate_async.open_ingest(
            self.database(),
            job_id=job_id,
            metastore=self.metastore,
            settings=self.settings(),
            replace=replace,
            mode=mode,
        )

    def administering(self) -> AbstractAsyncContextManager[slate_async.Admin]:
        """The database's administration, which claims no role."""
        return slate_async.open_admin(self.database(), metastore=self.metastore, settings=self.settings())

    def lake(self) -> AbstractAsyncContextManager[slate_async.Lake]:
        """The folder of collections. Raises `InvalidError` if no option names it."""
        if not self.path:
            raise InvalidError("which folder of collections? Give --path URL, or set SLATE_PATH")
        chosen = self.settings_file
        settings = CollectionSettings() if chosen is None else CollectionSettings.from_toml(chosen)
        return slate_async.open_collections(self.path, metastore=self.metastore, settings=settings)

    def database(self) -> str:
        """Where it is. Raises `InvalidError` if no option names it."""
        if not self.path:
            raise InvalidError("which database? Give --path URL, or set SLATE_PATH")
        return self.path

    def run(self, command: Coroutine[Any, Any, int]) -> int:
        """Run a command to its end, report its error if it fails, and return the exit code."""
        try:
            with interruptible():
                code = asyncio.run(until_terminated(self._reached(command)))
            self.output.flush()
            return code
        except BrokenPipeError:
            # What is still buffered can go nowhere; without this the interpreter complains while exiting.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost frame: every error is reported
            self.report(error)
            return exit_code(error)

    async def _reached(self, command: Coroutine[Any, Any, int]) -> int:
        """Run it once a server listens where its database is."""
        try:
            await check_reachable(endpoints_of(self.path, self.metastore))
        except BaseException:
            command.close()
            raise
        return await command

    def report(self, error: BaseException, *, path: str | None = None) -> None:
        """Say what went wrong: one line, or with ``--json`` one object; with ``-v`` the traceback first.

        path: which of several databases it is about"""
        if self.verbose:
            self.output.problem("".join(traceback.format_exception(error)).rstrip())
        if self.output.as_json:
            self.output.problem_json({**error_text.as_json(error), **({} if path is None else {"path": path})})
        elif isinstance(error, KeyboardInterrupt | Terminated):
            self.output.note("terminated" if isinstance(error, Terminated) else "interrupted")
        else:
            self.output.problem(f"slate: {'' if path is None else f'{path}: '}{self.explain(error)}")

    def explain(self, error: BaseException) -> str:
        """As `error_text.explain`."""
        return error_text.explain(error)
