"""`Renderer`: messages to token ids and back; the ids are authoritative, text derives from them."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, assistant
from agentrl_jax.trajectories import Call

TokenIds = np.ndarray  # int32 [tokens]


@dataclass(frozen=True, eq=False)
class RenderedPrompt:
    """A prompt as token ids."""

    ids: TokenIds
    roles: tuple[str, ...]  # the role that each token belongs to; "" where a template writes it
    image_spans: tuple[tuple[int, int], ...] = ()  # [start, end) of image placeholder tokens


@runtime_checkable
class Renderer(Protocol):
    """Converts messages to token ids and sampled ids back to messages.

    Invariant: decode(prompt + action + continuation) is the rendered text of the conversation.
    """

    stop_ids: tuple[int, ...]
    codec: "TextCodec"  # of plain texts: an agent program may prompt with text

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> RenderedPrompt:
        """The prompt of the policy's next message."""
        ...

    def continuation_ids(
        self, call: Call, history: Sequence[Message], new_messages: Sequence[Message]
    ) -> TokenIds | None:
        """The ids that the next prompt adds after the action of `call`.

        They close a turn that its budget truncated. None where no exact extension exists; then the
        prompt must be rendered anew.

        Args:
            call: the generation to extend.
            history: the conversation so far; its last message is that of the action.
            new_messages: what follows it.
        """
        ...

    def parse(self, action: TokenIds) -> Message:
        """The assistant message of sampled ids, without the stop token."""
        ...

    def action_ids(self, message: Message) -> TokenIds:
        """Ids of a demonstrated message, as the policy should write it, stop token included."""
        ...


def _readonly_ids(ids: Sequence[int]) -> TokenIds:
    array = np.asarray(ids, np.int32)
    array.setflags(write=False)
    return array


class TextCodec:
    """Text to ids and back, cached.

    `encode_plain` never reads an environment's text as a special token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.encode_plain = functools.lru_cache(65536)(self._encode_plain)
        self.decode = functools.lru_cache(65536)(self._decode)

    def encode_with_special_tokens(self, text: str) -> TokenIds:
        """Ids of a text in which special tokens are spelled on purpose."""
        return _readonly_ids(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode_plain(self, text: str) -> TokenIds:
        return _readonly_ids(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        )

    def _decode(self, ids: tuple[int, ...]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)


def _reject_images(messages: Sequence[Message]) -> None:
    if any(m.images for m in messages):
        raise UserError(
            "this renderer does not support images: give the agent a vision model's renderer"
        )


def _strip_stop(action: TokenIds, stop_ids: tuple[int, ...]) -> TokenIds:
    return action[:-1] if len(action) and int(action[-1]) in stop_ids else action


class TextRenderer:
    """A plain transcript, as in LMRL-Gym: every message is encoded separately.

    An action ends in the stop token. "Wordle:\\n" | s l a t e \\n | "b b y b b\\n" is one text, in
    which the action's ids, stop included, are those that the policy sampled.
    """

    def __init__(self, tokenizer: Any, stop: str = "\n") -> None:
        self.codec = TextCodec(tokenizer)
        self._stop_text, self._stop_array = stop, self.codec.encode_plain(stop)
        if len(self._stop_array) != 1:
            raise UserError(
                f"the stop text {stop!r} must be one token of this tokenizer, "
                f"not {len(self._stop_array)}"
            )
        self.stop_ids = (int(self._stop_array[0]),)

    def _message_ids(self, message: Message) -> TokenIds:
        return (
            self.action_ids(message)
            if message.role == "assistant"
            else self.codec.encode_plain(message.text)
        )

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> RenderedPrompt:
        _reject_images(messages)
        if tools:
            raise UserError("a plain transcript does not support tools: use a chat renderer")
        parts = [self._message_ids(m) for m in messages]
        roles = tuple(m.role for m, part in zip(messages, parts) for _ in part)
        return RenderedPrompt(np.concatenate([np.zeros(0, np.int32), *parts]), roles)

    def continuation_ids(
        self, call: Call, history: Sequence[Message], new_messages: Sequence[Message]
    ) -> TokenIds | None:
        _reject_images(new_messages)
        closed = len(call.action) > 0 and int(call.action[-1]) in self.stop_ids
        return np.concatenate(
            [
                np.zeros(0, np.int32) if closed else self._stop_array,
                *map(self._message_ids, new_messages),
            ]
        )

    def parse(self, action: TokenIds) -> Message:
        return assistant(self.codec.decode(tuple(_strip_stop(action, self.stop_ids).tolist())))

    def action_ids(self, message: Message) -> TokenIds:
        return np.concatenate(
            [self.codec.encode_plain(message.text.removesuffix(self._stop_text)), self._stop_array]
        )


class ChatRenderer:
    """A Hugging Face chat template.

    It works for any template that renders earlier turns the same way when later ones follow.
    """

    def __init__(self, tokenizer: Any, stop: str | None = None) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "the tokenizer has no chat template: "
                "set tokenizer.chat_template or use TextRenderer"
            )
        self.codec = TextCodec(tokenizer)
        self._stop_text = stop or tokenizer.eos_token
        self.stop_ids = (int(tokenizer.convert_tokens_to_ids(self._stop_text)),)
        # Escaped in the environment's texts only: the model's own are re-encoded only where the
        # context is rebuilt.
        self._special_tokens = [token for token in tokenizer.all_special_tokens if len(token) > 1]

    def _apply_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        add_generation_prompt: bool,
    ) -> str:
        _reject_images(messages)
        return self.codec.tokenizer.apply_chat_template(
            [self._escape_special_tokens(m).to_dict() for m in messages],
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
        )

    def _escape_special_tokens(self, message: Message) -> Message:
        """Special tokens of an environment, user or tool are broken by a space.

        "<|im_end|>"  ->  "< |im_end|>"
        """
        text = message.text
        if message.role == "assistant" or not any(token in text for token in self._special_tokens):
            return message
        for token in self._special_tokens:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return message.replace(content=text)

    def _encode(self, text: str) -> Any:
        return self.codec.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> RenderedPrompt:
        text = self._apply_template(messages, tools, add_generation_prompt=True)
        encoded = self._encode(text)
        ends: list[tuple[int, str]] = []
        for i, message in enumerate(messages):
            prefix = self._apply_template(messages[: i + 1], tools, add_generation_prompt=False)
            ends.append((len(prefix) if text.startswith(prefix) else -1, message.role))
        roles = tuple(
            next((role for end, role in ends if start < end), "")
            for start, _ in encoded["offset_mapping"]
        )
        return RenderedPrompt(_readonly_ids(encoded["input_ids"]), roles)

    def continuation_ids(
        self, call: Call, history: Sequence[Message], new_messages: Sequence[Message]
    ) -> TokenIds | None:
        before = (
            self._apply_template(history[:-1], (), add_generation_prompt=True) + history[-1].text
        )
        after = self._apply_template([*history, *new_messages], (), add_generation_prompt=True)
        if not after.startswith(before):
            return None
        rest = after[len(before) :]
        if len(call.action) and int(call.action[-1]) in self.stop_ids:
            if not rest.startswith(self._stop_text):
                return None
            rest = rest.removeprefix(self._stop_text)
        return _readonly_ids(self._encode(rest)["input_ids"])

    def parse(self, action: TokenIds) -> Message:
        return assistant(self.codec.decode(tuple(_strip_stop(action, self.stop_ids).tolist())))

    def action_ids(self, message: Message) -> TokenIds:
        return _readonly_ids([*self.codec.encode_plain(message.text).tolist(), *self.stop_ids])
