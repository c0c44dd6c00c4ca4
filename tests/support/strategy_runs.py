"""Agents and engines for tests of strategies, and how their groups are compared."""

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
from support.fake_engines import FakeEngine
from support.fixtures import make_call, tiny_policy

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import Environment
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.keys import key_data
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.training.config import ExperienceIterator
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory
from agentrl_jax.workers.pool import InlinePool, Task

TOKENIZER = byte_tokenizer()
RENDERER = TextRenderer(TOKENIZER)
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=4))
CHAIN_ID = "agentrl_jax.envs:agentrl/Chain-v0"
KEY = (7, 3)


class BrittleEnvironment(Environment):
    """Three turns of reward 1; after `healthy_resets` resets, each fails in its second turn.

    Resets are counted in the file `path`, over all instances.
    """

    scripted_policies: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"random": lambda env, rng: "x", "expert": lambda env, rng: "x"}
    )

    def __init__(
        self, healthy_resets: int = 1, path: str = "", render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self.healthy_resets, self.path = healthy_resets, Path(path)
        self.turn = self.reset_count = 0

    def _reset(self, options: dict[str, Any]) -> Any:
        with self.path.open("a") as file:
            file.write("reset\n")
        self.turn, self.reset_count = 0, len(self.path.read_text().splitlines())
        return (user("begin\n"),), {}

    def _step(self, text: str) -> Any:
        self.turn += 1
        if self.turn == 2 and self.reset_count > self.healthy_resets:
            raise ValueError("this environment is brittle")
        is_last = self.turn == 3
        info = {"success": True} if is_last else {}
        return (user(f"turn {self.turn}\n"),), 1.0, is_last, False, info


BRITTLE_ID = "support.strategy_runs:tests/Brittle-v0"
if "tests/Brittle-v0" not in gymnasium.registry:
    gymnasium.register("tests/Brittle-v0", "support.strategy_runs:BrittleEnvironment")


def chain_task(seed: int = 0, **options: Any) -> Task:
    """Length 4, letters a and b, at most 6 turns."""
    return Task(CHAIN_ID, seed, {"length": 4, "letters": 2, "horizon": 6, **options})


class KeyedTextEngine(FakeEngine):
    """An `Engine` that samples one of several texts, and its entropies, by the call's key alone.

    Calls are delayed by up to `max_delay` seconds. Each has 10 alternatives of a vocabulary of 10.
    """

    def __init__(
        self,
        texts: Sequence[str] = ("a", "b"),
        num_slots: int = 64,
        max_delay: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.num_slots, self._texts = num_slots, texts
        self._max_delay, self._random = max_delay, random.Random(seed)
        self.calls: list[Call] = []
        self.held_ids: set[int] = set()
        self._lock = threading.Lock()

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        first, second = (int(word) for word in key_data(key))
        action = RENDERER.action_ids(assistant(self._texts[first % len(self._texts)]))
        p = np.full((len(action), 10), second / 2**32 / 10)
        p[:, 0] = 1 - p[:, 1:].sum(axis=1)
        call = dataclasses.replace(
            make_call(ids, action),
            sampling=sampling,
            key=key,
            parent=parent,
            alternative_logp=np.log(p).astype(np.float32),
            alternatives=np.tile(np.arange(10, dtype=np.int32), (len(action), 1)),
        )
        future: Future[Call] = Future()
        with self._lock:
            self.calls.append(call)
            self.held_ids.discard(id(parent))
            self.held_ids.add(id(call))
        if self._max_delay:
            threading.Timer(
                self._random.random() * self._max_delay, future.set_result, [call]
            ).start()
        else:
            future.set_result(call)
        return future

    def release(self, call: Call) -> None:
        with self._lock:
            self.held_ids.discard(id(call))


class FixedGroups(ExperienceIterator):
    """The same groups at every step."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups, self.loaded = groups, None

    def next(self, step: int) -> list[Group]:
        return self.groups

    def state(self) -> Any:
        return {"step": 3}

    def load(self, state: Any) -> None:
        self.loaded = state


class ListEngine(FakeEngine):
    """Implements `Engine`: returns the given texts in order, whatever the prompt."""

    def __init__(self, *texts: str) -> None:
        self.left, self.prompts = list(texts), []

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        self.prompts.append(RENDERER.codec.decode(tuple(ids.tolist())))
        future: Future[Call] = Future()
        action = RENDERER.action_ids(assistant(self.left.pop(0)))[: sampling.budget]
        future.set_result(
            dataclasses.replace(make_call(ids, action), sampling=sampling, key=key, parent=parent)
        )
        return future


def local_engine(**fields: Any) -> LocalEngine:
    policy = tiny_policy(len(TOKENIZER))
    config = EngineConfig(
        **{
            "rows": 16,
            "positions": 128,
            "prefill_chunk": 8,
            "min_decode_steps": 4,
            "max_decode_steps": 4,
            "batching_delay": 0.0,
            "alternatives": 10,
            **fields,
        }
    )
    return LocalEngine(policy, config, policy.init(jax.random.key(0)))


def make_runtime(engine: Any, agent: Agent = AGENT, **more: Any) -> Runtime:
    return Runtime({"policy": engine}, {"policy": agent}, InlinePool(), **more)


def collect_group(
    strategy: Strategy, engine: Any, task: Task | None = None, agent: Agent = AGENT, **more: Any
) -> Group:
    """The strategy's group of one task."""
    with make_runtime(engine, agent, **more) as runtime:
        (group,) = runtime.collect(strategy, [task or chain_task()], KEY)
    return group


def expert_actions(task: Task) -> list[str]:
    """The texts of the expert's actions."""
    with make_runtime(KeyedTextEngine()) as runtime:
        trajectory = runtime.run(runtime.scripted_episode(task, "expert", 0))
    assert trajectory is not None
    return [turn.action.text for turn in trajectory.turns]


def episode_content(trajectory: Trajectory) -> Any:
    """The recorded content of an episode, for comparison."""
    calls = [
        (c.key, c.prompt.tolist(), c.action.tolist(), c.sampler_logp.tolist(), c.sampling, c.source)
        for c in trajectory.calls
    ]
    turns = [
        (t.action, t.observation, t.reward, t.rewards, t.terminated, t.truncated, t.info, t.notes)
        for t in trajectory.turns
    ]
    fields = (
        trajectory.sample,
        trajectory.success,
        trajectory.stop_reason,
        trajectory.parent,
        trajectory.branch_turn,
    )
    return trajectory.opening, calls, turns, fields


def groups_equal(a: Group, b: Group) -> bool:
    return [episode_content(t) for t in a.trajectories] == [
        episode_content(t) for t in b.trajectories
    ] and (
        a.num_dropped,
        a.discarded_turns,
    ) == (b.num_dropped, b.discarded_turns)
