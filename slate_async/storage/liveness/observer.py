"""`WriterLiveness`: watches whether a database's writer lives, without a claim of its own.

A writer that closes gives its checkpoint in the manifest back; of one that died it stays. So a head without one says at
once that nobody writes. Else the beats in ``writer/alive`` decide: the writer counts as ``dead`` when they stood still
for `MISSED_BEATS` intervals of the observer's own monotonic clock, all that time under its eyes. No two machines'
clocks are compared, and an observer that slept, or that the store did not answer, begins to count anew.

A frozen writer counts as ``dead``, too. The state only decides when a standby tries a takeover; fencing decides safety.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.costs import MonthlyRequests, of_a_month
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.runtime.protocol import Clock
from slate_async.storage.format.heartbeat import Beat, Sent, decode_beat
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.manifest.edits.writer import has_writer
from slate_async.storage.manifest.state import ManifestState

MISSED_BEATS = 3
LOOKS_PER_BEAT = 3
"""How often an observer looks, so that it sees each beat, and may miss a look without counting anew."""
LifeState = Literal["never", "closed", "alive", "dead", "unknown"]
"""``never``: there was no writer; ``unknown``: it was not watched for long enough, or it does not beat."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriterLife:
    """What an observer knows of a database's writer.

    state: ``"never"``: there was none; ``"closed"``: the last one closed; ``"alive"``: its beats come; ``"dead"``: they
    stood still for three intervals; ``"unknown"``: not watched for long enough, or it does not beat
    epoch: the newest writer's; 0 if there was none
    interval_ms: how often it beats; ``None`` if it does not
    seen_ms: wall clock of its last sign of life: its newest beat, by the store's clock, or its claim or last change of
        SSTs, by its own; ``None`` unless it has the database open
    beat_ms: when its newest beat was written, by the store's clock; ``None`` if there is none
    monthly_requests: the requests of a month that goes on as the writer's client did until that beat, as
        `Status.monthly_requests`; ``None`` without a beat, and while it had counted for less than ten seconds
    """

    state: LifeState
    epoch: int
    interval_ms: int | None = None
    seen_ms: int | None = None
    beat_ms: int | None = None
    monthly_requests: MonthlyRequests | None = None

    @property
    def free(self) -> bool:
        """Whether the database may be taken over without fencing a writer that is known, or thought, to live."""
        return self.state in ("never", "closed", "dead")

    def guess(self, now_ms: int) -> LifeState:
        """As ``state``; where that is not known yet, what the wall clocks say, if they agree."""
        if self.state != "unknown" or self.interval_ms is None or self.seen_ms is None:
            return self.state
        return "alive" if now_ms - self.seen_ms < MISSED_BEATS * self.interval_ms else "dead"


class WriterLiveness:
    """See the module docstring. ``name`` and ``store`` are the database's: its URL for the log, and its folder. Belongs
    to one caller, which looks at least once in each interval of the writer's: else what it saw before does not
    count."""

    def __init__(self, name: str, store: ObjectStore, clock: Clock) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._token = ""
        self._beat: Beat | None = None
        self._alive = False
        self._still_since = 0.0
        self._looked = 0.0

    async def look(self, head: ManifestState) -> WriterLife:
        """What ``head``, just read, and the writer's newest beat say. One read, or none if the head says it all.

        Raises `UnavailableError`; what was seen before does not count then."""
        epoch, interval_ms = head.writer_epoch, head.heartbeat_interval_ms
        if not has_writer(head):
            self._token = ""
            return WriterLife("closed" if head.writer_token else "never", epoch)
        pinned_ms = max(checkpoint.create_ms for checkpoint in head.checkpoints if checkpoint.owner == "writer")
        if interval_ms is None:
            return WriterLife("unknown", epoch, None, pinned_ms)
        began = self._clock.monotonic()
        found = await self._read(head)
        interval_s = interval_ms / 1000
        if head.writer_token != self._token or self._missed_a_look(began, interval_s):
            self._start(head.writer_token)
        self._looked = began  # one that is on its way while the observer sleeps counts as the gap that it is
        if found is not None and found[0] != self._beat:
            self._alive = self._beat is not None
            self._beat, self._still_since = found[0], self._clock.monotonic()
        state = self._judge(began, interval_s)
        if found is None:
            return WriterLife(state, epoch, interval_ms, pinned_ms)
        beat, beat_ms = found
        return WriterLife(state, epoch, interval_ms, max(pinned_ms, beat_ms), beat_ms, _month_of(beat.sent))

    def _missed_a_look(self, now: float, interval_s: float) -> bool:
        return now - self._looked > interval_s

    def _start(self, token: str) -> None:
        self._token, self._beat, self._alive = token, None, False
        self._still_since = self._clock.monotonic()

    def _judge(self, now: float, interval_s: float) -> LifeState:
        if now - self._still_since >= MISSED_BEATS * interval_s:
            self._alive = False
            return "dead"
        return "alive" if self._alive else "unknown"

    async def _read(self, head: ManifestState) -> tuple[Beat, int] | None:
        """The newest beat of the head's own writer, and when the store says it was written."""
        try:
            result = await self._store.get(ALIVE_KEY)
        except ObjectNotFoundError:
            return None
        try:
            beat = decode_beat(result.data, object_name=ALIVE_KEY)
        except (CorruptionError, InvalidError) as error:
            logger.warning(
                "%s: the writer's heartbeat cannot be read, and the next one replaces it: %s", self._name, error
            )
            return None
        if beat.database_id != head.database_id or beat.epoch != head.writer_epoch:
            return None
        return beat, result.info.last_modified_ms


def _month_of(sent: Sent | None) -> MonthlyRequests | None:
    if sent is None:
        return None
    return of_a_month({"put": sent.puts, "get": sent.gets, "list": sent.lists}, sent.counted_ms / 1000)
