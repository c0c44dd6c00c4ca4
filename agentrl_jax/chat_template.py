"""`ChatTemplate`: conversations as a Hugging Face chat template writes them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jinja2 import TemplateError

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, TextPart, ToolSchema, VideoPart, assistant, user

Conversation = Sequence[Message]
Tools = Sequence[ToolSchema]


class ChatTemplate:
    """The texts of a tokenizer's chat template.

    The text that new messages add is found by rendering few messages, not the conversation, where
    the template permits it; so an episode's template work is linear in its length.
    """

    def __init__(
        self, tokenizer: Any, prepare: Callable[[Conversation, Tools], tuple[Conversation, Tools]]
    ) -> None:
        """Of a tokenizer.

        Args:
            tokenizer: has a chat template.
            prepare: messages and tools as the template gets them: texts without tool calls, in
                which added tokens of outside texts are escaped.
        """
        self._tokenizer, self._prepare = tokenizer, prepare

    def prompt_text(self, messages: Conversation, tools: Tools = ()) -> str:
        """The conversation's text and the beginning of the next assistant message.

        Raises:
            UserError: the template refuses the messages, or does not show the tools.
        """
        shown_messages, shown_tools = self._prepare(messages, tools)
        if shown_tools and not self._shows_tools:
            raise UserError(
                "the chat template does not show tools: use one that does, or show them as text "
                "with ChatFormat(tools_as_text=True)"
            )
        return self._apply(shown_messages, shown_tools)

    def added_text(
        self, history: Conversation, new_messages: Conversation, tools: Tools = ()
    ) -> str | None:
        """What follows the last message's text once new messages are there, next prompt included.

        None where the template then writes what came before in another way.
        """
        context = history[:-1]
        if self._needs_only_decisive_context:
            context = _decisive_context(history, new_messages)
        return self._added_text(context, history[-1], new_messages, tools)

    def _added_text(
        self,
        context: Conversation,
        action: Message,
        new_messages: Conversation,
        tools: Tools,
    ) -> str | None:
        ((shown_action,), _) = self._prepare([action], ())
        before = self.prompt_text(context, tools) + shown_action.text
        after = self.prompt_text([*context, action, *new_messages], tools)
        return after[len(before) :] if after.startswith(before) else None

    def _apply(self, messages: Conversation, tools: Tools) -> str:
        try:
            return self._tokenizer.apply_chat_template(
                [_template_message(message) for message in messages],
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=True,
            )
        except TemplateError as error:
            raise UserError(f"the chat template refuses the conversation: {error}") from error

    @functools.cached_property
    def _shows_tools(self) -> bool:
        return PROBE_TOOLS[0]["function"]["description"] in self._apply([user("a")], PROBE_TOOLS)

    @functools.cached_property
    def _needs_only_decisive_context(self) -> bool:
        """Whether the decisive context gives the same texts as the full one on all probes."""
        return all(map(self._agrees_on, PROBES))

    def _agrees_on(self, probe: tuple[Conversation, Tools]) -> bool:
        conversation, tools = probe
        for history, new_messages in _exchanges(conversation):
            action = history[-1]
            try:
                expected = self._added_text(history[:-1], action, new_messages, tools)
            except UserError:
                return True  # an episode cannot hold this conversation
            try:
                context = _decisive_context(history, new_messages)
                if self._added_text(context, action, new_messages, tools) != expected:
                    return False
            except UserError:
                return False
        return True


def _decisive_context(history: Conversation, new_messages: Conversation) -> Conversation:
    """The messages before the last one that decide how it and new messages are written.

    These are the last user message and, where another one follows, all since: a template may strip
    the thinking of the turns before a user's newest message. Every message is in few of them.
    """
    start = next((i for i in reversed(range(len(history) - 1)) if history[i].role == "user"), None)
    if start is None:
        return history[:-1]
    if any(message.role == "user" for message in new_messages):
        return history[start:-1]
    return history[start : start + 1]


def _exchanges(conversation: Conversation) -> Iterator[tuple[Conversation, Conversation]]:
    """(history up to an assistant message, the messages until the next one) of a conversation."""
    turns = [i for i, message in enumerate(conversation) if message.role == "assistant"]
    for i, following in zip(turns, [*turns[1:], len(conversation)]):
        yield conversation[: i + 1], conversation[i + 1 : following]


def _template_message(message: Message) -> dict[str, Any]:
    content: Any = message.text
    if message.images and not isinstance(message.content, str):
        content = [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else {"type": "video" if isinstance(part, VideoPart) else "image"}
            for part in message.content
        ]
    data: dict[str, Any] = {"role": message.role, "content": content}
    return data if message.tool_call_id is None else data | {"tool_call_id": message.tool_call_id}


def _written(text: str) -> Message:
    return assistant(text).replace(raw_text=text)


def _thinking(text: str) -> Message:
    return _written(f"<think>\nso\n</think>\n\n{text}")


PROBE_TOOLS: Tools = (
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Find it.",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    },
)
_CALL = '<tool_call>\n{"name": "find", "arguments": {"a": "b"}}\n</tool_call>'
_RESULT = Message("tool", "it", tool_call_id="call_0")
_CHAT = (user("a"), assistant("b"), user("c"), _thinking("d"), user("e"), assistant("f"))
_TOOL_LOOPS = (
    user("a"), _written(_CALL), _RESULT, _thinking(_CALL), _RESULT, _RESULT, _written(_CALL),
    _RESULT, assistant("b"), user("c"), assistant("d"), user("e"), _thinking(_CALL), _RESULT,
    _thinking("f"), _RESULT, assistant("g"), user("h"), assistant("i"),
)  # fmt: skip
_SYSTEM = Message("system", "s")
PROBES: tuple[tuple[Conversation, Tools], ...] = (
    (_CHAT, ()),
    ((_SYSTEM, *_CHAT), ()),
    (_TOOL_LOOPS, ()),
    (_TOOL_LOOPS, PROBE_TOOLS),
    ((_SYSTEM, *_TOOL_LOOPS), PROBE_TOOLS),
)
