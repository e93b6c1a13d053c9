"""Where the region of a table comes from, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastores.dynamodb_table import DynamoTable
from metastores.errors import MetaStoreInvalidError


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


async def test_the_argument_then_aws_region_then_the_default_then_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-south-1\n")

    async def region(given: str | None = None) -> str:
        table = DynamoTable("t", region=given)
        try:
            return await table.region()
        finally:
            await table.close()

    assert await region() == "eu-south-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    assert await region() == "eu-west-3"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert await region() == "eu-west-2"
    assert await region("eu-north-1") == "eu-north-1"


async def test_no_region_at_all_says_where_to_name_it() -> None:
    table = DynamoTable("users")
    with pytest.raises(
        MetaStoreInvalidError, match=r"users needs a region: .*\?region=.* --region, or set AWS_REGION$"
    ):
        await table.region()
    await table.close()


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", "http://127.0.0.1:xx"])
async def test_an_endpoint_of_the_environment_that_is_none_is_refused(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    table = DynamoTable("users", region="eu-west-1")
    with pytest.raises(MetaStoreInvalidError, match="users cannot be reached as configured: ValueError"):
        await table.region()
    await table.close()
