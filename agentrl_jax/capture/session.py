"""`Session`: one episode of an agent program: the tree of its calls, the rewards posted for it, and the trajectory they make."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from agentrl_jax.capture.calls import Full, Overheard, Seats, Tree, Wanted
from agentrl_jax.capture.posted import posted
from agentrl_jax.capture.wire import Asked, Choice, Refused
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.speaking import sampled
from agentrl_jax.trajectories import Key, StopReason, Trajectory, Turn
from agentrl_jax.workers import Task, importable

AT_ONCE = 64  # calls of an episode that may be under way
Heard = Callable[[int, list[int]], None]  # told which choice is how far


class Session:
    """Lives on one event loop. `key` is (run, step, task, sample)."""

    def __init__(self, identity: str, secret: str, task: Task, sample: int, key: Key, seats: Seats, prompt: str = "") -> None:
        self.identity, self.secret, self.task, self.sample, self.prompt = identity, secret, task, sample, prompt
        self.over = asyncio.Event()
        self.claimed = asyncio.Event()
        self._key, self._seats = key, seats
        self._tree = Tree(seats)
        self._posted: set[str] = set()
        self._rewarded = False
        self._success: bool | None = None
        self._stop: StopReason | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._broken: Exception | None = None
        self._last = asyncio.get_running_loop().time()

    @property
    def described(self) -> dict[str, Any]:
        """What its program is told."""
        t = self.task
        return {
            "environment": importable(t.environment),
            "options": t.options,
            "seed": t.seed,
            "sample": self.sample,
            "prompt": self.prompt,
        }

    @property
    def models(self) -> list[str]:
        return sorted(self._seats.agents)

    # What the program asks for.

    def start(self, asked: Asked, heard: Heard | None = None) -> "tuple[str, list[asyncio.Task[Choice]]]":
        """The completion's id and its calls, on their way. Raises Refused where there is nothing to sample."""
        self.touch()
        reached = self._seats.of(asked.model).limits.reached(len(self._tree.trained), self._tree.tokens)
        if reached:
            self._stop = self._stop or reached
            raise Refused(f"the episode has reached its limit of {reached}: post its reward", code="episode_limit")
        if len(self._tasks) + asked.n > AT_ONCE:
            raise Refused(f"an episode may have {AT_ONCE} calls under way", code="rate_limit_exceeded", status=429)
        try:
            wanted = self._tree.wanted(asked)
        except Full:
            raise self._full() from None
        tasks = [asyncio.ensure_future(self._call(wanted, place, heard)) for place in range(asked.n)]
        for task in tasks:
            task.add_done_callback(self._ended)
        self._tasks |= set(tasks)
        return wanted.identity, tasks

    def text(self, model: str, tokens: list[int]) -> str:
        """What tokens of an answer read as."""
        return self._seats.of(model).renderer.parse(np.asarray(tokens, np.int32)).text

    def touch(self) -> None:
        """The program was heard of. Raises Refused where its episode is over."""
        self._last = asyncio.get_running_loop().time()
        self.claimed.set()
        if self.over.is_set():
            raise Refused("the episode is over", code="episode_over", status=410)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._last = asyncio.get_running_loop().time()

    def _full(self) -> Refused:
        self._stop = self._stop or "context"
        return Refused("this model's maximum context length is reached", "messages", "context_length_exceeded")

    async def _call(self, wanted: Wanted, place: int, heard: Heard | None) -> Choice:
        w, agent = wanted, wanted.agent
        engine: Any = self._seats.engines[agent.engine]
        if heard is not None:
            loop = asyncio.get_running_loop()
            engine = Overheard(engine, lambda tokens: _tell(loop, heard, place, tokens))
        parent, key = w.prompt.parent.call if w.prompt.parent else None, (*self._key, *w.number, place)
        try:
            call = await sampled(engine, w.prompt.ids, w.sampling, key, parent, self._seats.turn, agent.engine)
        except DeadlineExceeded as error:
            raise Refused(str(error), code="timeout", status=504) from error
        except EnvironmentFailure as error:
            raise Refused(str(error), status=503) from error
        except (UserError, ValueError) as error:
            raise Refused(str(error)) from error
        except Exception as error:  # an engine that has stopped, say: nothing that another try of the program could mend
            self.fail(error)
            raise Refused(f"the engine failed: {error}", status=500) from error
        if len(call.action) == 0:
            engine.release(call)
            raise self._full()
        return self._tree.add(wanted, place, call)

    # What is posted for it.

    def reward(self, body: Any) -> None:
        """A reward as JSON (docs/capture.md): {"reward": 1.0, "success": true, "final": true}

        Raises Refused where a field is wrong, or where no call is there to be rewarded.
        """
        self.touch()
        post = posted(body)
        if post.identity is not None and post.identity in self._posted:
            return  # posted again after its answer was lost
        node = next((node for node in reversed(self._tree.trained) if post.means(node)), None)
        if node is None:
            raise Refused("there is no such call to be rewarded: it must have been answered, by an agent that is trained", status=409)
        for name, value in post.rewards.items():
            node.rewards[name] = node.rewards.get(name, 0.0) + value
        self._posted |= set() if post.identity is None else {post.identity}
        self._rewarded, self._success = True, self._success if post.success is None else post.success
        if post.truncated:
            self._stop = self._stop or "truncated"
        if post.final:
            self.end()

    def end(self) -> None:
        """Nothing more will come."""
        self.over.set()
        for task in self._tasks:
            task.cancel()

    def fail(self, why: Exception) -> None:
        """End it; `why` is what is heard instead of its trajectory, unless it has ended before."""
        self._broken = None if self.over.is_set() else why
        self.end()

    def close(self) -> None:
        """End it, and give back what the engines keep of its calls."""
        self.end()
        for node in self._tree.nodes:
            self._seats.engines[node.agent.engine].release(node.call)

    async def silence(self, seconds: float) -> None:
        """Raises DeadlineExceeded once the program has said nothing for so long, with no call under way."""
        loop = asyncio.get_running_loop()
        while (left := self._last + seconds - loop.time()) > 0 or self._tasks:
            await asyncio.sleep(max(left, seconds / 10))
        raise DeadlineExceeded(f"the program of sample {self.sample} was silent for {seconds:g} s")

    def trajectory(self) -> Trajectory:
        """Its calls in order, a turn each.

        Raises EnvironmentFailure where there is nothing to learn from, no call or no reward, and what broke an engine.
        """
        nodes, task = self._tree.trained, self.task
        if self._broken is not None:
            raise self._broken
        if not nodes or not self._rewarded:
            raise EnvironmentFailure(f"the program of sample {self.sample} {'posted no reward' if nodes else 'made no call'}", "unscored")
        turns = []
        for i, node in enumerate(nodes):
            last = i + 1 == len(nodes)
            info = {"agent": node.model} | ({"success": self._success} if last and self._success is not None else {})
            turns.append(
                Turn(
                    (node.call,), node.history[-1], () if last else nodes[i + 1].shown, float(sum(node.rewards.values())), node.rewards,
                    terminated=last and self._stop is None, truncated=last and self._stop is not None, info=info,
                )
            )  # fmt: skip
        return Trajectory(
            nodes[0].shown, tuple(turns), task.name, task.group, self.sample, 0, task.seed, nodes[0].agent.name,
            success=self._success, stop_reason=self._stop or "terminated",
        )  # fmt: skip


def _tell(loop: asyncio.AbstractEventLoop, heard: Heard, place: int, tokens: list[int]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(heard, place, tokens)
