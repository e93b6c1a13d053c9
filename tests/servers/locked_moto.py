"""moto's S3 and DynamoDB as one linearizable HTTP server: ``python -m tests.servers.locked_moto PORT``.

moto's own server runs requests of several threads through unsynchronised dictionaries, which loses
acknowledged writes. Here a thread per connection reads a whole request, takes the one lock, calls moto's
application, and answers after the lock is free again: every request is atomic. HTTP/1.1 with keep-alive;
``Expect: 100-continue`` is answered before the body is read.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
LOCK = threading.Lock()
APPLICATION = cast("Application", DomainDispatcherApplication(create_backend_app))
MAX_LINE = 65_536


class Handler(BaseHTTPRequestHandler):
    """One keep-alive connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 300

    def _serve(self) -> None:
        body = self._read_body()
        if body is None:
            self.close_connection = True
            return
        environ = self._environ(body)
        answer: list[Any] = []
        with LOCK:
            parts = APPLICATION(environ, lambda status, headers, exc_info=None: answer.extend((status, headers)))
            content = b"".join(parts)
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        self._answer(answer[0], answer[1], content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_OPTIONS = do_PATCH = _serve

    def handle_expect_100(self) -> bool:
        """Say "100 Continue" at once: the client holds its body back until it comes."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def _read_body(self) -> bytes | None:
        """The whole body, or ``None`` if the client went away in the middle: half a request is never carried out."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_exactly(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(MAX_LINE).split(b";")[0] or b"-1", 16):
            chunk = self._read_exactly(size)
            if chunk is None:
                return None
            chunks.append(chunk)
            self.rfile.readline(MAX_LINE)
        while self.rfile.readline(MAX_LINE).strip():
            pass
        return b"".join(chunks)

    def _read_exactly(self, size: int) -> bytes | None:
        data = self.rfile.read(size) if size > 0 else b""
        return data if len(data) == size else None

    def _environ(self, body: bytes) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": self.path,
            "REQUEST_URI": self.path,
            "REMOTE_ADDR": "127.0.0.1",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": str(cast("ThreadingHTTPServer", self.server).server_port),
            "SERVER_PROTOCOL": self.request_version,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in self.headers.items():
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH", "TRANSFER_ENCODING"):
                environ[f"HTTP_{key}"] = value
        return environ

    def _answer(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response_only(int(code), reason)
        named_length = False
        for name, value in headers:
            lower = name.lower()
            if lower in ("connection", "transfer-encoding") or (lower == "content-length" and self.command != "HEAD"):
                continue
            named_length = named_length or lower == "content-length"
            self.send_header(name, value)
        if not named_length and int(code) not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


class Server(ThreadingHTTPServer):
    """A thread per connection, room for many connecting at once."""

    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    """Serve on the loopback port named by the first argument, until killed."""
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
