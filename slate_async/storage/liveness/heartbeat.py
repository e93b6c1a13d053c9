"""`Heartbeat`: the task in which a writer says that it lives, by overwriting ``writer/alive``.

Nobody's safety depends on it: a beat that is late, lost, or overwritten by a zombie's only makes an observer wonder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

import anyio

from slate_async.errors import SlateError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Clock
from slate_async.storage.format.heartbeat import Beat, Sent, encode_beat

ALIVE_KEY = "writer/alive"
logger = logging.getLogger(__name__)


class Heartbeat:
    """Beats of the writer of ``epoch``, every ``interval_ms``, the first one after the first interval, so a writer that
    closes soon sends none. A writer that claims again may set ``epoch``. Each beat stores what ``sent`` returns.

    ``name``: the database's, for the log."""

    def __init__(
        self,
        name: str,
        store: ObjectStore,
        clock: Clock,
        database_id: UUID,
        epoch: int,
        interval_ms: int,
        *,
        sent: Callable[[], Sent],
    ) -> None:
        self.epoch = epoch
        self._name = name
        self._store = store
        self._clock = clock
        self._database_id = database_id
        self._interval_ms = interval_ms
        self._sent = sent
        self._refused = False
        self._scope = anyio.CancelScope()

    def stop(self) -> None:
        """Let `run` end."""
        self._scope.cancel()

    async def run(self) -> None:
        """Beat until `stop`. Of beats that the store refuses, the first in a row is logged."""
        number = 0
        with self._scope:
            while True:
                await self._clock.sleep(self._interval_ms / 1000)
                number += 1
                await self._beat(number)

    async def _beat(self, number: int) -> None:
        beat = Beat(self._database_id, self.epoch, number, self._sent())
        try:
            await self._store.put(ALIVE_KEY, encode_beat(beat))
            self._refused = False
        except SlateError as error:
            if not self._refused:
                logger.warning("%s: the writer's heartbeat (%s) was not stored: %s", self._name, ALIVE_KEY, error)
            self._refused = True
