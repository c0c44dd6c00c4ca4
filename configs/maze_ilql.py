"""ILQL (arXiv 2206.11871) in LMRL-Gym's maze (arXiv 2311.18232): imitate, learn values, and play the move that they rank first.

Published: 1,240 episodes whose mean return is -83, gamma .99 a token, tau .95, no CQL term, values that start at 0, batches of 32 links of
an episode, GPT-2 small. Raw means: BC -72.1, MC -48.1, ILQL -6.97 of at best -6.84; `:partial`, where the position is hidden, -79.5, -80.3
and -52.9. Here the data are of a player with that mean, the policy has 60 thousand weights, and rates match. BC plays softmax(log pi) of
the four moves, values the best; `:monte_carlo` regresses Q on the episodes' returns.

Not reproduced at this size yet: after 800 steps (seed 0) BC has -77 and ILQL -88. Q and V are stable and agree (-10.4), but only the cells
next to the goal are told from the others: one token's backup a step is slow, and the trunk has yet to learn to read the position.

agentrl-train --config=configs/maze_ilql.py[:partial|monte_carlo]
"""

from agentrl_jax.algorithms.chained import Links, first_turns
from agentrl_jax.algorithms.methods.lmrl import ilql, monte_carlo
from agentrl_jax.algorithms.ranking import action_value, advantage, likelihood
from agentrl_jax.algorithms.strategies.ranked import Ranked
from agentrl_jax.configs.small import Task, pick, small
from agentrl_jax.experiment import Demonstrations, Experiment
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.steered import SteeredConfig
from agentrl_jax.optimizer import AdamWConfig


def get_config(variant: str = "method") -> Experiment:
    optimizer = AdamWConfig(1e-3, warmup_steps=20, final_fraction=0.1, b2=0.95)
    settings = {"conservative": 0.0, "polyak": 0.1, "optimizer": optimizer, "bin_length": 160, "microbatch": 16}
    values = ilql(tau=0.95, aggregation=first_turns, **settings), advantage, 2, Links(Demonstrations(batch=4), 32)
    world, algorithm, score, twins, source = pick(
        variant, "maze_ilql",
        method=("MazeFO-v0", *values), partial=("MazePO-v0", *values),
        monte_carlo=("MazeFO-v0", monte_carlo(**settings), action_value, 1, Demonstrations(batch=2)),
    )  # fmt: skip
    config = small("maze-ilql", Task(world, "mixture", 160, 6, sft_steps=60), algorithm, source, steps=800, label="ILQL")
    assert isinstance(config.policy, DecoderConfig) and config.sft and config.rl and config.demonstrations
    config.policy = SteeredConfig(config.policy, twins=twins)
    config.demonstrations.episodes, config.evaluation.episodes = 1240, 100
    config.sft.source = Demonstrations(batch=1)
    config.sft.evaluation, config.rl.evaluation = Ranked(likelihood), Ranked(score, temperature=0.0)
    config.engine.positions = 40 if world == "MazeFO-v0" else 256
    return config
