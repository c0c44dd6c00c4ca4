"""An engine that samples what a function returns, and prover tasks for it."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from support.fake_engines import FakeEngine
from support.fixtures import make_call

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.envs.prover.sequents import applicable_tactics, parse_sequent
from agentrl_jax.envs.prover.theorems import ShortestProofSearch
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent, Limits
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Call, RandomKey, Sampling
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())
PROVER_ID = "agentrl_jax.envs:agentrl/Prover-v0"
# (prompt, key) -> (action, None: an empty one; its log-prob)
TacticFunction = Callable[[str, RandomKey], tuple[str | None, float]]


class TacticEngine(FakeEngine):
    """An `Engine` that answers at once, or never."""

    num_slots = 64

    def __init__(self, choose_tactic: TacticFunction, never_answers: bool = False) -> None:
        self._choose_tactic, self._never_answers = choose_tactic, never_answers
        self.calls: list[Call] = []
        self.prompts: list[str] = []

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[Any] = (),
    ) -> Future[Call]:
        future: Future[Call] = Future()
        self.prompts.append(bytes(ids.tolist()).decode())
        if self._never_answers:
            return future
        text, logp = self._choose_tactic(self.prompts[-1], key)
        action = np.zeros(0, np.int32) if text is None else RENDERER.action_ids(assistant(text))
        logps = np.full(len(action), logp / max(len(action), 1))
        call = dataclasses.replace(make_call(ids, action, logp=logps), sampling=sampling, key=key)
        self.calls.append(call)
        future.set_result(call)
        return future


def expert_tactic(prompt: str, key: RandomKey) -> tuple[str, float]:
    """The first tactic of a shortest proof of a state of one goal, or of the state's last line."""
    proof = ShortestProofSearch()(parse_sequent(last_goal(prompt)), 8)
    return (proof[0] if proof else "q"), -0.5


def last_goal(prompt: str) -> str:
    """ "a,b>c|-c;a" -> "a,b>c|-a" """
    *earlier_goals, last = prompt.strip().split("\n")[-1].split(" ")[0].split(";")
    if "|-" in last:
        return last
    full_goal = next(goal for goal in reversed(earlier_goals) if "|-" in goal)
    return f"{full_goal.split('|-')[0]}|-{last}"


def random_tactic(prompt: str, key: RandomKey) -> tuple[str, float]:
    """An applicable tactic, chosen by the key alone, with a different log-prob in each state."""
    tactics = applicable_tactics(parse_sequent(last_goal(prompt))) or ("q",)
    tactic = tactics[seed_of(*key) % len(tactics)]
    return tactic, -0.2 - seed_of(*f"{prompt}{tactic}".encode()) % 1000 / 400


def make_runtime(
    engine: TacticEngine,
    context: ContextManager | None = None,
    limits: Limits | None = None,
    deadlines: Timeouts | None = None,
    retries: int = 1,
) -> Runtime:
    agent = Agent(
        "policy",
        RENDERER,
        context or LastMessages(1),
        Sampling(budget=4),
        limits=limits or Limits(),
    )
    return Runtime({"policy": engine}, {"policy": agent}, InlinePool(), retries, deadlines)


def theorem_task(text: str) -> Task:
    return Task(PROVER_ID, 0, {"horizon": 30, "longest": 200}, {"theorem": text})


def sampled_task(seed: int) -> Task:
    return Task(PROVER_ID, seed, {"depth": 5, "least": 3, "misleading": 3})
