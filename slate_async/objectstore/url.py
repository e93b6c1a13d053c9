"""From a URL to a store: which backend, with which client settings, with whose credentials.

Credentials are looked up when the first request needs them, never held by anything that is printed: the environment
(``AWS_*``, ``AZURE_*``, ``GOOGLE_*``), then profiles (``AWS_PROFILE``, ``~/.aws``) where botocore is installed, then
what the machine provides (web identity, container and instance roles).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from metastores.redaction import redacted, sdk_error
from slate_async.errors import ConfigError, InvalidError
from slate_async.objectstore.http_errors import SET_CREDENTIALS, plain
from slate_async.objectstore.installed import load_factory
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.obstore_store import AZURE, GCS, S3, SENT_ONCE, ClientSettings, Dialect, ObstoreStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.retry import RetryingStore, RetryPolicy
from slate_async.objectstore.store_url import StoreURL, check_endpoint, parse_url
from slate_async.runtime.protocol import Clock, Runtime

logger = logging.getLogger(__name__)

__all__ = ["StoreURL", "open_store", "parse_url"]

_MEMORY: dict[str, MemoryObjects] = {}
"""What ``memory://name`` names: the one thing here that belongs to the process."""

PATIENT = ClientSettings(request_timeout=86_400.0, read_timeout=86_400.0)
"""Requests are cut off by `RetryPolicy.request_timeout`, in one place for all backends."""

ROLE_CREDENTIALS_SECONDS = 600
"""How long credentials of a role are used before botocore is asked again; it renews them 15 minutes ahead."""


class StoreFactory(Protocol):
    """Makes the stores of one URL scheme. Other packages bring theirs as entry points: see
    `slate_async.objectstore.installed`."""

    def __call__(self, url: StoreURL, runtime: Runtime, /) -> ObjectStore:
        """The store of the whole bucket or volume that ``url`` is in: ``url.prefix`` is not for it.

        Sends nothing and reads no files, because it runs on the event loop. ``url.parameters`` are not checked yet.
        Raises `ConfigError` for a parameter it does not know or a value it cannot use."""


def open_store(
    url: str | os.PathLike[str] | StoreURL,
    runtime: Runtime,
    *,
    retry: RetryPolicy | None = None,
    file_mode: str = "0600",
) -> tuple[RetryingStore, str]:
    """The store of the whole bucket, folder or memory name, with retries, and the prefix the URL names in it.

    file_mode: permissions of the files of a local folder; see the setting of that name

    Nothing is sent yet. The caller closes the store. Raises `InvalidError` for a bad URL or a missing extra."""
    place = url if isinstance(url, StoreURL) else parse_url(url)
    if place.scheme == "file":
        store = _local(place, runtime, file_mode)
    else:
        factory: StoreFactory = _BUILT_IN.get(place.scheme) or load_factory(place.scheme)
        store = factory(place, runtime)
    return RetryingStore(store, runtime.clock, runtime.rng, retry), place.prefix


def _memory(place: StoreURL, runtime: Runtime) -> ObjectStore:
    return MemoryStore(runtime.clock, _MEMORY.setdefault(place.bucket, MemoryObjects()))


def _s3(place: StoreURL, runtime: Runtime) -> ObjectStore:
    return _aiobotocore(place, runtime) if place.client == "aiobotocore" else _obstore(_s3_client, S3, place, runtime)


def _azure(place: StoreURL, runtime: Runtime) -> ObjectStore:
    return _obstore(_azure_client, AZURE, place, runtime)


def _gcs(place: StoreURL, runtime: Runtime) -> ObjectStore:
    return _obstore(_gcs_client, GCS, place, runtime)


_BUILT_IN: Mapping[str, StoreFactory] = {"memory": _memory, "s3": _s3, "az": _azure, "gs": _gcs}
"""By scheme; ``file`` besides, whose store takes a setting. Others are entry points."""


def _obstore(build: _Build, dialect: Dialect, place: StoreURL, runtime: Runtime) -> ObjectStore:
    _require_obstore(place.scheme)
    return ObstoreStore(partial(_connect, build, place, runtime), dialect, f"{place.scheme}://{place.bucket}")


def _local(place: StoreURL, runtime: Runtime, file_mode: str) -> ObjectStore:
    try:
        from slate_async.objectstore.local import LocalStore, Modes  # noqa: PLC0415 - its locks are those of POSIX
    except ImportError as error:
        raise ConfigError(
            f"file:// does not work on {sys.platform}: a local folder needs the file locks of Linux or macOS;"
            " use s3://, az://, gs:// or memory:// here, or run under WSL"
        ) from error
    return LocalStore(place.bucket, runtime, modes=Modes.of(file_mode))


def _require_obstore(scheme: str) -> None:
    extra = {"s3": "s3", "az": "azure", "gs": "gcs"}[scheme]
    try:
        import obstore.store  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError(f"{scheme}:// needs more packages: pip install 'slate-async[{extra}]'") from error


def _aiobotocore(place: StoreURL, runtime: Runtime) -> ObjectStore:
    try:
        from slate_async.objectstore.s3 import AiobotocoreS3Store  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "client=aiobotocore needs more packages: pip install 'slate-async[s3-aiobotocore]'"
        ) from error
    if place.endpoint_url is None:
        _endpoint_variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # botocore reads it, and looks at it late
    region = place.region or os.environ.get("AWS_REGION") or None  # botocore itself reads only AWS_DEFAULT_REGION
    return AiobotocoreS3Store(place.bucket, runtime, endpoint_url=place.endpoint_url, region=region)


_Build = Callable[[StoreURL, Clock], Any]


async def _connect(build: _Build, place: StoreURL, runtime: Runtime) -> Any:
    """Make the SDK's store on a worker thread, for it reads files; its errors may quote what it read."""
    try:
        return await runtime.offload.run(partial(build, place, runtime.clock))
    except InvalidError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the SDKs raise, its text must not get out
        said = plain(str(error))
        cause = sdk_error(error, said)
    hint = f"; {SET_CREDENTIALS['az']}" if place.scheme == "az" and "Account must be" in said else ""
    raise ConfigError(f"cannot set up {place.display}: {redacted(said)}{hint}", outcome="not_applied") from cause


@dataclass(frozen=True, slots=True)
class _Aws:
    """What the environment and the profile say."""

    endpoint_url: str | None
    region: str | None
    credentials: Callable[[], Mapping[str, Any]] | None
    """``None``: obstore finds them itself (environment, web identity, container and instance roles)."""


def _s3_client(place: StoreURL, clock: Clock) -> Any:
    from obstore.store import S3Store  # noqa: PLC0415

    aws = _aws(clock)
    endpoint = place.endpoint_url or aws.endpoint_url
    config: dict[str, Any] = {}
    if endpoint:
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    region = place.region or aws.region
    if region:
        config["region"] = region
    options: dict[str, Any] = {} if aws.credentials is None else {"credential_provider": aws.credentials}
    return S3Store(place.bucket, config=config, **_client(endpoint), **options)  # type: ignore[arg-type]


def _azure_client(place: StoreURL, _: Clock) -> Any:
    from obstore.store import AzureStore  # noqa: PLC0415

    endpoint = place.endpoint_url or _endpoint_variable("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    config: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    return AzureStore(place.bucket, config=config, **_client(endpoint))  # type: ignore[arg-type]


def _gcs_client(place: StoreURL, _: Clock) -> Any:
    from obstore.store import GCSStore  # noqa: PLC0415

    config: dict[str, Any] = {"base_url": place.endpoint_url} if place.endpoint_url else {}
    return GCSStore(place.bucket, config=config, **_client(place.endpoint_url))  # type: ignore[arg-type]


def _client(endpoint: str | None) -> dict[str, Any]:
    allow_http = bool(endpoint and endpoint.startswith("http://"))
    return {"client_options": PATIENT.client_options(allow_http=allow_http), "retry_config": SENT_ONCE}


def _aws(clock: Clock) -> _Aws:
    """Endpoint, region and credentials; botocore is asked only for what the environment does not say."""
    said = os.environ.get
    endpoint = _endpoint_variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    region = said("AWS_REGION") or said("AWS_DEFAULT_REGION")
    has_keys = bool(said("AWS_ACCESS_KEY_ID") and said("AWS_SECRET_ACCESS_KEY"))
    profile = said("AWS_PROFILE") or said("AWS_DEFAULT_PROFILE")
    if not (profile or any(path.is_file() for path in _profile_files())):
        return _Aws(endpoint, region, None)
    try:
        import botocore.credentials  # noqa: PLC0415
        import botocore.session  # noqa: PLC0415
    except ImportError as error:
        if profile:
            raise ConfigError("AWS_PROFILE needs more packages: pip install 'slate-async[s3-aiobotocore]'") from error
        if not has_keys:
            logger.warning("profiles of ~/.aws are not read: that needs pip install 'slate-async[s3-aiobotocore]'")
        return _Aws(endpoint, region, None)
    session = botocore.session.Session()
    scoped = session.get_scoped_config()
    profiled: str | None = scoped.get("endpoint_url")
    if endpoint is None and profiled:
        check_endpoint(profiled, "endpoint_url of the profile")
        endpoint = profiled
    region = region or session.get_config_variable("region")
    found = None if has_keys else session.get_credentials()
    if found is None:
        return _Aws(endpoint, region, None)
    renewed = isinstance(found, botocore.credentials.RefreshableCredentials)
    return _Aws(endpoint, region, partial(_current_credentials, found, clock if renewed else None))


def _endpoint_variable(*names: str) -> str | None:
    """The endpoint in the first of these variables that is set. Raises `ConfigError` if it is none."""
    for name in names:
        if endpoint := os.environ.get(name):
            check_endpoint(endpoint, f"environment variable {name}")
            return endpoint
    return None


def _profile_files() -> list[Path]:
    folder = Path.home() / ".aws"
    return [
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials"),
        Path(os.environ.get("AWS_CONFIG_FILE") or folder / "config"),
    ]


def _current_credentials(found: Any, clock: Clock | None) -> Mapping[str, Any]:
    """botocore's credentials as obstore wants them; with a ``clock``, to be asked for again after a while."""
    frozen = found.get_frozen_credentials()
    expires = None
    if clock is not None:
        expires = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(seconds=ROLE_CREDENTIALS_SECONDS)
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": expires,
    }
