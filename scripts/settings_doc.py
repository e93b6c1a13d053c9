#!/usr/bin/env python3
"""Write ``docs/reference/settings.md`` from the fields of `Settings`; ``--check`` only says if it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from slate_async.settings import Settings  # noqa: E402 - the checkout, not an installed copy
from slate_async.settings.sources import OTHER_VARIABLES  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "settings.md"
HEAD = """# Settings

<!-- Generated from slate_async/settings by scripts/settings_doc.py; do not edit. -->

A setting comes from, strongest first: a keyword (`Settings(flush_interval_ms=50)`), an environment variable
(`SLATE_FLUSH_INTERVAL_MS=50`; an empty one counts as unset), a TOML file (`Settings.from_toml("slate.toml")`, or
`slate --settings slate.toml`), its default. A TOML file holds the names below at its top level, or in a `[slate]`
table; with such a table, everything outside of it belongs to others and is left alone.

```toml
[slate]
flush_interval_ms = 50
compression = "lz4"
```

An unknown, malformed or contradictory setting is refused with `InvalidError`, which names it. An environment variable
that begins with `SLATE_` and is a misspelt setting (`SLATE_FLUSH_INTERVALL_MS`) is refused, too, because it would
silently leave a default in place. Any other unknown one, such as an application's own `SLATE_URL`, is ignored with one
warning in the log. No warning is given for
{others}
and for what Kubernetes sets for services whose name begins with "slate" (`SLATE_SERVICE_HOST`, `SLATE_PORT_80_TCP`, …).

`Settings` is frozen; `settings.replace(flush_interval_ms=50)` makes a changed copy, checked again, in which the
environment plays no part. It holds no secrets: credentials come from the environment and profiles of the store
([stores](stores.md)).

`log_protocol` and `wal_enabled` are fixed when a database is created. Unset, they follow the database; one that
contradicts it is refused when it is opened. What follows from them (such as `ack = "flushed"`) is then checked as
well.

Sizes of which one must hold the other are checked: `flush_bytes`, `skip_memtable_bytes` and `l0_sst_bytes` are at
most `max_unflushed_bytes`, and `block_bytes` is at most `l0_sst_bytes` and `block_cache_bytes`. Where only the
larger one is set, a default that would not fit shrinks; where both are set, the contradiction is refused. Likewise
`request_timeout_ms` is at most `retry_deadline_ms`, and
`log_gap_wait_ms` and `manifest_poll_interval_ms` are at most `takeover_deadline_ms`; `checkpoint_lifetime_ms` exceeds
twice `manifest_poll_interval_ms`.
"""


def render() -> str:
    """The whole page."""
    others = ", ".join(f"`{name}`" for name in sorted(OTHER_VARIABLES))
    parts = [HEAD.format(others=others)]
    for name, info in Settings.model_fields.items():
        documented: dict[str, Any] = dict(info.json_schema_extra)  # type: ignore[arg-type]
        default = documented.get("default_text") or _default(info.default, str(documented["unit"]))
        parts.append(f"## `{name}`\n\n{documented['what']}\n")
        lines = [f"- Unit: {documented['unit']}", f"- Default: {default}"]
        if bounds := _bounds(info.metadata):
            lines.append(f"- Allowed: {bounds}")
        lines.append(f"- Environment: `SLATE_{name.upper()}`")
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
    """Write or check the page."""
    if sys.argv[1:] == ["--check"]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == render()
        if not fresh:
            print("docs/reference/settings.md is out of date: run scripts/settings_doc.py")
        return 0 if fresh else 1
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
