"""`Captured`: episodes of agent programs that speak to the capture endpoint as if it were OpenAI's."""

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrl_jax.capture.calls import Seats
from agentrl_jax.capture.program import running
from agentrl_jax.capture.session import Session
from agentrl_jax.capture.tools import Hermes, ToolFormat
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Watch
from agentrl_jax.strategies import gathered
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task, forget

if TYPE_CHECKING:
    pass

VAIN = 3  # times that a program of a pool may end with no episode asked for


@dataclass
class Captured:
    """`group_size` episodes of a program that nobody changed (docs/capture.md).

    An episode whose program died, was late or posted no reward is played again like one whose world failed, then dropped.
    """

    command: tuple[str, ...] = ()  # a program's arguments, {python} {seed} {sample} {prompt} filled in; empty: programs come from outside
    pool: int = 0  # 0: the command runs for one episode; else so many of it run as long as the run does, and ask for episodes
    group_size: int = 8
    agent: str = "policy"  # who answers to a model's name that is no agent's of the run
    at_once: int = 8  # episodes
    prompt: Callable[[Task], str] | None = None  # what a program is told of its task, beside the seed
    obey: bool = True  # programs choose temperature, top-p, top-k and min-p; False: the run's own hold
    tools: ToolFormat = field(default_factory=Hermes)
    host: str = "127.0.0.1"
    port: int = 0  # 0: any
    token_variable: str = ""  # the environment variable with the token of programs from outside
    grace: float = 5.0  # seconds that a program may go on once its episode has ended

    def __post_init__(self) -> None:
        self._house: _House | None = None

    def check(self) -> "Captured":
        """Raises UserError where the fields do not go together."""
        if min(self.group_size, self.at_once) < 1 or self.pool < 0 or self.grace < 0:
            raise UserError("captured episodes need group_size and at_once >= 1, pool and grace >= 0")
        if self.pool and not self.command:
            raise UserError("a pool of programs needs a command")
        if not self.command and not (self.port and os.environ.get(self.token_variable)):
            raise UserError("programs from outside need a port, and token_variable: an environment variable that holds their token")
        return self

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        if self._house is None or self._house.runtime is not runtime:
            self._house = _House(self.check(), runtime)
        house = self._house
        await house.opened()
        return await gathered(task, [house.episode(task, (*key, sample)) for sample in range(self.group_size)])


class _House:
    """The server of a run, its pool of programs and its episodes; all that runs for it are tasks of the runtime's loop."""

    def __init__(self, config: Captured, runtime: Runtime) -> None:
        from agentrl_jax.capture.server import CaptureServer  # an extra

        self.config, self.runtime = config, runtime
        self.server: CaptureServer = CaptureServer(config.host, config.port, os.environ.get(config.token_variable, ""))
        self._free = asyncio.Semaphore(config.at_once)
        self._opening: asyncio.Task[None] | None = None
        self._pool: asyncio.Future[Any] | None = None

    async def opened(self) -> None:
        """Once, whoever asks first."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        await self.server.start()
        if self.config.pool:
            self._pool = asyncio.gather(*(self._keep() for _ in range(self.config.pool)))
            self._pool.add_done_callback(forget)

    async def episode(self, task: Task, key: Key) -> Trajectory | None:
        """`key` is (run, step, task, sample)."""
        async with self._free:
            return await self.runtime.attempted(task, key[-1], lambda _, watch: self._play(task, key, watch))

    async def _play(self, task: Task, key: Key, watch: Watch) -> Trajectory:
        runtime, c = self.runtime, self.config
        seats = Seats(runtime.agents, runtime.engines, c.agent, runtime.deadlines.turn, c.obey, c.tools)
        identity = f"{key[-1]}-{secrets.token_hex(6)}"
        prompt = c.prompt(task) if c.prompt else ""
        session = Session(identity, f"sk-{identity}-{secrets.token_hex(16)}", task, key[-1], key, seats, prompt)
        self.server.open(session)
        try:
            with watch(0, lambda: "its program"):
                if c.command and not c.pool:
                    await self._run(session)
                else:
                    self.server.offer(session)
                    await _first(session.claimed.wait(), self._kept())
                    await _first(session.over.wait(), session.silence(runtime.deadlines.turn))
            return session.trajectory()
        finally:
            self.server.close(session)

    async def _run(self, session: Session) -> None:
        """A program of the session's own, to its end. Raises EnvironmentFailure where it dies before that."""
        described = session.described
        command = [_filled(word, described) for word in self.config.command]
        async with running(command, self._environment(self.server.url_of(session), session.secret, described)) as program:
            await _first(session.over.wait(), program.exited.wait(), session.silence(self.runtime.deadlines.turn))
            if session.over.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(program.exited.wait(), self.config.grace)
            elif program.code:
                raise EnvironmentFailure(f"the program of sample {session.sample} {program.ending}", "died")

    async def _keep(self) -> None:
        """One of the pool, again and again. Raises UserError where it ends time and again before any episode is asked for."""
        command, before, vain = [_filled(word, {}) for word in self.config.command], 0, 0
        while True:
            token = self.server.admit()
            async with running(command, self._environment(self.server.url, token, {})) as program:
                await program.exited.wait()
            self.server.dismiss(token, EnvironmentFailure(f"a program of the pool {program.ending}", "died"))
            vain = vain + 1 if self.server.claims == before else 0
            before = self.server.claims
            if vain == VAIN:
                raise UserError(f"a program of the pool {program.ending}")
            await asyncio.sleep(0.5)

    async def _kept(self) -> None:
        """Raises what the pool failed with; waits for ever where there is none."""
        await (asyncio.shield(self._pool) if self._pool else asyncio.Event().wait())

    def _environment(self, url: str, key: str, described: dict[str, Any]) -> dict[str, str]:
        hosts = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), self.config.host]))
        told = {f"AGENTRL_{name.upper()}": value if isinstance(value, str) else json.dumps(value) for name, value in described.items()}
        return {
            **os.environ,
            **told,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": key,
            "AGENTRL_URL": url,
            "NO_PROXY": hosts,
            "no_proxy": hosts,
        }


def _filled(word: str, described: dict[str, Any]) -> str:
    for name, value in {"python": sys.executable, **described}.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them ends; raises what it raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
