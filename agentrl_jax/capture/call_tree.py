"""The tree of an episode's calls: which call a request extends, its prompt and sampling."""

import dataclasses
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.prompts import (
    CallNode,
    Prompt,
    canonicalize,
    prefix_hashes,
    prompt_from_text,
    text_bytes,
)
from agentrl_jax.capture.requests import CompletionChoice, CompletionRequest, truncate_at_stop
from agentrl_jax.capture.shared_tuple import SharedTuple
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, assistant
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.token_buffer import TokenBuffer
from agentrl_jax.trajectories import Call, RandomKey, Sampling

# Different prompts, after which a session with `max_calls` forgets how often each was requested.
MAX_COUNTED_PROMPTS = 2**16


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A request as the engine takes it."""

    request: CompletionRequest
    agent: Agent
    prompt: Prompt
    sampling: Sampling
    completion_id: str
    rng_key: RandomKey  # with the episode's key and the choice's index it identifies random numbers
    buffer: TokenBuffer  # of the prompt's ids


class ContextOverflow(Exception):
    """The prompt leaves no room for a token."""


class CallTree:
    """All calls of an episode, in the order of their answers."""

    def __init__(self, agent_table: AgentTable) -> None:
        self._agent_table = agent_table
        self.nodes: list[CallNode] = []
        self.num_trained_tokens = 0  # sampled by trained agents
        self._node_of_prefix: dict[bytes, CallNode] = {}
        self._node_of_answer: dict[tuple[str, Message], CallNode] = {}  # by agent and message
        self._prompt_counts: Counter[int] = Counter()

    @property
    def trainable_nodes(self) -> list[CallNode]:
        return [node for node in self.nodes if node.agent.trainable]

    def make_prompt(self, request: CompletionRequest) -> Prompt:
        """What the model reads for a request; it changes nothing, and may run in another thread.

        Raises:
            APIError: the prompt is invalid.
            ContextOverflow: it is longer than the engine's context.
        """
        agent = self._agent_table.agent_for(request.model)
        positions = self._agent_table.engines[agent.engine].positions
        if text_bytes(request) > positions * self._agent_table.max_bytes_per_token:
            raise ContextOverflow
        try:
            if request.prompt is None:
                return self._prompt_from_messages(request, agent)
            return prompt_from_text(request.prompt, agent, tuple(self.nodes))
        except UserError as error:
            raise APIError(str(error)) from error

    def prepare(self, request: CompletionRequest, prompt: Prompt) -> PreparedRequest:
        """The request as the engine takes it.

        Raises:
            APIError: its sampling parameters are invalid.
            ContextOverflow: the prompt leaves no room for a token.
        """
        agent = self._agent_table.agent_for(request.model)
        try:
            sampling = self._sampling(request, agent, len(prompt.ids))
        except UserError as error:
            raise APIError(str(error)) from error
        # Random numbers depend on the prompt and not on the order of arrival: concurrent calls
        # sample the same whichever is first.
        check = zlib.crc32(prompt.ids.tobytes())
        count = self._prompt_counts[check]
        self._prompt_counts[check] += request.n
        number = (check, 0, count) if request.seed is None else (check, 1, request.seed)
        kind = "chatcmpl" if request.prompt is None else "cmpl"
        name = f"{kind}-{check:08x}-{count}"
        prompt, buffer = _share_memory(prompt)
        return PreparedRequest(request, agent, prompt, sampling, name, number, buffer)

    def add(self, prepared: PreparedRequest, choice_index: int, call: Call) -> CompletionChoice:
        """Add the call sampled for a choice; returns what its program gets."""
        request, agent, prompt = prepared.request, prepared.agent, prepared.prompt
        message, text = agent.renderer.parse(call.action), None
        if prompt.text is not None:
            ids, codec = call.action.tolist(), agent.renderer.codec
            has_stop_id = call.finish_reason == "stop" and ids[-1] in prepared.sampling.stop_ids
            message = assistant(codec.decode(tuple(ids[:-1] if has_stop_id else ids)))
            text = prompt.text.extended(codec.decode(tuple(ids)))
        choice = self._make_choice(prepared, call, message, choice_index)
        if choice.message.tool_calls:
            message = choice.message.replace(raw_text=message.text)
        node = CallNode(
            prepared.completion_id,
            choice_index,
            request.model,
            agent,
            call,
            prompt.history.extended(message),
            prompt.new_messages,
            text,
            tools=request.tools,
            buffer=prepared.buffer,
        )
        self.nodes.append(node)
        self._evict_oldest()
        self.num_trained_tokens += len(call.action) if agent.trainable else 0
        if prompt.text is None:
            messages = (*request.messages, choice.message)
            extended = dataclasses.replace(request, messages=messages)
            self._node_of_prefix[prefix_hashes(agent, extended)[-1]] = node
            self._node_of_answer[agent.name, canonicalize(choice.message)] = node
        return choice

    def _evict_oldest(self) -> None:
        """Drop the oldest calls beyond `max_calls`, and release them."""
        max_calls = self._agent_table.max_calls
        while 0 < max_calls < len(self.nodes):
            old = self.nodes.pop(0)
            self._agent_table.engines[old.agent.engine].release(old.call)
            self._node_of_prefix = {
                name: node for name, node in self._node_of_prefix.items() if node is not old
            }
            self._node_of_answer = {
                answer: node for answer, node in self._node_of_answer.items() if node is not old
            }
        if max_calls and len(self._prompt_counts) > MAX_COUNTED_PROMPTS:
            self._prompt_counts.clear()

    def _prompt_from_messages(self, request: CompletionRequest, agent: Agent) -> Prompt:
        messages = tuple(self._as_sampled(message, agent) for message in request.messages)
        hashes = prefix_hashes(agent, request)
        for last in range(len(messages) - 1, 0, -1):
            node = self._node_of_prefix.get(hashes[last])
            if node is not None:
                new = messages[last + 1 :]
                renderer = agent.renderer
                bridge = renderer.continuation_ids(
                    node.call, tuple(node.history), new, request.tools
                )
                if bridge is not None:
                    return Prompt(
                        np.concatenate([node.call.ids, bridge]),
                        node,
                        node.history.extended(*new),
                        new,
                        images=renderer.image_prompter.extended_images(node.call, bridge, new),
                    )
        rendered = agent.renderer.render(messages, request.tools)
        history = SharedTuple(messages)
        return Prompt(rendered.ids, None, history, messages, images=rendered.images)

    def _as_sampled(self, message: Message, agent: Agent) -> Message:
        """The message as this agent sampled it, where it did; a client's own is plain text."""
        if message.role != "assistant":
            return message
        node = self._node_of_answer.get((agent.name, canonicalize(message)))
        return message if node is None else node.message

    def _sampling(self, request: CompletionRequest, agent: Agent, prompt_length: int) -> Sampling:
        sampling = agent.sampling
        overrides: dict[str, Any] = {}
        if self._agent_table.allow_sampling_overrides:
            overrides = {
                "temperature": request.temperature,
                "top_p": request.top_p,
                "top_k": request.top_k,
                "min_p": request.min_p,
            }
        max_tokens = min(request.max_tokens or sampling.budget, sampling.budget)
        budget = agent.limits.call_budget(max_tokens, self.num_trained_tokens, prompt_length)
        if budget < 1:
            raise ContextOverflow
        overrides = {name: value for name, value in overrides.items() if value is not None}
        if agent.trainable and overrides.get("temperature") == 0:
            raise APIError(
                "a greedy call cannot be trained on: ask for a temperature above 0, or run with "
                "allow_sampling_overrides=False",
                "temperature",
            )
        stop_ids = (*(() if request.ignore_eos else sampling.stop_ids), *request.stop_ids)
        stops = {
            "stop_ids": tuple(dict.fromkeys(stop_ids)),
            "stop_strings": (*sampling.stop_strings, *request.stop),
        }
        return dataclasses.replace(sampling, budget=budget, **stops, **overrides)

    def _make_choice(
        self, prepared: PreparedRequest, call: Call, message: Message, choice_index: int
    ) -> CompletionChoice:
        request, renderer = prepared.request, prepared.agent.renderer
        text = truncate_at_stop(message.text, request.stop)
        answer = renderer.parse_text(text, request.tools if request.parse_tool_calls else ())
        if any(tool_call.error for tool_call in answer.tool_calls):
            answer = assistant(text)  # as other servers of this API do
        name = f"call_{prepared.completion_id.partition('-')[2]}-{choice_index}"
        tool_calls = tuple(
            dataclasses.replace(tool_call, id=f"{name}-{i}")
            for i, tool_call in enumerate(answer.tool_calls)
        )
        reason = (
            "tool_calls" if tool_calls else "stop" if call.finish_reason == "stop" else "length"
        )
        tokens = (
            tuple(renderer.parse(call.action[i : i + 1]).text for i in range(len(call.action)))
            if request.logprobs
            else ()
        )
        return CompletionChoice(call, Message("assistant", answer.text, tool_calls), reason, tokens)


def _share_memory(prompt: Prompt) -> tuple[Prompt, TokenBuffer]:
    """The prompt with ids that share the memory of its parent's, and their buffer."""
    if prompt.parent is None:
        return prompt, TokenBuffer()
    prefix = prompt.parent.call.prompt
    buffer = prompt.parent.buffer.continued_from(prefix)
    ids = buffer.extend(prefix, prompt.ids[len(prefix) :])
    return dataclasses.replace(prompt, ids=ids), buffer
