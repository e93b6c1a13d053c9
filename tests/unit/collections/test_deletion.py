"""How a deletion goes on and gives up: `slate_async.collections.deletion`."""

from __future__ import annotations

import pytest

from slate_async.collections import deletion
from slate_async.collections.open import open_collections
from slate_async.collections.store.holds import HoldStore
from slate_async.errors import UnavailableError
from tests.engine import StoreInHand


@pytest.mark.parametrize("force", [False, True])
async def test_nothing_is_removed_while_each_listing_shows_new_holds(
    store: StoreInHand, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C14: holds go before what they protect; a call that gives up leaves that to another one."""
    async with open_collections(store, name="memory://lake", controller=False) as lake:
        await (await lake.create("orders")).expire()
        async with lake.collection("orders").writer() as writer:
            await writer.append([(b"x", 1, 1)], upper=2)
        number = iter(range(1_000_000))

        async def listed(holds: HoldStore) -> dict[str, str]:
            return {f"job-{next(number)}": "etag"}

        with monkeypatch.context() as patched:
            patched.setattr(deletion, "LISTINGS", 3)
            patched.setattr(HoldStore, "list", listed)
            with pytest.raises(UnavailableError, match="each of 3 listings showed new holds of orders"):
                await lake.delete("orders", force=force)
        keys = [info.key async for info in store.list("orders/1/pending_batches/")]
        assert len(keys) == 1
        await lake.delete("orders")
