"""A critical hold: one that has a name, no lease, and any number of processes that know the name.

Nobody has it in memory only: what the next write is follows from what is stored. It is registered once it has a token,
which is written after a head was read that follows the hold and has not passed it (C11). So who finds one without a
token goes on with that, and a process that died on the way leaves nothing half done.

Its object is never removed while the collection is there. One that was given up is revoked, and written again when the
name is taken again: an attempt or a removal that comes late finds another etag, and a registration that lands late
finds an object (C10).

Rules C10 and C11 of collections.
"""

from __future__ import annotations

from dataclasses import replace

from slate_async.collections.core.area import Area
from slate_async.collections.core.errors import LeaseLostError, TokenMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.errors import ClosedError, InvalidError, Outcome

FIRST_TOKEN = ""


def opening(name: str, stored: StoredHold | None, head: Area, nonce: str, note: str) -> Hold | None:
    """What to write next, to have the hold called ``name``; ``None``: it is registered.

    stored: as it is; ``head`` was read after that

    Raises `ClosedError` if the collection was deleted, `InvalidError` if ``name`` is that of a leased hold."""
    if head.deleted:
        raise ClosedError("the collection was deleted")
    if stored is not None and not stored.hold.is_critical:
        raise InvalidError(f"{name} is the hold of a reader with a lease; give the critical one another name")
    if stored is None or stored.hold.revoked:
        return Hold(None, head.bound, None, nonce, 1 if stored is None else stored.hold.beat + 1, note)
    hold = replace(stored.hold, nonce=nonce, beat=stored.hold.beat + 1)
    if hold.token is not None:
        return None
    if head.bound <= hold.since:
        return replace(hold, token=FIRST_TOKEN)
    return replace(hold, since=hold.since.join(head.bound))


def is_registered(hold: Hold) -> bool:
    """Whether it stands and is believed."""
    return not hold.revoked and hold.token is not None


def standing(name: str, stored: StoredHold | None) -> Hold:
    """The hold that is stored, if it stands. Raises `LeaseLostError`."""
    if stored is None or not is_registered(stored.hold):
        raise LeaseLostError(f"the critical hold {name} was given up; open it again, at what can be read now")
    return stored.hold


def downgrading(
    name: str, stored: StoredHold | None, expected: str, token: str, since: Frontier, nonce: str, sent: frozenset[str]
) -> Hold | None:
    """What to write next, to have ``token`` and ``since`` in place of ``expected``; ``None``: they are in.

    sent: nonces of earlier attempts, one of which may be in

    Raises `TokenMismatchError` if the stored token is another one, `LeaseLostError`."""
    hold = standing(name, stored)
    if hold.nonce in sent:
        return None
    if hold.token != expected:
        text = f"the critical hold {name} has the token {hold.token!r} and since {hold.since}, not {expected!r}"
        outcome: Outcome = "unknown" if sent else "not_applied"
        raise TokenMismatchError(text, token=hold.token or "", since=hold.since, outcome=outcome)
    return replace(hold, token=token, since=hold.since.join(since), nonce=nonce, beat=hold.beat + 1)


def giving_up(stored: StoredHold | None, nonce: str) -> Hold | None:
    """What to write next, to give the hold up; ``None``: it is given up."""
    if stored is None or stored.hold.revoked:
        return None
    return replace(stored.hold, revoked=True, nonce=nonce, beat=stored.hold.beat + 1)
