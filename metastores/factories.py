"""What ``slate.open(metastore=...)`` names: factories of the metadata of databases, and the parser of their names.

Rule: a name holds no secret. One that looks as if it did is refused, in words that do not repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit
from weakref import WeakValueDictionary

from metastores import names
from metastores.bodies import ObjectBodies
from metastores.dynamodb import INLINE_LIMIT_BYTES, WRITER_ITEM, DynamoDBMetaStore, DynamoRegister
from metastores.dynamodb_items import erase
from metastores.dynamodb_place import DynamoPlace
from metastores.dynamodb_table import DynamoTable, check_table_name
from metastores.errors import MetaStoreInvalidError
from metastores.etcd import EtcdFactory
from metastores.if_match import ObjectRegister
from metastores.names import Layout
from metastores.protocol import ConditionalObjects, MetaStore, MetaStoreFactory, Needs, Register
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.register_store import RegisterMetaStore
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats


class PutIfAbsentFactory:
    """The default: versions beside the data, by put-if-absent; the writer's register by If-Match."""

    needs = Needs(create=True, register=True)

    def __init__(self, runtime: MetaRuntime | None = None) -> None:
        self._runtime = MetaRuntime() if runtime is None else runtime

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = names.MANIFEST) -> MetaStore:
        """See `MetaStoreFactory.manifest`."""
        return PutIfAbsentMetaStore(objects, self._runtime, layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """See `MetaStoreFactory.register`."""
        return ObjectRegister(objects, names.WRITER, self._runtime)

    async def close(self) -> None:
        """See `MetaStoreFactory.close`; nothing is shared."""


class IfMatchFactory:
    """A pointer object replaced with If-Match, bodies beside it."""

    needs = Needs(create=True, replace=True, register=True)

    def __init__(self, runtime: MetaRuntime | None = None) -> None:
        self._runtime = MetaRuntime() if runtime is None else runtime

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = names.MANIFEST) -> MetaStore:
        """See `MetaStoreFactory.manifest`."""
        register = ObjectRegister(objects, layout.current, self._runtime)
        return RegisterMetaStore(register, ObjectBodies(objects, layout), self._runtime, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """See `MetaStoreFactory.register`."""
        return ObjectRegister(objects, names.WRITER, self._runtime)

    async def close(self) -> None:
        """See `MetaStoreFactory.close`; nothing is shared."""


class DynamoDBFactory:
    """Everything in one DynamoDB table, one client for all databases; bodies over ``inline_limit_bytes`` as objects.

    Region and endpoint come from here or from the SDK's environment and profiles, credentials only from there."""

    needs = Needs()

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        runtime: MetaRuntime | None = None,
        client: Any = None,
        client_in: Callable[[str], Any] | None = None,
    ) -> None:
        check_table_name(table)
        if endpoint_url is not None:
            _check_endpoint(endpoint_url)
        self._table = DynamoTable(
            table, region=region, endpoint_url=endpoint_url, runtime=runtime, client=client, client_in=client_in
        )
        self._inline_limit_bytes = inline_limit_bytes
        self._places: WeakValueDictionary[str, DynamoPlace] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"DynamoDBFactory({self._table!r})"

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = names.MANIFEST) -> MetaStore:
        """See `MetaStoreFactory.manifest`."""
        return DynamoDBMetaStore(
            self._table,
            name,
            objects,
            inline_limit_bytes=self._inline_limit_bytes,
            place=self._place(name),
            layout=layout,
        )

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """See `MetaStoreFactory.register`."""
        return DynamoRegister(self._table, name, WRITER_ITEM, place=self._place(name))

    async def erase(self, name: str) -> None:
        """See `ErasesMetadata`."""
        await erase(self._place(name), MetaStats())

    def _place(self, name: str) -> DynamoPlace:
        """One for all that is made of a database, so that its home is asked for once."""
        return self._places.setdefault(name, DynamoPlace(self._table, name))

    async def close(self) -> None:
        """See `MetaStoreFactory.close`."""
        await self._table.close()


def parse_metastore(spec: str | MetaStoreFactory | None, *, runtime: MetaRuntime | None = None) -> MetaStoreFactory:
    """The factory ``spec`` names: nothing or ``"put-if-absent"``, ``"if-match"``,
    ``"dynamodb://table?region=...&endpoint_url=..."``, ``"etcd://host:2379,host:2379/prefix?tls=true"``; a factory is
    returned as it is.

    Raises `MetaStoreInvalidError` for anything else, without repeating what may be a secret."""
    if spec is None or spec == "put-if-absent":
        return PutIfAbsentFactory(runtime)
    if spec == "if-match":
        return IfMatchFactory(runtime)
    if not isinstance(spec, str):
        return spec
    scheme = spec.partition("://")[0].lower()
    if scheme not in ("dynamodb", "etcd"):
        raise MetaStoreInvalidError(
            "metastore is none of 'put-if-absent', 'if-match', 'dynamodb://table?region=...&endpoint_url=...',"
            " 'etcd://host:2379,host:2379/prefix?tls=true'"
        )
    parts = urlsplit(spec)
    if "@" in parts.netloc:
        raise MetaStoreInvalidError("the metastore's URL holds credentials; take them from the environment instead")
    return _etcd(parts, runtime) if scheme == "etcd" else _dynamodb(parts, runtime)


def _dynamodb(parts: SplitResult, runtime: MetaRuntime | None) -> DynamoDBFactory:
    if parts.path.strip("/") or parts.fragment:
        raise MetaStoreInvalidError(
            "a metastore's URL is 'dynamodb://table' and parameters; there is nothing below a table"
        )
    given = _parameters(parts.query, ("region", "endpoint_url"))
    return DynamoDBFactory(
        parts.netloc, region=given.get("region"), endpoint_url=given.get("endpoint_url"), runtime=runtime
    )


def _etcd(parts: SplitResult, runtime: MetaRuntime | None) -> EtcdFactory:
    if parts.fragment:
        raise MetaStoreInvalidError("a metastore's URL is 'etcd://host:2379,host:2379/prefix' and parameters")
    tls = _parameters(parts.query, ("tls",)).get("tls", "false")
    if tls not in ("true", "false"):
        raise MetaStoreInvalidError("parameter 'tls' of the metastore's URL is 'true' or 'false'")
    prefix = parts.path.strip("/") or "slate"
    return EtcdFactory(parts.netloc.split(","), prefix, tls=tls == "true", runtime=runtime)


def _parameters(query: str, known: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise MetaStoreInvalidError(
                f"parameter {key[:40]!r} of the metastore's URL is not known ({', '.join(known)}); credentials come"
                " from the environment"
            )
        if key in given or not value:
            raise MetaStoreInvalidError(f"parameter {key!r} of the metastore's URL is empty or given twice")
        given[key] = value
    return given


def _check_endpoint(endpoint_url: str) -> None:
    parts = urlsplit(endpoint_url)
    if "@" in parts.netloc or parts.query:
        raise MetaStoreInvalidError("endpoint_url holds credentials or parameters; take them from the environment")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise MetaStoreInvalidError("endpoint_url must be an http:// or https:// URL")
