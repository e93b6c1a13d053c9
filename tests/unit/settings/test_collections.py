"""`CollectionSettings`: its sources stand apart from those of databases; bounds and contradictions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slate_async.errors import ConfigError
from slate_async.settings import Settings, sources
from slate_async.settings.collections import CollectionSettings


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


def toml(folder: Path, text: str) -> Path:
    path = folder / "slate.toml"
    path.write_text(text)
    return path


def test_keyword_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = toml(tmp_path, "[slate.collections]\nlease_ms = 2_000\nshard_lag = 2\nmax_pending = 2\n[other]\nx = 1\n")
    monkeypatch.setenv("SLATE_COLLECTIONS_LEASE_MS", "3000")
    monkeypatch.setenv("SLATE_COLLECTIONS_SHARD_LAG", "3")
    settings = CollectionSettings.from_toml(file, lease_ms=4_000)
    assert (settings.lease_ms, settings.shard_lag, settings.max_pending) == (4_000, 3, 2)
    assert settings.poll_interval_ms == 500
    assert CollectionSettings().lease_ms == 3_000
    assert settings.replace(shard_lag=9).shard_lag == 9


def test_one_file_serves_databases_and_collections(tmp_path: Path) -> None:
    file = toml(tmp_path, "[slate]\nflush_interval_ms = 7\n[slate.collections]\nlease_ms = 2_000\n")
    assert Settings.from_toml(file).flush_interval_ms == 7
    assert CollectionSettings.from_toml(file).lease_ms == 2_000
    assert CollectionSettings.from_toml(toml(tmp_path, "[slate]\nflush_interval_ms = 7\n")) == CollectionSettings()
    assert CollectionSettings.from_toml(toml(tmp_path, "lease_ms = 2_000\n")).lease_ms == 2_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[other]\nlease_ms = 2_000\n", r"settings stand in table \[slate.collections\], not in \[other\]"),
        ("[slate]\ncollections = 3\n", "'slate.collections' must be a table"),
        ("lease_ms = 3\n[slate.collections]\n", r"lease_ms stands outside its \[slate.collections\] table"),
        ("[slate.collections]\nlease_ma = 3\n", "there is no such setting; is lease_ms meant"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CollectionSettings.from_toml(toml(tmp_path, text))


def test_variables_are_looked_at_by_those_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATE_COLLECTIONS_LEAS_MS", "3000")
    sources._warn_of.cache_clear()
    assert Settings() == Settings()
    with pytest.raises(ConfigError, match="is SLATE_COLLECTIONS_LEASE_MS meant"):
        CollectionSettings()
    monkeypatch.delenv("SLATE_COLLECTIONS_LEAS_MS")
    monkeypatch.setenv("SLATE_FLUSH_INTERVALL_MS", "3")
    assert CollectionSettings() == CollectionSettings()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lease_ms": 1_000}, r"lease_ms \(1000\) must exceed twice poll_interval_ms \(500\)"),
        ({"request_timeout_ms": 9, "retry_deadline_ms": 8}, r"request_timeout_ms \(9\) must not exceed"),
        ({"max_pending": 0}, "max_pending: .* greater than or equal to 1"),
        ({"part_bytes": 64 << 20}, "part_bytes: .* less than or equal to 50331648, in bytes"),
        ({"parallel_merges": True}, "parallel_merges: must not be true or false"),
        ({"leese_ms": 3}, "leese_ms: there is no such setting; is lease_ms meant"),
        ({"file_mode": "0777"}, "file_mode: this is a string"),
    ],
)
def test_wrong_settings_are_refused_by_name(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CollectionSettings(**values)  # type: ignore[arg-type]
