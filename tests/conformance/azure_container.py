"""Makes a container on Azurite. The product never makes containers, so this signs one request by itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import urlsplit

import aiohttp

VERSION = "2021-08-06"


async def create_container(endpoint: str, container: str, account: str, key: str) -> None:
    """``PUT /container?restype=container`` with a Shared Key signature."""
    date = format_datetime(datetime.now(UTC), usegmt=True)
    path = f"{urlsplit(endpoint).path}/{container}"
    headers = {"x-ms-date": date, "x-ms-version": VERSION}
    canonical_headers = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n"
    canonical_resource = f"/{account}{path}\nrestype:container"
    to_sign = "PUT" + "\n" * 12 + canonical_headers + canonical_resource
    digest = hmac.new(base64.b64decode(key), to_sign.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    async with aiohttp.ClientSession(skip_auto_headers={"Content-Type"}) as session:
        async with session.put(f"{endpoint}/{container}?restype=container", headers=headers) as answer:
            assert answer.status == 201, await answer.text()
