"""`Renderer`: messages to token ids and back; the ids are authoritative, text derives from them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.added_tokens import escaper, unescape
from agentrl_jax.chat_template import ChatTemplate
from agentrl_jax.errors import UserError
from agentrl_jax.escaped_messages import MessageEscaper
from agentrl_jax.images.prompts import ChatImages, ImagePrompter, RenderedPrompt
from agentrl_jax.messages import Message, ToolSchema, assistant, user
from agentrl_jax.text_codec import TextCodec, TokenIds, readonly_ids
from agentrl_jax.tool_formats import HermesToolFormat, ToolFormat
from agentrl_jax.tools_as_text import with_tools_as_text
from agentrl_jax.trajectories import Call


@runtime_checkable
class Renderer(Protocol):
    """Converts messages to token ids and sampled ids back to messages.

    Invariant: decode(prompt + action + continuation) is the rendered text of the conversation.
    """

    stop_ids: tuple[int, ...]
    codec: TextCodec  # of plain texts: an agent program may prompt with text
    image_prompter: ImagePrompter  # of the images in its prompts, or refuses them

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> RenderedPrompt:
        """The prompt of the policy's next message."""
        ...

    def continuation_ids(
        self,
        call: Call,
        history: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
    ) -> TokenIds | None:
        """The ids that the next prompt adds after the action of `call`.

        They close a turn that its budget truncated. None where no exact extension exists; then the
        prompt must be rendered anew.

        Args:
            call: the generation to extend.
            history: the conversation so far; its last message is that of the action.
            new_messages: what follows it.
            tools: those that the call's prompt shows.
        """
        ...

    def parse(self, action: TokenIds, tools: Sequence[ToolSchema] = ()) -> Message:
        """The assistant message of sampled ids, without the stop token.

        Where there are tools, calls of them are parsed.
        """
        ...

    def parse_text(self, text: str, tools: Sequence[ToolSchema] = ()) -> Message:
        """The assistant message of a decoded action."""
        ...

    def action_ids(self, message: Message) -> TokenIds:
        """Ids of a demonstrated message, as the policy should write it, stop token included."""
        ...

    def as_written(self, message: Message) -> Message:
        """A demonstrated message as the policy's own: the added tokens that it spells are tokens.

        Those of any other message without `raw_text` are plain text.
        """
        ...


def _parsed_action(
    renderer: Renderer, action: TokenIds, tools: Sequence[ToolSchema] = ()
) -> Message:
    """The message of sampled ids; `raw_text` keeps its text where added tokens were sampled."""
    has_stop = len(action) > 0 and int(action[-1]) in renderer.stop_ids
    text = renderer.codec.decode(tuple((action[:-1] if has_stop else action).tolist()))
    message = renderer.parse_text(text, tools)
    control_ids = renderer.codec.added_tokens.control_ids.difference(renderer.stop_ids)
    return message if control_ids.isdisjoint(action.tolist()) else message.replace(raw_text=text)


def _spells_tokens(renderer: Renderer, message: Message) -> bool:
    """Whether a message without `raw_text` would have other ids if the policy had written it."""
    is_outside = message.role == "assistant" and message.raw_text is None
    return is_outside and renderer.codec.added_tokens.pattern.search(message.text) is not None


class TextRenderer:
    """A plain transcript, as in LMRL-Gym: every message is encoded separately.

    An action ends in the stop token. "Wordle:\\n" | s l a t e \\n | "b b y b b\\n" is one text, in
    which the action's ids, stop included, are those that the policy sampled.
    """

    def __init__(self, tokenizer: Any, stop: str = "\n") -> None:
        self.codec = TextCodec(tokenizer)
        self.image_prompter = ImagePrompter(None, self.codec)
        added_tokens = self.codec.added_tokens
        self._escape = escaper(added_tokens.ids)
        self._escape_special = escaper(added_tokens.special)
        self._stop_text, self._stop_array = stop, self.codec.encode_plain(stop)
        if len(self._stop_array) != 1:
            raise UserError(
                f"the stop text {stop!r} must be one token of this tokenizer, "
                f"not {len(self._stop_array)}"
            )
        self.stop_ids = (int(self._stop_array[0]),)

    def _message_ids(self, message: Message) -> TokenIds:
        if message.role != "assistant":
            return self.codec.encode_plain(message.text)
        is_written = message.raw_text is not None
        return self._action_ids(message, self._escape_special if is_written else self._escape)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> RenderedPrompt:
        self.image_prompter.check(messages)
        if tools:
            raise UserError("a plain transcript does not support tools: use a chat renderer")
        parts = [self._message_ids(m) for m in messages]
        return RenderedPrompt(np.concatenate([np.zeros(0, np.int32), *parts]))

    def continuation_ids(
        self,
        call: Call,
        history: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
    ) -> TokenIds | None:
        self.image_prompter.check(new_messages)
        closed = len(call.action) > 0 and int(call.action[-1]) in self.stop_ids
        return np.concatenate(
            [
                np.zeros(0, np.int32) if closed else self._stop_array,
                *map(self._message_ids, new_messages),
            ]
        )

    def parse(self, action: TokenIds, tools: Sequence[ToolSchema] = ()) -> Message:
        return _parsed_action(self, action)

    def parse_text(self, text: str, tools: Sequence[ToolSchema] = ()) -> Message:
        return assistant(text)

    def action_ids(self, message: Message) -> TokenIds:
        return self._action_ids(message, self._escape_special)

    def _action_ids(self, message: Message, escape: Callable[[str], str]) -> TokenIds:
        if message.tool_calls:
            raise UserError("a plain transcript does not support tool calls: use a chat renderer")
        text = escape(message.text.removesuffix(self._stop_text))
        return np.concatenate([self.codec.encode_escaped(text), self._stop_array])

    def as_written(self, message: Message) -> Message:
        return message.replace(raw_text=message.text) if _spells_tokens(self, message) else message


class ChatRenderer:
    """A Hugging Face chat template, and the format in which the model writes tool calls.

    A policy's messages are shown as it wrote them; others' tool calls, in the format.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop: str | None = None,
        tool_format: ToolFormat = HermesToolFormat(),  # noqa: B008  it is frozen
        tools_as_text: bool = False,
        images: ChatImages | None = None,
    ) -> None:
        """Of a tokenizer with a chat template.

        Args:
            tokenizer: of the policy.
            stop: the token that ends an action; None: the end-of-sequence token.
            tool_format: how tool calls are written and parsed.
            tools_as_text: for templates that know no tools: these are described in the first
                message, and their results are user messages.
            images: how prompts show images; None: they are refused.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "the tokenizer has no chat template: "
                "set tokenizer.chat_template or use TextRenderer"
            )
        self.codec, self.tool_format = TextCodec(tokenizer), tool_format
        self._stop_text = stop or tokenizer.eos_token
        self.stop_ids = (int(tokenizer.convert_tokens_to_ids(self._stop_text)),)
        self._tools_as_text = tools_as_text
        self.image_prompter = ImagePrompter(images, self.codec)
        self._template = ChatTemplate(tokenizer, self._prepare)
        self._escaper = MessageEscaper(
            tool_format,
            escaper(self.codec.added_tokens.ids),
            lambda text: self._escape_turns(text),  # found when first needed
        )

    @functools.cached_property
    def _escape_turns(self) -> Callable[[str], str]:
        """Escapes the tokens that begin and end turns and texts.

        A policy's text has others: thoughts, tool calls. These it may only have copied.
        """
        chat = self._template.prompt_text([user("a"), assistant("b"), user("c")])
        named = {self._stop_text, *self.codec.tokenizer.all_special_tokens}
        named.update(self.image_prompter.tokens)
        special = self.codec.added_tokens.special
        return escaper([token for token in special if token in named or token in chat])

    def _prepare(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[Sequence[Message], Sequence[ToolSchema]]:
        """Messages and tools as the template gets them: what spells added tokens is escaped."""
        self.image_prompter.check(messages)
        prepared = [self._escaper.message(message) for message in messages]
        tools = self._escaper.tools(tools)
        if not self._tools_as_text:
            return prepared, tools
        return with_tools_as_text(prepared, tools, self.tool_format), ()

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> RenderedPrompt:
        ids = self.image_prompter.encode(self._template.prompt_text(messages, tools), messages)
        return RenderedPrompt(ids, self.image_prompter.prompt_images(ids, messages))

    def continuation_ids(
        self,
        call: Call,
        history: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
    ) -> TokenIds | None:
        added = self._template.added_text(history, new_messages, tools)
        if added is None:
            return None
        if len(call.action) and int(call.action[-1]) in self.stop_ids:
            if not added.startswith(self._stop_text):
                return None
            added = added.removeprefix(self._stop_text)
        return self.image_prompter.encode(added, new_messages)

    def parse(self, action: TokenIds, tools: Sequence[ToolSchema] = ()) -> Message:
        return _parsed_action(self, action, tools)

    def parse_text(self, text: str, tools: Sequence[ToolSchema] = ()) -> Message:
        parsed = self.tool_format.parse(text, tools) if tools else None
        if parsed is None or not parsed.calls:
            return assistant(text)
        return Message("assistant", parsed.content, parsed.calls, raw_text=text)

    def action_ids(self, message: Message) -> TokenIds:
        text = self._escaper.action(message, self._escape_turns)
        return readonly_ids([*self.codec.encode_escaped(text).tolist(), *self.stop_ids])

    def as_written(self, message: Message) -> Message:
        if not _spells_tokens(self, message):
            return message
        text = unescape(self._escaper.action(message, self._escape_turns))
        return message.replace(raw_text=text)


@dataclass(frozen=True)
class ChatFormat:
    """A config's renderer: a `ChatRenderer` with these arguments."""

    stop: str | None = None
    tool_format: ToolFormat = field(default_factory=HermesToolFormat)
    tools_as_text: bool = False
    images: ChatImages | None = None

    def __call__(self, tokenizer: Any) -> ChatRenderer:
        return ChatRenderer(tokenizer, self.stop, self.tool_format, self.tools_as_text, self.images)
