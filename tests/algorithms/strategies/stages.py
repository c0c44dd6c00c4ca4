"""What tests of strategies play on: agents, engines whose words follow from the key alone, and how groups are compared."""

import dataclasses
import random
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
from hand_made import make_call, minute_policy

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import Environment
from agentrl_jax.keys import key_data
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Call, Group, Key, Sampling, Trajectory
from agentrl_jax.workers import InProcess, Task

TOKENIZER = byte_tokenizer()
RENDERER = TextRenderer(TOKENIZER)
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=4))
CHAIN = "agentrl_jax.envs:agentrl/Chain-v0"
KEY = (7, 3)


class Brittle(Environment):
    """Three turns of reward 1; of all worlds since the file `path` was there, those after the first `good` fail in their second turn."""

    players: ClassVar[Mapping[str, Any]] = MappingProxyType({"random": lambda env, rng: "x", "expert": lambda env, rng: "x"})

    def __init__(self, good: int = 1, path: str = "", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.good, self.path, self.turn, self.number = good, Path(path), 0, 0

    def _reset(self, options: dict[str, Any]) -> Any:
        with self.path.open("a") as file:
            file.write("reset\n")
        self.turn, self.number = 0, len(self.path.read_text().splitlines())
        return (user("begin\n"),), {}

    def _step(self, text: str) -> Any:
        self.turn += 1
        if self.turn == 2 and self.number > self.good:
            raise ValueError("this world is brittle")
        return (user(f"turn {self.turn}\n"),), 1.0, self.turn == 3, False, {"success": True} if self.turn == 3 else {}


BRITTLE = "stages:tests/Brittle-v0"
if "tests/Brittle-v0" not in gymnasium.registry:
    gymnasium.register("tests/Brittle-v0", "stages:Brittle")


def chain(seed: int = 0, **options: Any) -> Task:
    """Four places, letters a and b, at most 6 turns."""
    return Task(CHAIN, seed, {"length": 4, "letters": 2, "horizon": 6, **options})


class Whimsical:
    """Implements `Engine`: writes one of some texts, by the call's key alone, with entropies by it too; late by some moments.

    `unsure` turns have entropies near 1, others near 0 (of 10 alternatives, a vocabulary of 10).
    """

    def __init__(self, texts: Sequence[str] = ("a", "b"), places: int = 64, moment: float = 0.0, seed: int = 0) -> None:
        self.places, self._texts, self._moment, self._random = places, texts, moment, random.Random(seed)
        self.calls: list[Call] = []
        self.held: set[int] = set()
        self._lock = threading.Lock()

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
        first, second = (int(word) for word in key_data(key))
        action = RENDERER.action_ids(assistant(self._texts[first % len(self._texts)]))
        p = np.full((len(action), 10), second / 2**32 / 10)
        p[:, 0] = 1 - p[:, 1:].sum(axis=1)
        call = dataclasses.replace(
            make_call(ids, action), sampling=sampling, key=key, parent=parent, alternative_logp=np.log(p).astype(np.float32),
            alternatives=np.tile(np.arange(10, dtype=np.int32), (len(action), 1)),
        )  # fmt: skip
        future: Future[Call] = Future()
        with self._lock:
            self.calls.append(call)
            self.held.discard(id(parent))
            self.held.add(id(call))
        if self._moment:
            threading.Timer(self._random.random() * self._moment, future.set_result, [call]).start()
        else:
            future.set_result(call)
        return future

    def release(self, call: Call) -> None:
        with self._lock:
            self.held.discard(id(call))

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...


def local_engine(**fields: Any) -> LocalEngine:
    policy = minute_policy(len(TOKENIZER))
    config = EngineConfig(
        **{"rows": 16, "positions": 128, "chunk": 8, "burst": 4, "longest": 4, "patience": 0.0, "alternatives": 10, **fields}
    )
    return LocalEngine(policy, config, policy.init(jax.random.key(0)))


def runtime_on(engine: Any, agent: Agent = AGENT, **more: Any) -> Runtime:
    return Runtime({"policy": engine}, {"policy": agent}, InProcess(), **more)


def collected(strategy: Strategy, engine: Any, task: Task | None = None, agent: Agent = AGENT, **more: Any) -> Group:
    """The strategy's group of one task."""
    with runtime_on(engine, agent, **more) as runtime:
        (group,) = runtime.collect(strategy, [task or chain()], KEY)
    return group


def shown(task: Task) -> list[str]:
    """What the expert does."""
    with runtime_on(Whimsical()) as runtime:
        trajectory = runtime.run(runtime.scripted(task, "expert", 0))
    assert trajectory is not None
    return [turn.action.text for turn in trajectory.turns]


def told(trajectory: Trajectory) -> Any:
    """All that is recorded of an episode, to be compared."""
    calls = [(c.key, c.prompt.tolist(), c.action.tolist(), c.sampler_logp.tolist(), c.sampling, c.source) for c in trajectory.calls]
    turns = [(t.action, t.observation, t.reward, t.rewards, t.terminated, t.truncated, t.info, t.notes) for t in trajectory.turns]
    facts = trajectory.sample, trajectory.success, trajectory.stop_reason, trajectory.parent, trajectory.branch_turn
    return trajectory.opening, calls, turns, facts


def same(a: Group, b: Group) -> bool:
    return [told(t) for t in a.trajectories] == [told(t) for t in b.trajectories] and (a.dropped, a.spent) == (b.dropped, b.spent)
