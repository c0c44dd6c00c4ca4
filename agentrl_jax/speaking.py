"""`Speaker`: one seat's side of an episode: it makes prompts, samples, and remembers what it said and heard."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.context import Asking, ContextManager, Question
from agentrl_jax.deadlines import within
from agentrl_jax.engine import Engine
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.messages import Message
from agentrl_jax.rendering import Ids, Renderer
from agentrl_jax.trajectories import Call, Key, Sampling, Source, StopReason, Turn

Messages = tuple[Message, ...]
# Around a wait: given the turn, and what is waited for in words.
Watch = Callable[[int, Callable[[], str]], AbstractContextManager[None]]


def unwatched(turn: int, target: Callable[[], str]) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Limits:
    """Where an agent's episode is cut; 0: nowhere. A turn that a limit cuts short is still played, and none is sampled after it."""

    turns: int = 0  # of an episode
    tokens: int = 0  # that it may sample in an episode
    context: int = 0  # tokens of a prompt with its action
    calls: int = 0  # of an episode, those that write notes included; the stop reason is "turns" here too

    def check(self) -> "Limits":
        """Raises UserError where a limit is negative."""
        if min(self.turns, self.calls, self.tokens, self.context) < 0:
            raise UserError(f"limits must be positive, or 0 for none, not {self}")
        return self

    def reached(self, turns: int, tokens: int, calls: int = 0) -> StopReason | None:
        """Why an episode that came so far ends here."""
        if (self.turns and turns >= self.turns) or (self.calls and calls >= self.calls):
            return "turns"
        return "tokens" if self.tokens and tokens >= self.tokens else None

    def budget(self, budget: int, tokens: int, prompt: int) -> int:
        """The tokens of a call: its own budget, what the episode has left, what the context has left."""
        left = self.tokens - tokens if self.tokens else budget
        return min(budget, left, self.context - prompt if self.context else budget)


@dataclass(frozen=True)
class Agent:
    """A seat's player: how it reads and writes, what it remembers, and which engine samples for it."""

    name: str
    renderer: Renderer
    context: ContextManager
    sampling: Sampling
    engine: str = "policy"
    trainable: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.limits.check()
        if not self.sampling.stop_ids:
            object.__setattr__(self, "sampling", dataclasses.replace(self.sampling, stop_ids=self.renderer.stop_ids))


class Prompter:
    """Makes each next prompt: an earlier call's ids plus a bridge where the view goes on from it, rendered anew elsewhere."""

    def __init__(self, agent: Agent, opening: Sequence[Message]) -> None:
        self._agent, self._opening = agent, opening
        self._asking = agent.context if isinstance(agent.context, Asking) else None
        self._said: list[tuple[list[Message], Call]] = []  # all that was in view once a call was made, its own message last
        self._view: list[Message] = []

    def next(self, turns: Sequence[Turn], notes: Sequence[Message] = ()) -> tuple[Ids, Call | None]:
        """The prompt of the next action, and the call that it extends (or None)."""
        return self.prompt(self._agent.context.view(self._opening, turns, notes))

    def asked(self, turns: Sequence[Turn], notes: Sequence[Message]) -> tuple[Ids, Call | None, Question | None]:
        """The next prompt, the call that it extends (or None), and the question that it ends in (None: it is the action's)."""
        ids, parent = self.next(turns, notes)
        question = self._asking.ask(self._opening, turns, notes, len(ids)) if self._asking is not None else None
        return (ids, parent, None) if question is None else (*self.prompt(question.messages), question)

    def prompt(self, messages: Sequence[Message]) -> tuple[Ids, Call | None]:
        """The prompt that ends in these messages, and the call that it extends (or None)."""
        view = self._view = list(messages)
        for before, call in reversed(self._said):
            if view[: len(before)] == before:
                bridge = self._agent.renderer.bridge(call, before, view[len(before) :])
                if bridge is not None:
                    return np.concatenate([call.prompt, call.action, bridge]), call
        return self._agent.renderer.render(view).ids, None

    def called(self, call: Call, message: Message) -> None:
        """What the policy answered to the last prompt."""
        self._said.append(([*self._view, message], call))


def with_names(info: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """A turn's info with a name for each of its calls, where some of them wrote notes."""
    return {**info, "calls": [*notes, "action"]} if notes else dict(info)


async def sampled(engine: Engine, ids: Ids, sampling: Sampling, key: Key, parent: Call | None, deadline: float, name: str) -> Call:
    """One call of an engine. Given up, by its deadline or by others, it gives its place back when it ends.

    Raises DeadlineExceeded after `deadline` seconds.
    """
    future = engine.submit(ids, sampling, key, parent)

    def give_back(ended: "Future[Call]") -> None:
        if not ended.cancelled() and ended.exception() is None:
            engine.release(ended.result())

    try:
        async with within(deadline, f"a call of the engine {name!r}"):
            return await asyncio.wrap_future(future)
    except (asyncio.CancelledError, DeadlineExceeded) as error:
        if isinstance(error, DeadlineExceeded) and future.done() and not future.cancelled() and future.exception() is None:
            return future.result()  # it was in time, the event loop was not
        future.add_done_callback(give_back)
        raise


class Speaker:
    """Says what an agent's policy samples, a turn at a time. Whoever drives it tells it what came of that."""

    def __init__(
        self, agent: Agent, engine: Engine, key: Key, opening: Sequence[Message], deadline: float, seat: int = 0, watch: Watch = unwatched
    ) -> None:
        """`key` is (run, step, task, sample); a call may take `deadline` seconds."""
        self.agent, self.opening, self.seat = agent, tuple(opening), seat
        self.turns: list[Turn] = []
        self.stop: StopReason | None = None  # why it says nothing more; others may set it
        self._engine, self._key, self._deadline, self._watch = engine, key, deadline, watch
        self._prompter, self._tokens, self._said = Prompter(agent, self.opening), 0, 0  # tokens and calls so far
        self._recorded: deque[Call] = deque()  # said before by others, and not to be sampled again
        self._last: Call | None = None  # of its own
        self._calls: list[Call] = []  # of the turn at work
        self._notes: list[Message] = []
        self._names: list[str] = []  # of the notes

    async def say(self) -> Message | None:
        """The next action, after what its context asks for; None where limits leave no room for it, which `stop` then says."""
        self._calls, self._notes, self._names = [], [], []
        while True:
            ids, parent, question = self._prompter.asked(self.turns, self._notes)
            call = self._recorded.popleft() if self._recorded else await self._sampled(ids, parent, question.budget if question else 0)
            if call is None:
                return None
            message = self.agent.renderer.parse(call.action)
            self._prompter.called(call, message)
            self._calls.append(call)
            self._tokens, self._said = self._tokens + len(call.action), self._said + 1
            if question is None or question.ends(message):
                return message
            self._notes.append(message)
            self._names.append(question.name)

    def lend(self, call: Call) -> None:
        """Have another's call, made at the same point, be its next one: nothing is sampled, and the call's source is "patch"."""
        self._recorded.append(dataclasses.replace(call, source="patch", version=np.full(len(call.action), -1, np.int32)))

    def instead(self, message: Message, source: Source) -> None:
        """Another's action in place of what it has just said, which stays as a call and a note of the turn."""
        said, action = self._calls[-1], self.agent.renderer.action_ids(message)
        call = dataclasses.replace(
            said, action=action, sampler_logp=np.zeros(len(action), np.float32), version=np.full(len(action), -1, np.int32),
            finish_reason="stop", source=source, key=(), entropy=None, alternatives=None, alternative_logp=None,
        )  # fmt: skip
        self._notes.append(self.agent.renderer.parse(said.action))
        self._prompter.called(call, message)
        self._calls.append(call)

    def hear(self, action: Message, observation: Messages, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
        """What the world answered to the action."""
        rewards = info.pop("rewards", {"task": reward})
        calls, notes = tuple(self._calls), tuple(self._notes)
        info = with_names(info, self._names)
        self._take(Turn(calls, action, observation, reward, rewards, terminated, truncated, info, notes))

    async def recall(self, turns: Sequence[Turn]) -> None:
        """Take turns for its own that another speaker of the same agent had: nothing is sampled, the prompts go on from them."""
        for turn in turns:
            self._recorded.extend(turn.calls)
            await self.say()
            self._take(turn)

    @property
    def calls(self) -> Sequence[Call]:
        """Of the turn at work."""
        return self._calls

    def hand_over(self) -> Call | None:
        """The call whose cache the engine still keeps for it: whoever takes it releases it."""
        last, self._last = self._last, None
        return last

    def close(self) -> None:
        """Nothing more will be said."""
        if self._last is not None:
            self._engine.release(self._last)

    def _take(self, turn: Turn) -> None:
        self.turns.append(turn)
        over = "terminated" if turn.terminated else "truncated" if turn.truncated else None
        self.stop = over or self.agent.limits.reached(len(self.turns), self._tokens, self._said)

    async def _sampled(self, ids: Ids, parent: Call | None, wanted: int) -> Call | None:
        """One call of at most `wanted` tokens (0: as the agent's sampling says), or None where there is no room for it."""
        if self._last is not None and parent is not self._last:
            self._engine.release(self._last)
            self._last = None
        sampling, turn = self.agent.sampling, len(self.turns)
        budget = self.agent.limits.budget(wanted or sampling.budget, self._tokens, len(ids))
        reached = self.agent.limits.reached(turn, self._tokens, self._said)
        if reached or budget < 1:
            self.stop = reached or "context"
            return None
        sampling = sampling if budget == sampling.budget else dataclasses.replace(sampling, budget=budget)
        key = (*self._key, self.seat, turn, *([len(self._calls)] if self._calls else []))
        with self._watch(turn, lambda: f"the engine {self.agent.engine!r}"):
            call = await sampled(self._engine, ids, sampling, key, parent, self._deadline, self.agent.engine)
        self._last = call
        if len(call.action) == 0:
            self.stop = "context"
            return None
        return call
