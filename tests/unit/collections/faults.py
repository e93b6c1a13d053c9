"""Faults of a `StoreInHand`, each for the next put only."""

from __future__ import annotations

from slate_async.errors import UnavailableError
from tests.engine import StoreInHand

FAULTS = ["request lost", "answer lost", "refused"]


def next_put(store: StoreInHand, fault: str | None) -> None:
    """Let the next put of ``store`` end so; ``None``: as it should."""
    pending = [fault] if fault is not None else []

    def fail(when: str) -> UnavailableError | None:
        if not pending or (when == "after") != (pending[0] == "answer lost"):
            return None
        outcome = "not_applied" if pending.pop() == "refused" else "unknown"
        return UnavailableError("no answer from the store", outcome=outcome)  # type: ignore[arg-type]

    store.fail_before = lambda key: fail("before")
    store.fail_after = lambda key: fail("after")
