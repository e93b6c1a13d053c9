"""Names of a collection's objects, and back.

Below the folder of one life of a collection::

    merged_areas/                                             versions, whose names a metastore gives
    merged_batches/batch_{lower}_{upper}.{epoch:010}.{token}[.p{part:05}]
    pending_batches/{writer}/batch_{lower}_{upper}[.{token}.p{part:05}]     definite appends
    pending_batches/main/batch_{lower}[.{token}.p{part:05}]                 compare appends
    readers/{reader}/hold

A frontier in a name is a number of 20 digits, so that names sort as u64 times do; pairs ``3.0+0.5``; ``done``; and
``h`` with 32 hexadecimal digits in place of more than `LONGEST_FRONTIER` bytes. The object then says its bounds.

Rule C5: a name says all by which its deletion is decided: both bounds, or the lower one of a compare append.

Invariant: a name is taken for ours only if formatting what it says gives it again, so foreign keys are left alone.

Rules C5, C7 and C23 of collections.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.errors import InvalidError

LONGEST_FRONTIER = 70
"""Bytes of a frontier in a name; a longer one is hashed. A part of a merged batch, whose name has two of them, takes 58
bytes more, and a segment of a key has 200 at most."""
COMPARE_SHARD: Final = "main"
"""The shard of compare appends, in place of a writer's name."""
MERGED_AREAS = "merged_areas/"
MERGED_BATCHES = "merged_batches/"
PENDING_BATCHES = "pending_batches/"
READERS = "readers/"
PARTS_END = 10_000
"""Parts of a batch are numbered below it."""
EPOCH_END = 10**10

_NAME = re.compile(r"[a-z0-9-]{1,64}")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_FRONTIER = r"(h[0-9a-f]{32}|done|[0-9.+]+)"
_PART = r"\.([0-9a-f]{32})\.p([0-9]{5})"
_MERGED = re.compile(
    rf"merged_batches/batch_{_FRONTIER}_{_FRONTIER}\.([0-9]{{10}})\.([0-9a-f]{{32}})(?:\.p([0-9]{{5}}))?"
)
_DEFINITE = re.compile(rf"pending_batches/([a-z0-9-]{{1,64}})/batch_{_FRONTIER}_{_FRONTIER}(?:{_PART})?")
_COMPARE = re.compile(rf"pending_batches/main/batch_{_FRONTIER}(?:{_PART})?")
_HOLD = re.compile(r"readers/([a-z0-9-]{1,64})/hold")


@dataclass(frozen=True, slots=True)
class HashedFrontier:
    """A frontier whose name is too long: 32 hexadecimal digits of its text's BLAKE2b hash. Equal frontiers have equal
    ones."""

    digits: str

    @classmethod
    def of(cls, text: str) -> HashedFrontier:
        """The hash of the name ``text``."""
        return cls(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())


NamedFrontier: TypeAlias = Frontier | HashedFrontier
"""What a name says of a frontier."""


@dataclass(frozen=True, slots=True)
class MergedName:
    """Name of a merged batch, or of one of its parts.

    epoch, token: of the attempt that wrote it, because the same bounds are written again under later sinces (rule C23)
    """

    lower: NamedFrontier
    upper: NamedFrontier
    epoch: int
    token: str
    part: int | None = None

    def __str__(self) -> str:
        if not 0 <= self.epoch < EPOCH_END:
            raise InvalidError(f"epoch {self.epoch} is outside 0 to {EPOCH_END - 1}")
        part = "" if self.part is None else f".p{_part(self.part)}"
        bounds = f"{frontier_name(self.lower)}_{frontier_name(self.upper)}"
        return f"{MERGED_BATCHES}batch_{bounds}.{self.epoch:010}.{_token(self.token)}{part}"


@dataclass(frozen=True, slots=True)
class PendingName:
    """Name of a pending batch, or of one of its parts.

    writer: `COMPARE_SHARD` for compare appends
    upper: ``None`` for compare appends, because readers know but the lower bound of what comes next (rule C7)
    token, part: of a part; both or neither
    """

    writer: str
    lower: NamedFrontier
    upper: NamedFrontier | None
    token: str | None = None
    part: int | None = None

    def __str__(self) -> str:
        if (self.token is None) != (self.part is None):
            raise InvalidError("a part of a pending batch has a token and a number, an index neither")
        if self.upper is None and self.writer != COMPARE_SHARD:
            raise InvalidError(f"compare appends go to the shard {COMPARE_SHARD}, not {self.writer!r}")
        bounds = frontier_name(self.lower) + ("" if self.upper is None else f"_{frontier_name(self.upper)}")
        part = "" if self.token is None or self.part is None else f".{_token(self.token)}.p{_part(self.part)}"
        return f"{shard_prefix(self.writer)}batch_{bounds}{part}"


def shard_prefix(writer: str) -> str:
    """What the names of all pending batches of ``writer`` begin with."""
    return f"{PENDING_BATCHES}{check_name(writer, 'writer')}/"


def hold_name(reader: str) -> str:
    """The name of the hold of ``reader``."""
    return f"{READERS}{check_name(reader, 'reader')}/hold"


def parse_merged(name: str, kind: TimeKind) -> MergedName | None:
    """What ``name`` says, or ``None`` if it is not the name of a merged batch."""
    match = _MERGED.fullmatch(name)
    if match is None:
        return None
    lower, upper = _parse_frontier(match[1], kind), _parse_frontier(match[2], kind)
    if lower is None or upper is None:
        return None
    parsed = MergedName(lower, upper, int(match[3]), match[4], None if match[5] is None else int(match[5]))
    return parsed if _formats_as(parsed, name) else None


def parse_pending(name: str, kind: TimeKind) -> PendingName | None:
    """What ``name`` says, or ``None`` if it is not the name of a pending batch, of either kind of appends."""
    lower: NamedFrontier | None
    upper: NamedFrontier | None
    if match := _DEFINITE.fullmatch(name):
        writer, *bounds, token, part = match.groups()
    elif match := _COMPARE.fullmatch(name):
        writer = COMPARE_SHARD
        *bounds, token, part = match.groups()
    else:
        return None
    lower, upper = _parse_frontier(bounds[0], kind), None
    if len(bounds) == 2:
        upper = _parse_frontier(bounds[1], kind)
        if upper is None:
            return None
    if lower is None:
        return None
    parsed = PendingName(writer, lower, upper, token, None if part is None else int(part))
    return parsed if _formats_as(parsed, name) else None


def parse_hold(name: str) -> str | None:
    """The reader whose hold ``name`` is, or ``None`` if it is not the name of a hold."""
    match = _HOLD.fullmatch(name)
    return match[1] if match else None


def is_of_life(name: str) -> bool:
    """Whether ``name`` is that of a batch, of either kind of times, or of a hold."""
    is_batch = any(parse_pending(name, kind) or parse_merged(name, kind) for kind in TimeKind)
    return is_batch or parse_hold(name) is not None


def frontier_name(frontier: NamedFrontier) -> str:
    """``frontier`` in a name."""
    if isinstance(frontier, HashedFrontier):
        return f"h{frontier.digits}"
    if frontier == DONE:
        return str(DONE)
    if len(frontier.elements[0]) == 1:
        return f"{frontier.elements[0][0]:020}"
    text = _text(frontier)
    return text if len(text) <= LONGEST_FRONTIER else frontier_name(HashedFrontier.of(text))


def hashed_text(frontier: NamedFrontier) -> str | None:
    """What names have a hash of in place of ``frontier``; ``None`` if they say it, or if it is not known."""
    if isinstance(frontier, HashedFrontier) or frontier.is_done or len(frontier.elements[0]) == 1:
        return None
    text = _text(frontier)
    return text if len(text) > LONGEST_FRONTIER else None


def from_hashed_text(text: str, hashed: HashedFrontier, kind: TimeKind) -> Frontier | None:
    """The frontier that `hashed_text` gave ``text`` for; ``None`` if ``hashed`` is the hash of anything else."""
    found = _parse_frontier(text, kind) if HashedFrontier.of(text) == hashed else None
    return found if isinstance(found, Frontier) else None


def is_name(name: str) -> bool:
    """Whether ``name`` is one that users may give to a collection, writer or reader."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, of: str) -> str:
    """``name``, checked to be one that users may give. ``of``: of what, for the error."""
    if not is_name(name):
        raise InvalidError(f"{name!r} is no name of a {of}: that takes 1 to 64 of a-z, 0-9 and -")
    return name


def _text(frontier: Frontier) -> str:
    return "+".join(".".join(map(str, element)) for element in frontier.elements)


def _parse_frontier(text: str, kind: TimeKind) -> NamedFrontier | None:
    if text == str(DONE):
        return DONE
    if text.startswith("h"):
        return HashedFrontier(text[1:])
    elements = []
    for part in text.split("+"):
        numbers = part.split(".")
        if len(numbers) != kind.coordinates or not all(numbers):
            return None
        elements.append(tuple(map(int, numbers)))
    if any(number > TIME_END for element in elements for number in element):
        return None
    return Frontier(elements)


def _formats_as(parsed: MergedName | PendingName, name: str) -> bool:
    try:
        return str(parsed) == name
    except InvalidError:
        return False


def _token(token: str) -> str:
    if _TOKEN.fullmatch(token) is None:
        raise InvalidError(f"{token!r} is no token of 32 hexadecimal digits")
    return token


def _part(part: int) -> str:
    if not 0 <= part < PARTS_END:
        raise InvalidError(f"part {part} is outside 0 to {PARTS_END - 1}")
    return f"{part:05}"
