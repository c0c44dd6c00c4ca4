"""Train a policy on an environment of your own: python examples/own_environment.py [STEPS]

An environment is a class with `_reset` and `_step`, registered with Gymnasium; its scripted
policies give demonstrations and baselines. Behavior cloning of the random one teaches the format,
GRPO the rest.
"""

import sys
from pathlib import Path

import gymnasium

sys.path.insert(0, str(Path(__file__).parent))  # worker processes import this module by its name

from agentrl_jax import (
    AdamWConfig,
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    Environment,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
    train,
    user,
)
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import ByteTokenizer


class GuessTheNumber(Environment):
    """Guess a digit in five turns: -1 for a wrong guess, 0 for the right one."""

    rules = "Guess a digit; the answer is higher, lower or yes."
    reward_bounds = (-1.0, 0.0)  # of one step
    scripted_policies = {  # noqa: RUF012
        "random": lambda env, random: str(random.integers(10)),
        "expert": lambda env, random: str(env.secret),
    }

    def _reset(self, options):
        self.secret, self.tries = int(self.np_random.integers(10)), 0
        return (user("A digit?\n"),), {}

    def _step(self, text):
        self.tries += 1
        correct = text.strip() == str(self.secret)
        reply = "yes" if correct else "higher" if text.strip() < str(self.secret) else "lower"
        truncated = self.tries == 5 and not correct
        info = {"success": correct} if correct or truncated else {}
        return (user(reply + "\n"),), 0.0 if correct else -1.0, correct, truncated, info


if "mine/Guess-v0" not in gymnasium.registry:
    gymnasium.register("mine/Guess-v0", GuessTheNumber)  # pyright: ignore[reportArgumentType]


def make_experiment(steps: int = 40) -> Experiment:
    return Experiment(
        name="guess",
        environment=EnvironmentConfig("own_environment:mine/Guess-v0"),
        agent=AgentConfig(budget=4),
        tokenizer=ByteTokenizer(),
        policy=DecoderConfig(layers=2, width=32, hidden=64, heads=2, kv_heads=1, head_size=16),
        demonstrations=DemonstrationConfig("random", episodes=500),
        phases={
            "sft": Phase(
                "SFT",
                Demonstrations(32),
                BehaviorCloningConfig(optimizer=AdamWConfig(3e-3), bin_length=64, microbatch=16),
                steps=40,
            ),
            "rl": Phase(
                "GRPO",
                Rollouts(tasks=16),
                grpo(optimizer=AdamWConfig(5e-3), bin_length=64, microbatch=64),
                steps=steps,
            ),
        },
        evaluation=EvaluationConfig(episodes=64, players=("random", "expert")),
    )


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    train(make_experiment(steps), Path("runs/example-own-environment"), fresh=True)
