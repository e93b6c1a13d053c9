"""What stands in for a rule of collections that is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slate_async.collections.core import coverage, holding, names, times
from slate_async.collections.core.area import Area, MergedBatch, find_neighbours
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.coverage import Extension, Reach, Taken
from slate_async.collections.core.edits import Absorb, Claim, check_epoch, check_open
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import Listed, MergedFile, PendingFile, Picture
from slate_async.collections.core.holding import Cover, Handle, Hold, StoredHold
from slate_async.collections.core.times import Time
from tests.simulation.scenarios.collections import controllers, holds, readers
from tests.simulation.scenarios.collections.controllers import AreaEdit, Controller
from tests.simulation.scenarios.collections.holds import Reader
from tests.simulation.scenarios.collections.pending import Pending, listed
from tests.simulation.scenarios.collections.stage import TAKEN, UNKNOWN, Request, Role, Stage


def always(*_: object) -> bool:
    """Yes."""
    return True


def never(*_: object) -> bool:
    """No."""
    return False


def unchecked(*_: object) -> None:
    """No assertion."""


# ---- times and cuts


def joined(time: Time, since: Sequence[Time]) -> Time:
    """The elements of a since are joined, not met."""
    for element in since:
        time = times.join(time, element)
    return time


def cut_where_compacted(since: Frontier, at: Frontier) -> bool:
    """At the since itself as well."""
    return since <= at


def all_of_it(coverage_before: Frontier) -> Frontier:
    """A restart needs nothing before where it begins."""
    return coverage_before


# ---- coverage

_reach, _extend = coverage.reach, coverage.extend


def across_gaps(at: Frontier, lower: Frontier, upper: Frontier) -> Reach:
    """A batch extends whatever there is."""
    found = _reach(at, lower, upper)
    return Reach.EXTENDS if found is Reach.GAP else found


def extend_in_any_order(start: Frontier, batches: Any, *, limit: int | None = None) -> Extension[Any]:
    """Each batch in turn, wherever it begins."""
    taken: list[Taken[Any]] = []
    for batch in batches:
        if not batch.upper <= start and (limit is None or len(taken) < limit):
            taken.append(Taken(batch, start, start.join(batch.upper)))
            start = taken[-1].end
    return Extension(start, tuple(taken))


# ---- pending names


def name_of_lower(stage: Stage, writer: str, lower: Frontier, upper: Frontier) -> str:
    """Definite names say the lower bound only."""
    return f"{names.shard_prefix(writer)}batch_{names.frontier_name(lower)}"


def unnamed(stage: Stage, name: str) -> PendingFile | None:
    """One must look to know where a batch ends."""
    return None


def name_of_both(stage: Stage, writer: str, lower: Frontier, upper: Frontier) -> str:
    """Compare names say both bounds, so that two may follow the same batch."""
    return f"{names.shard_prefix('main')}batch_{names.frontier_name(lower)}_{names.frontier_name(upper)}"


def read_untrimmed(stage: Stage, head: Area, start: Frontier, limit: int | None = None) -> Role[Pending | None]:
    """Rows are taken that were covered before."""
    return listed(stage, start, head.last, limit, trimmed=False)


def absorb_untrimmed(stage: Stage, head: Area, limit: int | None) -> Role[Pending | None]:
    """Rows are absorbed that were absorbed before."""
    return listed(stage, head.upper, head.last, limit, trimmed=False)


def read_all(stage: Stage, head: Area, start: Frontier, limit: int | None = None) -> Role[Pending | None]:
    """Compare batches are taken wherever they begin."""
    return listed(stage, start, head.last, limit)


def file_of_compare(stage: Stage, name: str) -> PendingFile | None:
    """What a name with both bounds says."""
    lower, upper = name.rsplit("batch_", 1)[1].split("_")
    return PendingFile(name, parsed(stage, lower), parsed(stage, upper))


def parsed(stage: Stage, text: str) -> Frontier:
    """A frontier in a name."""
    found = names.parse_pending(f"{names.shard_prefix('x')}batch_{text}_{text}", stage.kind)
    assert found is not None
    assert isinstance(found.lower, Frontier)
    return found.lower


# ---- holds

_stands, _attempt = holding.stands, holding.attempt


def put_hold(stage: Stage, handle: Handle, hold: Hold) -> Request:
    """Over whatever is there."""
    name = names.hold_name(handle.reader)
    return stage.create(name, hold, "hold") if handle.etag is None else stage.put(name, hold, "hold")


def stands_by_name(handle: Handle, stored: StoredHold | None) -> bool:
    """Any hold of that name is the own one."""
    return stored is not None and not stored.hold.revoked


def covers_all(*_: object) -> Cover:
    """A clone is believed."""
    return Cover.ALL


def move_and_read_on(stage: Stage, mine: Reader) -> Role[None]:
    """The old version is read until the move is answered, and after it was not."""
    if mine.listening is not None:
        yield from _move(stage, mine)
        return
    head: Area = yield stage.read_head()
    handle, nonce = mine.handle, stage.token()
    moved = _attempt(handle, nonce, version=max(head.version, handle.version or 0))
    mine.handle = replace(handle, attempts=handle.attempts | {nonce}, beat=moved.beat)
    answer = yield holds.send(stage, handle, holding.to_write(moved, nonce))
    if answer is not UNKNOWN and answer != TAKEN:
        mine.handle = holding.written(moved, answer)
        mine.area = head if head.version > mine.area.version else mine.area
        return
    yield from stage.nap("register", 200)
    for _ in range(3):
        yield from readers.snapshot(stage, mine, False)


_move = readers.move


# ---- the controller


def published_or_met(head: Area, meet: Frontier | None) -> Frontier:
    """Whatever the holds allow that were listed."""
    return head.bound if meet is None else meet


def last_of(sinces: list[Frontier]) -> Frontier:
    """Any hold speaks for all."""
    return sinces[-1]


def lowest_now(published: Area, held: Sequence[int]) -> int:
    """No version is needed but the head that was read, and those that are held."""
    return min((published.version, *held))


def ignored(stage: Stage, mine: Controller, name: str, stored: StoredHold) -> Role[bool]:
    """A lease that ran out is taken for revoked."""
    if mine.quiet:
        return (yield from _is_revoked(stage, mine, name, stored))
    return bool(mine.leases.expired({name: stored}, stage.now))


_is_revoked = controllers.is_revoked


def remove_holds_last(stage: Stage, mine: Controller, head: Area) -> Role[None]:
    """Only the last process of all removes them."""
    if mine.quiet:
        yield from _remove_holds(stage, mine, head)


_remove_holds = controllers.remove_holds


def unfenced(area: Area, epoch: int) -> None:
    """Any epoch may commit."""
    check_open(area)


def absorb_anywhere(self: Absorb, area: Area) -> Area | None:
    """Whatever the upper is by now."""
    check_epoch(area, self.epoch)
    if self.batch.name in area.names():
        return None
    return area.following(
        batches=(*area.batches, self.batch), upper=area.upper.join(self.batch.bounds.upper), last=self.last
    )


def find_somewhere(batches: Sequence[MergedBatch], named: Sequence[str]) -> slice | None:
    """If the inputs are not there, those that stand where they might have."""
    found = find_neighbours(batches, named)
    if found is not None or not batches:
        return found
    return slice(max(len(batches) - len(named), 0), len(batches))


def settled_unless_claim(edit: AreaEdit) -> bool:
    """No answer is taken for one."""
    return not isinstance(edit, Claim)


def lowest_and_head(lowest: int, head: int) -> Sequence[int]:
    """Versions between are not read."""
    return [lowest] if 0 < lowest < head else []


def head_cuts_off(lowest: Frontier, head: Frontier) -> Frontier:
    """Of the head."""
    return head


def name_of_bounds(stage: Stage, mine: Controller, bounds: Bounds) -> str:
    """Merged names say the bounds only."""
    return str(names.MergedName(bounds.lower, bounds.upper, mine.epoch, "0" * 32)).replace(f".{mine.epoch:010}.", ".")


def file_of_bounds(stage: Stage, name: str) -> MergedFile:
    """No epoch is known."""
    upper = name.removesuffix(f".{'0' * 32}").rsplit("_", 1)[1]
    return MergedFile(name, name, 0, parsed(stage, upper))


def look_late(stage: Stage, mine: Controller, lowest: int) -> Role[Picture | None]:
    """Files are listed after the versions were read."""
    wanted = Listed(lowest, (), frozenset()).at((yield stage.read_head()))
    picture = yield from controllers.read_versions(stage, wanted)
    if picture is None:
        return None
    files = yield from controllers.list_merged(stage)
    return replace(picture, listed=Listed(lowest, files, frozenset(mine.in_flight)))
