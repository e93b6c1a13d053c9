"""`LocalStore`: the `ObjectStore` on a folder of this machine, for any number of its processes.

The event loop never waits for a disk: operations run on worker threads (`runtime.blocking`). A cancelled put goes on
in its thread to a whole object or to none. Reading alone changes nothing in the folder.

Limits: the file system must have atomic hard links, symbolic links and renames, and `flock` that ends with its
process. After a loss of power, an object of another process that was only read, and met by no put, may be lost if that
process did not hear of its success.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from slate_async.errors import ClosedError, InvalidError, Outcome, UnavailableError
from slate_async.objectstore.bodies import parts_of
from slate_async.objectstore.keys import check_key, check_listing, check_metadata, check_range
from slate_async.objectstore.local.claims import Verdict
from slate_async.objectstore.local.file import in_groups, with_trailer
from slate_async.objectstore.local.folder import Folder, NotWrittenError
from slate_async.objectstore.local.modes import OWNER_ALONE, Modes
from slate_async.objectstore.local.open_files import OpenFile, OpenFiles
from slate_async.objectstore.local.os_errors import translated
from slate_async.objectstore.local.temps import remove
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, PutMode, Span
from slate_async.runtime.protocol import Runtime
from slate_async.types import Buffer

T = TypeVar("T")

PAGE_KEYS = 500
DELETE_BATCH_KEYS = 100
CLAIM_PATIENCE_SECONDS = 0.5
"""How long a claim of another writer is waited for before it is broken. Claims live for microseconds, so an older
one belongs to a stopped or dead process; breaking a living one costs its owner one more try, never correctness."""
CLAIM_POLL_SECONDS = 0.002
NAMING_ATTEMPTS = 1000
LARGE_BYTES = 256 << 10
"""A larger body is written among what computes: to copy it takes a processor for a millisecond and more, which then is
not the event loop's. It is written in groups, others computing in between. Only syncing it waits for the disk."""
REWRITES = 8


class LocalStore:
    """Objects as files below ``folder``, which is made at the first write."""

    def __init__(self, folder: str | os.PathLike[str], runtime: Runtime, *, modes: Modes = OWNER_ALONE) -> None:
        name = os.fspath(folder)
        if not name or "\0" in name:
            raise InvalidError("the path of a local store must not be empty, nor hold a NUL character")
        self._root = Path(os.path.abspath(name))
        self._runtime = runtime
        self._folder = Folder(self._root, modes)
        self._opening: asyncio.Future[None] | None = None
        self._abandoned: list[Path] = []
        self._open_files = OpenFiles()
        self._closed = False

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    async def _run(
        self,
        work: Callable[[], T],
        *,
        outcome: Outcome | None = None,
        opening: bool = False,
        closing: bool = False,
        computing: bool = False,
    ) -> T:
        """Run work that waits for a disk, or does not; file system errors become ours."""
        if self._closed and not closing:
            raise ClosedError(f"{self!r} is closed", outcome="not_applied")
        stale = self._open_files.look()
        offload = self._runtime.offload if computing else self._runtime.blocking
        try:
            return await offload.run(partial(self._translating, stale, work, outcome, opening))
        except UnavailableError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE):
                self._open_files.clear()  # somebody needs them more
            raise

    def _translating(self, stale: list[OpenFile], work: Callable[[], T], outcome: Outcome | None, opening: bool) -> T:
        """On a worker thread: close the ``stale`` files, then do the work."""
        stale.clear()
        try:
            return work()
        except NotWrittenError as error:
            cause = error.__cause__
            met = cause if isinstance(cause, OSError) else OSError(error)
            raise translated(met, self._root, "not_applied") from cause
        except OSError as error:
            raise translated(error, self._root, outcome, opening=opening) from error

    async def _open_for_writing(self) -> None:
        """Once per store, whichever of the first writers is cancelled; after a failure the next writer tries again, and
        once the folder, which had vanished, was found again."""
        opening = self._opening
        failed = opening is not None and opening.done() and (opening.cancelled() or opening.exception() is not None)
        if opening is None or failed or (opening.done() and self._folder.found_again):
            work = partial(self._folder.open_for_writing, self._runtime.ids.token())
            self._opening = opening = asyncio.ensure_future(self._run(work, outcome="not_applied", opening=True))
        if not opening.done():
            await asyncio.shield(opening)

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object and return its etag, unique to this write."""
        check_key(key)
        kept = check_metadata(metadata)
        parts = parts_of(data)
        await self._open_for_writing()
        for _ in range(REWRITES):
            token = self._runtime.ids.token()
            temporary = self._folder.scratch()
            try:
                verdict = await self._written(with_trailer(parts, kept, token), temporary, key, mode)
                if verdict not in (Verdict.DONE, Verdict.BROKEN):
                    verdict = await self._wait_for_turn(temporary, key, mode)
            except BaseException:
                self._abandoned.append(temporary)
                raise
            if verdict is Verdict.DONE:
                return token
        raise UnavailableError(
            f"{key!r}: other writers replaced it during each attempt; try again", outcome="not_applied"
        )

    async def _written(self, parts: Sequence[Buffer], temporary: Path, key: str, mode: PutMode) -> Verdict:
        """Write an object file of ``parts``, the last of them its trailer; sync it and try to name it."""
        abandoned, self._abandoned = self._abandoned, []
        first, *others = in_groups(parts)
        begin = partial(_after_removing, abandoned, partial(self._folder.begin, temporary, first))
        finish = partial(self._folder.finish, temporary=temporary, key=key, mode=mode)
        if sum(map(len, parts[:-1])) < LARGE_BYTES:
            return await self._run(lambda: finish(begin()), outcome="unknown")
        written = await self._run(begin, outcome="not_applied", computing=True)
        for group in others:
            append = partial(self._folder.append, written, temporary, group)
            await self._run(append, outcome="not_applied", computing=True)
        return await self._run(partial(finish, written), outcome="unknown")

    async def _wait_for_turn(self, temporary: Path, key: str, mode: PutMode) -> Verdict:
        """Try to name a written body until it is DONE or BROKEN; break a claim that stays too long."""
        clock = self._runtime.clock
        since = clock.monotonic()
        for _ in range(NAMING_ATTEMPTS):
            breaking = clock.monotonic() - since > CLAIM_PATIENCE_SECONDS
            name = partial(self._folder.name_temporary, temporary, key, mode, break_others=breaking)
            verdict = await self._run(name, outcome="unknown")
            if verdict is Verdict.DONE or verdict is Verdict.BROKEN:
                return verdict
            if verdict is Verdict.CHANGED or breaking:
                since = clock.monotonic()
            if verdict is Verdict.BUSY:
                await clock.sleep(CLAIM_POLL_SECONDS)
        raise UnavailableError(
            f"{key!r}: the claims of other writers did not end in time; try again", outcome="not_applied"
        )

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        check_key(key)
        check_range(byte_range)
        if not isinstance(byte_range, Span) or not self._open_files.most:
            return await self._run(partial(self._folder.read, key, byte_range))
        result, file = await self._run(partial(self._folder.open_and_read, key, byte_range))
        self._open_files.keep(key, file)
        return result

    def read_sync(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        """See `slate_async.objectstore.sync_read.SyncReads`: of objects that `get` read a span of."""
        return self._open_files.read_sync(key, offset, length, size)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        check_key(key)
        return await self._run(partial(self._folder.info, key))

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with ``prefix`` and is greater than ``start_after``, in byte order."""
        check_listing(prefix, start_after)
        pages = self._folder.pages(prefix, start_after)
        more = True
        while more:
            page, more = await self._run(partial(self._folder.page, pages, PAGE_KEYS))
            for info in page:
                yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        names = [check_key(key) for key in keys]
        if not names:
            return
        self._open_files.forget(names)
        await self._open_for_writing()
        for first in range(0, len(names), DELETE_BATCH_KEYS):
            await self._run(partial(self._folder.remove, names[first : first + DELETE_BATCH_KEYS]))

    async def close(self) -> None:
        """Give up this store's place in the folder; no error if that was deleted. Idempotent."""
        if not self._closed:
            self._closed = True
            self._open_files.close()
            await self._run(self._folder.close, closing=True)


def _after_removing(abandoned: Sequence[Path], work: Callable[[], T]) -> T:
    """Clear away what cancelled puts left, then do the work."""
    for path in abandoned:
        remove(path)
    return work()
