"""An engine that writes what a function says, and provers for it to sample for."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from hand_made import make_call

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.envs.prover.sequents import applicable, stated
from agentrl_jax.envs.prover.theorems import Shortest
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent, Limits
from agentrl_jax.trajectories import Call, Key, Sampling
from agentrl_jax.workers import InProcess, Task

RENDERER = TextRenderer(byte_tokenizer())
PROVER = "agentrl_jax.envs:agentrl/Prover-v0"
Say = Callable[[str, Key], tuple[str | None, float]]  # (prompt, key) -> (action, None: nothing at all; its log-prob)


class TacticEngine:
    """Implements `Engine`: answers at once, or never where `late`."""

    places = 64

    def __init__(self, say: Say, late: bool = False) -> None:
        self._say, self._late = say, late
        self.calls: list[Call] = []
        self.prompts: list[str] = []

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Any] = ()) -> Future[Call]:
        future: Future[Call] = Future()
        self.prompts.append(bytes(ids.tolist()).decode())
        if self._late:
            return future
        text, logp = self._say(self.prompts[-1], key)
        action = np.zeros(0, np.int32) if text is None else RENDERER.action_ids(assistant(text))
        each = np.full(len(action), logp / max(len(action), 1))
        call = dataclasses.replace(make_call(ids, action, logp=each), sampling=sampling, key=key)
        self.calls.append(call)
        future.set_result(call)
        return future

    def release(self, call: Call) -> None: ...

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...


def expert(prompt: str, key: Key) -> tuple[str, float]:
    """The first tactic of a shortest proof of a state of one goal, or that of its last line."""
    proof = Shortest()(stated(last_goal(prompt)), 8)
    return (proof[0] if proof else "q"), -0.5


def last_goal(prompt: str) -> str:
    """ "a,b>c|-c;a" -> "a,b>c|-a" """
    *others, last = prompt.strip().split("\n")[-1].split(" ")[0].split(";")
    return last if "|-" in last else f"{next(one for one in reversed(others) if '|-' in one).split('|-')[0]}|-{last}"


def guess(prompt: str, key: Key) -> tuple[str, float]:
    """A tactic that applies, drawn by the key alone, with a log-prob of its own in each state."""
    tactics = applicable(stated(last_goal(prompt))) or ("q",)
    tactic = tactics[seed_of(*key) % len(tactics)]
    return tactic, -0.2 - seed_of(*f"{prompt}{tactic}".encode()) % 1000 / 400


def runtime_of(
    engine: TacticEngine,
    context: ContextManager | None = None,
    limits: Limits | None = None,
    deadlines: Deadlines | None = None,
    retries: int = 1,
) -> Runtime:
    agent = Agent("policy", RENDERER, context or LastMessages(1), Sampling(budget=4), limits=limits or Limits())
    return Runtime({"policy": engine}, {"policy": agent}, InProcess(), retries, deadlines)


def theorem(text: str) -> Task:
    return Task(PROVER, 0, {"horizon": 30, "longest": 200}, {"theorem": text})


def drawn(seed: int) -> Task:
    return Task(PROVER, seed, {"depth": 5, "least": 3, "misleading": 3})
