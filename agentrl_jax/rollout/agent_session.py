"""`AgentSession`: an agent's part in one episode: its prompts, calls, notes and turns."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.context import NoteRequest
from agentrl_jax.engine import Engine
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.images.loading import ImageError
from agentrl_jax.invariants import Invariants
from agentrl_jax.messages import Message, ToolSchema, with_call_ids
from agentrl_jax.renderer import TokenIds
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.rollout.call_sampling import sample_call
from agentrl_jax.trajectories import (
    Call,
    RandomKey,
    Source,
    StopReason,
    Turn,
    TurnTime,
    turn_checksum,
)

Messages = tuple[Message, ...]
LARGE_TEXT = 2**16  # characters of an observation; they take milliseconds to tokenize
# A context manager around a wait: (turn, a function that describes what is waited for).
WaitTracker = Callable[[int, Callable[[], str]], AbstractContextManager[None]]
# Another model's answer: (its name, messages, random key, tokens or 0) -> message.
NoteWriter = Callable[[str, Sequence[Message], RandomKey, int], Awaitable[Message]]


def untracked_wait(turn: int, target: Callable[[], str]) -> AbstractContextManager[None]:
    """A `WaitTracker` that tracks nothing."""
    return nullcontext()


def with_call_names(info: Mapping[str, Any], note_names: Sequence[str]) -> dict[str, Any]:
    """A turn's info with a name for each of its calls, where some of them are notes."""
    return {**info, "calls": [*note_names, "action"]} if note_names else dict(info)


@dataclass(frozen=True)
class EpisodeStart:
    """What an agent has before its first action."""

    opening: Messages
    tools: tuple[ToolSchema, ...] = ()
    agent_index: int = 0  # the player's index in a multi-agent environment

    @classmethod
    def of_reset(cls, opening: Sequence[Message], info: Mapping[str, Any]) -> "EpisodeStart":
        """From what an environment's reset returns."""
        return cls(tuple(opening), tuple(info.get("tools", ())), info.get("seat", 0))


class AgentSession:
    """An agent's side of one episode.

    `act` samples the next action; the driver of the session then calls `observe` with the
    environment's reply.
    """

    def __init__(
        self,
        agent: Agent,
        engine: Engine,
        key: RandomKey,
        start: EpisodeStart,
        timeout_seconds: float,
        track_wait: WaitTracker = untracked_wait,
        write_note: NoteWriter | None = None,
        invariants: Invariants | None = None,
    ) -> None:
        """Open a session.

        Args:
            agent: The agent that acts.
            engine: Samples its calls.
            key: (run, step, task, sample).
            start: What the agent has before its first action.
            timeout_seconds: Of one call.
            track_wait: Reports waits to the watchdog.
            write_note: Answers requests to other models than the policy.
            invariants: That the engine's answers are checked by.
        """
        self.agent, self.start, self.opening = agent, start, start.opening
        self.turns: list[Turn] = []
        # Why the agent no longer acts; drivers may set it.
        self.stop_reason: StopReason | None = None
        self._engine, self._key = engine, key
        self._timeout_seconds, self._track_wait = timeout_seconds, track_wait
        self._write_note, self._invariants = write_note, invariants
        self._prompt_builder = PromptBuilder(agent, start.opening, start.tools)
        self._num_tokens = 0  # sampled so far
        self._num_calls = 0
        self._injected_calls: deque[Call] = deque()  # taken in place of sampled ones
        self._replayed_notes: tuple[Message, ...] = ()  # of the turn that is replayed
        self._last_call: Call | None = None  # that this session sampled
        # Of the current turn:
        self._current_calls: list[Call] = []
        self._notes: list[Message] = []
        self._note_names: list[str] = []

    async def act(self) -> Message | None:
        """The next action, after the notes that its context requests.

        None where the limits leave no room for it; `stop_reason` then has the reason.
        """
        self._current_calls, self._notes, self._note_names = [], [], []
        while True:
            ids, parent, request = await self._next_prompt()
            if request is not None and request.model:
                self._notes.append(await self._note_of_model(request))
                continue
            if self._injected_calls:
                call = self._injected_calls.popleft()
            else:
                call = await self._sample_call(ids, parent, request.budget if request else 0)
            if call is None:
                return None
            message = self._parse(call)
            self._prompt_builder.add_call(call, message)
            self._current_calls.append(call)
            self._num_tokens += len(call.action)
            self._num_calls += 1
            if request is None or request.is_action(message):
                return message
            self._notes.append(message)
            self._note_names.append(request.name)

    async def _next_prompt(self) -> tuple[TokenIds, Call | None, NoteRequest | None]:
        """As `PromptBuilder.next_prompt`; in a thread where a text is long or there are images, for
        others wait.
        """
        new_messages = self.turns[-1].observation if self.turns else self.opening
        is_small = sum(len(message.text) for message in new_messages) < LARGE_TEXT
        try:
            if is_small and not any(message.images for message in new_messages):
                return self._prompt_builder.next_prompt(self.turns, self._notes)
            build = self._prompt_builder.next_prompt
            return await asyncio.to_thread(build, self.turns, self._notes)
        except ImageError as error:  # of this episode, which is dropped and counted
            raise EnvironmentFailure(str(error), "nonsense") from error

    def _parse(self, call: Call) -> Message:
        message = self.agent.renderer.parse(call.action, self.start.tools)
        return with_call_ids(message, len(self.turns))

    async def _note_of_model(self, request: NoteRequest) -> Message:
        """Another model's answer, or in a replayed turn the recorded one."""
        turn, index = len(self.turns), len(self._notes)
        if self._replayed_notes:
            return self._replayed_notes[index]
        if self._write_note is None:
            raise UserError(
                f"a context manager asks the model {request.model!r}, which this session cannot: "
                "play the episode by the runtime"
            )
        key = (*self._key, self.start.agent_index, turn, index)
        with self._track_wait(turn, lambda: f"the model {request.model!r}"):
            return await self._write_note(request.model, request.messages, key, request.budget)

    def inject_call(self, call: Call) -> None:
        """Use a call that another session made at this point as the next one.

        Nothing is sampled for it, and its source becomes "patch".
        """
        version = np.full(len(call.action), -1, np.int32)
        patch = dataclasses.replace(call, source="patch", version=version, time=None)
        self._injected_calls.append(patch)

    def replace_action(self, message: Message, source: Source) -> None:
        """Replace the sampled action, which stays as a call and a note of the turn."""
        sampled, action = self._current_calls[-1], self.agent.renderer.action_ids(message)
        call = dataclasses.replace(
            sampled,
            action=action,
            sampler_logp=np.zeros(len(action), np.float32),
            version=np.full(len(action), -1, np.int32),
            finish_reason="stop",
            source=source,
            key=(),
            entropy=None,
            alternatives=None,
            alternative_logp=None,
            time=None,
        )
        self._notes.append(self._parse(sampled))
        self._prompt_builder.add_call(call, message)
        self._current_calls.append(call)

    def observe(
        self,
        action: Message,
        observation: Messages,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
        time: TurnTime | None = None,
    ) -> None:
        """Add the turn of this action and the environment's reply; `time` is that of its step."""
        rewards = info.pop("rewards", {"task": reward})
        calls, notes = tuple(self._current_calls), tuple(self._notes)
        info = with_call_names(info, self._note_names)
        outcome = observation, reward, rewards, terminated, truncated, info
        checksum = turn_checksum(reward, terminated, truncated)
        self._add_turn(Turn(calls, action, *outcome, notes=notes, time=time, checksum=checksum))

    async def replay_turns(self, turns: Sequence[Turn]) -> None:
        """Adopt the turns of another session of the same agent: nothing is sampled for them."""
        for turn in turns:
            self._injected_calls.extend(turn.calls)
            self._replayed_notes = turn.notes
            await self.act()
            self._add_turn(turn)
        self._replayed_notes = ()

    @property
    def current_calls(self) -> Sequence[Call]:
        """The calls of the current turn."""
        return self._current_calls

    def take_last_call(self) -> Call | None:
        """The call whose KV slot the engine still holds for this session; the taker releases it."""
        call, self._last_call = self._last_call, None
        return call

    def close(self) -> None:
        """Release the engine's KV slot."""
        if self._last_call is not None:
            self._engine.release(self._last_call)

    def _add_turn(self, turn: Turn) -> None:
        self.turns.append(turn)
        end = "terminated" if turn.terminated else "truncated" if turn.truncated else None
        self.stop_reason = end or self.agent.limits.stop_reason(
            len(self.turns), self._num_tokens, self._num_calls
        )

    async def _sample_call(
        self, ids: TokenIds, parent: Call | None, max_tokens: int
    ) -> Call | None:
        """One call of at most `max_tokens` tokens (0: the agent's budget); None: no room for it."""
        if self._last_call is not None and parent is not self._last_call:
            self._engine.release(self._last_call)
            self._last_call = None
        sampling, limits, turn = self.agent.sampling, self.agent.limits, len(self.turns)
        budget = limits.call_budget(max_tokens or sampling.budget, self._num_tokens, len(ids))
        limit_reason = limits.stop_reason(turn, self._num_tokens, self._num_calls)
        if limit_reason or budget < 1:
            self.stop_reason = limit_reason or "context"
            return None
        if budget != sampling.budget:
            sampling = dataclasses.replace(sampling, budget=budget)
        call_index = [len(self._current_calls)] if self._current_calls else []
        key = (*self._key, self.start.agent_index, turn, *call_index)
        with self._track_wait(turn, lambda: f"the engine {self.agent.engine!r}"):
            call = await sample_call(
                self._engine,
                ids,
                sampling,
                key,
                parent,
                self._timeout_seconds,
                self.agent.engine,
                self._invariants,
                self._prompt_builder.images,
            )
        self._last_call = call
        if len(call.action) == 0:  # no room in the engine, or for any action
            is_last_budget = 0 < limits.tokens <= self._num_tokens + budget
            self.stop_reason = "tokens" if is_last_budget else "context"
            return None
        return call
