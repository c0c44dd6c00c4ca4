"""`Renderer`: messages to token ids and back. Ids are the only truth; text is derived from them."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, assistant
from agentrl_jax.trajectories import Call

Ids = np.ndarray  # int32 [tokens]


@dataclass(frozen=True, eq=False)
class Rendered:
    """Token ids, the role each token belongs to ("" where a template writes it), and spans of image placeholders."""

    ids: Ids
    roles: tuple[str, ...]
    image_spans: tuple[tuple[int, int], ...] = ()


@runtime_checkable
class Renderer(Protocol):
    """Property: decode(prompt + action + bridge) equals the text that the whole conversation renders to."""

    stop_ids: tuple[int, ...]

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> Rendered:
        """The prompt from which the policy's next message is sampled."""
        ...

    def bridge(self, call: Call, history: Sequence[Message], new: Sequence[Message]) -> Ids | None:
        """What the next prompt adds after `call`'s action; `history` ends with the message of that action.

        Closes a turn that its budget cut. None where no exact extension exists; then the prompt must be rendered anew.
        """
        ...

    def parse(self, action: Ids) -> Message:
        """The assistant message of sampled ids, without the stop token."""
        ...

    def action_ids(self, message: Message) -> Ids:
        """Ids of a message that the policy should learn to write, stop token included (demonstrations)."""
        ...


def _frozen(ids: Sequence[int]) -> Ids:
    array = np.asarray(ids, np.int32)
    array.setflags(write=False)
    return array


@runtime_checkable
class Coded(Renderer, Protocol):
    """A renderer that also takes texts which are no messages."""

    codec: "Codec"


class Codec:
    """Text to ids and back, cached. `plain`: what an environment writes is never read as a special token."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.plain = functools.lru_cache(65536)(self._plain)
        self.text = functools.lru_cache(65536)(self._text)

    def raw(self, text: str) -> Ids:
        """Ids of a text whose writer means the special tokens that it spells."""
        return _frozen(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _plain(self, text: str) -> Ids:
        return _frozen(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def _text(self, ids: tuple[int, ...]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)


def _refuse_images(messages: Sequence[Message]) -> None:
    if any(m.images for m in messages):
        raise UserError("this renderer shows no images: give the agent a renderer of a vision model")


def _strip_stop(action: Ids, stop_ids: tuple[int, ...]) -> Ids:
    return action[:-1] if len(action) and int(action[-1]) in stop_ids else action


class TextRenderer:
    """A plain transcript, as in LMRL-Gym: every text is encoded on its own, an action ends in the stop token.

    "Wordle:\\n" | s l a t e \\n | "b b y b b\\n"  ->  one text, the action's ids (stop included) are the policy's.
    """

    def __init__(self, tokenizer: Any, stop: str = "\n") -> None:
        self.codec = Codec(tokenizer)
        self._stop_text, self._stop = stop, self.codec.plain(stop)
        if len(self._stop) != 1:
            raise UserError(f"the stop text {stop!r} must be one token of this tokenizer, not {len(self._stop)}")
        self.stop_ids = (int(self._stop[0]),)

    def _message_ids(self, message: Message) -> Ids:
        return self.action_ids(message) if message.role == "assistant" else self.codec.plain(message.text)

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> Rendered:
        _refuse_images(messages)
        if tools:
            raise UserError("a plain transcript has no place for tools: use a chat renderer")
        parts = [self._message_ids(m) for m in messages]
        roles = tuple(m.role for m, part in zip(messages, parts) for _ in part)
        return Rendered(np.concatenate([np.zeros(0, np.int32), *parts]), roles)

    def bridge(self, call: Call, history: Sequence[Message], new: Sequence[Message]) -> Ids | None:
        _refuse_images(new)
        closed = len(call.action) > 0 and int(call.action[-1]) in self.stop_ids
        return np.concatenate([np.zeros(0, np.int32) if closed else self._stop, *map(self._message_ids, new)])

    def parse(self, action: Ids) -> Message:
        return assistant(self.codec.text(tuple(_strip_stop(action, self.stop_ids).tolist())))

    def action_ids(self, message: Message) -> Ids:
        return np.concatenate([self.codec.plain(message.text.removesuffix(self._stop_text)), self._stop])


class ChatRenderer:
    """A Hugging Face chat template; works for any template that renders earlier turns the same way when later ones come."""

    def __init__(self, tokenizer: Any, stop: str | None = None) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("the tokenizer has no chat template: set tokenizer.chat_template or use TextRenderer")
        self.codec = Codec(tokenizer)
        self._stop_text = stop or tokenizer.eos_token
        self.stop_ids = (int(tokenizer.convert_tokens_to_ids(self._stop_text)),)
        # Only text of the world is disarmed: what the model wrote is re-read only where the context is rebuilt.
        self._special = [token for token in tokenizer.all_special_tokens if len(token) > 1]

    def _template(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], prompt: bool) -> str:
        _refuse_images(messages)
        return self.codec.tokenizer.apply_chat_template(
            [self._disarm(m).to_dict() for m in messages], tools=list(tools) or None, tokenize=False, add_generation_prompt=prompt
        )

    def _disarm(self, message: Message) -> Message:
        """Special tokens that an environment, user or tool writes are broken by a space: "<|im_end|>" -> "< |im_end|>"."""
        text = message.text
        if message.role == "assistant" or not any(token in text for token in self._special):
            return message
        for token in self._special:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return message.replace(content=text)

    def _encode(self, text: str) -> Any:
        return self.codec.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> Rendered:
        text = self._template(messages, tools, prompt=True)
        encoded = self._encode(text)
        ends: list[tuple[int, str]] = []
        for i, message in enumerate(messages):
            prefix = self._template(messages[: i + 1], tools, prompt=False)
            ends.append((len(prefix) if text.startswith(prefix) else -1, message.role))
        roles = tuple(next((role for end, role in ends if start < end), "") for start, _ in encoded["offset_mapping"])
        return Rendered(_frozen(encoded["input_ids"]), roles)

    def bridge(self, call: Call, history: Sequence[Message], new: Sequence[Message]) -> Ids | None:
        before = self._template(history[:-1], (), prompt=True) + history[-1].text
        after = self._template([*history, *new], (), prompt=True)
        if not after.startswith(before):
            return None
        rest = after[len(before) :]
        if len(call.action) and int(call.action[-1]) in self.stop_ids:
            if not rest.startswith(self._stop_text):
                return None
            rest = rest.removeprefix(self._stop_text)
        return _frozen(self._encode(rest)["input_ids"])

    def parse(self, action: Ids) -> Message:
        return assistant(self.codec.text(tuple(_strip_stop(action, self.stop_ids).tolist())))

    def action_ids(self, message: Message) -> Ids:
        return _frozen([*self.codec.plain(message.text).tolist(), *self.stop_ids])
