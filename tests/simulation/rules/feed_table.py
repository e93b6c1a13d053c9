"""Switches of what the change feed rests on, and what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slate_async.engine.changes import source
from slate_async.engine.changes.source import ChangeSource
from slate_async.engine.changes.subscription import Subscription
from slate_async.storage.log.epoch_prefixed import EpochPrefixedLog
from slate_async.storage.manifest.edits import apply_ingests
from slate_async.storage.manifest.edits import subscriptions as feeds
from slate_async.storage.manifest.state import FeedMark, ManifestState
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.life.play import life_scenario
from tests.simulation.scenarios.life.scripts import LIFE_SCRIPTS
from tests.simulation.scenarios.protocol import Scenario


def forget_what_is_held(self: EpochPrefixedLog, claimed: ManifestState) -> int:
    """A takeover drops what is compacted, retained or not."""
    return claimed.log_start


def keep_what_is_not_read(self: Subscription) -> FeedMark:
    """The mark stands where was read, acknowledged or not."""
    seq, (position, floor) = self._log_positions[-1]
    return replace(self._mark, seq=self.acknowledged, log_seq=seq, log_position=position, log_floor=floor)


def keep_no_ingest(checkpoints: Any, ssts: Any) -> Any:
    """An ingest that is applied is kept for no feed."""
    return checkpoints


async def counts_anyway(self: ChangeSource, first: int, chunk: Any, head: ManifestState, known_start: int) -> bool:
    """Rule 13: what was read at the tail is the log, wherever the head read afterwards starts it."""
    return True


async def whole_anyway(self: ChangeSource, read: Any, chunk: Any, head: ManifestState) -> bool:
    """Numbers that are missing are not looked for."""
    return True


def anything(state: ManifestState, seq: int) -> None:
    """Whatever is asked for is there."""


def anything_follows(rows: Any, after: int, *, shared_until: int, skipped: Any, source: str) -> None:
    """Whatever comes next is next."""


def _feed(**fixed: Any) -> Scenario:
    return life_scenario("feed", "what a switch runs", **{**_BUSY, **fixed})


_BUSY = {
    "protocol": "contiguous",
    "wal": True,
    "ack": "committed",
    "writers": 3,
    "rounds": 10,
    "tasks": 1,
    "active_seconds": 3.0,
    "faults": 0.3,
    "crashes": 0.3,
    "freezes": 0.1,
    "compactors": 1,
    "collectors": 1,
    "readers": 0,
    "keepers": 0,
    "cloners": 0,
    "embedded": False,
    "retention_ms": 0,
    "min_age_ms": 0,
    "l0_rows": 1,
    "l0_flushes": 0.3,
    "width": 1,
    "feeds": 1,
}
"""Everything leaves the log at once, is compacted and collected; one consumer with a subscription by name."""

_STALE_IDS = next(scenario for scenario in LIFE_SCRIPTS if scenario.name == "script-stale-ids-feed")

FEED_SWITCHES: Sequence[Switch] = (
    Switch(
        "feed-mark",
        "feeds",
        "a feed retains what it has not read, acknowledged or not",
        (Patch(Subscription, "_target", property(keep_what_is_not_read)),),
        within=80,
        stage=_feed(),
    ),
    Switch(
        "feed-ranges",
        "feeds",
        "a takeover forgets whose the positions are that feeds retain",
        (Patch(EpochPrefixedLog, "_held_from", forget_what_is_held),),
        within=40,
        stage=_feed(protocol="epoch_prefixed", feeds=3),
    ),
    Switch(
        "feed-exact",
        "feeds",
        "a feed without a subscription goes on wherever history was compacted",
        (Patch(source, "check_exact", anything), Patch(feeds, "check_exact", anything)),
        within=80,
        stage=_feed(feeds=3),
    ),
    Switch(
        "feed-ingests",
        "feeds",
        "an ingest that is applied is kept for no feed",
        (Patch(apply_ingests, "keep_for_feeds", keep_no_ingest),),
        within=40,
        stage=_feed(feeds=3, ingesters=2),
    ),
    Switch(
        "13-feed",
        "13",
        "a change feed believes ids without a head read afterwards, and does not look whether numbers are missing",
        (Patch(ChangeSource, "_counts", counts_anyway),),
        within=40,
        stage=_STALE_IDS,
        behind=(Patch(ChangeSource, "_holds_all", whole_anyway), Patch(source, "check_gapless", anything_follows)),
        hidden=True,
    ),
)
