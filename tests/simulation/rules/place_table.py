"""Switches of the rules that prove a place, and that tell a lost tail of the log (R10, R21, 13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slate_async.engine.context import DatabaseContext
from slate_async.engine.write import open as opening
from slate_async.maintenance.verify.verifier import Verifier
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.log.missing import LogLook, MissingObject, judge_missing, look_at_log
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.places import AdoptPlace
from slate_async.storage.manifest.edits.writer import ClaimWriter, UnpinWriter
from slate_async.storage.manifest.marker import FoundMarker, Ground, LoadHead
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import Finding
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.engine.places import PLACES
from tests.simulation.scenarios.life.tails import TAILS

_SCRIPTS = {scenario.name.removeprefix("script-"): scenario for scenario in (*PLACES, *TAILS)}
_checked = opening._checked
_adopt = AdoptPlace.apply


async def never_checked(
    self: Ground, state: ManifestState, load_head: LoadHead, found: FoundMarker | None = None
) -> ManifestState:
    """R21: whatever place this is."""
    return state


async def not_checked_again(self: Ground, state: ManifestState, load_head: LoadHead) -> None:
    """R10: what was proved once is believed for ever."""


async def claimed_first(
    context: DatabaseContext, driver: ManifestDriver, *, create: bool, properties: Mapping[str, str] | None
) -> Any:
    """R21: the claim, and then a look whether this is the place."""
    await driver.commit(ClaimWriter(context.runtime.ids.token(), 1))
    return await _checked(context, driver, create=create, properties=properties)


def unnoted(self: UnpinWriter, state: ManifestState) -> ManifestState | None:
    """13: nobody notes how far the log goes."""
    return DeleteCheckpoints(self.ids).apply(state)


async def judge_by_old_head(
    missing: MissingObject,
    seen: ManifestState,
    load_head: LoadHead,
    check_place: Callable[[ManifestState], Awaitable[object]] | None = None,
) -> ManifestState:
    """13: what was missed is judged by the head that was read before."""

    async def old_head() -> ManifestState:
        return seen

    return await judge_missing(missing, seen, old_head, check_place)


async def all_that_is_missing(self: Verifier, missing: Sequence[Finding], *_: object) -> list[Finding]:
    """13: no head is read after what was missed."""
    return list(missing)


async def believed(self: Verifier, head: ManifestState) -> None:
    """R10: what was missed is lost, wherever this is."""


async def miss_nothing(store: ObjectStore, state: ManifestState, register: WriterRegister | None) -> LogLook:
    """13: the look before the claim takes a hole for the log's end."""
    return replace(await look_at_log(store, state, register), missing=None)


def adopted_as_of_any(self: AdoptPlace, state: ManifestState) -> ManifestState | None:
    """R21: an adoption applies, whatever the database has needed since its objects were looked for."""
    seen = replace(state, store_id=self.looked_at.store_id)
    return _adopt(replace(self, looked_at=seen), state)


PLACE_SWITCHES: Sequence[Switch] = (
    Switch(
        "r21-adopted",
        "R21",
        "an adoption applies on top of a state that is not the one whose objects were looked for",
        (Patch(AdoptPlace, "apply", adopted_as_of_any),),
        within=60,
        stage=_SCRIPTS["adopted-place"],
    ),
    Switch(
        "r21-marker",
        "R21",
        "an opening does not look whose place it is in",
        (Patch(Ground, "check", never_checked),),
        within=20,
        stage=_SCRIPTS["wrong-place"],
    ),
    Switch(
        "r21-order",
        "R21",
        "an opening claims before it looks whose place it is in",
        (Patch(opening, "_checked", claimed_first),),
        within=20,
        stage=_SCRIPTS["wrong-place"],
    ),
    Switch(
        "r10-after",
        "R10",
        "the marker is not read again after the log was found to end",
        (Patch(Ground, "check_again", not_checked_again),),
        within=20,
        stage=_SCRIPTS["lost-place"],
    ),
    Switch(
        "r10-verified",
        "R10",
        "the marker is not read again after a verification missed objects",
        (Patch(Verifier, "_still_here", believed),),
        within=10,
        stage=_SCRIPTS["lost-place-of-a-verification"],
    ),
    *(
        Switch(
            f"13-verified-early{name}",
            "13",
            f"what a verification misses of the log {without} is judged by the head that was read before",
            (Patch(Verifier, "_lost", all_that_is_missing),),
            within=10,
            stage=_SCRIPTS[script],
        )
        for name, without, script in (
            ("", "with a WAL", "flushed-under-a-verification"),
            ("-no-wal", "without a WAL", "compacted-under-a-verification"),
        )
    ),
    Switch(
        "13-tail",
        "13",
        "nobody notes how far the log goes, so a lost tail is taken for its end",
        (Patch(UnpinWriter, "apply", unnoted),),
        within=20,
        stage=_SCRIPTS["lost-tail"],
    ),
    *(
        Switch(
            f"13-judged-early{name}",
            "13",
            f"what an opening misses of the log {without} is judged by the head that was read before",
            (Patch(opening, "judge_missing", judge_by_old_head),),
            within=20,
            stage=_SCRIPTS[script],
        )
        for name, without, script in (
            ("", "with a WAL", "flushed-under-a-look"),
            ("-no-wal", "without a WAL", "compacted-under-a-look"),
        )
    ),
    *(
        Switch(
            f"13-unseen-{kind}",
            "13",
            f"the look before the claim takes a hole in the log of a {kind} for its end",
            (Patch(opening, "look_at_log", miss_nothing),),
            within=20,
            stage=_SCRIPTS[f"lost-tail-of-a-{kind}"],
        )
        for kind in ("clone", "mirror")
    ),
)
