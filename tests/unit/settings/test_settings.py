"""Settings: sources and their order, bounds, contradictions, errors that name the setting, the generated page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from slate_async.errors import ConfigError, InvalidError
from slate_async.settings import Settings, sources
from slate_async.settings.collections import CollectionSettings
from slate_async.settings.sourced import SourcedSettings

ROOT = Path(__file__).resolve().parents[3]
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


def toml(folder: Path, text: str) -> Path:
    path = folder / "slate.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("settings", [Settings, CollectionSettings])
def test_every_field_says_what_it_is_in_which_unit_and_why(settings: type[SourcedSettings]) -> None:
    for name, info in settings.model_fields.items():
        extra = info.json_schema_extra
        assert isinstance(extra, dict), name
        assert all(isinstance(extra[part], str) and extra[part] for part in ("unit", "what", "why")), name
        assert info.description is not None, name
        assert "Unit:" in info.description, name
        assert "Default:" in info.description, name
        if name.endswith("_bytes"):
            assert str(extra["unit"]).startswith("bytes"), name
        if name.endswith("_ms"):
            assert extra["unit"] == "milliseconds", name


def test_the_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "settings_doc.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert "- Unit: true or false\n- Default: `true`\n" in page
    assert "- Unit: true or false\n- Default: 1\n" not in page
    for section in page.split("\n## ")[1:]:
        assert "iB)" not in section or "- Unit: bytes" in section, section.splitlines()[0]


def test_keyword_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = toml(tmp_path, "flush_interval_ms = 1\nflush_parallelism = 2\nfilter_bits_per_key = 3\n")
    monkeypatch.setenv("SLATE_FLUSH_INTERVAL_MS", "11")
    monkeypatch.setenv("SLATE_FLUSH_PARALLELISM", "12")
    settings = Settings.from_toml(file, flush_interval_ms=21)
    assert settings.flush_interval_ms == 21
    assert settings.flush_parallelism == 12
    assert settings.filter_bits_per_key == 3
    assert settings.block_cache_bytes == 64 * MIB
    assert Settings().flush_interval_ms == 11
    assert Settings(flush_interval_ms=21).flush_interval_ms == 21


def test_environment_values_are_parsed_and_empty_ones_are_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATE_WAL_ENABLED", "false")
    monkeypatch.setenv("SLATE_MAX_FLUSHES_PER_SECOND", "2.5")
    monkeypatch.setenv("SLATE_COMPRESSION", "none")
    monkeypatch.setenv("SLATE_FLUSH_BYTES", "")
    settings = Settings()
    assert (settings.wal_enabled, settings.max_flushes_per_second, settings.compression) == (False, 2.5, "none")
    assert settings.flush_bytes == 4 * MIB


def test_an_empty_variable_does_not_hide_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATE_FLUSH_BYTES", "")
    assert Settings.from_toml(toml(tmp_path, "flush_bytes = 5")).flush_bytes == 5


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SLATE_FLUSH_INTERVALL_MS", "SLATE_FLUSH_INTERVAL_MS"),
        ("slate_flush_interval", "SLATE_FLUSH_INTERVAL_MS"),
        ("SLATE_FLUSH_INTREVAL_MS", "SLATE_FLUSH_INTERVAL_MS"),
        ("SLATE_LFUSH_INTREVAL_SM", "SLATE_FLUSH_INTERVAL_MS"),
        ("SLATE_RETENTION", "SLATE_RETENTION_MS"),
        ("slate_block_cache", "SLATE_BLOCK_CACHE_BYTES"),
        ("SLATE_ACT", "SLATE_ACK"),
        ("SLATE_METASTOR", "SLATE_METASTORE"),
    ],
)
def test_a_misspelt_variable_is_refused_and_the_right_one_named(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(InvalidError, match=f"{name} names no setting .* {meant} meant"):
        Settings()


@pytest.mark.parametrize("name", ["SLATE_URL", "slate_nope", "SLATE_TABLE", "SLATE_", "SLATE_SHOP_WINDOW_FLUSH_MS"])
def test_an_applications_own_variable_is_warned_of_once(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, "1")
    sources._warn_of.cache_clear()
    assert Settings() == Settings().replace(flush_interval_ms=100)
    assert [record.getMessage() for record in caplog.records if name in record.getMessage()] == [
        f"environment variable {name} names no setting of slate_async; it is ignored"
    ]


@pytest.mark.parametrize(
    "name",
    ["SLATE_PATH", "SLATE_PORT", "SLATE_PORT_80_TCP_ADDR", "SLATE_SERVICE_PORT_HTTP", "SLATE_API_SERVICE_HOST"],
)
def test_variables_that_others_set_are_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert Settings() == Settings()


def test_a_slate_table_leaves_other_tables_to_others(tmp_path: Path) -> None:
    text = 'title = "app"\n[slate]\nflush_bytes = 5\n[other]\nflush_bytes = 6\n'
    assert Settings.from_toml(toml(tmp_path, text)).flush_bytes == 5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nope = 1", "nope: there is no such setting"),
        ("[slate]\nnope = 1", "nope: there is no such setting"),
        ("[other]\nflush_bytes = 1", r"slate.toml.*: settings stand in table \[slate\], not in \[other\]"),
        ("flush_bytes = 1\n[slate]\nblock_bytes = 1", "flush_bytes stands outside"),
        ("slate = 1", "must be a table"),
        ("flush_bytes = ", "is not TOML"),
        ("flush_bytes = [1]", "flush_bytes: "),
        ("flush_bytes = '4MiB'", r"flush_bytes: .*, in bytes \(got '4MiB'\) \(settings file .*slate.toml'\)"),
        ("flush_bites = 1", "flush_bites: there is no such setting; is flush_bytes meant?"),
        ("flush_bytes = true", "flush_bytes: must not be true or false"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidError, match=complaint):
        Settings.from_toml(toml(tmp_path, text))


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATE_FLUSH_INTERVAL_MS", "abc")
    with pytest.raises(
        ConfigError, match=r"flush_interval_ms \(of environment variable SLATE_FLUSH_INTERVAL_MS\): .*'abc'"
    ):
        Settings()
    with pytest.raises(ConfigError, match=r"flush_interval_ms: .*'x'"):
        Settings(flush_interval_ms="x")  # type: ignore[arg-type]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="cannot be read"):
        Settings.from_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(InvalidError, match="is not TOML"):
        Settings.from_toml(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"nope": 1}, ["nope"]),
        ({"flush_bytes": 0}, ["flush_bytes"]),
        ({"flush_bytes": "4 MiB"}, ["flush_bytes"]),
        ({"flush_bytes": 1.5}, ["flush_bytes"]),
        ({"flush_bytes": None}, ["flush_bytes"]),
        ({"flush_parallelism": 65}, ["flush_parallelism"]),
        ({"flush_parallelism": 0}, ["flush_parallelism"]),
        ({"flush_interval_ms": -1}, ["flush_interval_ms"]),
        ({"flush_interval_ms": True}, ["flush_interval_ms"]),
        ({"max_flushes_per_second": 0}, ["max_flushes_per_second"]),
        ({"max_flushes_per_second": float("nan")}, ["max_flushes_per_second"]),
        ({"log_protocol": "raft"}, ["log_protocol"]),
        ({"wal_enabled": "perhaps"}, ["wal_enabled"]),
        ({"compression": "gzip"}, ["compression"]),
        ({"flush_bytes": 0, "nope": 1}, ["flush_bytes", "nope"]),
        ({"ack": "flushed", "log_protocol": "contiguous"}, ["ack", "log_protocol"]),
        ({"log_gap_wait_ms": 5, "log_protocol": "contiguous"}, ["log_gap_wait_ms", "log_protocol"]),
        ({"flush_bytes": 512 * MIB}, ["flush_bytes", "max_unflushed_bytes"]),
        ({"skip_memtable_bytes": 512 * MIB}, ["skip_memtable_bytes", "max_unflushed_bytes"]),
        ({"l0_sst_bytes": 512 * MIB}, ["l0_sst_bytes", "max_unflushed_bytes"]),
        ({"block_bytes": 4096, "l0_sst_bytes": 1024}, ["block_bytes", "l0_sst_bytes"]),
        ({"block_cache_bytes": 1024}, ["block_cache_bytes", "block_bytes"]),
        ({"request_timeout_ms": 60_000}, ["request_timeout_ms", "retry_deadline_ms"]),
        ({"takeover_deadline_ms": 10, "log_gap_wait_ms": 20}, ["log_gap_wait_ms", "takeover_deadline_ms"]),
    ],
    ids=str,
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(InvalidError) as caught:
        Settings(**values)
    message = str(caught.value)
    assert all(name in message for name in named), message
    assert "default factory" not in message
    assert "\n" not in message
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, ValidationError)


def test_contradictions_may_come_from_different_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATE_ACK", "flushed")
    assert Settings().ack == "flushed"
    with pytest.raises(InvalidError, match="ack"):
        Settings.from_toml(toml(tmp_path, 'log_protocol = "contiguous"'))


def test_defaults_shrink_with_the_limit_they_must_fit_in() -> None:
    settings = Settings(max_unflushed_bytes=16 * MIB)
    assert settings.l0_sst_bytes == 4 * MIB
    assert settings.skip_memtable_bytes == 2 * MIB
    assert settings.flush_bytes == MIB // 2
    assert Settings(max_unflushed_bytes=1).l0_sst_bytes == 1
    assert Settings(l0_sst_bytes=1000).block_bytes == 1000
    assert Settings(max_unflushed_bytes=4096 * MIB).l0_sst_bytes == 64 * MIB


def test_frozen_hashable_serialisable() -> None:
    settings = Settings(flush_interval_ms=5)
    with pytest.raises(ValidationError):
        settings.flush_interval_ms = 6
    assert hash(settings) == hash(Settings(flush_interval_ms=5))
    assert Settings(**json.loads(settings.model_dump_json())) == settings


def test_replace_is_checked_and_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(flush_interval_ms=5)
    monkeypatch.setenv("SLATE_FLUSH_INTERVAL_MS", "9")
    monkeypatch.setenv("SLATE_FLUSH_PARALLELISM", "9")
    assert settings.replace(log_protocol="contiguous") == settings.model_copy(update={"log_protocol": "contiguous"})
    with pytest.raises(InvalidError, match="flush_bytes"):
        settings.replace(flush_bytes=-1)
