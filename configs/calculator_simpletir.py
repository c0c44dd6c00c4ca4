"""SimpleTIR (arXiv 2509.02479) on sums with a calculator.

A text that is neither a calculator call nor an answer is a void turn. Paper and code: no token of a
trajectory with a void turn is trained; clip .2 and .28, dual clip 3; groups with a std below 1e-3
or an accuracy outside [.1, .9], or with fewer than 4 members that are not overlong, are dropped. An
episode is stopped after a void turn.

Expected effect: without stop and filter (`:base`) gradients spike, since void turns consist of
low-probability tokens.

Hardware: 2 CPU cores; time: about 50 s; score: success .97 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/calculator_simpletir.py[:base]
"""

from agentrl_jax.algorithms.methods.tool_use import simpletir
from agentrl_jax.algorithms.strategies.early_stop import EarlyStopping, StopOnTurn
from agentrl_jax.configs.small import CALCULATOR, pick, small_experiment, training_settings
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(CALCULATOR)
    group = IndependentEpisodes(group_size=8)
    algorithm, strategy = pick(
        variant,
        "calculator_simpletir",
        method=(simpletir(**settings), EarlyStopping(group, (StopOnTurn(),))),
        base=(simpletir(drop_void_turns=False, **settings), group),
    )
    source = Rollouts(tasks=16, strategy=strategy)
    return small_experiment(
        "calculator-simpletir", CALCULATOR, algorithm, source, steps=40, label="SimpleTIR"
    )
