"""ArCHer's claim (arXiv 2402.19446): fewer environment turns than PPO, on tasks chosen by rho.

The variant is TASK-SIDE. All sides of a task start from the same fine-tuned policy of a seed, and
train until `turns` environment turns are played. Tasks:

- A: the ten words of Twenty Questions of ArCHer's subset, about 3 tokens an utterance;
- B: the same, spelled in characters: about 20 tokens an utterance;
- B21: the same in long sentences, a token for each word: about 21 tokens an utterance;
- C1: a chain of 60 places, one late reward, a wrong letter costs a place; answers of 1 letter;
- C24: the same with answers of 24 letters;
- D: 35 words in three categories, demonstrated by the expert half of the time.

Sides: ppo (`turn_ppo`, gamma 1; flags set lambda), ppo_epochs (4 epochs), ppo_published (1,024
games a step, as in the paper: a declared weak line), archer (as published), anchored (with all
options: `hierarchical.anchored_archer`, beta .5), and of that anchored_q (beta 0), anchored_returns
(beta 1), no_reuse (the replay holds the last iteration) and few_updates (as many critic steps as
PPO), and start (the fine-tuned policy alone).

`agentrl-bench archer_claim` runs them all and writes the tables of docs/archer.md.

Hardware: 1 CPU core; time: half a minute to twelve minutes a side; score: docs/archer.md

    agentrl-train --config=configs/archer_claim.py:A-ppo
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl_jax.algorithms.archer.advantage_weights import subtract_batch_mean
from agentrl_jax.algorithms.archer.critic_losses import OnPolicyTDLoss
from agentrl_jax.algorithms.methods import actor_critic, hierarchical
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig, first_token_mean
from agentrl_jax.configs.archer import ENCODER
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    SmallTask,
    pick,
    rollouts,
    small_experiment,
    training_settings,
)
from agentrl_jax.configs.twenty_questions import question_tokens
from agentrl_jax.context import LastMessages
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.joint_critic import JointCriticConfig
from agentrl_jax.models.tokenizers import BPETokenizer, CharacterTokenizer
from agentrl_jax.models.utterance_critic import (
    FreshEncoderConfig,
    PolicyTrunkEncoderConfig,
    UtteranceCriticConfig,
)
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Demonstrations, MixedSource

TURNS_PER_ROW = 32  # of the joint critic's rows


@dataclass(frozen=True)
class ClaimTask(SmallTask):
    """A task of the comparison."""

    turns: int = 2400  # environment turns of a side
    evaluate_every: int = 300  # turns
    games: int = 64  # of an evaluation
    turns_per_game: int = 15  # of the fine-tuned policy, about
    gamma: float = 0.95  # of ArCHer, per turn
    value_bias: float = -9.0  # initial bias of ArCHer's heads
    demonstrations: int = 4000
    sft_batch: int = 16
    tokenizer: Callable[[Sequence[str]], Any] = field(
        default_factory=lambda: BPETokenizer(1024, all_bytes=False, merge_across_spaces=True)
    )
    own_trunk: bool = False  # of ArCHer's published critic: the policy's; else an encoder of lines
    bin_length: int = 128
    branch_lengths: tuple[int, ...] = (8, 24)  # of utterances in the joint critic's rows
    group_size: int = 8  # utterances that are drawn in a state for its mean of Q
    first_replay: int = 500  # demonstrations in the replay, of those that cloning learns from
    last_observation: bool = False  # the prompt is the last observation alone
    state_length: int = 48  # that ArCHer's published critic pads to, in tokens of its encoder
    utterance_length: int = 8
    row_length: int = 0  # tokens of a row of the joint critic; 0: twice `max_length`
    critic_rows: int = 4  # of such rows in a microbatch
    policy_rows: int = 8  # of `bin_length` tokens in a microbatch of the policy


def _questions(words: str, player: str, length: int = 128, **fields: Any) -> ClaimTask:
    settings = {"sft_steps": 240, "budget": 24, "bin_length": length, **fields}
    return ClaimTask("TwentyQuestions-v0", player, length, options={"words": words}, **settings)


def _long_questions(
    player: str, length: int, budget: int, tokenizer: Callable[[Sequence[str]], Any], **fields: Any
) -> ClaimTask:
    """The ten words, with utterances of more than twenty tokens and `budget` at most."""
    return _questions(
        "subset",
        player,
        length,
        budget=budget,
        branch_lengths=(24, budget),
        tokenizer=tokenizer,
        own_trunk=True,
        state_length=length,
        utterance_length=budget,
        policy_rows=4,
        **fields,
    )


def _chain(answer_length: int) -> ClaimTask:
    options = {
        "length": 60, "letters": 2, "wrong": 1, "horizon": 120, "answer_length": answer_length
    }  # fmt: skip
    return ClaimTask(
        "Chain-v0",
        "weak",
        16 + answer_length,
        answer_length + 2,
        options,
        150,
        turns=3_600,
        evaluate_every=300,
        games=32,
        turns_per_game=115,
        gamma=1.0,
        value_bias=0.2,
        demonstrations=200,
        sft_batch=2,
        branch_lengths=(answer_length + 2,),
        group_size=4,
        first_replay=20,
        tokenizer=CharacterTokenizer(),
        own_trunk=True,
        bin_length=512,
        last_observation=True,
        row_length=(answer_length + 16) * TURNS_PER_ROW,
        critic_rows=1,
        state_length=16,
        utterance_length=answer_length + 2,
    )


TASKS = {
    "A": _questions("subset", "mixture"),
    "B": _long_questions("mixture", 640, 44, CharacterTokenizer(), turns=4800, sft_steps=1600),
    "B21": _long_questions(
        "talkative", 576, 32, BPETokenizer(1024, all_bytes=False), row_length=576, sft_steps=480
    ),
    "C1": _chain(1),
    "C24": _chain(24),
    "D": _questions("animals+fruits+vehicles", "half", 160, turns=4800, sft_steps=600),
}


# The sides whose replay begins with demonstrations.
REPLAYING = ("anchored", "anchored_q", "anchored_returns", "no_reuse", "few_updates")


def get_config(variant: str = "A-ppo") -> Experiment:
    name, _, side = variant.partition("-")
    task = pick(name, "archer_claim", **TASKS)
    algorithm = pick(side, "archer_claim", **_sides(task))
    config = small_experiment(
        f"archer_claim-{variant}",
        task,
        algorithm,
        rollouts(tasks=16, group_size=1),
        steps=60,
        label=side,
        players=(),
        record_groups=0,
    )
    config.tokenizer = copy.copy(task.tokenizer)
    if task.last_observation:
        config.agent.context = LastMessages(1)
    assert config.demonstrations is not None
    config.demonstrations.episodes = task.demonstrations
    config.evaluation.training_episodes = 128
    if "rl" in config.phases and side in REPLAYING:
        first = Demonstrations(batch=task.first_replay)
        rl = config.phases["rl"]
        rl.source = MixedSource(rollouts(tasks=16, group_size=1), first, only_first_step=True)
    config.phases["sft"].source = Demonstrations(batch=task.sft_batch)
    config.phases["sft"].algorithm = BehaviorCloningConfig(
        optimizer=AdamWConfig(4e-3, warmup_steps=30, final_fraction=0.1),
        bin_length=task.bin_length,
        microbatch=4,
    )
    config.engine = replace(config.engine, rows=64, batching_delay=0.005)
    return config


def _sides(task: ClaimTask) -> dict[str, AlgorithmConfig | None]:
    head = replace(CRITIC_HEAD, bias=task.value_bias)
    # Returns are up to 20 in size: a clip of .2 would hold the critic back.
    critic = CriticConfig(head, AdamWConfig(1e-3), clip=float("inf"), aggregation=first_token_mean)
    settings = training_settings(
        task, microbatch=task.policy_rows, bin_length=task.bin_length, critic=critic
    )
    settings["optimizer"] = AdamWConfig(1e-3)
    ppo = actor_critic.turn_ppo(head, 1.0, 1.0, **settings)
    return {
        "start": None,
        "ppo": ppo,
        "ppo_epochs": replace(ppo, epochs=4),
        "ppo_published": ppo,
        "archer": _published_archer(task),
        "anchored": _anchored(task),
        "anchored_q": _anchored(task, beta=0.0),
        "anchored_returns": _anchored(task, beta=1.0),
        "no_reuse": _anchored(task, recent=None),
        "few_updates": _anchored(task),
    }


def _anchored(task: ClaimTask, beta: float = 0.5, **loop: Any) -> AlgorithmConfig:
    """With all options: a joint critic that is pretrained on the demonstrations, no warm-up, and
    returns that hold its advantages.
    """
    critic = hierarchical.joint_critic(
        JointCriticConfig(head=HeadConfig(layers=2, hidden=128, scale=0.1, bias=task.value_bias)),
        loss=OnPolicyTDLoss(task.gamma),
        batch=128,
        row_length=task.row_length or 2 * task.max_length,
        utterance_lengths=task.branch_lengths,
        branch_tokens=TURNS_PER_ROW * task.branch_lengths[0],
        microbatch=task.critic_rows,
        optimizer=AdamWConfig(1e-3, b2=0.999),
    )
    actor = hierarchical.anchored_actor(
        optimizer=AdamWConfig(1e-3, b2=0.999),
        bin_length=task.bin_length,
        microbatch=task.policy_rows,
    )
    settings = {"critic_steps": 6, "pretrain_steps": 100, "capacity": 10_000, **loop}
    return hierarchical.anchored_archer(
        critic, actor, beta=beta, group_size=task.group_size, **settings
    )


def _published_archer(task: ClaimTask) -> AlgorithmConfig:
    """Its critic reads texts apart; numbers of turns follow from the games of an iteration."""
    head = HeadConfig(layers=2, hidden=128, scale=1.0, bias=task.value_bias)
    lines = FreshEncoderConfig(ENCODER, question_tokens)
    critic = hierarchical.utterance_critic(
        UtteranceCriticConfig(head=head),
        PolicyTrunkEncoderConfig() if task.own_trunk else lines,
        loss=OnPolicyTDLoss(task.gamma),
        batch=32,
        microbatch=32,
        state_lengths=(task.state_length,),
        utterance_lengths=(task.utterance_length,),
        optimizer=AdamWConfig(1e-3, b2=0.999),
    )
    actor = hierarchical.reinforce_actor(
        optimizer=AdamWConfig(1e-3, b2=0.999),
        bin_length=task.bin_length,
        microbatch=task.policy_rows,
    )
    return hierarchical.archer(
        critic, actor, batch=32, warmup=10, capacity=10_000, weight_fn=subtract_batch_mean
    )
