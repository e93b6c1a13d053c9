"""A script that ends right after its last request: its process ends in order, whatever the store's client still does.

The client's threads set results of futures from outside the event loop. Here they take a while to come back from that,
as they do now and then on a busy machine.
"""

from __future__ import annotations

import pytest

from tests.integration.places import make_bucket, url_query
from tests.integration.processes import ChildProcess

SCRIPT = """
import asyncio, sys, threading, time
import slate_async as slate

class SlowToLeave(asyncio.SelectorEventLoop):
    def _write_to_self(self):
        super()._write_to_self()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.3)

async def fails():
    try:
        await slate.open(sys.argv[2], create=False)
    except slate.NotFoundError:
        print("failed", flush=True)

async def fails_uncaught():
    print("failed", flush=True)
    await slate.open(sys.argv[2], create=False)

async def is_read():
    async with slate.open(sys.argv[2]) as db:
        await db.put(b"k", b"v")
    reader = await slate.open_reader(sys.argv[2], pin=False)
    print("read", await reader.get(b"k"), flush=True)

main = {"fails": fails, "fails_uncaught": fails_uncaught, "is_read": is_read}[sys.argv[1]]
with asyncio.Runner(loop_factory=SlowToLeave) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [("fails", 0, "failed"), ("fails_uncaught", 1, "failed"), ("is_read", 0, "read b'v'")],
)
async def test_a_process_ends_right_after_its_last_request(
    what: str, status: int, said: str, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    url = f"s3://{make_bucket(s3_endpoint)}/db{url_query(s3_endpoint)}"
    async with ChildProcess(["-c", SCRIPT, what, url]) as child:
        assert await child.wait() == status, child.stderr_tail()
        assert child.received[-1:] == [said]
