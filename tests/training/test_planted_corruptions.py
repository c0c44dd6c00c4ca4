"""Corruptions of calls, turns, minibatches and the reference stop a run with their invariant."""

from collections.abc import Iterator

import pytest
from support.planted_corruptions import CORRUPTIONS, Corruption, experiment
from support.stepped_phase import SteppedPhase

from agentrl_jax.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedPhase]:
    """GRPO with a reference, after a step."""
    phase = SteppedPhase(experiment(), tmp_path_factory.mktemp("run"), "rl")
    phase.step()
    yield phase
    phase.close()


@pytest.mark.parametrize("corruption", CORRUPTIONS.values(), ids=list(CORRUPTIONS))
def test_a_corruption_is_noticed_where_its_invariant_says_so(
    phase: SteppedPhase, monkeypatch: pytest.MonkeyPatch, corruption: Corruption
):
    with monkeypatch.context() as patch:
        corruption.plant(patch)
        if corruption.invariant is None:
            phase.step()
        else:
            message = f"the invariant {corruption.invariant} does not hold in step"
            with pytest.raises(UserError, match=message):
                phase.step()
    phase.step()  # without the corruption nothing stops it
