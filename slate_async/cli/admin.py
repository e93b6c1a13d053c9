"""``admin``: what has to exist before a database can be opened."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from metastores.dynamodb import DynamoDBMetaStore
from slate_async.cli.exit_codes import OK
from slate_async.cli.reach import check_reachable, endpoints_of
from slate_async.cli.session import Session
from slate_async.errors import InvalidError

DEFAULT_UNITS = 5


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What ``slate admin create-table`` was asked for. Units are DynamoDB's capacity units per second."""

    table: str
    region: str | None
    endpoint_url: str | None
    provisioned: bool
    read_units: int | None
    write_units: int | None

    def url(self) -> str:
        """What ``--metastore`` takes for the table: region and endpoint as they were named."""
        named = {"region": self.region, "endpoint_url": self.endpoint_url}
        query = urlencode({name: value for name, value in named.items() if value}, safe=":/")
        return f"dynamodb://{self.table}{'?' if query else ''}{query}"

    def units(self) -> tuple[int, int] | None:
        """Read and write capacity, ``None`` for paying per request. Raises `InvalidError` for units without
        provisioned billing."""
        if not self.provisioned:
            if self.read_units is not None or self.write_units is not None:
                raise InvalidError("--read-units and --write-units need --billing provisioned")
            return None
        return self.read_units or DEFAULT_UNITS, self.write_units or DEFAULT_UNITS


async def create_table(session: Session, wanted: TableRequest) -> int:
    """Create the table and wait until it can be used; one that is there with the right keys will do."""
    named = endpoints_of(None, f"dynamodb://{wanted.table}")
    await check_reachable([wanted.endpoint_url] if wanted.endpoint_url else named)
    created = await DynamoDBMetaStore.create_table(
        wanted.table, region=wanted.region, endpoint_url=wanted.endpoint_url, provisioned=wanted.units()
    )
    session.output.fields("table", {"table": wanted.table, "created": created, "metastore": wanted.url()})
    if not created:
        session.output.note("the table was there already, with the right keys; its billing was left as it is")
    return OK
