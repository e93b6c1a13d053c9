"""Whether a rule that is switched off is noticed."""

from __future__ import annotations

from tests.simulation.rules.switch import Switch
from tests.simulation.runner import run_seed

MISTAKES = {error.__name__ for error in (TypeError, AttributeError, NameError, ImportError)}
"""What a stand-in raises that was left behind when what it stands in for changed."""
OFTEN = 3
"""Any change of the product moves what is noticed with which seed: so many seeds leave room for that."""


def check_noticed(switch: Switch, full: bool) -> None:
    """Raise `AssertionError` unless some seed within the bound notices, several if ``full``, and the same seed passes
    with the rule on."""
    noticed: list[int] = []
    for seed in range(switch.within):
        result = run_seed(f"rule-{switch.name}", seed)
        assert result.kind not in MISTAKES, f"seed {seed}: not the rule is noticed but its stand-in: {result.message}"
        if result.failed:
            control = run_seed(f"on-{switch.name}", seed)
            assert not control.failed, f"seed {seed} fails with the rule on, too: {control.message}"
            noticed.append(seed)
            if len(noticed) == (OFTEN if full else 1):
                return
    raise AssertionError(f"rule {switch.rule} off ({switch.broken}): {noticed} of {switch.within} seeds noticed")
