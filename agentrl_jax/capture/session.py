"""`CaptureSession`: one episode of an agent program: its calls, posted rewards and trajectory."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.call_tree import CallTree, ContextOverflow, PreparedRequest
from agentrl_jax.capture.prompts import Prompt
from agentrl_jax.capture.requests import CompletionChoice, CompletionRequest
from agentrl_jax.capture.reward_posts import parse_reward_post
from agentrl_jax.capture.streaming_engine import StreamingEngine, call_in_loop
from agentrl_jax.engine import Engine
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.rollout.call_sampling import sample_call
from agentrl_jax.trajectories import RandomKey, StopReason, Trajectory, Turn
from agentrl_jax.workers.pool import Task, importable_env_name

MAX_CONCURRENT_CALLS = 64  # of an episode
TokenCallback = Callable[[int, list[int]], None]  # gets a choice's index and its tokens so far


class CaptureSession:
    """An episode; not thread-safe, it belongs to one event loop."""

    def __init__(
        self,
        episode_id: str,
        secret: str,
        task: Task,
        sample: int,
        key: RandomKey,
        agent_table: AgentTable,
        prompt: str = "",
    ) -> None:
        """Start an episode.

        Args:
            episode_id: its part of the URL.
            secret: its API key.
            task: the seed, the environment and its options, as the program gets them.
            sample: its index within the group.
            key: (run, step, task, sample), which identifies its random numbers.
            agent_table: the agents that answer its calls.
            prompt: what the program is to do.
        """
        self.episode_id, self.secret = episode_id, secret
        self.task, self.sample, self.prompt = task, sample, prompt
        self.end_event = asyncio.Event()
        self.claim_event = asyncio.Event()
        self._key, self._agent_table = key, agent_table
        self._tree = CallTree(agent_table)
        self._post_ids: set[str] = set()
        self._has_reward = False
        self._success: bool | None = None
        self._stop_reason: StopReason | None = None
        self._tasks: set[asyncio.Task[Any]] = set()  # calls
        self._starting: set[asyncio.Task[Any]] = set()  # requests that have no calls yet
        self._failure: Exception | None = None
        self._last_activity = asyncio.get_running_loop().time()

    @property
    def task_description(self) -> dict[str, Any]:
        """What its program gets."""
        t = self.task
        return {
            "environment": importable_env_name(t.environment),
            "options": t.options,
            "seed": t.seed,
            "sample": self.sample,
            "prompt": self.prompt,
        }

    @property
    def models(self) -> list[str]:
        return sorted(self._agent_table.agents)

    def engine_of(self, model: str) -> tuple[str, Engine]:
        """The name and the engine of the agent that a model's name stands for."""
        name = self._agent_table.agent_for(model).engine
        return name, self._agent_table.engines[name]

    def cancel_at_end(self, task: "asyncio.Task[Any]") -> None:
        """Have a task that starts a request cancelled when the episode ends."""
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def check(self, request: CompletionRequest) -> None:
        """Raises APIError if a limit is reached, or the episode is over."""
        self.touch()
        num_calls = len(self._tree.trainable_nodes)  # each is a turn
        limit = self._agent_table.agent_for(request.model).limits.stop_reason(
            num_calls, self._tree.num_trained_tokens, num_calls
        )
        if limit:
            self._stop_reason = self._stop_reason or limit
            raise APIError(
                f"the episode has reached its limit of {limit}: post its reward",
                code="episode_limit",
            )
        if len(self._tasks) + request.n > MAX_CONCURRENT_CALLS:
            raise APIError(
                f"an episode may have {MAX_CONCURRENT_CALLS} calls under way",
                code="rate_limit_exceeded",
                status=429,
            )

    def make_prompt(self, request: CompletionRequest) -> Prompt:
        """The prompt of a request, in any thread. Raises APIError if it is refused."""
        try:
            return self._tree.make_prompt(request)
        except ContextOverflow:
            raise self._context_overflow() from None

    def start(
        self, request: CompletionRequest, prompt: Prompt, on_tokens: TokenCallback | None = None
    ) -> "tuple[str, list[asyncio.Task[CompletionChoice]]]":
        """Start the calls of a request; returns the completion's id and a task for each choice.

        Raises:
            APIError: a limit is reached, or the request is refused.
        """
        self.check(request)
        try:
            prepared = self._tree.prepare(request, prompt)
        except ContextOverflow:
            raise self._context_overflow() from None
        tasks = [
            asyncio.ensure_future(self._sample_call(prepared, choice_index, on_tokens))
            for choice_index in range(request.n)
        ]
        for task in tasks:
            task.add_done_callback(self._on_call_done)
        self._tasks |= set(tasks)
        return prepared.completion_id, tasks

    def decode(self, model: str, tokens: list[int]) -> str:
        """The text of an answer's tokens."""
        return self._agent_table.agent_for(model).renderer.parse(np.asarray(tokens, np.int32)).text

    def touch(self) -> None:
        """Note activity of the program. Raises APIError if its episode is over."""
        self._last_activity = asyncio.get_running_loop().time()
        self.claim_event.set()
        if self.end_event.is_set():
            raise APIError("the episode is over", code="episode_over", status=410)

    def _on_call_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._last_activity = asyncio.get_running_loop().time()

    def _context_overflow(self) -> APIError:
        self._stop_reason = self._stop_reason or "context"
        return APIError(
            "this model's maximum context length is reached", "messages", "context_length_exceeded"
        )

    async def _sample_call(
        self, prepared: PreparedRequest, choice_index: int, on_tokens: TokenCallback | None
    ) -> CompletionChoice:
        agent, prompt = prepared.agent, prepared.prompt
        engine = self._agent_table.engines[agent.engine]
        if on_tokens is not None:
            loop, notify = asyncio.get_running_loop(), functools.partial(on_tokens, choice_index)
            engine = StreamingEngine(engine, lambda tokens: call_in_loop(loop, notify, tokens))
        try:
            call = await sample_call(
                engine,
                prompt.ids,
                prepared.sampling,
                (*self._key, *prepared.rng_key, choice_index),
                prompt.parent.call if prompt.parent else None,
                self._agent_table.call_timeout,
                agent.engine,
                self._agent_table.invariants,
                prompt.images,
            )
        except DeadlineExceeded as error:
            raise APIError(str(error), code="timeout", status=504) from error
        except EnvironmentFailure as error:
            raise APIError(str(error), status=503) from error
        except (UserError, ValueError) as error:
            raise APIError(str(error)) from error
        except Exception as error:  # such as a stopped engine: a retry of the program is useless
            self.fail(error)
            raise APIError(f"the engine failed: {error}", status=500) from error
        if len(call.action) == 0:
            engine.release(call)
            raise self._context_overflow()
        return self._tree.add(prepared, choice_index, call)

    def add_reward(self, body: Any) -> None:
        """Add a reward, such as {"reward": 1.0, "success": true, "final": true} (docs/capture.md).

        Raises:
            APIError: a field is wrong, or there is no such call.
        """
        self.touch()
        post = parse_reward_post(body)
        if post.post_id is not None and post.post_id in self._post_ids:
            return  # posted again because its response was lost
        node = next(
            (node for node in reversed(self._tree.trainable_nodes) if post.matches(node)), None
        )
        if node is None:
            raise APIError(
                "there is no such call to be rewarded: it must have been answered, by an agent "
                "that is trained",
                status=409,
            )
        for name, value in post.rewards.items():
            node.rewards[name] = node.rewards.get(name, 0.0) + value
        self._post_ids |= set() if post.post_id is None else {post.post_id}
        self._has_reward = True
        if post.success is not None:
            self._success = post.success
        if post.truncated:
            self._stop_reason = self._stop_reason or "truncated"
        if post.final:
            self.end()

    def end(self) -> None:
        """End the episode: no more calls or rewards."""
        self.end_event.set()
        for task in (*self._tasks, *self._starting):
            task.cancel()

    def fail(self, failure: Exception) -> None:
        """End the episode with a failure, which `trajectory` raises, unless it has ended."""
        self._failure = None if self.end_event.is_set() else failure
        self.end()

    def close(self) -> None:
        """End the episode and release its calls."""
        self.end()
        for node in self._tree.nodes:
            self._agent_table.engines[node.agent.engine].release(node.call)

    async def wait_until_silent(self, seconds: float) -> None:
        """Raises DeadlineExceeded after so long without requests and calls in progress."""
        loop = asyncio.get_running_loop()
        while (
            (left := self._last_activity + seconds - loop.time()) > 0
            or self._tasks
            or self._starting
        ):
            await asyncio.sleep(max(left, seconds / 10))
        raise DeadlineExceeded(f"the program of sample {self.sample} was silent for {seconds:g} s")

    def trajectory(self) -> Trajectory:
        """Its calls in order, a turn each.

        Raises:
            EnvironmentFailure: there is nothing to learn from: no call, or no reward.
            Exception: what ended the episode with `fail`.
        """
        nodes, task = self._tree.trainable_nodes, self.task
        if self._failure is not None:
            raise self._failure
        if not nodes or not self._has_reward:
            raise EnvironmentFailure(
                f"the program of sample {self.sample} "
                f"{'posted no reward' if nodes else 'made no call'}",
                "unscored",
            )
        turns = []
        for i, node in enumerate(nodes):
            is_last = i + 1 == len(nodes)
            info: dict[str, Any] = {"agent": node.model}
            if is_last and self._success is not None:
                info["success"] = self._success
            turns.append(
                Turn(
                    (node.call,),
                    node.message,
                    () if is_last else nodes[i + 1].new_messages,
                    float(sum(node.rewards.values())),
                    node.rewards,
                    terminated=is_last and self._stop_reason is None,
                    truncated=is_last and self._stop_reason is not None,
                    info=info,
                )
            )
        return Trajectory(
            nodes[0].new_messages,
            tuple(turns),
            task.name,
            task.group,
            self.sample,
            0,
            task.seed,
            nodes[0].agent.name,
            success=self._success,
            stop_reason=self._stop_reason or "terminated",
            tools=nodes[0].tools,
        )
