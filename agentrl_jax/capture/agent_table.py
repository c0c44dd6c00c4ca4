"""`AgentTable`: the agents that programs address by a request's `model`."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentrl_jax.engine import Engine
from agentrl_jax.invariants import Invariants
from agentrl_jax.rollout.agent import Agent


@dataclass(frozen=True)
class AgentTable:
    """The agents by a request's `model`; any other name stands for the default agent."""

    agents: Mapping[str, Agent]
    engines: Mapping[str, Engine]
    default: str = "policy"
    call_timeout: float = 300.0  # seconds for a call
    # Whether programs may set temperature, top-p, top-k and min-p, or only the run.
    allow_sampling_overrides: bool = True
    max_calls: int = 0  # the newest calls that a session keeps; 0: all
    # A text with more bytes for each position of the engine is not tokenized.
    max_bytes_per_token: int = 32
    invariants: Invariants | None = None  # that the engines' answers are checked by

    def agent_for(self, model: str) -> Agent:
        """The agent that a name stands for."""
        return self.agents.get(model) or self.agents[self.default]
