"""Which listeners hear of what in a writer, order included, and that a signal is connected once."""

from __future__ import annotations

import pytest

import slate_async as slate
from slate_async.engine.write.signals import Signal, WriterSignals


async def test_the_table_of_connections() -> None:
    async with await slate.open("memory://signals") as db:
        assert db._writer.signals.table() == {
            "rows_added": ["LogFlusher.notify"],
            "space_wanted": ["WriterState.freeze_if_idle", "LogFlusher.notify"],
            "memtable_cut": ["Sequencer.end_lease", "OpenTransactions.follow_cut"],
            "memtable_frozen": ["WriterState.show", "L0Flusher.notify"],
            "group_full": ["LogFlusher.notify"],
            "completed": ["LogFlusher.notify"],
            "acknowledged": ["WriterSource.acknowledged"],
            "published": ["Sequencer.reclaim", "L0Flusher.notify"],
            "adopted": [
                "Sequencer.adopted",
                "OpenTransactions.adopted",
                "L0Pressure.changed",
                "ssts_changed",
                "LogFlusher.notify",
                "IngestApplier.notify",
                "Sequencer.reclaim",
            ],
            "released": ["Admission.release"],
            "ssts_changed": ["EmbeddedCompactor.notify", "WriterUpdates.notify", "WriterSource.adopted"],
            "polled": ["EmbeddedCompactor.notify"],
            "failed": ["Db._writer_failed"],
        }


def test_listeners_are_called_in_order() -> None:
    heard: list[tuple[str, int]] = []
    signals = WriterSignals()
    signals.released(1)  # nobody listens yet
    signals.connect(released=[lambda nbytes: heard.append(("a", nbytes)), lambda nbytes: heard.append(("b", nbytes))])
    signals.released(2)
    assert heard == [("a", 2), ("b", 2)]


def test_a_signal_is_connected_in_one_place() -> None:
    signal: Signal[[]] = Signal()
    signal.connect([])
    signal.connect([list])
    with pytest.raises(RuntimeError, match="connected already"):
        signal.connect([dict])
