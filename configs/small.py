"""Shared by the small experiments: tasks that a policy of 60 thousand weights learns on 2 CPU cores
in a minute or two.

Methods were published with models ten thousand times as large and learning rates to match. A config
here has the published values of what defines the method, and the learning rates, batch sizes and
numbers of steps below.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Source,
)
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Demonstrations, Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec

T = TypeVar("T")


@dataclass(frozen=True)
class SmallTask:
    """An environment, its demonstrating policy, and the most tokens of an episode and an action."""

    environment: str
    player: str  # a scripted policy
    max_length: int
    budget: int
    options: Mapping[str, Any] = field(default_factory=dict)
    sft_steps: int = 300


ARITHMETIC = SmallTask("Arithmetic-v0", "mixture", 96, 4, {"largest": 9, "operators": "+"})
TWO_ATTEMPTS = SmallTask(
    "Arithmetic-v0", "mixture", 96, 4, {"largest": 9, "operators": "+", "always": True}
)
# Fine-tuned for so few steps that most first attempts are wrong.
FIVE_ATTEMPTS = SmallTask(
    "Arithmetic-v0", "mixture", 96, 4, {"largest": 9, "operators": "+"}, sft_steps=120
)
CALCULATOR = SmallTask("Calculator-v0", "mixture", 96, 6, {"terms": 2, "largest": 9})
CHAIN = SmallTask("Chain-v0", "weak", 200, 3, {"length": 8})
# Two mistakes are allowed, so that a cloned policy seldom succeeds.
SHORT_CHAIN = SmallTask("Chain-v0", "weak", 128, 3, {"length": 8, "horizon": 10}, sft_steps=150)
# No mistake is allowed.
STRICT_CHAIN = SmallTask(
    "Chain-v0", "mixture", 128, 3, {"length": 8, "letters": 8, "horizon": 8}, sft_steps=150
)
DESK = SmallTask("Desk-v0", "mixture", 160, 5)
KEY_DOOR = SmallTask("KeyDoor-v0", "weak", 288, 6)
# The random policy seldom solves these.
RARE_ROOMS = SmallTask(
    "KeyDoor-v0",
    "random",
    176,
    6,
    {"width": 4, "height": 3, "walls": 0, "horizon": 10},
    sft_steps=150,
)
KUHN = SmallTask("Kuhn-v0", "random", 48, 2, {"opponent": "random"}, sft_steps=100)
LOOKUP = SmallTask("Lookup-v0", "mixture", 128, 5)
LOOKUP_TOOLS = SmallTask("Lookup-v0", "mixture", 128, 5, {"separate_tools": True})

VOCABULARY = 128  # tokens, at most
CRITIC_HEAD = HeadConfig(layers=1, scale=0.0)
TRAINING_SETTINGS: dict[str, Any] = {
    "optimizer": AdamWConfig(1e-3, warmup_steps=3),
    "minibatches": 2,
    "microbatch": 32,
}


def training_settings(task: SmallTask, **settings: Any) -> dict[str, Any]:
    """The optimizer and batch shapes of all small experiments, with further settings."""
    return {**TRAINING_SETTINGS, "bin_length": task.max_length, **settings}


def pick(variant: str, config: str, **variants: T) -> T:
    """The variant of that name. Raises UserError where there is none."""
    if variant not in variants:
        raise UserError(
            f"configs/{config}.py has no variant {variant!r}, only {', '.join(variants)}"
        )
    return variants[variant]


def small_experiment(
    name: str,
    task: SmallTask,
    algorithm: AlgorithmConfig | None,
    source: Source | None = None,
    steps: int = 30,
    label: str = "RL",
    players: Sequence[str] = ("random", "expert"),
    **fields: Any,
) -> Experiment:
    """Demonstrations by the task's scripted policy, a short fine-tuning, then the method, if any.

    `source` None: groups of 8 on 16 tasks per step. Algorithm and source are copied: a flag that
    changes a field of one experiment leaves the settings of the others alone.
    """
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(4e-3, warmup_steps=30, final_fraction=0.1),
        bin_length=task.max_length,
        microbatch=16,
    )
    phases = {
        "sft": Phase(
            "SFT", Demonstrations(batch=32), imitate, steps=task.sft_steps, checkpoint_every=1000
        )
    }
    if algorithm:
        phases["rl"] = Phase(
            label,
            copy.deepcopy(source) or rollouts(),
            copy.deepcopy(algorithm),
            steps=steps,
            checkpoint_every=1000,
        )
    return Experiment(
        name=name,
        environment=EnvironmentConfig(
            f"agentrl_jax.envs:agentrl/{task.environment}", dict(task.options), workers=0
        ),
        agent=AgentConfig(budget=task.budget),
        tokenizer=BPETokenizer(vocab_size=VOCABULARY, all_bytes=False),
        policy=DecoderConfig(layers=2, width=64, hidden=128, heads=4, kv_heads=2, head_size=16),
        demonstrations=DemonstrationConfig(task.player, episodes=4000),
        phases=phases,
        evaluation=EvaluationConfig(episodes=256, players=tuple(players)),
        engine=EngineConfig(
            rows=128,
            positions=task.max_length,
            prefill_chunk=8,
            min_decode_steps=6,
            batching_delay=0.1,
        ),
        **fields,
    )


def from_one_start(**sides: Experiment) -> Experiment:
    """The phases `rl` of several experiments in one run, under the names of the sides; they start
    from the same fine-tuned weights and meet the same tasks. All else is that of the last side.

    Where the environments differ, each side has the tasks of its own, and all are evaluated in
    each of them, labeled by the sides' names.

    Raises:
        UserError: the environments differ, and a side's source is not `Rollouts` or names tasks.
    """
    last = list(sides.values())[-1]
    before = {name: phase for name, phase in last.phases.items() if name != "rl"}
    methods = {
        name: replace(experiment.phases["rl"], label=name, start=list(before)[-1])
        for name, experiment in sides.items()
    }
    if any(side.environment != last.environment for side in sides.values()):
        specs = {
            name: EnvironmentSpec(side.environment.name, side.environment.options)
            for name, side in sides.items()
        }
        methods = {name: _on_tasks(phase, specs[name]) for name, phase in methods.items()}
        last = replace(last, evaluation=replace(last.evaluation, environments=specs))
    return replace(last, phases={**before, **methods})


def _on_tasks(phase: Phase, spec: EnvironmentSpec) -> Phase:
    """The phase on the tasks of an environment, which have its label in metrics and names."""
    source = phase.source
    if not isinstance(source, Rollouts) or source.task_source is not None:
        raise UserError(
            "sides with different environments need rollouts on the tasks of their experiment; "
            f"that of {phase.label} is {source!r:.200}"
        )
    return replace(phase, source=replace(source, task_source=Mixture({phase.label: spec})))


def with_pair(
    get_config: Callable[[str], Experiment],
    base: str = "base",
    method: str = "method",
    **further: str,
) -> Callable[..., Experiment]:
    """Adds the variant `pair`: `from_one_start` of the variants that `base`, further sides and
    `method` name.
    """

    @functools.wraps(get_config)
    def pair_or_variant(*variant: str) -> Experiment:
        if variant == ("pair",):
            names = {"base": base, **further, "method": method}
            return from_one_start(**{side: get_config(name) for side, name in names.items()})
        try:
            return get_config(*variant)
        except UserError as error:
            raise UserError(f"{error}, pair") from None

    return pair_or_variant


def rollouts(tasks: int = 16, group_size: int = 8, **fields: Any) -> Rollouts:
    return Rollouts(tasks=tasks, strategy=IndependentEpisodes(group_size=group_size), **fields)
