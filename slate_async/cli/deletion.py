"""``delete``: one key, or all keys of a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slate_async.cli.encoding import Encoding, json_field, parse
from slate_async.cli.exit_codes import OK
from slate_async.cli.output import counted
from slate_async.cli.session import Session, WritableDatabase
from slate_async.engine.write.batch import WriteBatch
from slate_async.engine.write.range_rows import range_to_delete
from slate_async.errors import InvalidError

DELETED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Doomed:
    """Which keys to delete, as given on the command line."""

    key: str | None
    prefix: str | None
    start: str | None
    end: str | None

    def check(self) -> None:
        """Raise `InvalidError` unless it says one key, or one range that is not all keys."""
        ranged = self.start is not None or self.end is not None
        if (self.key is not None) + (self.prefix is not None) + ranged != 1:
            raise InvalidError("give either KEY, --prefix, or --start and --end")
        if self.prefix == "" or (ranged and not self.start and self.end is None):
            name = "--prefix" if self.prefix == "" else "--start"
            raise InvalidError(f"an empty {name} is every key; `slate destroy` ends a database")


async def delete(session: Session, doomed: Doomed, *, encoding: Encoding) -> int:
    """Remove one key, or a range of them."""
    doomed.check()
    if doomed.key is None:
        return await _delete_range(session, _range(doomed, encoding))
    key_bytes = parse(doomed.key, encoding, what="KEY")
    async with session.writing(create=False) as database:
        handle = await database.delete(key_bytes)
    if session.output.as_json:
        name, shown = json_field("key", key_bytes, encoding)
        session.output.json({name: shown, "seq": handle.seq})
    return OK


def _range(doomed: Doomed, encoding: Encoding) -> dict[str, Any]:
    given = {"prefix": doomed.prefix, "start": doomed.start, "end": doomed.end}
    keys = {name: parse(text, encoding, what=f"--{name}") for name, text in given.items() if text is not None}
    if "prefix" not in keys:
        range_to_delete(keys.get("start"), keys.get("end"))  # an empty range is refused before the database is opened
    return keys


async def _delete_range(session: Session, keys: dict[str, Any]) -> int:
    async with session.writing(create=False) as database:
        if not database.status().wal_enabled:
            return await _delete_one_by_one(session, database, keys)
        if "prefix" in keys:
            handle = await database.delete_prefix(keys["prefix"])
        else:
            handle = await database.delete_range(keys.get("start"), keys.get("end"))
    if session.output.as_json:
        session.output.json({"seq": handle.seq})
    return OK


async def _delete_one_by_one(session: Session, database: WritableDatabase, keys: dict[str, Any]) -> int:
    """Without a write-ahead log: what is there now, in batches; of one that is broken off, a part is removed."""
    count, batch, last = 0, WriteBatch(), None
    async for key, _ in database.scan(**keys):
        batch.delete(key)
        count += 1
        if len(batch) == DELETED_AT_ONCE:
            last = await database.write(batch, await_durable=False)
            batch.clear()
    if len(batch):
        last = await database.write(batch, await_durable=False)
    if last is not None:
        await last.durable()
    if session.output.as_json:
        session.output.json({"deleted": count})
    session.output.note(f"{counted(count, 'key')} deleted")
    return OK
