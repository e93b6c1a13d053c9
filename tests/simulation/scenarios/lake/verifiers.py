"""Verifiers: processes that verify the collection beside all others. Nothing is damaged, so nothing may be found."""

from __future__ import annotations

from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.verify.verifier import verify
from slate_async.errors import ClosedError, UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate


async def check(estate: Estate, node: Node) -> None:
    """Verify again and again."""
    for _ in estate.turns():
        try:
            report = await verify(estate.stores(node).reading())
        except ClosedError:
            estate.count("closed")
            return
        except (LeaseLostError, UnavailableError):
            estate.count("verifications lost")
        else:
            estate.count("verifications")
            if report.findings:
                raise Violation("alarm", f"a verification found {report.findings}")
        await node.runtime.clock.sleep(node.rng.choice((0, 0.02, 0.2)))
