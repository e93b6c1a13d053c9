#!/usr/bin/env python3
"""Write the pages of settings from the fields of their classes; ``--check`` only says if they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from slate_async.settings import Settings  # noqa: E402 - the checkout, not an installed copy
from slate_async.settings.collections import CollectionSettings  # noqa: E402
from slate_async.settings.serving import ServeSettings  # noqa: E402
from slate_async.settings.sourced import SourcedSettings  # noqa: E402
from slate_async.settings.sources import OTHER_VARIABLES  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
COLLECTIONS_HEAD = """# Settings of collections

<!-- Generated from slate_async/settings by scripts/settings_doc.py; do not edit. -->

Pass settings to `open_collections`, or put them into the environment or a TOML file:

```python
settings = slate.CollectionSettings(lease_ms=120_000, poll_interval_ms=100)
async with slate.open_collections("s3://bucket/live", settings=settings) as lake:
    await (await lake.create("orders")).expire()
```

```toml
[slate.collections]
lease_ms = 120_000
```

The sources, their order and their errors are those of the [settings of databases](settings.md). The variables begin
with `SLATE_COLLECTIONS_`, such as `SLATE_COLLECTIONS_LEASE_MS`. A TOML file holds the names below in its table
`[slate.collections]`, or at its top level if it has no table at all.

These limits hold between settings:

| setting | limit |
|---|---|
| `request_timeout_ms` | at most `retry_deadline_ms` |
| `lease_ms` | more than twice `poll_interval_ms` |
"""
SERVE_HEAD = """# Settings of servers

<!-- Generated from slate_async/settings by scripts/settings_doc.py; do not edit. -->

Pass settings to `serve`, or put them into the environment or a TOML file. The [guide](../guide/flight.md) says how to
serve.

```toml
[slate.serve]
streams = 128
```

The sources, their order and their errors are those of the [settings of databases](settings.md). The variables begin
with `SLATE_SERVE_`, such as `SLATE_SERVE_STREAMS`. `slate --settings FILE serve` reads the table `[slate.serve]`.

`message_bytes` is at most `put_memory_bytes`.
"""
HEAD = """# Settings

<!-- Generated from slate_async/settings by scripts/settings_doc.py; do not edit. -->

Pass settings to `open`, or put them into the environment or a TOML file:

```python
settings = slate.Settings(flush_interval_ms=50, compression="none")
async with slate.open("s3://bucket/db", settings=settings) as db:
    await db.put(b"k", b"v")
```

```toml
[slate]
flush_interval_ms = 50
compression = "lz4"
```

| source, the strongest first | example |
|---|---|
| keyword | `Settings(flush_interval_ms=50)` |
| environment variable; an empty one counts as unset | `SLATE_FLUSH_INTERVAL_MS=50` |
| TOML file | `Settings.from_toml("slate.toml")`, `slate --settings slate.toml` |
| default | |

A TOML file holds the names below at its top level, or in a `[slate]` table. With such a table, the rest of the file
belongs to others and is ignored.

An unknown, malformed or contradictory setting raises `InvalidError`, which names it. So does an environment variable
that begins with `SLATE_` and misspells a setting (`SLATE_FLUSH_INTERVALL_MS`), because a default would silently stay
in place. Any other unknown variable, such as an application's own `SLATE_URL`, is ignored with one warning in the
log. These variables give no warning:

- {others};
- those that Kubernetes sets for services whose name begins with "slate" (`SLATE_SERVICE_HOST`,
  `SLATE_PORT_80_TCP`, …).

`Settings` is frozen. `settings.replace(flush_interval_ms=50)` returns a changed copy, checked again, without a look
at the environment. It holds no secrets: credentials come from the environment and profiles of the
[store](stores.md). Other terms are in the [glossary](glossary.md).

The creation of a database fixes `log_protocol` and `wal_enabled`. Unset, they follow the database. A value that
contradicts it is refused when the database is opened. Settings that depend on them, such as `ack = "flushed"`, are
checked then as well.

These limits hold between settings. If only the larger one is set, a default that would not fit shrinks. If both are
set, a contradiction is refused.

| setting | limit |
|---|---|
| `flush_bytes`, `skip_memtable_bytes`, `l0_sst_bytes` | at most `max_unflushed_bytes` |
| `block_bytes` | at most `l0_sst_bytes` and `block_cache_bytes` |
| `request_timeout_ms` | at most `retry_deadline_ms` |
| `log_gap_wait_ms`, `manifest_poll_interval_ms` | at most `takeover_deadline_ms` |
| `checkpoint_lifetime_ms` | more than twice `manifest_poll_interval_ms` |
"""


def render() -> dict[str, str]:
    """The whole pages, by their names."""
    others = ", ".join(f"`{name}`" for name in sorted(OTHER_VARIABLES))
    return {
        "settings.md": _page(HEAD.format(others=others), Settings),
        "collection-settings.md": _page(COLLECTIONS_HEAD, CollectionSettings),
        "serve-settings.md": _page(SERVE_HEAD, ServeSettings),
    }


def _page(head: str, settings: type[SourcedSettings]) -> str:
    parts, prefix = [head], settings.model_config["env_prefix"]
    for name, info in settings.model_fields.items():
        documented: dict[str, Any] = dict(info.json_schema_extra)  # type: ignore[arg-type]
        default = documented.get("default_text") or _default(info.default, str(documented["unit"]))
        parts.append(f"## `{name}`\n\n{documented['what']}\n")
        lines = [f"- Unit: {documented['unit']}", f"- Default: {default}"]
        if bounds := _bounds(info.metadata):
            lines.append(f"- Allowed: {bounds}")
        lines.append(f"- Environment: `{prefix}{name.upper()}`")
        lines.append(f"- Why: {documented['why']}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _default(value: object, counted_in: str) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value and value % size == 0 and counted_in.startswith("bytes"):
                return f"{value:,} ({value // size} {unit})"
        return f"{value:,}"
    return f"`{value}`"


def _bounds(metadata: list[Any]) -> str:
    words = (("ge", "at least"), ("gt", "above"), ("le", "at most"))
    found = [f"{word} {getattr(item, key):,}" for key, word in words for item in metadata if hasattr(item, key)]
    return ", ".join(found)


def main() -> int:
    """Write or check the pages."""
    old = 0
    for name, text in render().items():
        page = REFERENCE / name
        if sys.argv[1:] != ["--check"]:
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            print(f"docs/reference/{name} is out of date: run scripts/settings_doc.py")
            old = 1
    return old


if __name__ == "__main__":
    raise SystemExit(main())
