"""Options, markers and servers shared by all tests.

Servers start when the first test asks for one and end with the run. Names of buckets, containers and tables
must be fresh per test; none may be kept from one test module to the next (see `tests.servers.moto`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.servers import node
from tests.servers.etcd import etcd
from tests.servers.install import is_left_out
from tests.servers.localstack import LocalStack
from tests.servers.moto import AWS_ENVIRONMENT, LockedMoto
from tests.servers.radosgw import Radosgw
from tests.slices import slice_seed as commit_seed

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")  # how long an example takes says how busy the machine is

ALL_SERVERS_FIXTURES = ("localstack_endpoint", "radosgw_endpoint")
MOTO = pytest.StashKey[LockedMoto]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--full`` and ``--all-servers``."""
    parser.addoption("--full", action="store_true", help="run the long form of the tests, with all seeds")
    parser.addoption("--all-servers", action="store_true", help="also test against LocalStack and radosgw")


def pytest_report_header(config: pytest.Config) -> str:
    """Say which slice runs and how to repeat it."""
    form = "full" if config.getoption("--full") else "slice"
    return f"slate: {form}, SLATE_SLICE_SEED={commit_seed()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the servers they use, and skip what the options leave out."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if any(name in names for name in ALL_SERVERS_FIXTURES):
            item.add_marker(pytest.mark.all_servers)
        if "s3_endpoint" in names:
            item.add_marker(pytest.mark.s3)
        if "azurite_endpoint" in names:
            item.add_marker(pytest.mark.azure)
        if item.get_closest_marker("all_servers") and not config.getoption("--all-servers"):
            item.add_marker(pytest.mark.skip(reason="runs with --all-servers"))
        if item.get_closest_marker("slow") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="runs with --full"))


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: the garbage collector need not look at it again. All tests
    are 600,000 objects, and each look at them takes some 0.4 s; each simulated world takes two looks."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of the tests runs (``--full``)."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def slice_seed() -> int:
    """The seed this commit's slice starts from; see `tests.slices`."""
    return commit_seed()


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Test credentials in the process environment, and no profile file of this machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return dict(AWS_ENVIRONMENT)


@pytest.fixture(scope="session")
def s3_endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of the locked moto server: S3 and DynamoDB, credentials as in `aws_environment`."""
    server = request.config.stash[MOTO] = LockedMoto()
    yield server.url
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def _moto_of_bounded_size(request: pytest.FixtureRequest) -> None:
    server = request.config.stash.get(MOTO, None)
    if server is not None:
        server.refresh()


def _from_npm(name: str, launch: Callable[[], node.NodeServer]) -> Iterator[str]:
    if is_left_out(name):
        pytest.skip("SLATE_SKIP_AZURE=1")
    server = launch()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def azurite_endpoint() -> Iterator[str]:
    """URL of Azurite's account; account and key are in `tests.servers.node`."""
    yield from _from_npm("azurite", node.azurite)


@pytest.fixture(scope="session")
def dynalite_endpoint() -> Iterator[str]:
    """URL of dynalite, the second opinion on DynamoDB; any credentials."""
    yield from _from_npm("dynalite", node.dynalite)


@pytest.fixture(scope="session")
def s3rver_endpoint() -> Iterator[str]:
    """URL of s3rver, an S3 that ignores conditions; key and secret are `tests.servers.node.S3RVER_KEY`."""
    yield from _from_npm("s3rver", node.s3rver)


@pytest.fixture(scope="session")
def etcd_url() -> Iterator[str]:
    """An etcd of one member, as a metastore's URL without a prefix."""
    if is_left_out("etcd"):
        pytest.skip("there is no etcd")
    server = etcd()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def localstack_endpoint() -> Iterator[str]:
    """URL of LocalStack's S3; any credentials. Only with ``--all-servers``."""
    server = LocalStack()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def radosgw_endpoint() -> Iterator[Radosgw]:
    """ceph's S3 gateway: ``url``, ``access_key``, ``secret_key``. Only with ``--all-servers``."""
    server = Radosgw()
    yield server
    server.stop()
