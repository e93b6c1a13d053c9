"""`SourcedSettings`: knobs in one frozen, checked, serialisable value, with their sources.

Sources, strongest first: keyword, environment variable, TOML file, default.

Invariant: settings that exist are free of contradictions among the values they hold. Secrets never belong here:
credentials come from the environment and profiles of the store.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from slate_async.errors import ConfigError
from slate_async.settings.sources import ENV_PREFIX, check_variables, explain, read_toml


class SourcedSettings(BaseSettings):
    """A subclass adds its settings, its variables' prefix, its table and its contradictions.

    Raises `ConfigError` naming the setting that is unknown, malformed or contradictory."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, allow_inf_nan=False
    )
    _prefix: ClassVar[str] = ENV_PREFIX
    """What the names of their variables begin with."""
    _table: ClassVar[tuple[str, ...]] = ("slate",)
    """Where they stand in a TOML file that has more than them."""
    _truth_values: ClassVar[frozenset[str]] = frozenset()
    """Those that are true or false."""

    if not TYPE_CHECKING:  # type checkers see the keyword arguments the fields imply

        def __init__(self, **values: Any) -> None:
            fields = type(self).model_fields
            check_variables(os.environ, fields, self._prefix)
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(explain(error, values, fields, self._prefix)) from error

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
        ours = any(name.upper().startswith(cls._prefix) for name in os.environ)
        return (init_settings, env_settings) if ours else (init_settings,)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], **overrides: Any) -> Self:
        """Settings from a TOML file: its table of them if it has one (other tables then belong to others), else its
        top level. ``overrides`` and environment variables win over the file.

        Raises `ConfigError` if the file is missing, is not TOML, or holds an unknown or bad setting."""
        values = read_toml(path, cls.model_fields, cls._table)
        in_environment = {name.upper() for name, value in os.environ.items() if value}
        kept = {name: value for name, value in values.items() if cls._prefix + name.upper() not in in_environment}
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
        if isinstance(value, bool) and info.field_name not in cls._truth_values:
            raise ValueError("must not be true or false")
        return value


def check_at_most(settings: BaseSettings, pairs: tuple[tuple[str, str], ...]) -> None:
    """Raise `ValueError` unless of each pair the first setting is at most the second."""
    for smaller, larger in pairs:
        if getattr(settings, smaller) > getattr(settings, larger):
            raise ValueError(
                f"{smaller} ({getattr(settings, smaller)}) must not exceed {larger} ({getattr(settings, larger)})"
            )
