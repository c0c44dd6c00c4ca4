"""`Agent`: a named player with its renderer, context, sampling parameters and limits."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrl_jax.context import ContextManager, NoteRequest
from agentrl_jax.errors import UserError
from agentrl_jax.images.prompts import PromptImage, RenderedPrompt
from agentrl_jax.messages import Message, ToolSchema
from agentrl_jax.renderer import Renderer, TokenIds
from agentrl_jax.token_buffer import TokenBuffer
from agentrl_jax.trajectories import Call, Sampling, StopReason, Turn, environment_label


@dataclass
class Limits:
    """Where an agent's episode ends early; 0: no limit.

    A turn that a limit cuts short is still sent to the environment, and none is sampled after it.
    """

    turns: int = 0  # of an episode
    tokens: int = 0  # sampled in an episode
    context: int = 0  # tokens of a prompt with its action
    calls: int = 0  # of an episode, notes included; the stop reason is "turns" here too

    def check(self) -> "Limits":
        """Raises UserError where a limit is negative."""
        if min(self.turns, self.calls, self.tokens, self.context) < 0:
            raise UserError(f"limits must be positive, or 0 for none, not {self}")
        return self

    def stop_reason(self, turns: int, tokens: int, calls: int = 0) -> StopReason | None:
        """The stop reason after so many turns, tokens and calls; None: the episode continues."""
        if (self.turns and turns >= self.turns) or (self.calls and calls >= self.calls):
            return "turns"
        return "tokens" if self.tokens and tokens >= self.tokens else None

    def call_budget(self, budget: int, tokens: int, prompt: int) -> int:
        """The tokens that a call may sample: the minimum of its own budget and what is left.

        Args:
            budget: The call's own budget.
            tokens: Sampled in the episode so far.
            prompt: Tokens of the call's prompt.
        """
        left = self.tokens - tokens if self.tokens else budget
        return min(budget, left, self.context - prompt if self.context else budget)


@dataclass(frozen=True)
class Agent:
    """Acts for one player: how it renders and parses messages, and which engine samples for it."""

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
            sampling = dataclasses.replace(self.sampling, stop_ids=self.renderer.stop_ids)
            object.__setattr__(self, "sampling", sampling)

    def for_task(self, task_name: str) -> "Agent":
        """This agent with its context manager for the environment of a task."""
        context = self.context.for_environment(environment_label(task_name))
        return self if context is self.context else dataclasses.replace(self, context=context)


class _AnsweredView(NamedTuple):
    """The view of a call with the call's own message last: the first `length` messages of a list
    that views which extend each other share.
    """

    messages: list[Message]
    length: int
    call: Call


class PromptBuilder:
    """Builds the prompts of an episode.

    Where the view extends that of an earlier call, the prompt is that call's ids plus a bridge;
    any other view is rendered anew.
    """

    def __init__(
        self, agent: Agent, opening: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> None:
        self._agent, self._opening, self._tools = agent, opening, tools
        self._history: list[_AnsweredView] = []
        self.images: tuple[PromptImage, ...] = ()  # of the last prompt
        self._last_view: list[Message] = []
        self._messages: list[Message] = []  # of the last answered view
        self._buffer = TokenBuffer()

    def action_prompt(
        self, turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> tuple[TokenIds, Call | None]:
        """The prompt of the next action, and the call that it extends (or None)."""
        return self.build(self._agent.context.view(self._opening, turns, notes))

    def text_prompt(self, turns: Sequence[Turn]) -> TokenIds:
        """The ids of `action_prompt`; UserError where it shows images."""
        ids, _ = self.action_prompt(turns)
        return RenderedPrompt(ids, self.images).text_ids

    def next_prompt(
        self, turns: Sequence[Turn], notes: Sequence[Message]
    ) -> tuple[TokenIds, Call | None, NoteRequest | None]:
        """The next prompt of the current turn: a note request's, or else the action's.

        Returns the ids, the call that they extend (or None), and the request (None: the action).
        The ids of a request to another model are those of the action.
        """
        ids, parent = self.action_prompt(turns, notes)
        request = self._agent.context.next_note_request(self._opening, turns, notes, len(ids))
        if request is None or request.model:
            return ids, parent, request
        return (*self.build(request.messages), request)

    def build(self, messages: Sequence[Message]) -> tuple[TokenIds, Call | None]:
        """The prompt that ends in these messages, and the call that it extends (or None)."""
        view = self._last_view = list(messages)
        for history, length, call in reversed(self._history):
            earlier_view = history[:length]
            if view[:length] == earlier_view:
                new_messages = view[length:]
                renderer = self._agent.renderer
                bridge = renderer.continuation_ids(call, earlier_view, new_messages, self._tools)
                if bridge is not None:
                    self.images = renderer.image_prompter.extended_images(
                        call, bridge, new_messages
                    )
                    return self._buffer.extend(call.prompt, call.action, bridge), call
        prompt = self._agent.renderer.render(view, self._tools)
        self.images = prompt.images
        return prompt.ids, None

    def add_call(self, call: Call, message: Message) -> None:
        """Add the policy's answer to the last prompt."""
        view = [*self._last_view, message]
        if view[: len(self._messages)] != self._messages:
            self._messages = []
        self._messages += view[len(self._messages) :]
        self._history.append(_AnsweredView(self._messages, len(view), call))
