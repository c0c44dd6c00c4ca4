"""The tree of an episode's calls: which earlier call a request goes on from, its prompt and its settings."""

import dataclasses
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jinja2 import TemplateError

from agentrl_jax.capture.tools import Hermes, ToolFormat, canonical, written
from agentrl_jax.capture.wire import Asked, Choice, Refused, before_stop
from agentrl_jax.engine import Engine, Generation
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolCall, assistant, user
from agentrl_jax.rendering import Codec, Coded, Ids
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Call, Key, Sampling, starts_with

MANY = 2**16  # different prompts, after which a session that forgets calls forgets how often each was asked


@dataclass(frozen=True)
class Seats:
    """Who answers: a request's `model` is one of these agents, or else a name that the default one goes by."""

    agents: Mapping[str, Agent]
    engines: Mapping[str, Engine]
    default: str = "policy"
    turn: float = 300.0  # seconds for a call
    obey: bool = True  # whether programs set temperature, top-p, top-k and min-p, or the run alone
    form: ToolFormat = field(default_factory=Hermes)
    kept: int = 0  # calls that a session remembers, the newest; 0: all

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
    text: str | None = None  # all that a text's completion has come to
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
class Prompt:
    """What the model reads, as ids and as messages."""

    ids: Ids
    parent: Node | None  # the call that it goes on from
    history: tuple[Message, ...]
    shown: tuple[Message, ...]  # what of it is new
    text: str | None = None  # of a text's completion: all of it


@dataclass(frozen=True, eq=False)
class Wanted:
    """A request made ready for the engine."""

    asked: Asked
    agent: Agent
    prompt: Prompt
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
            prompt = self._of_messages(asked, agent) if asked.prompt is None else of_text(asked.prompt, agent, self.nodes)
            sampling = self._sampling(asked, agent, len(prompt.ids))
        except (UserError, TemplateError) as error:
            raise Refused(str(error)) from error
        # Random numbers are named by the prompt and not by who came first: calls side by side sample the same whichever is earlier.
        check = zlib.crc32(prompt.ids.tobytes())
        count = self._same[check]
        self._same[check] += asked.n
        number = (check, 0, count) if asked.seed is None else (check, 1, asked.seed)
        kind = "chatcmpl" if asked.prompt is None else "cmpl"
        return Wanted(asked, agent, prompt, sampling, f"{kind}-{check:08x}-{count}", number)

    def add(self, wanted: Wanted, place: int, call: Call) -> Choice:
        """What was sampled for choice `place`, as its program sees it."""
        asked, agent, prompt = wanted.asked, wanted.agent, wanted.prompt
        raw, text = agent.renderer.parse(call.action), None
        if prompt.text is not None:
            ids, codec = call.action.tolist(), coded(agent)
            ended = call.finish_reason == "stop" and ids[-1] in wanted.sampling.stop_ids
            raw, text = assistant(codec.text(tuple(ids[:-1] if ended else ids))), prompt.text + codec.text(tuple(ids))
        choice = self._choice(wanted, call, raw, place)
        node = Node(wanted.identity, place, asked.model, agent, call, (*prompt.history, raw), prompt.shown, text)
        self.nodes.append(node)
        self._forget()
        self.tokens += len(call.action) if agent.trainable else 0
        if prompt.text is None:
            whole = dataclasses.replace(asked, messages=(*asked.messages, choice.message))
            self._by_trail[_trail(agent, whole)[-1]] = node
        return choice

    def _forget(self) -> None:
        """The oldest calls that are not kept, and what the engines cache of them."""
        kept = self._seats.kept
        while 0 < kept < len(self.nodes):
            old = self.nodes.pop(0)
            self._seats.engines[old.agent.engine].release(old.call)
            self._by_trail = {name: node for name, node in self._by_trail.items() if node is not old}
        if kept and len(self._same) > MANY:
            self._same.clear()

    def _of_messages(self, asked: Asked, agent: Agent) -> Prompt:
        messages = tuple(written(message, self._seats.form) for message in asked.messages)
        trail = _trail(agent, asked)
        for seen in range(len(messages) - 1, 0, -1):
            node = self._by_trail.get(trail[seen])
            if node is not None:
                new = messages[seen + 1 :]
                bridge = agent.renderer.bridge(node.call, node.history, new)
                if bridge is not None:
                    return Prompt(np.concatenate([node.call.ids, bridge]), node, (*node.history, *new), new)
        return Prompt(agent.renderer.render(messages, asked.tools).ids, None, messages, messages)

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
        stop_ids = (*(() if asked.own_stops else sampling.stop_ids), *asked.stop_ids)
        stops = {"stop_ids": tuple(dict.fromkeys(stop_ids)), "stop_strings": (*sampling.stop_strings, *asked.stop)}
        return dataclasses.replace(sampling, budget=budget, **stops, **wish)

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


def coded(agent: Agent) -> Codec:
    """What texts are encoded by. Raises Refused where the agent's renderer knows messages alone."""
    if not isinstance(agent.renderer, Coded):
        raise Refused("this agent takes messages alone: ask for chat completions", "prompt")
    return agent.renderer.codec


def of_text(prompt: str | Sequence[int], agent: Agent, nodes: Sequence[Node]) -> Prompt:
    """A text, or ids, as a prompt. Where it begins with all of an earlier call, it goes on from that call's own ids.

    Raises Refused where the ids are none of the model's.
    """
    codec = coded(agent)
    if isinstance(prompt, str):
        known = [node for node in nodes if node.agent.name == agent.name and node.text is not None and prompt.startswith(node.text)]
        parent = max(known, key=lambda node: len(node.text or ""), default=None)
        new = prompt[len(parent.text or "") :] if parent else prompt
        added, text = codec.raw(new), prompt
    else:
        ids = np.asarray(prompt, np.int32)
        if ids.max() >= len(codec.tokenizer):
            raise Refused(f"the prompt holds the id {ids.max()}, the tokenizer has {len(codec.tokenizer)}", "prompt")
        known = [node for node in nodes if node.agent.name == agent.name and starts_with(ids, node.call.ids)]
        parent = max(known, key=lambda node: len(node.call.ids), default=None)
        added, text = (ids[len(parent.call.ids) :] if parent else ids), codec.text(tuple(ids.tolist()))
        new = codec.text(tuple(added.tolist()))
    if parent is None:
        return Prompt(added, None, (user(text),), (user(text),), text)
    shown = (user(new),) if new else ()
    return Prompt(np.concatenate([parent.call.ids, added]), parent, (*parent.history, *shown), shown, text)


def _trail(agent: Agent, asked: Asked) -> list[bytes]:
    """A name for each beginning of a conversation: that of its agent, tools and messages so far."""
    names, name = [], repr((agent.name, asked.tools)).encode()
    for message in asked.messages:
        name = hashlib.blake2b(name + repr(canonical(message)).encode(), digest_size=16).digest()
        names.append(name)
    return names
