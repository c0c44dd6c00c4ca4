"""DataMind (arXiv 2509.25084): RL beside imitation of an expert whose weight mu decays, on tables.

Loss: (1 - mu) DAPO + mu cross entropy on the expert's episodes, mu from .9 to .05 along half a
cosine. `:rl` has mu = 0 from the same weak start, `:constant` mu = .9. Claim: the decaying mix
alone neither collapses nor stays at the imitator's level. `:sql` asks about databases, `:smoke`
takes two short steps. Published: 16 questions in groups of 4, 350 steps, 12,000 trajectories.

Hardware: one CPU core, 8 to 10 minutes for `:pair`; success in the last six steps .28

    agentrl-train --config=configs/table_datamind.py[:rl|constant|sql|pair]
"""

from functools import partial

from agentrl_jax.algorithms.experience.schedules import Cosine
from agentrl_jax.algorithms.methods import datamind
from agentrl_jax.configs.fine_tuned_base import base_model_experiment
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.envs.code.protocols import PROTOCOLS
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EvaluationConfig,
    Experiment,
)
from agentrl_jax.training.sources import Demonstrations, MixedSource
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

NAME = "agentrl_jax.envs:agentrl/TableQuestions-v0"
STEPS = 24
# Those whose programs have two or three lines.
OPERATIONS = ("count", "total", "extreme", "share", "distinct")
MAX_LENGTH = 640  # tokens of an episode


@partial(with_pair, base="rl", constant="constant", method="decay")
def get_config(variant: str = "decay") -> Experiment:
    decay = Cosine(0.9, 0.05, STEPS)
    mu = pick(variant, "table_datamind", decay=decay, rl=0.0, constant=0.9, sql=decay, smoke=decay)
    smoke, options = variant == "smoke", {"difficulty": 0.0, "horizon": 4, "instruction": False}
    options |= {"source": "sql" if variant == "sql" else "csv", "short_errors": True}
    easy = {**options, "operations": OPERATIONS}
    splits: dict[str, TaskSource] = {"test": EnvironmentSpec(NAME, {**easy, "split": "test"})}
    if not smoke:
        splits["kinds"] = EnvironmentSpec(NAME, {**easy, "split": "kinds"})
        splits["operations"] = EnvironmentSpec(NAME, {**options, "split": "operations"})
    algorithm = datamind(
        mu,
        optimizer=AdamWConfig(1e-3, warmup_steps=3),
        minibatches=2,
        microbatch=1,
        bin_length=MAX_LENGTH,
    )
    group_rollouts = rollouts(tasks=2 if smoke else 8, group_size=4)
    source = MixedSource(group_rollouts, Demonstrations(8, successful_only=True))
    return base_model_experiment(
        f"table-datamind-{variant}",
        EnvironmentSpec(NAME, easy),
        AgentConfig(
            ChatFormat(tool_format=PROTOCOLS["datamind"].tool_format), budget=256, temperature=0.7
        ),
        DemonstrationConfig("hasty", episodes=16 if smoke else 1120),
        EvaluationConfig(4 if smoke else 32, players=("random",), environments=splits),
        (8, 2 if smoke else 140),
        (algorithm, source, 2 if smoke else STEPS),
        EngineConfig(
            rows=32, positions=MAX_LENGTH, prefill_chunk=32, min_decode_steps=8, batching_delay=0.1
        ),
    )
