"""`Prompt`: what a request has the model read, and the call of its episode that it extends."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.requests import CompletionRequest
from agentrl_jax.capture.shared_tuple import SharedTuple
from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.messages import Message, ToolSchema, user
from agentrl_jax.renderer import TokenIds
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.token_buffer import TokenBuffer
from agentrl_jax.trajectories import Call, starts_with


@dataclass(eq=False)
class CallNode:
    """A call in the tree, with the names by which its program refers to it."""

    completion_id: str
    choice_index: int  # among the choices of its request
    model: str
    agent: Agent
    call: Call
    history: SharedTuple[Message]  # as the model reads it; its own message is last
    new_messages: tuple[Message, ...]  # what its prompt adds to the call that it extends, or all
    text: SharedTuple[str] | None = None  # for completions of text: prompt and completion
    rewards: dict[str, float] = field(default_factory=dict)
    tools: tuple[ToolSchema, ...] = ()  # that its request offered
    buffer: TokenBuffer = field(default_factory=TokenBuffer)  # of its prompt's ids

    @property
    def message(self) -> Message:
        """What was sampled, as the model reads it later."""
        return self.history.new[-1]


@dataclass(frozen=True, eq=False)
class Prompt:
    """What the model reads, as token ids and as messages."""

    ids: TokenIds
    parent: CallNode | None  # the call that it extends
    history: SharedTuple[Message]
    new_messages: tuple[Message, ...]  # what it adds to the parent
    text: SharedTuple[str] | None = None  # for completions of text: all of it
    images: tuple[PromptImage, ...] = ()


def text_bytes(request: CompletionRequest) -> int:
    """The bytes of all that would be tokenized; an id counts as one."""
    if request.prompt is not None:
        prompt = request.prompt
        return len(prompt.encode()) if isinstance(prompt, str) else len(prompt)
    calls = [call for message in request.messages for call in message.tool_calls]
    texts = [
        *(message.text for message in request.messages),
        *(call.name + call.arguments for call in calls),
        json.dumps(request.tools),
    ]
    return sum(len(text.encode()) for text in texts)


def prompt_from_text(
    prompt: str | Sequence[int], agent: Agent, nodes: Sequence[CallNode]
) -> Prompt:
    """A text, or token ids, as a prompt.

    If it starts with the prompt and action of an earlier call, it extends that call's own ids.

    Raises:
        APIError: the ids are not in the vocabulary.
    """
    codec = agent.renderer.codec
    candidates = [node for node in nodes if node.agent.name == agent.name]
    if isinstance(prompt, str):
        lengths = ((_prefix_length(prompt, node.text), node) for node in candidates)
        start, parent = max(lengths, key=lambda pair: pair[0], default=(0, None))
        parent, new = parent if start else None, prompt[start:]
        new_ids = codec.encode_with_special_tokens(new)
    else:
        ids = np.asarray(prompt, np.int32)
        if ids.max() >= len(codec.tokenizer):
            raise APIError(
                f"the prompt holds the id {ids.max()}, the tokenizer has {len(codec.tokenizer)}",
                "prompt",
            )
        extended = (node for node in candidates if starts_with(ids, node.call.ids))
        parent = max(extended, key=lambda node: len(node.call.ids), default=None)
        new_ids = ids[len(parent.call.ids) :] if parent else ids
        new = codec.decode(tuple(new_ids.tolist()))
    messages = (user(new),) if new or parent is None else ()
    if parent is None:
        return Prompt(new_ids, None, SharedTuple(messages), messages, SharedTuple((new,)))
    ids = np.concatenate([parent.call.ids, new_ids])
    if parent.text is None:  # it was a chat
        text = SharedTuple((codec.decode(tuple(ids.tolist())),))
    else:
        text = parent.text.extended(new)
    return Prompt(ids, parent, parent.history.extended(*messages), messages, text)


def _prefix_length(prompt: str, text: SharedTuple[str] | None) -> int:
    """The length of a text with which a prompt starts; 0: it does not."""
    end = 0
    for part in text or ():
        if not prompt.startswith(part, end):
            return 0
        end += len(part)
    return end


def prefix_hashes(agent: Agent, request: CompletionRequest) -> list[bytes]:
    """A hash of each prefix of a conversation: of its agent, tools and messages so far."""
    names, name = [], repr((agent.name, request.tools)).encode()
    for message in request.messages:
        name = hashlib.blake2b(name + repr(canonicalize(message)).encode(), digest_size=16).digest()
        names.append(name)
    return names


def canonicalize(message: Message) -> Message:
    """The message with sorted and evenly spaced JSON in its tool calls, which clients change."""
    calls = tuple(
        dataclasses.replace(call, arguments=_sort_json_keys(call.arguments))
        for call in message.tool_calls
    )
    return message.replace(tool_calls=calls)


def _sort_json_keys(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
