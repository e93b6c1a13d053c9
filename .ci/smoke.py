"""The installed package, with its core dependencies only, writes and reads."""

import asyncio
import tempfile

import slate_async as slate


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for url in ("memory://smoke", f"file://{folder}/db"):
            async with slate.open(url) as db:
                await db.put(b"key", b"value")
                assert await db.get(b"key") == b"value"
                assert [item async for item in db.scan(prefix=b"k")] == [(b"key", b"value")]
        async with slate.open(f"file://{folder}/db", create=False) as db:
            assert await db.get(b"key") == b"value"


asyncio.run(main())
print("smoke: the installed package works")
