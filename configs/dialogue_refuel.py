"""REFUEL (arXiv 2410.04612) on a dialogue in which questions must come before the advice, beside the roll-ins that it is compared with.

Published: (d - eta (r - r'))^2 on pairs that part at any turn and go on with the policy itself; setting one eta 1e3 (for rewards as small
as ArmoRM's), rate 3e-7, 128 pairs a step, Llama-3-8B. Here eta 4, 64 pairs, 60 thousand weights, and rates to match.

Expected effect: pairs that part at any turn teach it to ask first (the best return is .94); with pairs that part at the last turn
(`:last_turn`) it only learns to make the best of what it was told. `:last_turn_offline`, `:last_turn_mixed` and `:multi_turn_mixed` take
replies or histories from demonstrations; `_dpo` after any of these is the same data with DPO's loss. `:horizon` cuts dialogues after
a random number of turns (then early advice is best), `:online` has setting two's KL in the reward, penalty and top layers alone,
`:judged` a reward model in place of the reward, `:rebel` one turn alone; `_twice` after `:refuel` or `:last_turn` is as published: two
iterations of much data and many passes over it. Returns of single runs, after fine-tuning's .36: `:refuel` .82
and .90, `:online` .86, `:multi_turn_mixed` .65, the last-turn ones .32 to .34, `_dpo` .31 to .35, `:judged` .30 (a model of the order
alone, which ranks four pairs of five as the reward does, is soon outplayed), `:rebel` .32 of at best .33. After 80 steps in place of 40:
.84, `:multi_turn_mixed` .59, `:last_turn` .32, and `:refuel_dpo` 0.

agentrl-train --config=configs/dialogue_refuel.py[:last_turn|last_turn_mixed|last_turn_offline|multi_turn_mixed|refuel_dpo|...]
"""

from agentrl_jax.algorithms.methods.refuel import dpo, rebel, refuel, refuel_online
from agentrl_jax.algorithms.preferences import PreferenceConfig, at_the_end
from agentrl_jax.algorithms.strategies.pairs import Pairs, last_turn
from agentrl_jax.algorithms.strategies.recorded import Recorded, RecordedPairs
from agentrl_jax.configs.small import HEAD, Task, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent

ADVICE = Task("Advice-v0", "mixture", 96, 8, {"topics": 3, "horizon": 4})  # room for 5 topics in 6 turns
ONE_TURN = Task("Advice-v0", "mixture", 96, 8, {"topics": 3, "horizon": 1})
ETA, BETA = 4.0, 1.0


def get_config(variant: str = "refuel") -> Experiment:
    task = ONE_TURN if variant == "rebel" else ADVICE
    settings = rates(task, bin_length=2 * task.longest, microbatch=16, epochs=2)
    losses = {"": refuel(ETA, **settings), "_dpo": dpo(BETA, fixed=False, **settings)}
    roll_ins = {
        "refuel": Pairs(), "last_turn": Pairs(cut=last_turn), "last_turn_mixed": Pairs(cut=last_turn, roll_in=Recorded()),
        "last_turn_offline": RecordedPairs(), "multi_turn_mixed": Pairs(roll_in=Recorded()),
    }  # fmt: skip
    judge = PreferenceConfig(HEAD, at_the_end, AdamWConfig(3e-3, warmup_steps=3), length=task.longest, microbatch=16)
    variants = {
        **{name + loss: (strategy, config) for name, strategy in roll_ins.items() for loss, config in losses.items()},
        "horizon": (Pairs(longest=4), losses[""]),
        "online": (Pairs(), refuel_online(kl=0.02, unended=-0.5, **settings | {"epochs": 4, "top_layers": 1})),
        "judged": (Pairs(), refuel(1.0, judge=judge, judge_steps=60, **settings)),
        "rebel": (Independent(2), rebel(ETA, **settings)),
        **{
            f"{name}_twice": (roll_ins[name], refuel(ETA, **settings | {"epochs": 8, "minibatches": 10}))
            for name in ("refuel", "last_turn")
        },
    }
    strategy, algorithm = pick(variant, "dialogue_refuel", **variants)
    players = ("random", "greedy", "expert")
    tasks, steps = (640, 2) if variant.endswith("_twice") else (64, 40 + algorithm.judge_steps)
    source = Rollouts(tasks=tasks, strategy=strategy)
    return small("dialogue-refuel", task, algorithm, source, steps, label=variant, players=players)
