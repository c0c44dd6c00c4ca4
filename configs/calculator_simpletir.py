"""SimpleTIR (arXiv 2509.02479) on sums with a calculator, where a text that is neither a call of it nor an answer is a void turn.

Paper and code: no token of a trajectory with a void turn is trained; clip .2 and .28, dual clip 3; groups with a std below 1e-3 or
an accuracy outside [.1, .9], or with fewer than 4 members that are not overlong, are dropped. An episode is stopped after a void turn.

Expected effect: without stop and filter (`:base`) gradients spike, since void turns are made of improbable tokens.

agentrl-train --config=configs/calculator_simpletir.py[:base]
"""

from agentrl_jax.algorithms.methods.tools import simpletir
from agentrl_jax.algorithms.strategies.early import Early, OnTurn
from agentrl_jax.configs.small import CALCULATOR, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.strategies import Independent


def get_config(variant: str = "method") -> Experiment:
    settings = rates(CALCULATOR)
    group = Independent(group_size=8)
    algorithm, strategy = pick(
        variant, "calculator_simpletir", method=(simpletir(**settings), Early(group, (OnTurn(),))),
        base=(simpletir(void_filter=False, **settings), group),
    )  # fmt: skip
    source = Rollouts(tasks=16, strategy=strategy)
    return small("calculator-simpletir", CALCULATOR, algorithm, source, steps=40, label="SimpleTIR")
