"""Persistent collections without ``await``."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

import slate_async as slate


def test_what_is_written_is_read_and_kept(tmp_path: Path) -> None:
    with slate.sync.open_collections(tmp_path / "live", controller=False) as lake:
        reader, orders = lake.create("orders", note="billing"), lake.collection("orders")
        with orders.writer("relay-a") as writer:
            writer.append([(b"a", 0, 1), (b"b", 1, 1)], upper=2)
            with writer.batch(upper=4) as batch:
                batch.add([(b"a", 2, -1)])
                batch.add([(b"c", 3, 2)])
            assert str(writer.upper) == "4"
            assert writer.metrics()["collections.append.rows"] == 4
        with reader.snapshot(3) as snapshot:
            assert list(snapshot.rows()) == [(b"b", 1), (b"c", 2)]
            assert snapshot.to_arrow(expand=True).num_rows == 3
            assert sum(batch.num_rows for batch in snapshot.batches()) == 2
            assert [row for part in snapshot.splits(2) for row in part.rows()] == list(snapshot.rows())
            assert len(snapshot.to_pandas()) == 2
        with reader.subscribe(0) as listener:
            given = 0
            for delta in listener:
                given += delta.updates.num_rows
                if delta.upper == slate.Frontier([(4,)]):
                    break
        assert given == 4
        with orders.controller(background=False) as controller:
            assert (controller.epoch, controller.settle().changed) == (1, False)
            assert controller.metrics()["collections.controller.absorbed"] == 2
        assert orders.inspect().rows > 0
        assert orders.verify().clean
        other = reader.clone("second")
        other.downgrade_since(2)
        assert str(other.since) == "2"
        pin = orders.critical("billing")
        pin.compare_and_downgrade("", "one", 1)
        pin.refresh()
        assert (pin.token, str(pin.since), pin.name) == ("one", "1", "billing")
        with pin.reader() as under:
            assert str(under.since) == "1"
        with pytest.raises(slate.ConflictError, match="readers hold the collection"):
            lake.delete("orders")
        lake.delete("orders", force=True)
        assert [(info.name, info.state) for info in lake.list()] == [("orders", "deleted")]
        assert lake.metrics()["store.requests.put_if"] > 0
    with pytest.raises(slate.ClosedError):
        lake.list()


def test_a_lake_shares_an_environment_which_closes_it() -> None:
    with slate.sync.Environment() as env:
        lake = slate.sync.open_collections("memory://sync/live", environment=env)
        reader = lake.create("orders")
        service = lake.controllers(["orders"])
    with pytest.raises(slate.ClosedError):
        reader.snapshot(1)
    service.close()
    reader.expire()
    lake.close()


def test_threads_append_side_by_side() -> None:
    with slate.sync.open_collections("memory://sync/threads", controller=False) as lake:
        lake.create("orders", appends="compare").expire()
        orders = lake.collection("orders")

        def append() -> None:
            with orders.writer() as writer:
                for _ in range(5):
                    while True:
                        try:
                            upper = writer.upper.elements[0][0]
                            writer.append([(b"a", upper, 1)], lower=upper, upper=upper + 1)
                            break
                        except slate.UpperMismatchError as error:
                            assert error.outcome == "not_applied"  # noqa: PT017

        threads = [threading.Thread(target=append) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with orders.reader() as reader, reader.snapshot(14) as snapshot:
            assert list(snapshot.rows()) == [(b"a", 15)]


def test_one_that_is_dropped_is_closed_with_a_warning() -> None:
    lake = slate.sync.open_collections("memory://sync/dropped")
    with pytest.warns(ResourceWarning, match="the lake memory://sync/dropped was never closed"):  # noqa: PT031
        del lake
        gc.collect()
