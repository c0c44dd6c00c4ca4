"""Train a policy on an environment of your own: python docs/bring_your_own.py"""

import sys
from pathlib import Path

import gymnasium

sys.path.insert(0, str(Path(__file__).parent))  # workers import this module by its name

from agentrl_jax import loop
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.environment import Environment
from agentrl_jax.experiment import (
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
)
from agentrl_jax.messages import user
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import Bytes
from agentrl_jax.optimizer import AdamWConfig


class GuessTheNumber(Environment):
    rules = "Guess a digit; the answer is higher, lower or yes."

    def _reset(self, options):
        self.secret, self.tries = int(self.np_random.integers(10)), 0
        return (user("A digit?\n"),), {}

    def _step(self, text):
        self.tries += 1
        won = text.strip() == str(self.secret)
        reply = "yes" if won else "higher" if text.strip() < str(self.secret) else "lower"
        return (user(reply + "\n"),), 0.0 if won else -1.0, won, self.tries == 5 and not won, {"success": won}


def guess(env, random):
    return str(random.integers(10))


def know(env, random):
    return str(env.secret)


GuessTheNumber.players = {"random": guess, "expert": know}
if "mine/Guess-v0" not in gymnasium.registry:
    gymnasium.register("mine/Guess-v0", GuessTheNumber)


def main() -> None:
    experiment = Experiment(
        name="guess",
        environment=EnvironmentConfig("bring_your_own:mine/Guess-v0"),
        agent=AgentConfig(budget=4),
        tokenizer=Bytes(),
        policy=DecoderConfig(layers=2, width=32, hidden=64, heads=2, kv_heads=1, head_size=16),
        demonstrations=DemonstrationConfig("random", episodes=500),
        sft=Phase("SFT", Demonstrations(32), SupervisedConfig(optimizer=AdamWConfig(3e-3), bin_length=64, microbatch=16), steps=40),
        rl=Phase("GRPO", Rollouts(tasks=16), grpo(optimizer=AdamWConfig(5e-3), bin_length=64, microbatch=64), steps=40),
        evaluation=EvaluationConfig(episodes=64, players=("random", "expert")),
    )
    loop.train(experiment, Path("runs/guess"), fresh=True)


if __name__ == "__main__":
    main()
