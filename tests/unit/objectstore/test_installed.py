"""Stores that other packages bring. The packages are real distributions in a folder of their own on ``sys.path``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.errors import ConfigError, InvalidError
from slate_async.objectstore import installed
from slate_async.objectstore.installed import installed_schemes
from slate_async.objectstore.retry import RetryingStore
from slate_async.objectstore.store_url import StoreURL, parse_url
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import system_runtime

Install = Callable[..., None]

MODULE = """
from slate_async.errors import ConfigError
from slate_async.objectstore.memory import MemoryObjects, MemoryStore

opened = []
volumes = {}

def open_store(url, runtime):
    for name, _ in url.parameters:
        if name != "replicas":
            raise ConfigError(f"unknown parameter {name}; known: replicas")
    opened.append(url)
    return MemoryStore(runtime.clock, volumes.setdefault(url.bucket, MemoryObjects()))
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution ``name`` whose module ``module`` brings the stores of ``scheme``."""

    def added(name: str, module: str, scheme: str, *, text: str = MODULE, named: str = "open_store") -> None:
        folder = tmp_path / name
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[slate_async.stores]\n{scheme} = {module}:{named}\n")
        monkeypatch.syspath_prepend(str(folder))
        installed._found.cache_clear()

    yield added
    installed._found.cache_clear()


async def test_a_database_lives_in_a_store_that_a_package_brings(install: Install) -> None:
    install("volume-store", "used_store", "vol")
    url = "vol://one:7070,two:7070/users?replicas=3"
    async with slate.open(url) as db:
        await db.put(b"key", b"value")
        await db.flush(l0=True)
    async with slate.open_reader(url) as reader:
        assert await reader.get(b"key") == b"value"
    module = importlib.import_module("used_store")
    assert set(module.opened) == {StoreURL("vol", "one:7070,two:7070", parameters=(("replicas", "3"),))}
    assert [info.key async for info in open_store(url, system_runtime())[0].list("users/manifest/")]


def test_its_urls_are_read_as_all_others_are(install: Install) -> None:
    install("volume-store", "volume_store", "vol")
    url = parse_url("vol://host:1/a/b?b=2&a=1")
    assert url == StoreURL("vol", "host:1", "a/b", parameters=(("a", "1"), ("b", "2")))
    assert url.display == "vol://host:1/a/b"
    store, prefix = open_store("vol://host:1/a/b", system_runtime())
    assert isinstance(store, RetryingStore)
    assert prefix == "a/b"
    for wrong, says in {
        "vol://user:word@host/x": "must not hold credentials; the package that brings it says where they go",
        "vol://host?token=x": "must not hold credentials",
        "vol://host?4x=1": "has a name of letters",
        "vol://host?a=1&a=2": "a must be given once",
        "vol:///x": "must be followed by a name, or by hosts",
        "vol:/x": "begins with vol://",
        "VOL://x": "not with 'VOL'; vol:// is what you want",
        "vol://host/a//b": "empty",
    }.items():
        with pytest.raises(InvalidError, match=says):
            parse_url(wrong)
    with pytest.raises(ConfigError, match="unknown parameter colour; known: replicas"):
        open_store("vol://host?colour=red", system_runtime())


def test_an_unknown_scheme_lists_what_is_installed(install: Install) -> None:
    with pytest.raises(ConfigError, match=r"memory://, file://, s3://, az:// or gs://, not with 'vol'$"):
        parse_url("vol://host")
    install("volume-store", "volume_store", "vol")
    install("block-store", "block_store", "blk")
    assert installed_schemes() == ["blk", "vol"]
    with pytest.raises(ConfigError, match=r"s3://, az://, gs://, blk:// or vol://, not with 'dfs'$"):
        parse_url("dfs://host")
    with pytest.raises(ConfigError, match="no installed package brings dfs://"):
        open_store(StoreURL("dfs", "host"), system_runtime())


def test_what_is_built_in_cannot_be_replaced_and_odd_names_do_not_count(install: Install) -> None:
    install("thief", "thief", "s3", text="raise AssertionError")
    install("loud", "loud", "LOUD", text="raise AssertionError")
    assert installed_schemes() == ["s3"]
    assert parse_url("s3://bucket/a") == StoreURL("s3", "bucket", "a")
    open_store("s3://bucket", system_runtime())


def test_two_packages_for_one_scheme_are_refused(install: Install) -> None:
    install("volume-store", "volume_store", "vol")
    install("other-store", "other_store", "vol")
    with pytest.raises(ConfigError, match="vol:// is brought by other-store and by volume-store; uninstall all but"):
        open_store("vol://host", system_runtime())


@pytest.mark.parametrize(
    ("text", "named"), [("import no_such_module_anywhere", "open_store"), ("", "open_store"), (MODULE, "no_such_name")]
)
def test_a_package_that_cannot_be_imported_is_named(install: Install, text: str, named: str) -> None:
    install("broken-store", f"broken_store_{abs(hash((text, named)))}", "vol", text=text, named=named)
    with pytest.raises(ConfigError, match="vol:// is brought by broken-store, which cannot be imported: "):
        open_store("vol://host", system_runtime())
