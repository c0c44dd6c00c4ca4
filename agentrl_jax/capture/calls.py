"""The tree of an episode's calls: which earlier call a request goes on from, its prompt and its settings."""

import dataclasses
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jinja2 import TemplateError

from agentrl_jax.capture.tools import Hermes, ToolFormat, canonical, written
from agentrl_jax.capture.wire import Asked, Choice, Refused, before_stop
from agentrl_jax.engine import Engine, Generation
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolCall
from agentrl_jax.rendering import Ids
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Call, Key, Sampling


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
class Overheard:
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
class Wanted:
    """A request made ready for the engine."""

    asked: Asked
    agent: Agent
    ids: Ids
    parent: Node | None
    history: tuple[Message, ...]
    shown: tuple[Message, ...]
    sampling: Sampling
    identity: str
    number: Key  # names its random numbers, with the episode's key and the choice's place


class Full(Exception):
    """No token fits behind a prompt."""


class Tree:
    """All calls of an episode, in the order of their answers."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self.nodes: list[Node] = []
        self.tokens = 0  # that trained agents have sampled
        self._by_trail: dict[bytes, Node] = {}
        self._same: Counter[int] = Counter()

    @property
    def trained(self) -> list[Node]:
        return [node for node in self.nodes if node.agent.trainable]

    def wanted(self, asked: Asked) -> Wanted:
        """The request as the engine takes it. Raises Refused where it cannot be made, Full where nothing fits behind its prompt."""
        agent = self._seats.of(asked.model)
        try:
            ids, parent, history, shown = self._prompt(asked, agent)
            sampling = self._sampling(asked, agent, len(ids))
        except (UserError, TemplateError) as error:
            raise Refused(str(error)) from error
        # Random numbers are named by the prompt and not by who came first: calls side by side sample the same whichever is earlier.
        check = zlib.crc32(ids.tobytes())
        count = self._same[check]
        self._same[check] += asked.n
        number = (check, 0, count) if asked.seed is None else (check, 1, asked.seed)
        return Wanted(asked, agent, ids, parent, history, shown, sampling, f"chatcmpl-{check:08x}-{count}", number)

    def add(self, wanted: Wanted, place: int, call: Call) -> Choice:
        """What was sampled for choice `place`, as its program sees it."""
        raw = wanted.agent.renderer.parse(call.action)
        choice = self._choice(wanted, call, raw, place)
        node = Node(wanted.identity, place, wanted.asked.model, wanted.agent, call, (*wanted.history, raw), wanted.shown)
        self.nodes.append(node)
        self.tokens += len(call.action) if wanted.agent.trainable else 0
        whole = dataclasses.replace(wanted.asked, messages=(*wanted.asked.messages, choice.message))
        self._by_trail[_trail(wanted.agent, whole)[-1]] = node
        return choice

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
        budget = agent.limits.budget(most, self.tokens, prompt)
        if budget < 1:
            raise Full
        wish = {name: value for name, value in wish.items() if value is not None}
        if agent.trainable and wish.get("temperature") == 0:
            raise Refused("a greedy call cannot be trained on: ask for a temperature above 0, or run with obey=False", "temperature")
        return dataclasses.replace(sampling, budget=budget, stop_strings=(*sampling.stop_strings, *asked.stop), **wish)

    def _choice(self, wanted: Wanted, call: Call, raw: Message, place: int) -> Choice:
        asked, parse = wanted.asked, wanted.agent.renderer.parse
        said, calls = before_stop(raw.text, asked.stop), ()
        if asked.calls_tools:
            said, calls = self._seats.form.read(said)
        name = f"call_{wanted.identity.partition('-')[2]}-{place}"
        called = tuple(ToolCall(f"{name}-{i}", function, arguments) for i, (function, arguments) in enumerate(calls))
        reason = "tool_calls" if called else "stop" if call.finish_reason == "stop" else "length"
        tokens = tuple(parse(call.action[i : i + 1]).text for i in range(len(call.action))) if asked.logprobs else ()
        return Choice(call, Message("assistant", said, called), reason, tokens)


def _trail(agent: Agent, asked: Asked) -> list[bytes]:
    """A name for each beginning of a conversation: that of its agent, tools and messages so far."""
    names, name = [], repr((agent.name, asked.tools)).encode()
    for message in asked.messages:
        name = hashlib.blake2b(name + repr(canonical(message)).encode(), digest_size=16).digest()
        names.append(name)
    return names
