"""The wire proxy: each fault does on both sides of the wire what it says, and no request travels twice."""

from __future__ import annotations

import asyncio
import http.client
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config

from tests.netproxy import (
    CONDITIONAL_CONFLICT,
    DYNAMODB_THROTTLED,
    PASS,
    SLOW_DOWN,
    Chooser,
    CutAfter,
    CutBefore,
    CutInRequest,
    CutInResponse,
    Delay,
    DeliverLate,
    Fault,
    ProtocolError,
    Request,
    ThreadedProxy,
    Throttle,
    WireProxy,
    pass_all,
    scripted,
    seeded,
)
from tests.netproxy.http import Body, Framing, Head, response_body
from tests.servers.process import free_port

BODY = b"0123456789" * 1_000
GONE = (ConnectionError, http.client.HTTPException)


class Recorder(ThreadingHTTPServer):
    """An HTTP server that keeps what it was sent and echoes bodies."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.whole: list[tuple[str, bytes]] = []
        self.cut: list[tuple[str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def wait_whole(self, count: int) -> bool:
        for _ in range(500):
            if len(self.whole) >= count:
                return True
            time.sleep(0.01)
        return False


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        recorder = cast("Recorder", self.server)
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if len(body) < size:
            recorder.cut.append((self.path, body))
            return
        recorder.whole.append((self.path, body))
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b"ab", b"cde")) + b"0\r\n\r\n")
        elif self.path == "/until-close":
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"until close")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

    do_GET = do_PUT = do_POST = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Client:
    """One keep-alive client connection to a proxy."""

    def __init__(self, proxy: WireProxy) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", int(proxy.url.rsplit(":", 1)[1]), timeout=30)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def ask(self, path: str, body: bytes = BODY, method: str = "PUT") -> tuple[int, bytes]:
        self._connection.request(method, path, body)
        with self._connection.getresponse() as response:
            return response.status, response.read()


def _proxied(recorder: Recorder, choose: Chooser = pass_all) -> ThreadedProxy:
    return ThreadedProxy(recorder.url, choose)


def test_passes_bodies_of_every_framing_on_one_connection(recorder: Recorder) -> None:
    with _proxied(recorder) as proxy, Client(proxy) as client:
        assert client.ask("/a%20b?q=1") == (200, BODY)
        assert client.ask("/chunked") == (200, b"abcde")
        assert client.ask("/head", b"", "HEAD") == (200, b"")
        assert client.ask("/empty", b"") == (200, b"")
        assert client.ask("/until-close") == (200, b"until close")
        assert client.ask("/again") == (200, BODY)
        assert (proxy.count(), proxy.count("PUT"), proxy.count("PUT", "/a b")) == (6, 5, 1)
        assert proxy.seen[0].request.query == "q=1"
    assert [path for path, _ in recorder.whole] == [
        "/a%20b?q=1",
        "/chunked",
        "/head",
        "/empty",
        "/until-close",
        "/again",
    ]


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    ("fault", "carried_out"),
    [(CutBefore, False), (CutInRequest, False), (CutAfter, True), (CutInResponse, True)],
)
def test_cuts(recorder: Recorder, fault: Any, carried_out: bool, reset: bool) -> None:
    choose = scripted([fault(reset=reset)], lambda request: request.path == "/cut")
    with _proxied(recorder, choose) as proxy, Client(proxy) as client, Client(proxy) as other:
        with pytest.raises(GONE):
            client.ask("/cut")
        assert other.ask("/other") == (200, BODY)
        assert proxy.count(path="/cut") == 1
    assert (("/cut", BODY) in recorder.whole) == carried_out
    assert recorder.whole.count(("/cut", BODY)) <= 1


def test_a_request_cut_in_the_middle_reaches_the_server_in_part(recorder: Recorder) -> None:
    with (
        _proxied(recorder, scripted([CutInRequest(0.25)])) as proxy,
        Client(proxy) as client,
        pytest.raises(GONE),
    ):
        client.ask("/part")
    assert recorder.cut == [("/part", BODY[:2_500])]


def test_a_response_cut_in_the_middle_arrives_in_part(recorder: Recorder) -> None:
    with _proxied(recorder, scripted([CutInResponse(100)])) as proxy, Client(proxy) as client:
        with pytest.raises(http.client.IncompleteRead) as caught:
            client.ask("/part")
        assert caught.value.partial == BODY[:100]


def test_a_late_delivery_lands_after_the_client_gave_up(recorder: Recorder) -> None:
    with _proxied(recorder, scripted([DeliverLate(0.2)])) as proxy, Client(proxy) as client:
        with pytest.raises(GONE):
            client.ask("/late")
        before = list(recorder.whole)
        assert recorder.wait_whole(1)
    assert before == []
    assert recorder.whole == [("/late", BODY)]


@pytest.mark.parametrize("fault", [Delay(0.01, 0.01), Throttle(10_000_000), PASS])
def test_slow_answers_are_whole(recorder: Recorder, fault: Fault) -> None:
    with _proxied(recorder, scripted([fault])) as proxy, Client(proxy) as client:
        assert client.ask("/slow") == (200, BODY)


def test_own_answers_never_reach_the_server_and_keep_the_connection(recorder: Recorder) -> None:
    with _proxied(recorder, scripted([SLOW_DOWN, CONDITIONAL_CONFLICT])) as proxy, Client(proxy) as client:
        status, body = client.ask("/a")
        assert (status, b"<Code>SlowDown</Code>" in body) == (503, True)
        status, body = client.ask("/a")
        assert (status, b"<Code>ConditionalRequestConflict</Code>" in body) == (409, True)
        assert client.ask("/a") == (200, BODY)
    assert recorder.whole == [("/a", BODY)]


def test_a_server_that_is_down_costs_the_client_its_connection() -> None:
    with ThreadedProxy(f"http://127.0.0.1:{free_port()}") as proxy, Client(proxy) as client, pytest.raises(GONE):
        client.ask("/a")


def test_an_error_of_the_chooser_fails_the_test(recorder: Recorder) -> None:
    def choose(request: Request) -> Fault:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup, match="the proxy failed"), _proxied(recorder, choose) as proxy:
        with Client(proxy) as client, pytest.raises(GONE):
            client.ask("/a")


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "http://127.0.0.1", "127.0.0.1:80"])
def test_refuses_urls_it_cannot_serve(url: str) -> None:
    with pytest.raises(ValueError, match="must read http://host:port"):
        WireProxy(url)


def test_seeded_choices_repeat_and_keep_their_rates() -> None:
    requests = [Request(number, "PUT", "/", "", {}) for number in range(2_000)]

    def run(seed: int) -> list[Fault]:
        choose = seeded(random.Random(seed), [(0.1, CutAfter()), (0.2, SLOW_DOWN)])
        return [choose(request) for request in requests]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(1).count(CutAfter()) in range(150, 250)
    assert run(1).count(SLOW_DOWN) in range(330, 470)
    with pytest.raises(ValueError, match="sum to at most 1"):
        seeded(random.Random(1), [(0.6, PASS), (0.6, PASS)])


def test_bodies_end_where_the_head_says() -> None:
    def head(status: int, *fields: tuple[str, str]) -> Head:
        return Head(f"HTTP/1.1 {status} OK", fields)

    length = ("Content-Length", "5")
    assert response_body(head(200, length), "GET") == Body(Framing.LENGTH, 5)
    assert response_body(head(200, length), "HEAD") == Body(Framing.LENGTH, 0)
    assert response_body(head(204), "DELETE") == Body(Framing.LENGTH, 0)
    assert response_body(head(200, ("Transfer-Encoding", "chunked")), "GET") == Body(Framing.CHUNKED)
    assert response_body(head(200), "GET") == Body(Framing.UNTIL_CLOSE)
    with pytest.raises(ProtocolError, match="not a length"):
        response_body(head(200, ("Content-Length", "-5")), "GET")
    with pytest.raises(ProtocolError, match="not a status line"):
        response_body(Head("SSH-2.0", ()), "GET")


def test_in_front_of_s3_a_lost_response_leaves_the_object(s3_endpoint: str) -> None:
    lost = scripted([CutAfter()], lambda request: request.conditional)
    config = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    with ThreadedProxy(s3_endpoint, lost) as proxy:
        s3 = boto3.client("s3", endpoint_url=proxy.url, config=config, **keys)
        s3.create_bucket(Bucket="netproxy")
        with pytest.raises(botocore.exceptions.HTTPClientError):
            s3.put_object(Bucket="netproxy", Key="a/b c", Body=BODY, IfNoneMatch="*")
        assert s3.get_object(Bucket="netproxy", Key="a/b c")["Body"].read() == BODY
        with pytest.raises(botocore.exceptions.ClientError, match="PreconditionFailed"):
            s3.put_object(Bucket="netproxy", Key="a/b c", Body=BODY, IfNoneMatch="*")
        assert proxy.count("PUT", "/netproxy/a/b c", conditional=True) == 2


def test_in_front_of_s3_half_a_request_changes_nothing(s3_endpoint: str) -> None:
    config = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    with ThreadedProxy(s3_endpoint, scripted([CutInRequest()], lambda request: request.conditional)) as proxy:
        s3 = boto3.client("s3", endpoint_url=proxy.url, config=config, **keys)
        s3.create_bucket(Bucket="netproxy-half")
        with pytest.raises(botocore.exceptions.HTTPClientError):
            s3.put_object(Bucket="netproxy-half", Key="a", Body=BODY, IfNoneMatch="*")
        assert "Contents" not in s3.list_objects_v2(Bucket="netproxy-half")


def test_in_front_of_dynamodb_operations_are_distinguished(s3_endpoint: str) -> None:
    throttled = scripted([DYNAMODB_THROTTLED], lambda request: request.operation == "ListTables")
    config = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    with ThreadedProxy(s3_endpoint, throttled) as proxy:
        client = boto3.client("dynamodb", endpoint_url=proxy.url, config=config, **keys)
        with pytest.raises(client.exceptions.ProvisionedThroughputExceededException):
            client.list_tables()
        client.list_tables()
        assert (proxy.count(operation="ListTables"), proxy.count(operation="PutItem")) == (2, 0)


async def test_serves_many_connections_in_the_callers_loop(recorder: Recorder) -> None:
    with ThreadPoolExecutor(8) as pool:
        async with WireProxy(recorder.url) as proxy:

            def ask(number: int) -> tuple[int, bytes]:
                with Client(proxy) as client:
                    return client.ask(f"/{number}")

            loop = asyncio.get_running_loop()
            answers = await asyncio.gather(*(loop.run_in_executor(pool, ask, number) for number in range(64)))
    assert answers == [(200, BODY)] * 64
    assert len(recorder.whole) == 64
