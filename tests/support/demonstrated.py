"""Some of an experiment's demonstrations, as its agent would have played them."""

from typing import Any

from agentrl_jax.context import FullHistory
from agentrl_jax.rollout.scripted_dataset import record_episode
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.storage import demonstration_file
from agentrl_jax.storage.dataset_folder import DatasetManifest
from agentrl_jax.training.builders import make_agent
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.demonstrations import check_budget, message_texts
from agentrl_jax.trajectories import Trajectory
from agentrl_jax.workers.server import EnvServer


def demonstrations(experiment: Experiment, count: int) -> list[Trajectory]:
    """The first `count` of each environment, with the calls that the agent would have made.

    Raises:
        UserError: an action is longer than the agent's budget.
    """
    config, server = experiment.demonstrations, EnvServer(lambda: None)
    assert config is not None
    source: Any = config.task_source
    environment = experiment.environment
    specs = list(source.members.values()) if source else [environment]
    episodes: list[Trajectory] = []
    for spec in specs:
        manifest = DatasetManifest(spec.name, config.player, count, options=dict(spec.options))
        episodes += [
            demonstration_file.decode(record_episode(server, manifest, episode)[0])
            for episode in range(count)
        ]
    server.stop()
    tokenizer = experiment.tokenizer(list(message_texts(episodes)))
    agent = make_agent(experiment, tokenizer, FullHistory())
    recorded = [add_demonstration_calls(trajectory, agent) for trajectory in episodes]
    for trajectory in recorded:
        check_budget(trajectory, agent)
    return recorded
