"""LMRL-Gym (arXiv 2311.18232): every pair of its tasks and baselines, at a size for a CPU.

The variant is TASK-METHOD. Tasks: maze_fo, maze_po, nav_fo, nav_po, wordle, chess, endgames,
questions, city, dealer. Methods: filtered (behavior cloning of the best episodes), mc (Monte-Carlo
returns), ilql, ppo, online_filtered; the row SFT of any of them but the first is plain behavior
cloning.

Published: GPT-2 small; the horizons, rewards, data policies and discounts that the tasks and
`methods.lmrl_gym` have; the constants that `LmrlTask` gives as published; in mazes the moves are
ranked, those of BC by likelihood and those of the others by their values. Ours: 60 to 120 thousand
weights, learning rates to match, fewer episodes, a larger Polyak rate; 16 of Wordle's
431 words, ten of Twenty Questions', 8 endgames and a deterministic opponent in them; tau .75 in
mazes (published .95); phrases as tokens; and moves of chess are ranked too, in training as well,
since so small a policy hardly ever generates a legal one. `agentrl-bench lmrl` runs the whole table
(docs/lmrl.md).

Hardware: 2 CPU cores; time: 30 to 1,804 s by variant; score: table in docs/lmrl.md

    agentrl-train --config=configs/lmrl.py:wordle-ilql
"""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.methods import lmrl_gym
from agentrl_jax.algorithms.offline.action_ranking import (
    TokenScoreBuilder,
    action_value,
    token_advantage,
)
from agentrl_jax.algorithms.offline.transitions import TurnTransitions, first_turn_mean
from agentrl_jax.algorithms.strategies.ranked_actions import RankedActions
from agentrl_jax.configs.lmrl_tasks import TASKS, LmrlTask
from agentrl_jax.configs.small import pick, rollouts, small_experiment, training_settings
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.models.value_guided import ValueGuidedConfig
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import Experiment, Source
from agentrl_jax.training.sources import Demonstrations, MixedSource, Rollouts

CLONING_TRANSITIONS = 32  # turns per step of behavior cloning, where it samples single turns


def _filtered(task: LmrlTask, name: str) -> Experiment:
    """Imitation of the best episodes alone."""
    config = _experiment(task, name, None)
    demonstrations = (
        Demonstrations(task.batch, successful_only=True)
        if task.top_fraction is None
        else Demonstrations(task.batch, top_fraction=task.top_fraction)
    )
    config.phases["sft"].label, config.phases["sft"].source = (
        "filtered BC",
        _with_transitions(demonstrations, CLONING_TRANSITIONS if task.transitions_per_step else 0),
    )
    return config


def _mc(task: LmrlTask, name: str) -> Experiment:
    algorithm = lmrl_gym.monte_carlo(cql_weight=task.conservative, **_value_settings(task))
    task = replace(
        task,
        beta=task.mc_beta or task.beta,
        ranking_temperature=task.mc_ranking_temperature,
    )
    return _value_guided_experiment(
        task, name, algorithm, Demonstrations(task.batch), action_value, "MC", 1, task.mc_steps
    )


def _ilql(task: LmrlTask, name: str) -> Experiment:
    aggregation = first_turn_mean if task.transitions_per_step else token_mean
    algorithm = lmrl_gym.ilql(
        tau=task.tau, cql_weight=task.conservative, aggregation=aggregation, **_value_settings(task)
    )
    source = _with_transitions(Demonstrations(task.batch), task.transitions_per_step)
    return _value_guided_experiment(
        task, name, algorithm, source, token_advantage, "ILQL", 2, task.ilql_steps
    )


def _ppo(task: LmrlTask, name: str) -> Experiment:
    head = HeadConfig(layers=0, bias=task.value_bias)
    algorithm = lmrl_gym.ppo_with_imitation(
        head, task.gamma, imitation=task.imitation, **_online_settings(task)
    )
    source = (
        MixedSource(_online_rollouts(task), Demonstrations(task.batch))
        if task.imitation
        else _online_rollouts(task)
    )
    return _experiment(task, name, algorithm, source, steps=task.online_steps, label="PPO")


def _online_filtered(task: LmrlTask, name: str) -> Experiment:
    algorithm = lmrl_gym.online_filtered_cloning(**_online_settings(task))
    return _experiment(
        task,
        name,
        algorithm,
        _online_rollouts(task),
        steps=task.online_steps,
        label="online filtered BC",
    )


METHODS = {
    "filtered": _filtered,
    "mc": _mc,
    "ilql": _ilql,
    "ppo": _ppo,
    "online_filtered": _online_filtered,
}


def get_config(variant: str = "wordle-ilql") -> Experiment:
    game, _, method = variant.partition("-")
    return pick(method, "lmrl", **METHODS)(pick(game, "lmrl", **TASKS), f"lmrl-{variant}")


def _experiment(
    task: LmrlTask,
    name: str,
    algorithm: AlgorithmConfig | None,
    source: Source | None = None,
    **settings: Any,
) -> Experiment:
    config = small_experiment(
        name, task, algorithm, source, players=("random", task.player, "expert"), **settings
    )
    assert config.demonstrations
    config.tokenizer = BPETokenizer(
        vocab_size=task.vocabulary, all_bytes=False, merge_across_spaces=task.phrases
    )
    config.demonstrations.episodes, config.evaluation.episodes = (
        task.episodes,
        task.evaluation_episodes,
    )
    config.phases["sft"].source = _with_transitions(
        Demonstrations(task.batch), CLONING_TRANSITIONS if task.transitions_per_step else 0
    )
    for phase in config.phases.values() if task.num_ranked_actions else ():
        phase.evaluation_strategy = _ranked_strategy(task)
    return config


def _with_transitions(source: Demonstrations, count: int) -> Source:
    return TurnTransitions(source, count) if count else source


def _value_settings(task: LmrlTask) -> dict[str, Any]:
    optimizer = AdamWConfig(
        2e-3,
        warmup_steps=20,
        final_fraction=task.value_final_fraction,
        b2=0.95,
        clip_norm=task.value_clip_norm,
    )
    return {
        "optimizer": optimizer,
        "polyak": 0.1,
        "bin_length": task.max_length,
        "microbatch": task.bins,
    }


def _online_settings(task: LmrlTask) -> dict[str, Any]:
    return training_settings(
        task,
        optimizer=AdamWConfig(
            task.online_learning_rate, warmup_steps=3, final_fraction=task.online_final_fraction
        ),
        microbatch=task.bins,
    )


def _value_guided_experiment(
    task: LmrlTask,
    name: str,
    algorithm: AlgorithmConfig,
    source: Source,
    score: TokenScoreBuilder,
    label: str,
    twins: int,
    steps: int,
) -> Experiment:
    config = _experiment(task, name, algorithm, source, steps=steps, label=label)
    assert isinstance(config.policy, DecoderConfig)
    head = HeadConfig(bias=task.value_bias)
    config.policy = ValueGuidedConfig(config.policy, head, head, twins, task.beta)
    if task.num_ranked_actions:
        config.phases["rl"].evaluation_strategy = _ranked_strategy(
            task, score=score, temperature=task.ranking_temperature
        )
    return config


def _ranked_strategy(task: LmrlTask, **settings: Any) -> RankedActions:
    return RankedActions(
        max_action_tokens=task.budget, actions_per_row=task.num_ranked_actions, **settings
    )


def _online_rollouts(task: LmrlTask) -> Rollouts:
    return (
        Rollouts(task.tasks, _ranked_strategy(task))
        if task.rank_in_training
        else rollouts(task.tasks, 1)
    )
