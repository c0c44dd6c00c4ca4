"""Planted corruptions: each stops the run with the invariant that it violates.

Those that are named without an invariant are listed in docs/invariants.md as not covered.
"""

import pytest
from outcome import Battery
from support.planted_corruptions import CORRUPTIONS, Corruption, experiment
from support.stepped_phase import SteppedPhase

from agentrl_jax.errors import UserError


def attack(battery: Battery) -> None:
    phase = SteppedPhase(experiment(), battery.folder / "run", "rl")
    for _ in range(2):
        phase.step()
    for name, corruption in CORRUPTIONS.items():
        expected = corruption.invariant or "noticed by no invariant, as documented"
        battery.attack(name, expected, lambda x=corruption: plant(phase, x))
    phase.close()


def plant(phase: SteppedPhase, corruption: Corruption) -> tuple[bool, str]:
    """Whether the invariant stopped a step with the corruption, and none one without."""
    with pytest.MonkeyPatch.context() as patch:
        corruption.plant(patch)
        happened = step(phase)
    after = step(phase)
    if corruption.invariant is None:
        return happened == after == "no stop", happened
    return f"invariant {corruption.invariant} " in happened and after == "no stop", (
        happened if after == "no stop" else f"{happened}; and without it: {after}"
    )


def step(phase: SteppedPhase) -> str:
    try:
        phase.step()
    except UserError as error:
        return str(error)
    return "no stop"
