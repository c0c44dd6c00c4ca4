"""REFUEL (arXiv 2410.04612) and its baseline roll-ins on a dialogue that rewards asking first.

Questions must come before the advice. Published: (d - eta (r - r'))^2 on pairs that branch at any
turn and continue with the policy itself; setting one eta 1e3 (for rewards as small as ArmoRM's),
learning rate 3e-7, 128 pairs a step, Llama-3-8B. Here eta 4, 64 pairs, 60 thousand weights, and
learning rates to match.

Expected effect: with pairs that branch at any turn the policy learns to ask first (the best return
is .94); with pairs that branch at the last turn (`:last_turn`) it only learns to make the best of
the answers that it has. Variants:

- `:last_turn_offline`, `:last_turn_mixed` and `:multi_turn_mixed` take replies or histories from
  demonstrations; `_dpo` after any of these is the same data with DPO's loss.
- `:horizon` truncates dialogues after a random number of turns (then early advice is best),
  `:online` has setting two's KL in the reward, penalty and top layers alone, `:judged` a reward
  model in place of the reward, `:rebel` one turn alone.
- `_twice` after `:refuel` or `:last_turn` is as published: two iterations of much data and many
  passes over it.

Returns of single runs, after fine-tuning's .36: `:refuel` .82 and .90, `:online` .86,
`:multi_turn_mixed` .65, the last-turn ones .32 to .34, `_dpo` .31 to .35, `:judged` .30 (a model of
the order alone, which ranks four pairs of five as the reward does, is soon overoptimized), `:rebel`
.32 of at best .33. After 80 steps in place of 40: .89 and `:multi_turn_mixed` .84, means of ten
seeds (docs/methods.md); `:last_turn` .32 and `:refuel_dpo` 0.

Hardware: 2 CPU cores; time: 34 to 76 s by variant; score: tables in docs/refuel.md

    agentrl-train --config=configs/dialogue_refuel.py[:last_turn|refuel_dpo|...]
"""

from agentrl_jax.algorithms.experience.rewards import WeightedParts
from agentrl_jax.algorithms.methods import dpo, rebel, refuel, refuel_online
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig, final_token_loss
from agentrl_jax.algorithms.pairwise.reward_scorer import RewardModel
from agentrl_jax.algorithms.strategies.episode_scorers import RewardModelScore
from agentrl_jax.algorithms.strategies.offline_pairs import DemonstrationPairs, DemonstrationRollIn
from agentrl_jax.algorithms.strategies.paired_rollouts import PairedRollouts, last_turn
from agentrl_jax.algorithms.strategies.scored_episodes import ScoredEpisodes
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    SmallTask,
    pick,
    small_experiment,
    training_settings,
)
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.sources import Rollouts

ADVICE = SmallTask(
    "Advice-v0", "mixture", 96, 8, {"topics": 3, "horizon": 4}
)  # room for 5 topics in 6 turns
ONE_TURN = SmallTask("Advice-v0", "mixture", 96, 8, {"topics": 3, "horizon": 1})
ETA, BETA = 4.0, 1.0


def get_config(variant: str = "refuel") -> Experiment:
    task = ONE_TURN if variant == "rebel" else ADVICE
    settings = training_settings(task, bin_length=2 * task.max_length, microbatch=16, epochs=2)
    losses = {"": refuel(ETA, **settings), "_dpo": dpo(BETA, fixed_reference=False, **settings)}
    roll_ins = {
        "refuel": PairedRollouts(),
        "last_turn": PairedRollouts(branch_turn=last_turn),
        "last_turn_mixed": PairedRollouts(branch_turn=last_turn, roll_in=DemonstrationRollIn()),
        "last_turn_offline": DemonstrationPairs(),
        "multi_turn_mixed": PairedRollouts(roll_in=DemonstrationRollIn()),
    }
    variants = {
        **{
            name + loss: (strategy, config)
            for name, strategy in roll_ins.items()
            for loss, config in losses.items()
        },
        "horizon": (PairedRollouts(max_horizon=4), losses[""]),
        "online": (
            PairedRollouts(),
            refuel_online(
                kl=0.02, unfinished_reward=-0.5, **settings | {"epochs": 4, "top_layers": 1}
            ),
        ),
        "judged": (
            ScoredEpisodes(PairedRollouts(), {"model": RewardModelScore("reward")}),
            refuel(1.0, rewards=WeightedParts({"model": 1.0}), **settings),
        ),
        "rebel": (IndependentEpisodes(2), rebel(ETA, **settings)),
        **{
            f"{name}_twice": (
                roll_ins[name],
                refuel(ETA, **settings | {"epochs": 8, "minibatches": 10}),
            )
            for name in ("refuel", "last_turn")
        },
    }
    strategy, algorithm = pick(variant, "dialogue_refuel", **variants)
    players = ("random", "greedy", "expert")
    tasks, steps = (640, 2) if variant.endswith("_twice") else (64, 40)
    config = small_experiment(
        "dialogue-refuel",
        task,
        algorithm,
        Rollouts(tasks=tasks, strategy=strategy),
        steps,
        label=variant,
        players=players,
    )
    if variant == "judged":
        judge = RewardModelConfig(
            CRITIC_HEAD,
            final_token_loss,
            AdamWConfig(3e-3, warmup_steps=3),
            max_length=task.max_length,
        )
        reward = Phase("reward model", Rollouts(64, PairedRollouts()), judge, steps=60)
        config.models = {"reward": RewardModel("reward")}
        config.phases = {"sft": config.phases["sft"], "reward": reward, "rl": config.phases["rl"]}
    return config
