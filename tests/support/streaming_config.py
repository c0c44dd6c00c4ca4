"""The letters run with asynchronous rollouts; `streaming_config.py:2`: staleness up to 2."""

from support import letters_config

from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


def get_config(staleness: str = "0") -> Experiment:
    experiment = letters_config.get_config()
    phase = experiment.phases["rl"]
    rollouts = phase.source
    assert isinstance(rollouts, Rollouts)
    phase.source = AsyncRollouts(rollouts, int(staleness))
    experiment.record_groups = rollouts.tasks
    return experiment
