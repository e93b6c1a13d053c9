"""The parts of rule 33, each with the way to break it: what a watcher is given, and from where it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slate_async.engine.changes import ingested
from slate_async.engine.watch.dispatcher import Dispatcher
from slate_async.engine.watch.pieces import Place
from slate_async.engine.watch.retained_feed import RetainedFeed
from slate_async.engine.watch.sources import WriterSource
from slate_async.engine.watch.watcher import Watcher
from slate_async.storage.manifest.state import SstRef
from tests.simulation.node import Node
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.engine.play import play_scenario
from tests.simulation.scenarios.watches import watchers
from tests.simulation.scenarios.watches.scenarios import BUSY, CALM, WatchPlay

_fall_behind = Dispatcher._fall_behind


def nothing(*_: object) -> None:
    """Do not."""


async def at_once(*_: object) -> None:
    """Do not wait."""


def behind_all(self: Dispatcher, watcher: Watcher, begin: Place) -> None:
    """A watcher that has no room for a piece goes on behind that piece."""
    _fall_behind(self, watcher, self.place)


async def what_was_read(self: RetainedFeed, seq: int) -> None:
    """What the feed has read is needed no more, whoever was passed over."""
    assert self._feed is not None
    if self._name is not None:
        await self._feed.acknowledge(self._feed.seq, now=True)


def in_any_order(ssts: Sequence[SstRef]) -> list[list[SstRef]]:
    """The rows of an ingest come SST by SST."""
    return [sorted(ssts, key=lambda sst: sst.first_key, reverse=True)] if ssts else []


def small(node: Node) -> dict[str, int]:
    """Settings that make watchers fall behind all the time, while nothing else retains what they need."""
    return {"watch_buffer_rows": node.rng.choice((1, 4)), "retention_ms": 0}


SMALL = Patch(watchers, "chosen", small)
COMPACTED = {"l0_rows": 2, "l0_flushes": 0.5, "compactors": 1, "rounds": 30}
EPOCHS = {"protocol": "epoch_prefixed", "ack": "flushed", "crashes": 0.7, "lives": 2}
FAULTY = play_scenario("watched", "what a switch runs", {**BUSY, **EPOCHS}, WatchPlay)
INGESTED = play_scenario("watched", "what a switch runs", {**CALM, "ingesters": 2}, WatchPlay)
PRESSED = play_scenario("watched", "what a switch runs", {**CALM, **COMPACTED}, WatchPlay)


def _switch(name: str, broken: str, *patches: Patch, stage: Any, within: int, behind: tuple[Patch, ...] = ()) -> Switch:
    return Switch(f"33-{name}", "33", broken, patches, within=within, stage=stage, behind=behind)


WATCH_SWITCHES: Sequence[Switch] = (
    _switch(
        "published",
        "rows are given as soon as they are acknowledged, whether a successor inherits them or not",
        Patch(WriterSource, "_until_published", at_once),
        stage=FAULTY,
        within=100,
    ),
    _switch(
        "ingests",
        "an ingest that is adopted is not noted",
        Patch(WriterSource, "adopted", nothing),
        stage=INGESTED,
        within=20,
    ),
    _switch(
        "place",
        "a watcher without room goes on behind what it had no room for",
        Patch(Dispatcher, "_fall_behind", behind_all),
        stage=INGESTED,
        within=20,
        behind=(SMALL,),
    ),
    _switch(
        "retained",
        "what a feed has read is retained no more, though a watcher was passed over",
        Patch(RetainedFeed, "acknowledge", what_was_read),
        stage=PRESSED,
        within=60,
        behind=(SMALL,),
    ),
    _switch(
        "order",
        "a feed gives the rows of an ingest in the order of the SSTs that hold them",
        Patch(ingested, "lanes", in_any_order),
        stage=INGESTED,
        within=40,
        behind=(SMALL,),
    ),
)
