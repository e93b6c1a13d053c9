"""How ``collection inspect`` draws a collection: frontiers on a line, layers with bars, shards, holds, garbage."""

from __future__ import annotations

from slate_async.cli.output import Output, counted, utc
from slate_async.collections.overview.views import HoldView, Overview

BAR = 24
"""Characters of the longest bar."""


def draw(output: Output, found: Overview) -> None:
    """Print it, a table for each part."""
    who = f"epoch {found.epoch}" if found.epoch else "no controller yet"
    state = ", deleted" if found.deleted else ""
    created = "" if found.created_ms is None else f" created {utc(found.created_ms)}"
    output.line(
        f"{found.name}: {found.appends}, times {found.time}, life {found.life}{created}, version {found.version},"
        f" {who}{state}"
    )
    output.line(
        f"lower {found.lower} ≤ since {found.since} ≤ bound {found.bound}; upper {found.upper}, readable to"
        f" {found.reach}"
    )
    output.line(
        f"{counted(found.rows, 'update')} merged, {size(found.nbytes)}; versions from {found.floor} on are kept,"
        f" {found.retained} besides the head"
    )
    most = max((layer.rows for layer in found.layers), default=0)
    output.table(
        "layers, oldest first",
        ("layer", "from", "to", "compacted to", "updates", "bytes", "data", "times", "fuel", ""),
        [
            [
                str(layer.level),
                layer.lower,
                layer.upper,
                layer.since,
                f"{layer.rows:,}",
                size(layer.nbytes),
                f"{layer.keys:,}",
                f"{layer.times:,}",
                f"{layer.fuel:,}" if layer.fuel else "-",
                bar(layer.rows, most),
            ]
            for layer in found.layers
        ],
        headed=True,
    )
    most = max((shard.nbytes for shard in found.shards), default=0)
    output.table(
        "pending beyond that, by writer",
        ("writer", "reaches", "batches", "bytes", "behind a gap", ""),
        [
            [
                shard.writer,
                shard.reach,
                str(shard.batches),
                size(shard.nbytes),
                str(shard.ahead),
                bar(shard.nbytes, most),
            ]
            for shard in found.shards
        ],
        headed=True,
    )
    output.table(
        "holds",
        ("reader", "note", "version", "since", "lease", "renewed", "keeps"),
        [[hold.reader, hold.note, *ages(hold)] for hold in found.holds],
        headed=True,
    )
    if not output.out.is_terminal:
        output.line("")
    for damage in (hold.damage for hold in found.holds if hold.damage):
        output.line(damage)
    output.line(garbage(found))


def ages(hold: HoldView) -> list[str]:
    """Version, since, lease, when it was renewed, and what it keeps, as cells."""
    if hold.damage:
        return ["-", "-", "-", f"{hold.idle_ms / 1000:.0f} s ago", "damaged: everything"]
    keeps = [name for name, does in (("since", hold.holds_since), ("floor", hold.holds_floor)) if does]
    lease = "critical" if hold.lease_ms is None else f"{hold.lease_ms / 1000:g} s"
    return [
        "-" if hold.version is None else str(hold.version),
        hold.since,
        lease,
        f"{hold.idle_ms / 1000:.0f} s ago",
        "revoked" if hold.revoked else ", ".join(keeps) or "-",
    ]


def garbage(found: Overview) -> str:
    """What could go, in one line."""
    view = found.garbage
    if any(hold.damage for hold in found.holds):
        return "garbage: none is collected while a hold is damaged"
    if not view.known:
        return "garbage: not known, because a version is missing or damaged; `slate collection verify` says which"
    said = [
        f"{counted(view.merged, 'merged object')}, {counted(view.pending, 'pending object')}"
        f" and {counted(view.versions, 'version')}, {size(view.nbytes)}"
    ]
    if view.flying:
        said.append(f"{counted(view.flying, 'merged object')} of a merge that goes on or was given up")
    if view.foreign:
        said.append(f"{counted(view.foreign, 'object')} that do not belong here")
    return f"garbage: {'; '.join(said)}"


def bar(value: int, most: int) -> str:
    """As long as ``value`` is of ``most``; something for whatever is there."""
    return "█" * max(1 if value else 0, round(BAR * value / most)) if most else ""


def size(nbytes: int) -> str:
    """Bytes as people say them."""
    if nbytes < 1024:
        return f"{nbytes} B"
    scaled, units = nbytes / 1024, ["GiB", "MiB", "KiB"]
    while scaled >= 1024 and len(units) > 1:
        scaled, _ = scaled / 1024, units.pop()
    return f"{scaled:.1f} {units[-1]}"
