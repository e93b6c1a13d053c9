"""`ServeSettings`: every knob of a server of tables.

Sources, strongest first: keyword, ``SLATE_SERVE_*`` environment variable, TOML file (``[slate.serve]``), default.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from slate_async.settings.fields import DAY_MS, GIB, MIB, setting
from slate_async.settings.sourced import SourcedSettings, check_at_most
from slate_async.settings.sources import SERVE_PREFIX, SERVE_TABLE


class ServeSettings(SourcedSettings, env_prefix=SERVE_PREFIX):
    """The knobs of `slate_async.flight.serve`. Raises `ConfigError` naming the setting that is unknown, malformed or
    contradictory."""

    _prefix: ClassVar[str] = SERVE_PREFIX
    _table: ClassVar[tuple[str, ...]] = ("slate", SERVE_TABLE)

    message_bytes: int = setting(
        16 * MIB,
        unit="bytes",
        what="Largest message that the server takes; a larger one ends its call with RESOURCE_EXHAUSTED. A batch that"
        " was compressed may take four times this in memory.",
        why="Batches of a few megabytes are as fast as larger ones; 64 streams of 16 MiB are a gigabyte.",
        ge=64 * 1024,
        le=1 * GIB,
    )
    batch_bytes: int = setting(
        4 * MIB,
        unit="bytes, as Arrow has them",
        what="Size of the batches that the server sends; a single row may be larger.",
        why="Costs per message no longer count, and a slow client holds little.",
        ge=64 * 1024,
        le=256 * MIB,
    )
    streams: int = setting(
        64,
        unit="streams",
        what="DoGet and DoPut that run at once, over all connections. One more ends with RESOURCE_EXHAUSTED.",
        why="Two cores are busy with far fewer; each holds a few batches.",
        ge=1,
        le=10_000,
    )
    put_memory_bytes: int = setting(
        256 * MIB,
        unit="bytes",
        what="Rows of all DoPut in memory that are not stored yet. While there are as many, no stream is read, beside"
        " one message each.",
        why="Four blocks: two are encoded while others come.",
        ge=1 * MIB,
        le=1024 * GIB,
    )
    endpoint_bytes: int = setting(
        128 * MIB,
        unit="bytes, as they are stored",
        what="Blocks of one endpoint of a FlightInfo, about. Clients read endpoints side by side.",
        why="A second or two of reading: few requests, and enough of them for all cores.",
        ge=1 * MIB,
        le=1024 * GIB,
    )
    idle_ms: int = setting(
        60_000,
        unit="milliseconds",
        what="A stream whose client sends nothing, or takes nothing, for so long ends with DEADLINE_EXCEEDED.",
        why="A client that died without a word gives its memory back within a minute.",
        ge=10,
        le=DAY_MS,
    )
    grace_ms: int = setting(
        30_000,
        unit="milliseconds",
        what="Time for the calls that run when the server is stopped; then they are cancelled.",
        why="What supervisors wait before they kill.",
        ge=0,
        le=DAY_MS,
    )
    token_ms: int = setting(
        3_600_000,
        unit="milliseconds",
        what="How long a token is good that a handshake gave.",
        why="A grant that was taken back ends within an hour.",
        ge=1_000,
        le=365 * DAY_MS,
    )
    handshakes: int = setting(
        4,
        unit="handshakes",
        what="Passwords that are checked at once; more wait.",
        why="Each takes 16 MiB and a tenth of a second, on purpose.",
        ge=1,
        le=256,
    )

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        check_at_most(self, (("message_bytes", "put_memory_bytes"),))
        return self
