"""AgentGym-RL (arXiv 2509.08755): one policy over five environments at once, ScalingInter horizons.

Crafting by recipes, BabyAI, ScienceWorld, questions answered by search, and rooms with a door, as
in the paper but for WebArena, in whose place the rooms stand, and at small sizes. Published: GRPO,
KL .001, clip .2, two epochs, a schedule of horizons for each environment; here one for all of them.
`:fixed` plays the longest horizon from the start, `:smoke` a few short steps. Evaluation is by
environment, on tasks that training does not have (the rooms have no split).

Expected effect: `:method` better than `:fixed` after as many turns played; not measured.

Hardware: 2 CPU cores; the full run was not measured

    pip install 'agentrl_jax[minigrid,scienceworld]'   # and a Java runtime
    agentrl-train --config=configs/agentgym_rl.py[:fixed|:smoke]
"""

from typing import Any

from agentrl_jax.algorithms.experience.schedules import IntervalSchedule
from agentrl_jax.algorithms.methods.multi_turn import scaling_inter
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs.search_task import search_spec
from agentrl_jax.configs.small import (
    SmallTask,
    pick,
    rollouts,
    small_experiment,
    training_settings,
)
from agentrl_jax.envs.search.protocols import PROTOCOLS
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.config import AgentConfig, DemonstrationConfig, Experiment
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_source import EnvironmentSpec

SPLIT = 10_000  # tasks of training, where a split is a range of them
TASK = SmallTask("TextCraft-v0", "expert", 2048, 96, {"depth": 1, "distractors": 2}, sft_steps=400)


def worlds(is_test: bool) -> dict[str, EnvironmentSpec]:
    """The environments by label, with their tasks of training or of the test."""
    tasks = {"tasks": SPLIT, "first": SPLIT if is_test else 0}
    split = {"split": "test" if is_test else "train"}
    members: dict[str, tuple[str, dict[str, Any]]] = {
        "textcraft": ("TextCraft-v0", {**TASK.options, **tasks}),
        "babyai": ("BabyAI-v0", {"level": "GoToObjS4", "horizon": 20, **tasks}),
        "scienceworld": (
            "ScienceWorld-v0",
            {"tasks": ["find-non-living-thing"], "horizon": 20, **split},
        ),
        "rooms": ("KeyDoor-v0", {}),
    }
    specs = {
        label: EnvironmentSpec(f"agentrl_jax.envs:agentrl/{name}", options)
        for label, (name, options) in members.items()
    }
    specs["search"] = search_spec(**split)
    return {f"{label}_test" if is_test else label: spec for label, spec in specs.items()}


def get_config(variant: str = "method") -> Experiment:
    schedule = IntervalSchedule((5, 10, 20), 40)
    max_turns = pick(variant, "agentgym_rl", method=schedule, fixed=None, smoke=schedule)
    is_smoke = variant == "smoke"
    mixture = Mixture(dict(worlds(is_test=False)))
    fields = {} if max_turns is None else {"max_turns": max_turns}
    source = rollouts(5 if is_smoke else 20, 2 if is_smoke else 8, task_source=mixture, **fields)
    algorithm = scaling_inter(**training_settings(TASK, microbatch=4, epochs=2))
    name = "agentgym-rl-smoke" if is_smoke else "agentgym-rl"
    steps = 3 if is_smoke else 120
    config = small_experiment(name, TASK, algorithm, source, steps=steps, label="ScalingInter")
    config.tokenizer = BPETokenizer(vocab_size=640, chat=True)
    render = ChatFormat(tool_format=PROTOCOLS["search_r1"].tool_format)
    config.agent = AgentConfig(render, budget=TASK.budget)
    config.demonstrations = DemonstrationConfig("expert", 2000, task_source=mixture)
    config.evaluation.environments = dict(worlds(is_test=True))
    config.engine.rows = 16
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(4e-3), bin_length=TASK.max_length, microbatch=4
    )
    config.phases["sft"].algorithm = imitate
    if is_smoke:
        config.phases["sft"].steps, config.demonstrations.episodes = 4, 25
        config.phases["sft"].source = Demonstrations(batch=4)
        config.evaluation.episodes, config.evaluation.players = 2, ("expert",)
    return config
