"""What a database's requests cost: counts of requests by kind, list prices, and a month of the one at the other.

Prices are parameters: every store has its own, and they change. Only requests are counted; bytes stored and moved are
what they are for any engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MONTH_S = 30 * 86_400
SHORTEST_S = 10.0
"""Less than this is no basis for a month: it is the opening that was seen."""
_KINDS = {"put": "puts", "put_if": "puts", "get": "gets", "head": "gets", "list": "lists"}
"""By operation of a store; what is not here (deletes) is free at the large clouds."""


@dataclass(frozen=True, slots=True)
class RequestPrices:
    """Dollars for a million requests. The defaults are list prices of Amazon S3 Standard in us-east-1."""

    puts: float = 5.0
    gets: float = 0.4
    lists: float = 5.0


@dataclass(frozen=True, slots=True)
class MonthlyRequests:
    """Requests in a month of 30 days."""

    puts: int = 0
    gets: int = 0
    lists: int = 0

    def dollars(self, prices: RequestPrices | None = None) -> float:
        """What they cost."""
        price = RequestPrices() if prices is None else prices
        return (self.puts * price.puts + self.gets * price.gets + self.lists * price.lists) / 1_000_000


def of_a_month(requests: Mapping[str, int], seconds: float) -> MonthlyRequests | None:
    """A month that goes on as those seconds did; ``None`` if they were too few. ``requests``: counts by operation
    (`StoreStats.requests`)."""
    if seconds < SHORTEST_S:
        return None
    return MonthlyRequests(**{kind: round(count * MONTH_S / seconds) for kind, count in by_kind(requests).items()})


def by_kind(requests: Mapping[str, int]) -> dict[str, int]:
    """Counts by operation as ``puts``, ``gets`` and ``lists``."""
    found = dict.fromkeys(("puts", "gets", "lists"), 0)
    for operation, count in requests.items():
        if (kind := _KINDS.get(operation)) is not None:
            found[kind] += count
    return found
