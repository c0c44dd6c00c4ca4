"""Episodes of environments, played by their scripted policies, as conversations."""

import functools
from dataclasses import dataclass

import numpy as np

from agentrl_jax.corpus.exercise import Exercise
from agentrl_jax.corpus.words import choice, integer
from agentrl_jax.documents import ChatDocument
from agentrl_jax.environment import Environment, make
from agentrl_jax.messages import Message, assistant

MODULE = "agentrl_jax.envs"  # which registers the environments


@functools.cache
def _environment(name: str) -> Environment:
    return make(f"{MODULE}:agentrl/{name}")


@dataclass(frozen=True)
class Episodes:
    """Exercises of environments: the policy's next action, somewhere in an episode."""

    environments: tuple[str, ...]
    player: str = "expert"  # a scripted policy of all of them
    max_turns: int = 10
    max_characters: int = 600

    def __call__(self, rng: np.random.Generator) -> Exercise:
        """Half end in the last action of an episode; those that are too long are cut before."""
        messages = self._play(_environment(choice(rng, self.environments)), rng)
        ends = [i for i, message in enumerate(messages) if message.role == "assistant"]
        end = ends[-1] if rng.random() < 0.5 else choice(rng, ends)
        return Exercise(ChatDocument(tuple(messages[:end])), messages[end])

    def _play(self, env: Environment, rng: np.random.Generator) -> list[Message]:
        opening, _ = env.reset(seed=integer(rng, 0, 2**31 - 1))
        policy, messages = env.scripted_policies[self.player], list(opening)
        for _ in range(self.max_turns):
            action = policy(env, rng)
            action = assistant(action) if isinstance(action, str) else action
            observation, _, terminated, truncated, _ = env.step(action)
            messages += [action, *observation]
            characters = sum(len(message.text) for message in messages)
            if terminated or truncated or characters > self.max_characters:
                break
        return messages
