"""`Settings`: every knob of a database, in one frozen, checked, serialisable value.

Purpose: say once, for every knob, its unit, default and the reason for the default. Sources, strongest first:
keyword, ``SLATE_*`` environment variable, TOML file, default.

Invariant: a `Settings` that exists is free of contradictions among the values it holds. ``None`` for
``log_protocol``, ``wal_enabled``, ``compaction_style`` and ``retention_ms`` means "as the database has it"; what
depends on the database is checked when it is opened. Secrets never belong here: credentials come from the environment
and profiles of the store.

Ordering rule: a default that depends on another setting reads one declared above it, in the same group or in one
named later among the bases of `Settings` (pydantic collects fields from the last base to the first).
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from slate_async.settings.operating import OperationSettings
from slate_async.settings.sourced import SourcedSettings, check_at_most
from slate_async.settings.storing import StorageSettings
from slate_async.settings.writing import WriteSettings


class Settings(OperationSettings, StorageSettings, WriteSettings, SourcedSettings):
    """The knobs of a database. Raises `ConfigError` naming the setting that is unknown, malformed or contradictory."""

    _truth_values: ClassVar[frozenset[str]] = frozenset({"wal_enabled", "auto_compaction", "auto_gc", "flush_at_once"})

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        check_at_most(self, _AT_MOST)
        if self.log_protocol == "contiguous" and self.ack == "flushed":
            raise ValueError("ack 'flushed' exists only with log_protocol 'epoch_prefixed'")
        if self.log_protocol == "contiguous" and self.log_gap_wait_ms:
            raise ValueError("log_gap_wait_ms has a meaning only with log_protocol 'epoch_prefixed'")
        if self.checkpoint_lifetime_ms <= 2 * self.manifest_poll_interval_ms:
            raise ValueError(
                f"checkpoint_lifetime_ms ({self.checkpoint_lifetime_ms}) must exceed twice manifest_poll_interval_ms"
                f" ({self.manifest_poll_interval_ms}), or a reader's checkpoint may expire between two polls"
            )
        if 0 < self.block_cache_bytes < self.block_bytes:
            raise ValueError(
                f"block_cache_bytes ({self.block_cache_bytes}) cannot hold one block of block_bytes"
                f" ({self.block_bytes}); 0 turns the cache off"
            )
        return self


_AT_MOST = (
    ("flush_bytes", "max_unflushed_bytes"),
    ("skip_memtable_bytes", "max_unflushed_bytes"),
    ("l0_sst_bytes", "max_unflushed_bytes"),
    ("block_bytes", "l0_sst_bytes"),
    ("l0_compact_ssts", "l0_max_ssts"),
    ("request_timeout_ms", "retry_deadline_ms"),
    ("log_gap_wait_ms", "takeover_deadline_ms"),
    ("manifest_poll_interval_ms", "takeover_deadline_ms"),
)
"""Pairs of settings of which the first must not exceed the second."""
