"""The letters run, streaming: `streams_run.py:2` with samples of weights up to 2 versions old."""

import letters_run

from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.streaming import Streaming


def get_config(staleness: str = "0") -> Experiment:
    made = letters_run.get_config()
    assert made.rl and isinstance(made.rl.source, Rollouts)
    made.rl.source, made.record_groups = Streaming(made.rl.source, int(staleness)), made.rl.source.tasks
    return made
