"""What the small experiments share: tasks that a policy of 60 thousand weights learns in a minute or two on 2 CPU cores.

Methods were published with models ten thousand times as large and learning rates to match. A config here takes a method's
own values for all that makes it that method, and the rates, batches and numbers of steps below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentrl_jax.algorithm import AlgorithmConfig
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import (
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
    Source,
)
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import BytePairs
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A world, who demonstrates it, and how many tokens an episode and an action may have."""

    world: str
    player: str
    longest: int
    budget: int
    options: Mapping[str, Any] = field(default_factory=dict)
    sft_steps: int = 300


ARITHMETIC = Task("Arithmetic-v0", "mixture", 96, 4, {"largest": 9, "operators": "+"})
TWO_ATTEMPTS = Task("Arithmetic-v0", "mixture", 96, 4, {"largest": 9, "operators": "+", "always": True})
CALCULATOR = Task("Calculator-v0", "mixture", 96, 6, {"terms": 2, "largest": 9})
CHAIN = Task("Chain-v0", "weak", 200, 3, {"length": 8})
DESK = Task("Desk-v0", "mixture", 160, 5)
KEY_DOOR = Task("KeyDoor-v0", "weak", 288, 6)
RARE_ROOMS = Task("KeyDoor-v0", "random", 288, 6, {"width": 5, "height": 4, "walls": 2}, sft_steps=200)  # seldom left by a random player
KUHN = Task("Kuhn-v0", "random", 48, 2, {"opponent": "random"}, sft_steps=100)
LOOKUP = Task("Lookup-v0", "mixture", 128, 5)

VOCABULARY = 128  # tokens, at most
HEAD = HeadConfig(layers=1, scale=0.0)
RATES: dict[str, Any] = {"optimizer": AdamWConfig(1e-3, warmup_steps=3), "minibatches": 2, "microbatch": 32}


def rates(task: Task, **settings: Any) -> dict[str, Any]:
    """The optimizer and the shape of batches of all small experiments, with what else is set."""
    return {**RATES, "bin_length": task.longest, **settings}


def pick(variant: str, config: str, **variants: T) -> T:
    """The variant of that name. Raises UserError where there is none."""
    if variant not in variants:
        raise UserError(f"configs/{config}.py has no variant {variant!r}, only {', '.join(variants)}")
    return variants[variant]


def small(
    name: str,
    task: Task,
    algorithm: AlgorithmConfig | None,
    source: Source | None = None,
    steps: int = 30,
    label: str = "RL",
    players: Sequence[str] = ("random", "expert"),
    **fields: Any,
) -> Experiment:
    """Demonstrations by the task's player, a short fine-tuning, then the method, if any; `source` None: 16 worlds a step, 8 times each."""
    imitate = SupervisedConfig(optimizer=AdamWConfig(4e-3, warmup_steps=30, final_fraction=0.1), bin_length=task.longest, microbatch=16)
    return Experiment(
        name=name,
        environment=EnvironmentConfig(f"agentrl_jax.envs:agentrl/{task.world}", dict(task.options), workers=0),
        agent=AgentConfig(budget=task.budget),
        tokenizer=BytePairs(vocab_size=VOCABULARY, all_bytes=False),
        policy=DecoderConfig(layers=2, width=64, hidden=128, heads=4, kv_heads=2, head_size=16),
        demonstrations=DemonstrationConfig(task.player, episodes=4000),
        sft=Phase("SFT", Demonstrations(batch=32), imitate, steps=task.sft_steps, checkpoint_every=1000),
        rl=Phase(label, source or rollouts(), algorithm, steps=steps, checkpoint_every=1000) if algorithm else None,
        evaluation=EvaluationConfig(episodes=256, players=tuple(players)),
        engine=EngineConfig(rows=128, positions=task.longest, chunk=8, burst=6, patience=0.1),
        **fields,
    )


def rollouts(tasks: int = 16, group_size: int = 8, **fields: Any) -> Rollouts:
    return Rollouts(tasks=tasks, strategy=Independent(group_size=group_size), **fields)
