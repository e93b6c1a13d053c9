"""`WriterSignals`: the news that the parts of a writer have for one another.

A part raises a signal and does not know its listeners. `Writer` connects all of them in one place, so that the whole
web can be read there, order included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Generic, ParamSpec

if TYPE_CHECKING:
    from slate_async.engine.write.memtables import Segment

P = ParamSpec("P")


class Signal(Generic[P]):
    """Calls its listeners in order, synchronously, whenever it is raised by a call."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        self.listeners: tuple[Callable[P, object], ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self.listeners:
            listener(*args, **kwargs)

    def connect(self, listeners: Sequence[Callable[P, object]]) -> None:
        """Set the listeners. Raises `RuntimeError` if it has some: a signal is connected in one place."""
        if self.listeners:
            raise RuntimeError("the signal is connected already")
        self.listeners = tuple(listeners)


@dataclass(frozen=True, slots=True)
class WriterSignals:
    """Raised by, and when:

    rows_added: the sequencer, when the log flusher may have to do something about rows it applied
    space_wanted: the sequencer, when a write waits for room in memory
    memtable_cut: the memtables, before the uncut rows become a segment
    memtable_frozen: the memtables, when the active one was replaced
    group_full: a commit group, when another `GROUP_COMMIT_WAITERS` wait for it
    completed: the completion queue, when every waiter that was in it has had its turn
    acknowledged: the log flusher, with each segment, in the step in which its rows are durable
    published: the log flusher, when the log holds more objects for good
    adopted: the state, when a newer manifest state is installed
    released: the state, with the bytes of a memtable whose rows are in SSTs now
    ssts_changed: the state, when compaction and change feeds may find something new
    polled: the head's polling, after each poll
    failed: the supervisor, with the cause, when a task of the writer fails
    """

    rows_added: Signal[[]] = field(default_factory=Signal)
    space_wanted: Signal[[]] = field(default_factory=Signal)
    memtable_cut: Signal[[]] = field(default_factory=Signal)
    memtable_frozen: Signal[[]] = field(default_factory=Signal)
    group_full: Signal[[]] = field(default_factory=Signal)
    completed: Signal[[]] = field(default_factory=Signal)
    acknowledged: Signal[[Segment]] = field(default_factory=Signal)
    published: Signal[[]] = field(default_factory=Signal)
    adopted: Signal[[]] = field(default_factory=Signal)
    released: Signal[[int]] = field(default_factory=Signal)
    ssts_changed: Signal[[]] = field(default_factory=Signal)
    polled: Signal[[]] = field(default_factory=Signal)
    failed: Signal[[BaseException]] = field(default_factory=Signal)

    def connect(self, **listeners: Sequence[Callable[..., object]]) -> None:
        """Connect the signals of these names."""
        for name, called in listeners.items():
            getattr(self, name).connect(called)

    def table(self) -> dict[str, list[str]]:
        """The names of the listeners by signal."""
        names = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: [_name_of(listener, names) for listener in signal.listeners] for name, signal in names.items()}


def _name_of(listener: Callable[..., object], signals: dict[str, Signal[...]]) -> str:
    known = next((name for name, signal in signals.items() if signal is listener), None)
    return getattr(listener, "__qualname__", repr(listener)) if known is None else known
