"""How an etcd is reached: endpoints, files and users; secrets are in no message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from metastores.errors import MetaStoreInvalidError
from metastores.etcd_client.access import EtcdAccess, check_endpoint


@pytest.mark.parametrize(
    ("given", "known"), [("h", "h:2379"), ("h:1", "h:1"), ("[::1]:5", "[::1]:5"), ("10.0.0.1", "10.0.0.1:2379")]
)
def test_endpoints(given: str, known: str) -> None:
    assert check_endpoint(given) == known


@pytest.mark.parametrize("given", ["", "h:", "h:0", "h:70000", "h/x", "u@h", "::1", "h h"])
def test_endpoints_that_are_none(given: str) -> None:
    with pytest.raises(MetaStoreInvalidError, match="host:port"):
        check_endpoint(given)


@pytest.mark.parametrize("endpoints", [[], ["h"] * 17])
def test_how_many_endpoints(endpoints: Sequence[str]) -> None:
    with pytest.raises(MetaStoreInvalidError, match="1 to 16 endpoints"):
        EtcdAccess.of(endpoints, tls=False, environment={})


def test_secrets_come_from_files_and_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    names = {"ETCDCTL_CACERT": "ca", "ETCDCTL_CERT": "cert", "ETCDCTL_KEY": "key"}
    for text in names.values():
        (tmp_path / text).write_text(f"hunter2 {text}")
    environment = {name: str(tmp_path / text) for name, text in names.items()} | {"ETCDCTL_USER": "me:hunter2"}
    access = EtcdAccess.of(["h"], tls=True, environment=environment)
    assert (access.user, access.password, access.private_key) == ("me", "hunter2", b"hunter2 key")
    assert "hunter2" not in repr(access)
    assert EtcdAccess.of(["h"], tls=False, environment=environment).certificate is None


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"ETCDCTL_USER": "me"}, "set ETCDCTL_PASSWORD, too"),
        ({"ETCDCTL_CERT": "/nowhere/cert"}, "ETCDCTL_CERT: /nowhere/cert cannot be read"),
    ],
)
def test_what_is_missing_is_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(MetaStoreInvalidError, match=said):
        EtcdAccess.of(["h"], tls=True, environment=environment)
