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

import os
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from slate_async.errors import ConfigError
from slate_async.settings.operating import OperationSettings
from slate_async.settings.sources import ENV_PREFIX, check_variables, explain, read_toml
from slate_async.settings.storing import StorageSettings
from slate_async.settings.writing import WriteSettings


class Settings(OperationSettings, StorageSettings, WriteSettings):
    """The knobs of a database. Raises `ConfigError` naming the setting that is unknown, malformed or contradictory."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, allow_inf_nan=False
    )

    if not TYPE_CHECKING:  # type checkers see the keyword arguments the fields imply

        def __init__(self, **values: Any) -> None:
            check_variables(os.environ, type(self).model_fields)
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(explain(error, values, type(self).model_fields)) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keywords, then variables; looking every field up where no variable is ours takes longer than all the rest."""
        ours = any(name.upper().startswith(ENV_PREFIX) for name in os.environ)
        return (init_settings, env_settings) if ours else (init_settings,)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], **overrides: Any) -> Self:
        """Settings from a TOML file: its ``[slate]`` table if it has one (other tables then belong to others),
        else its top level. ``overrides`` and ``SLATE_*`` variables win over the file.

        Raises `ConfigError` if the file is missing, is not TOML, or holds an unknown or bad setting."""
        values = read_toml(path, cls.model_fields)
        in_environment = {name.upper() for name, value in os.environ.items() if value}
        kept = {name: value for name, value in values.items() if ENV_PREFIX + name.upper() not in in_environment}
        try:
            return cls(**{**kept, **overrides})
        except ConfigError as error:
            raise ConfigError(f"{error} (settings file {os.fspath(path)!r})") from error

    def replace(self, **changes: Any) -> Self:
        """These settings with some changed, checked again; the environment plays no part. Raises `ConfigError`."""
        return type(self)(**{**self.model_dump(), **changes})

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_truth_values(cls, value: object, info: Any) -> object:
        if isinstance(value, bool) and info.field_name not in (
            "wal_enabled",
            "auto_compaction",
            "auto_gc",
            "flush_at_once",
        ):
            raise ValueError("must not be true or false")
        return value

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        for smaller, larger in _AT_MOST:
            if getattr(self, smaller) > getattr(self, larger):
                raise ValueError(
                    f"{smaller} ({getattr(self, smaller)}) must not exceed {larger} ({getattr(self, larger)})"
                )
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
