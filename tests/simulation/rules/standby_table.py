"""The rules of standbys, each with the way to break it. None is about safety: that is the fence's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slate_async.storage.liveness.observer import WriterLiveness
from slate_async.storage.manifest.edits.writer import ClaimWriter
from slate_async.storage.manifest.state import ManifestState
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.standby import STANDBY, STANDBY_SCRIPTS

_CALM = STANDBY[1]
_SLEPT, _OUTAGE = STANDBY_SCRIPTS[0], STANDBY_SCRIPTS[2]
_claim = ClaimWriter.apply


def claim_from_anybody(self: ClaimWriter, state: ManifestState) -> ManifestState | None:
    """The present writer is fenced, even one that came after the one that was watched."""
    return _claim(replace(self, instead_of=None), state)


def sees_without_looking(self: WriterLiveness, now: float, interval_s: float) -> bool:
    """Time in which nobody looked counts."""
    return False


STANDBY_SWITCHES: Sequence[Switch] = (
    Switch(
        "beat-watched",
        "beats",
        "a standby's claim does not name the writer that it watched",
        (Patch(ClaimWriter, "apply", claim_from_anybody),),
        within=60,
        stage=_CALM,
    ),
    Switch(
        "beat-slept",
        "beats",
        "a standby counts time in which it did not look",
        (Patch(WriterLiveness, "_missed_a_look", sees_without_looking),),
        within=20,
        stage=_SLEPT,
    ),
    Switch(
        "beat-cut-off",
        "beats",
        "a standby counts time in which the store did not answer it",
        (Patch(WriterLiveness, "_missed_a_look", sees_without_looking),),
        within=300,
        stage=_OUTAGE,
    ),
)
