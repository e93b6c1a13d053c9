"""The writer's register of a database that never had a writer."""

from __future__ import annotations

from metastores.protocol import Committed
from slate_async.engine.clone.site import Site
from slate_async.errors import UnavailableError
from slate_async.metastore_errors import translated
from slate_async.runtime.backoff import Backoff
from slate_async.storage.log import register as codec
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import ManifestState


async def ensure_register(site: Site, state: ManifestState, ranges: tuple[tuple[int, int], ...] = ()) -> None:
    """Unless there is one: a register that says the log ends at ``state.log_last_seen``, its positions owned as
    ``ranges`` (``(epoch, first position)``, ascending) say. Its own epoch, ``state.writer_epoch``, owns none."""
    value = codec.encode(WriterRegister(state.writer_epoch, "", _closed(ranges, state), state.log_last_seen))
    async with site.register(state.log_protocol) as register:
        if register is None:
            return
        backoff = Backoff(site.runtime, site.settings.retry_deadline_ms, "making the writer's register")
        while True:
            cause: UnavailableError | None = None
            try:
                if await translated(register.read()) is not None:
                    return
                if isinstance(await translated(register.compare_and_set(None, value)), Committed):
                    return
            except UnavailableError as error:
                cause = error
            await backoff.wait(cause)


def _closed(ranges: tuple[tuple[int, int], ...], state: ManifestState) -> tuple[EpochRange, ...]:
    """The ranges that hold a position of the log, each with its end."""
    last = state.log_last_seen
    ends = [*(min(start - 1, last) for _, start in ranges[1:]), last]
    return tuple(
        EpochRange(epoch, start, end)
        for (epoch, start), end in zip(ranges, ends, strict=False)  # of no ranges there is one end too many
        if end >= max(start, state.log_start)
    )
