"""The benchmarks' agent, tasks and counters: every action has a fixed number of tokens."""

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.launch.benchmarks.synthetic_envs import RELAY_ID
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import Task

NO_STOP_IDS = (-1,)  # no token's id, so that every turn is as long as its budget


def make_agent(new_tokens: int, vocab: int) -> Agent:
    """An agent with a byte tokenizer whose actions all have `new_tokens` tokens.

    Raises:
        UserError: the vocabulary is too small for bytes.
    """
    tokenizer = byte_tokenizer()
    if vocab < len(tokenizer):
        raise UserError(
            f"--vocab={vocab} is too small for {len(tokenizer)} bytes and special tokens"
        )
    return Agent(
        "policy",
        TextRenderer(tokenizer),
        FullHistory(),
        Sampling(budget=new_tokens, stop_ids=NO_STOP_IDS),
    )


def make_task(
    turns: int, prompt_tokens: int, observation_tokens: int, seed: int, group: int = 0
) -> Task:
    """An episode of the relay environment with the given lengths in tokens.

    The tokens between two actions are the observation and the token that ends a turn.
    """
    options = {"turns": turns, "opening": prompt_tokens, "reply": max(0, observation_tokens - 1)}
    return Task(RELAY_ID, seed, options, group=group)


def episode_length(turns: int, prompt_tokens: int, new_tokens: int, observation_tokens: int) -> int:
    """Tokens of an episode."""
    return prompt_tokens + turns * new_tokens + (turns - 1) * max(1, observation_tokens)


def prefill_tokens(engine: LocalEngine) -> int:
    """Prompt tokens that the engine has processed, in prefill and decode programs."""
    return engine.counts["prefill_tokens"] + engine.counts["fed_tokens"]


def busy_seconds(engine: LocalEngine) -> float:
    """Seconds during which the engine's programs ran."""
    return engine.busy_seconds
