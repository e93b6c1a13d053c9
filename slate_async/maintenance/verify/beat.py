"""The writer's beat: nothing depends on it, but bytes that are no beat say that something else writes here."""

from __future__ import annotations

from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.storage.format.heartbeat import decode_beat
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.types import Finding, finding_of


async def damaged_beat(store: ObjectStore) -> list[Finding]:
    """Whether the beat that is there, if one is, does not decode."""
    try:
        decode_beat((await store.get(ALIVE_KEY)).data, object_name=ALIVE_KEY)
    except ObjectNotFoundError:
        return []
    except CorruptionError as error:
        return [finding_of(error)]
    except InvalidError as error:  # of a newer release, or damaged just there
        return [Finding(ALIVE_KEY, None, str(error))]
    return []
