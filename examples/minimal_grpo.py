"""GRPO from an environment to published weights, without a config: python examples/minimal_grpo.py

A policy of 20,000 parameters, trained from random weights, learns to find a digit by asking for it.
Every stage of a step stands here once: environment, engine, collect, advantage, loss, update,
publish. The rest of the library is what makes each of these lines hold for large models, many
hosts, slow environments and published methods (docs/one_step.md follows one token through it).
"""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agentrl_jax import (
    Agent,
    Batch,
    Environment,
    FullHistory,
    IndependentEpisodes,
    InlinePool,
    Learner,
    LocalEngine,
    Runtime,
    Sampling,
    Task,
    TextRenderer,
    collate,
    pack,
    pytree_dataclass,
    user,
)
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import character_tokenizer
from agentrl_jax.pytree import AnyArray

TASKS, GROUP_SIZE, STEPS = 16, 8, 40
BIN_LENGTH, BINS = 64, 32  # tokens in a packed row; rows in a microbatch


class GuessTheDigit(Environment):
    """Name a digit; the answer is `<` (the secret is less), `>` or `=`. -1 for a wrong guess."""

    rules = "Guess a digit."
    scripted_policies = {  # noqa: RUF012
        "random": lambda env, random: str(random.integers(10)),
        "expert": lambda env, random: str(env.secret),
    }

    def _reset(self, options):
        self.secret, self.guesses = int(self.np_random.integers(10)), 0
        return (user("?"),), {}

    def _step(self, text):
        self.guesses += 1
        correct = text == str(self.secret)
        reply = "=" if correct else "<" if text > str(self.secret) else ">"
        truncated = self.guesses == 6 and not correct
        return (user(reply),), float(correct) - 1.0, correct, truncated, {"success": correct}


gymnasium.register("example/GuessTheDigit-v0", GuessTheDigit)  # pyright: ignore[reportArgumentType]


@pytree_dataclass
class GRPOBatch:
    """A packed batch and what the loss reads beside it; everything is per token, [bins, length]."""

    batch: Batch
    advantage: AnyArray


def grpo_loss(logp, entropy, batch):
    """-min(r A, clip(r, 1 - .2, 1 + .2) A) for each token, r = pi / pi_sampler."""
    ratio = jnp.exp(logp - batch.batch.sampler_logp)
    surrogate = jnp.minimum(ratio * batch.advantage, jnp.clip(ratio, 0.8, 1.2) * batch.advantage)
    clipped = jnp.abs(ratio - 1) > 0.2
    return -surrogate, {"entropy": entropy, "clipped": clipped.astype(jnp.float32)}


def group_advantages(group):
    """(return - mean) / std within the group, one number per trajectory."""
    returns = np.array([trajectory.total_reward for trajectory in group.trajectories])
    return (returns - returns.mean()) / (returns.std() + 1e-6)


def make_microbatches(groups):
    """Trajectories -> training sequences -> packed arrays, each token with advantage and weight."""
    collated = collate(groups)
    index = collated.token_index  # which sequence, position and trajectory each sampled token is of
    advantage = np.concatenate([group_advantages(group) for group in groups])
    weight = np.full(len(index.token_trajectory), 1 / len(index.token_trajectory))  # token mean
    layout = pack(collated.sequences, BIN_LENGTH, multiple=BINS)

    def scatter(values):
        return layout.scatter(values, index.token_sequence, index.token_position)

    batch = GRPOBatch(
        batch=layout.to_batch(scatter(weight)),
        advantage=scatter(advantage[index.token_trajectory]),
    )
    pieces = range(0, layout.num_bins, BINS)
    return [jax.tree.map(lambda x, i=i: x[i : i + BINS], batch) for i in pieces]


def train(steps=STEPS):
    """Returns the mean return of every step."""
    tokenizer = character_tokenizer(["0123456789<>=?"])
    policy = DecoderConfig(layers=2, width=32, hidden=64, heads=2, kv_heads=1, head_size=16).build(
        len(tokenizer)
    )
    mesh = make_mesh(MeshConfig())  # all devices share the rows
    learner = Learner(policy, optax.adam(3e-3), grpo_loss, mesh)
    state = learner.init(jax.random.key(1), policy.init(jax.random.key(0)))

    engine = LocalEngine(policy, EngineConfig(rows=TASKS * GROUP_SIZE, positions=32), state.params)
    agent = Agent("policy", TextRenderer(tokenizer), FullHistory(), Sampling(budget=1))
    strategy, mean_returns = IndependentEpisodes(GROUP_SIZE), []
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool()) as runtime:
        for step in range(steps):
            tasks = [Task("example/GuessTheDigit-v0", TASKS * step + i) for i in range(TASKS)]
            groups = runtime.collect(strategy, tasks, key=(0, step))
            state, metrics = learner.update(state, make_microbatches(groups))
            runtime.publish(state.params, version=step + 1)
            mean_returns.append(np.mean([t.total_reward for g in groups for t in g.trajectories]))
            entropy = metrics["entropy"] / metrics["tokens"]
            print(f"step {step:2d}  mean return {mean_returns[-1]:5.2f}  entropy {entropy:.2f}")
    return mean_returns


if __name__ == "__main__":
    train()
