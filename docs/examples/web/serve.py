"""Serves the shop until a signal comes, or another process takes its database over.

    python docs/examples/web/serve.py --url file:///tmp/shop --port 8000

README.md, beside this file, explains it.
"""

from __future__ import annotations

import argparse
import socket

import uvicorn
from fastapi import FastAPI
from web import make_app


class Server(uvicorn.Server):
    """uvicorn, which ends feeds before it waits for requests to end, and ends when the database has."""

    def __init__(self, app: FastAPI, **config: object) -> None:
        super().__init__(uvicorn.Config(app, **config))  # type: ignore[arg-type]
        self._app = app

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        return await super().on_tick(counter) or self._app.state.ended.done()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Requests that are under way get their answers; then the database is closed."""
        self._app.state.shop.end_feeds()
        await super().shutdown(sockets)


def main() -> None:
    """Arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="where the database is: a folder, or s3://bucket/shop")
    parser.add_argument("--metastore", help="where its metadata is, if not there: dynamodb://table")
    parser.add_argument("--session-seconds", type=float, default=1_800, help="a session that nobody uses ends then")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    app = make_app(asked.url, asked.metastore, asked.session_seconds)
    Server(app, host=asked.host, port=asked.port, access_log=False, timeout_graceful_shutdown=20).run()


if __name__ == "__main__":
    main()
