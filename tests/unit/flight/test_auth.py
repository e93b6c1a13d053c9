"""Who may do what, by tokens, passwords and certificates."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.flight as fl
import pytest

import slate_async as slate
from slate_async.errors import ConfigError, InvalidError
from slate_async.flight.auth import Accounts, hashed_password
from slate_async.flight.serve import serve
from slate_async.rpc.tls import ServerTls
from slate_async.rpc.tokens import digest_of
from slate_async.settings.serving import ServeSettings
from tests.engine import memory_store
from tests.support.certificates import certificates
from tests.support.flight import get_all, put, rows, served, stock

ORDERS = fl.FlightDescriptor.for_path("shop", "orders")
PASSWORD = "correct horse"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(
        f"""
        secret = "0123456789abcdef"
        [tokens.reader]
        sha256 = "{digest_of("reading")}"
        grants = {{ shop = "read" }}
        [tokens.writer]
        sha256 = "{digest_of("writing")}"
        grants = {{ shop = "write" }}
        [users.ann]
        password = "{hashed_password(PASSWORD, bytes(16))}"
        grants = {{ "*" = "admin" }}
        [certificates.ann]
        grants = {{ "*" = "read" }}
        """
    )
    return file


def bearer(token: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


async def test_tokens_say_what_their_owner_may_do(tokens: Path) -> None:
    async with served(memory_store(), tokens=tokens) as (_, server):
        for options in (None, bearer("wrong"), bearer("")):
            with pytest.raises(fl.FlightUnauthenticatedError) as refused:
                await stock(server, lambda client, options=options: client.get_flight_info(ORDERS, options))
            assert "wrong" not in str(refused.value)
        await stock(server, lambda client: client.get_flight_info(ORDERS, bearer("reading")))

        def write(client: fl.FlightClient, token: str) -> None:
            writer, _ = client.do_put(ORDERS, rows(0, 1).schema, bearer(token))
            writer.write_table(rows(0, 1))
            writer.close()

        with pytest.raises(fl.FlightUnauthorizedError, match="'reader' needs the role 'write' in database 'shop'"):
            await stock(server, lambda client: write(client, "reading"))
        await stock(server, lambda client: write(client, "writing"))
        body = json.dumps({"database": "more"}).encode()
        with pytest.raises(fl.FlightUnauthorizedError):
            await stock(server, lambda client: list(client.do_action(("create-database", body), bearer("writing"))))
        assert server.metrics()["flight.auth_failures"] == 3


async def test_a_handshake_gives_a_token_that_expires(tokens: Path) -> None:
    limits = ServeSettings(token_ms=1_000)
    async with served(memory_store(), tokens=tokens, settings=limits) as (_, server):
        for user, password in (("ann", "wrong"), ("bob", PASSWORD)):
            with pytest.raises(fl.FlightUnauthenticatedError, match="user or password is wrong"):
                await stock(server, lambda client, pair=(user, password): client.authenticate_basic_token(*pair))

        def work(client: fl.FlightClient) -> tuple[bytes, bytes]:
            header: tuple[bytes, bytes] = client.authenticate_basic_token("ann", PASSWORD)
            client.get_flight_info(ORDERS, fl.FlightCallOptions(headers=[header]))
            return header

        name, value = await stock(server, work)
        assert (name, value.startswith(b"Bearer slate1.")) == (b"authorization", True)


async def test_a_handshake_of_a_handler_gives_a_token_too(tokens: Path) -> None:
    class Handler(fl.ClientAuthHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.token = b""

        def authenticate(self, outgoing: object, incoming: object) -> None:
            outgoing.write(fl.BasicAuth("ann", PASSWORD).serialize())  # type: ignore[attr-defined]
            self.token = incoming.read()  # type: ignore[attr-defined]

        def get_token(self) -> bytes:
            return self.token

    async with served(memory_store(), tokens=tokens) as (_, server):

        def work(client: fl.FlightClient) -> int:
            client.authenticate(Handler())
            return len(client.get_flight_info(ORDERS).endpoints)

        assert await stock(server, work) == 1


async def test_everything_over_tls_with_a_certificate(tokens: Path, tmp_path: Path) -> None:
    folder = certificates(tmp_path)
    tls = ServerTls(folder / "server.pem", folder / "server.key")
    ca = {"tls_root_certs": (folder / "ca.pem").read_bytes()}
    async with served(memory_store(), tls=tls) as (_, server):
        await stock(server, lambda client: put(client, ORDERS, rows(0, 50)), **ca)
        assert (await stock(server, lambda client: get_all(client, ORDERS), **ca)).num_rows == 50
    tls = ServerTls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    shown = {"cert_chain": (folder / "client.pem").read_bytes(), "private_key": (folder / "client.key").read_bytes()}
    async with served(memory_store(), tls=tls, tokens=tokens) as (_, server):
        await stock(server, lambda client: client.get_flight_info(ORDERS), **ca, **shown)
        with pytest.raises(fl.FlightUnauthorizedError):
            await stock(server, lambda client: put(client, ORDERS, rows(0, 1)), **ca, **shown)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:0", "example.org:0"])
async def test_only_loopback_without_tls_or_tokens(listen: str, tmp_path: Path) -> None:
    async with slate.open_catalog(memory_store(), name="memory://lake") as catalog:
        with pytest.raises(ConfigError, match="without TLS"):
            await serve(catalog, listen)
        tls = ServerTls(tmp_path / "a", tmp_path / "b")
        with pytest.raises(ConfigError, match="without tokens"):
            await serve(catalog, listen, tls=tls)
        with pytest.raises(InvalidError, match="host:port"):
            await serve(catalog, "localhost")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "no TOML"),
        ("[other]", "unknown entry 'other'"),
        ("[tokens.a]\nsha256 = 'zz'\ngrants = {a = 'read'}", "tokens.a in the file of tokens needs sha256"),
        (f"[tokens.a]\nsha256 = '{'0' * 64}'", "needs grants"),
        (f"[tokens.a]\nsha256 = '{'0' * 64}'\ngrants = {{a = 'all'}}", "needs grants"),
        ("[users.a]\npassword = 'hunter2'\ngrants = {a = 'read'}", "users.a in the file of tokens needs a password"),
        ("secret = 'short'", "16 characters"),
        ("tokens = 3", "are tables"),
    ],
)
def test_a_file_of_tokens_that_is_wrong_is_named_and_not_shown(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        Accounts.read(file)
    assert "hunter2" not in str(refused.value)
