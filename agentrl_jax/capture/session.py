"""`Session`: one episode of an agent program: the tree of its calls, the rewards posted for it, and the trajectory they make."""

import asyncio
import dataclasses
import hashlib
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jinja2 import TemplateError

from agentrl_jax.capture.tools import Hermes, ToolFormat, canonical, written
from agentrl_jax.capture.wire import Asked, Choice, Refused
from agentrl_jax.engine import Engine, Generation
from agentrl_jax.episodes import Agent, sampled
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import Message, ToolCall
from agentrl_jax.rendering import Ids
from agentrl_jax.trajectories import Call, Key, Sampling, StopReason, Trajectory, Turn
from agentrl_jax.workers import Task, importable

AT_ONCE = 64  # calls of an episode that may be under way
Heard = Callable[[int, list[int]], None]  # told which choice is how far


@dataclass(frozen=True)
class Seats:
    """Who answers: a request's `model` is one of these agents, or else a name that the default one goes by."""

    agents: Mapping[str, Agent]
    engines: Mapping[str, Engine]
    default: str = "policy"
    turn: float = 300.0  # seconds for a call
    obey: bool = True  # whether programs set temperature, top-p, top-k and min-p, or the run alone
    form: ToolFormat = field(default_factory=Hermes)

    def of(self, model: str) -> Agent:
        """The agent that a name stands for."""
        return self.agents.get(model) or self.agents[self.default]


@dataclass(eq=False)
class Node:
    """A call in the tree, and what its program knows of it."""

    identity: str
    place: int  # among the choices of its request
    model: str
    agent: Agent
    call: Call
    history: tuple[Message, ...]  # as the model reads it, its own message last
    shown: tuple[Message, ...]  # what its prompt added to the call that it extends, or all of it
    rewards: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Overheard:
    """An engine whose calls are listened to."""

    engine: Engine
    heard: Callable[[list[int]], None]

    def submit(self, *request: Any) -> "Future[Call]":
        future = self.engine.submit(*request)
        if isinstance(future, Generation):
            future.heard = self.heard
        return future

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@dataclass(frozen=True, eq=False)
class _Wanted:
    """A request made ready for the engine."""

    asked: Asked
    agent: Agent
    ids: Ids
    parent: Node | None
    history: tuple[Message, ...]
    shown: tuple[Message, ...]
    sampling: Sampling
    identity: str


class Session:
    """Lives on one event loop. `key` is (run, step, task, sample)."""

    def __init__(self, identity: str, secret: str, task: Task, sample: int, key: Key, seats: Seats, prompt: str = "") -> None:
        self.identity, self.secret, self.task, self.sample, self.prompt = identity, secret, task, sample, prompt
        self.over = asyncio.Event()
        self.claimed = asyncio.Event()
        self._key, self._seats = key, seats
        self._nodes: list[Node] = []
        self._by_trail: dict[bytes, Node] = {}
        self._same: Counter[int] = Counter()
        self._posted: set[str] = set()
        self._rewarded = False
        self._success: bool | None = None
        self._stop: StopReason | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tokens = 0
        self._broken: Exception | None = None
        self._last = asyncio.get_running_loop().time()

    @property
    def _trained(self) -> list[Node]:
        return [node for node in self._nodes if node.agent.trainable]

    @property
    def described(self) -> dict[str, Any]:
        """What its program is told."""
        t = self.task
        return {
            "environment": importable(t.environment),
            "options": t.options,
            "seed": t.seed,
            "sample": self.sample,
            "prompt": self.prompt,
        }

    @property
    def models(self) -> list[str]:
        return sorted(self._seats.agents)

    # What the program asks for.

    def start(self, asked: Asked, heard: Heard | None = None) -> "tuple[str, list[asyncio.Task[Choice]]]":
        """The completion's id and its calls, on their way. Raises Refused where there is nothing to sample."""
        self.touch()
        agent = self._seats.of(asked.model)
        reached = agent.limits.reached(len(self._trained), self._tokens)
        if reached:
            self._stop = self._stop or reached
            raise Refused(f"the episode has reached its limit of {reached}: post its reward", code="episode_limit")
        if len(self._tasks) + asked.n > AT_ONCE:
            raise Refused(f"an episode may have {AT_ONCE} calls under way", code="rate_limit_exceeded", status=429)
        try:
            ids, parent, history, shown = self._prompt(asked, agent)
            sampling = self._sampling(asked, agent, len(ids))
        except (UserError, TemplateError) as error:
            raise Refused(str(error)) from error
        check = zlib.crc32(ids.tobytes())
        count = self._same[check]
        self._same[check] += asked.n
        wanted = _Wanted(asked, agent, ids, parent, history, shown, sampling, f"chatcmpl-{check:08x}-{count}")
        tasks = []
        for place in range(asked.n):
            # Named by the prompt and not by who came first: calls side by side sample the same whichever is earlier.
            number = (0, count + place) if asked.seed is None else (1, asked.seed, place)
            tasks.append(asyncio.ensure_future(self._call(wanted, place, (*self._key, check, *number), heard)))
            tasks[-1].add_done_callback(self._ended)
        self._tasks |= set(tasks)
        return wanted.identity, tasks

    def text(self, model: str, tokens: list[int]) -> str:
        """What tokens of an answer read as."""
        return self._seats.of(model).renderer.parse(np.asarray(tokens, np.int32)).text

    def touch(self) -> None:
        """The program was heard of. Raises Refused where its episode is over."""
        self._last = asyncio.get_running_loop().time()
        self.claimed.set()
        if self.over.is_set():
            raise Refused("the episode is over", code="episode_over", status=410)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._last = asyncio.get_running_loop().time()

    def _prompt(self, asked: Asked, agent: Agent) -> tuple[Ids, Node | None, tuple[Message, ...], tuple[Message, ...]]:
        """The ids, the call that they extend or None, what the model reads, and what of it is new."""
        messages = tuple(written(message, self._seats.form) for message in asked.messages)
        trail = _trail(agent, asked)
        for seen in range(len(messages) - 1, 0, -1):
            node = self._by_trail.get(trail[seen])
            if node is not None:
                new = messages[seen + 1 :]
                bridge = agent.renderer.bridge(node.call, node.history, new)
                if bridge is not None:
                    return np.concatenate([node.call.ids, bridge]), node, (*node.history, *new), new
        return agent.renderer.render(messages, asked.tools).ids, None, messages, messages

    def _sampling(self, asked: Asked, agent: Agent, prompt: int) -> Sampling:
        sampling = agent.sampling
        wish = {name: getattr(asked, name) for name in ("temperature", "top_p", "top_k", "min_p")} if self._seats.obey else {}
        most = min(asked.budget or sampling.budget, sampling.budget)
        budget = agent.limits.budget(most, self._tokens, prompt)
        if budget < 1:
            raise self._full()
        wish = {name: value for name, value in wish.items() if value is not None}
        if agent.trainable and wish.get("temperature") == 0:
            raise Refused("a greedy call cannot be trained on: ask for a temperature above 0, or run with obey=False", "temperature")
        return dataclasses.replace(sampling, budget=budget, stop_strings=(*sampling.stop_strings, *asked.stop), **wish)

    def _full(self) -> Refused:
        self._stop = self._stop or "context"
        return Refused("this model's maximum context length is reached", "messages", "context_length_exceeded")

    async def _call(self, wanted: "_Wanted", place: int, key: Key, heard: Heard | None) -> Choice:
        w, agent = wanted, wanted.agent
        engine: Any = self._seats.engines[agent.engine]
        if heard is not None:
            loop = asyncio.get_running_loop()
            engine = _Overheard(engine, lambda tokens: _tell(loop, heard, place, tokens))
        parent = w.parent.call if w.parent else None
        try:
            call = await sampled(engine, w.ids, w.sampling, key, parent, self._seats.turn, agent.engine)
        except DeadlineExceeded as error:
            raise Refused(str(error), code="timeout", status=504) from error
        except EnvironmentFailure as error:
            raise Refused(str(error), status=503) from error
        except (UserError, ValueError) as error:
            raise Refused(str(error)) from error
        except Exception as error:  # an engine that has stopped, say: nothing that another try of the program could mend
            self.fail(error)
            raise Refused(f"the engine failed: {error}", status=500) from error
        if len(call.action) == 0:
            engine.release(call)
            raise self._full()
        raw = agent.renderer.parse(call.action)
        choice = self._choice(wanted, call, raw, place)
        node = Node(w.identity, place, w.asked.model, agent, call, (*w.history, raw), w.shown)
        self._nodes.append(node)
        self._tokens += len(call.action) if agent.trainable else 0
        whole = dataclasses.replace(w.asked, messages=(*w.asked.messages, choice.message))
        self._by_trail[_trail(agent, whole)[-1]] = node
        return choice

    def _choice(self, wanted: "_Wanted", call: Call, raw: Message, place: int) -> Choice:
        asked, parse = wanted.asked, wanted.agent.renderer.parse
        said, calls = before_stop(raw.text, asked.stop), ()
        if asked.calls_tools:
            said, calls = self._seats.form.read(said)
        name = f"call_{wanted.identity.partition('-')[2]}-{place}"
        called = tuple(ToolCall(f"{name}-{i}", function, arguments) for i, (function, arguments) in enumerate(calls))
        reason = "tool_calls" if called else "stop" if call.finish_reason == "stop" else "length"
        tokens = tuple(parse(call.action[i : i + 1]).text for i in range(len(call.action))) if asked.logprobs else ()
        return Choice(call, Message("assistant", said, called), reason, tokens)

    # What is posted for it.

    def reward(self, body: Any) -> None:
        """A reward as JSON (docs/capture.md): {"reward": 1.0, "success": true, "final": true}

        Raises Refused where a field is wrong, or where no call is there to be rewarded.
        """
        self.touch()
        if not isinstance(body, dict) or body.keys() - {
            "reward",
            "rewards",
            "success",
            "truncated",
            "agent",
            "call",
            "choice",
            "final",
            "id",
        }:
            raise Refused("a reward's fields are reward, rewards, success, truncated, agent, call, choice, final and id")
        parts, total, success = body.get("rewards", {}), body.get("reward"), body.get("success")
        if not isinstance(parts, dict) or not all(map(_finite, parts.values())) or not (total is None or _finite(total)):
            raise Refused("reward must be a finite number, and rewards an object of such numbers", "reward")
        if total is None and not parts:
            raise Refused("say reward, or its parts in rewards", "reward")
        if total is not None and parts and not math.isclose(total, sum(parts.values()), rel_tol=1e-6, abs_tol=1e-6):
            raise Refused("reward must be the sum of rewards", "reward")
        if not all(body.get(name) in (None, True, False) for name in ("success", "truncated", "final")):
            raise Refused("success, truncated and final must be true or false", "success")
        if "id" in body and str(body["id"]) in self._posted:
            return  # posted again after its answer was lost
        node = self._rewarded_node(body)
        for name, value in (parts or {"task": total}).items():
            node.rewards[name] = node.rewards.get(name, 0.0) + float(value)
        self._posted |= {str(body["id"])} if "id" in body else set()
        self._rewarded, self._success = True, self._success if success is None else bool(success)
        if body.get("truncated"):
            self._stop = self._stop or "truncated"
        if body.get("final"):
            self.end()

    def _rewarded_node(self, body: dict[str, Any]) -> Node:
        """The last call, or that of an agent or an answer."""
        for node in reversed(self._trained):
            here = body.get("call") is None or (body["call"] == node.identity and body.get("choice", 0) == node.place)
            if here and body.get("agent") in (None, node.model):
                return node
        raise Refused("there is no such call to be rewarded: it must have been answered, by an agent that is trained", status=409)

    def end(self) -> None:
        """Nothing more will come."""
        self.over.set()
        for task in self._tasks:
            task.cancel()

    def fail(self, why: Exception) -> None:
        """End it; `why` is what is heard instead of its trajectory, unless it has ended before."""
        self._broken = None if self.over.is_set() else why
        self.end()

    def close(self) -> None:
        """End it, and give back what the engines keep of its calls."""
        self.end()
        for node in self._nodes:
            self._seats.engines[node.agent.engine].release(node.call)

    async def silence(self, seconds: float) -> None:
        """Raises DeadlineExceeded once the program has said nothing for so long, with no call under way."""
        loop = asyncio.get_running_loop()
        while (left := self._last + seconds - loop.time()) > 0 or self._tasks:
            await asyncio.sleep(max(left, seconds / 10))
        raise DeadlineExceeded(f"the program of sample {self.sample} was silent for {seconds:g} s")

    def trajectory(self) -> Trajectory:
        """Its calls in order, a turn each.

        Raises EnvironmentFailure where there is nothing to learn from, no call or no reward, and what broke an engine.
        """
        nodes, task = self._trained, self.task
        if self._broken is not None:
            raise self._broken
        if not nodes or not self._rewarded:
            raise EnvironmentFailure(f"the program of sample {self.sample} {'posted no reward' if nodes else 'made no call'}", "unscored")
        turns = []
        for i, node in enumerate(nodes):
            last = i + 1 == len(nodes)
            info = {"agent": node.model} | ({"success": self._success} if last and self._success is not None else {})
            turns.append(
                Turn(
                    (node.call,), node.history[-1], () if last else nodes[i + 1].shown, float(sum(node.rewards.values())), node.rewards,
                    terminated=last and self._stop is None, truncated=last and self._stop is not None, info=info,
                )
            )  # fmt: skip
        return Trajectory(
            nodes[0].shown, tuple(turns), task.name, task.group, self.sample, 0, task.seed, nodes[0].agent.name,
            success=self._success, stop_reason=self._stop or "terminated",
        )  # fmt: skip


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to its first stop string."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _tell(loop: asyncio.AbstractEventLoop, heard: Heard, place: int, tokens: list[int]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(heard, place, tokens)


def _trail(agent: Agent, asked: Asked) -> list[bytes]:
    """A name for each beginning of a conversation: that of its agent, tools and messages so far."""
    names, name = [], repr((agent.name, asked.tools)).encode()
    for message in asked.messages:
        name = hashlib.blake2b(name + repr(canonical(message)).encode(), digest_size=16).digest()
        names.append(name)
    return names
