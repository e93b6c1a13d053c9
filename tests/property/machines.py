"""How the state machines of this folder run: all of one slice, or in their long form many."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.engine import Kind


def run_machine(
    machine: type[RuleBasedStateMachine], kind: Kind, slice_seed: int, *, examples: int, steps: int, shrink: bool = True
) -> None:
    """Run ``examples`` of ``machine`` over a database of ``kind``, of ``steps`` steps each; ``shrink`` what fails."""
    of_kind = type("Machine", (machine,), {"kind": kind})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        seed(slice_seed)(of_kind),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
