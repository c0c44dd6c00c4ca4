"""Playing those worlds: an agent that never stops by itself, and a runtime over one engine."""

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benches.worlds import RELAY
from agentrl_jax.local_engine import LocalEngine
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers import Task

NEVER = (-1,)  # no token's id, so that every turn is as long as its budget


def make_agent(new: int, vocab: int) -> Agent:
    """Reads and writes bytes; every action is `new` tokens long. Raises UserError where the vocabulary has no room for bytes."""
    tokenizer = byte_tokenizer()
    if vocab < len(tokenizer):
        raise UserError(f"--vocab={vocab} has no room for {len(tokenizer)} bytes and special tokens")
    return Agent("policy", TextRenderer(tokenizer), FullHistory(), Sampling(budget=new, stop_ids=NEVER))


def make_task(turns: int, prompt: int, observation: int, seed: int, group: int = 0) -> Task:
    """An episode with `prompt` tokens at first and `observation` tokens between two actions: the turn's end and the answer."""
    options = {"turns": turns, "opening": prompt, "reply": max(0, observation - 1)}
    return Task(RELAY, seed, options, group=group)


def positions(turns: int, prompt: int, new: int, observation: int) -> int:
    """Tokens of a whole episode."""
    return prompt + turns * new + (turns - 1) * max(1, observation)


def prefilled(engine: LocalEngine) -> int:
    """Prompt tokens that the engine has worked through, by whichever program."""
    return engine.counts["prefill_tokens"] + engine.counts["fed_tokens"]


def busy(engine: LocalEngine) -> float:
    """Seconds that the engine's programs ran."""
    return engine.busy
