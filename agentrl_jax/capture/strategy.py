"""`CapturedEpisodes`: episodes of agent programs that call the capture endpoint as OpenAI's API."""

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.capture.agent_process import start_agent_process
from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.capture.session import CaptureSession
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.external import external
from agentrl_jax.rollout.agent_session import WaitTracker
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import gather_group
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task, ignore_result

MAX_IDLE_EXITS = 3  # exits of a pool's program in a row without a request for an episode


@dataclass
class CapturedEpisodes:
    """A rollout strategy: `group_size` episodes of an unchanged agent program (docs/capture.md).

    An episode whose program died, timed out or posted no reward is retried and then dropped, as one
    whose environment failed.
    """

    # A program's arguments, with {python} {seed} {sample} {prompt} filled in; empty: programs are
    # started from outside.
    command: tuple[str, ...] = field(default=(), metadata=external("program"))
    # 0: the command runs for one episode; else so many of it run as long as the run does, and ask
    # for episodes.
    pool_size: int = 0
    group_size: int = 8
    agent: str = "policy"  # answers to a model's name that is no agent's of the run
    max_concurrent_episodes: int = 8
    prompt: Callable[[Task], str] | None = None  # the text that a program gets for its task
    # Whether programs choose temperature, top-p, top-k and min-p, or the run.
    allow_sampling_overrides: bool = True
    host: str = "127.0.0.1"
    port: int = 0  # 0: any
    token_variable: str = ""  # the environment variable with the token of programs from outside
    grace: float = 5.0  # seconds for a program to exit after its episode has ended
    limits: ServerLimits = field(default_factory=ServerLimits, metadata=OMITTED_AT_DEFAULT)

    def __post_init__(self) -> None:
        self._runner: _ProgramRunner | None = None

    def check(self) -> "CapturedEpisodes":
        """Raises UserError if the fields are inconsistent."""
        if (
            min(self.group_size, self.max_concurrent_episodes) < 1
            or self.pool_size < 0
            or self.grace < 0
        ):
            raise UserError(
                "captured episodes need group_size and max_concurrent_episodes >= 1, pool_size and "
                "grace >= 0"
            )
        if self.limits.check().max_connections_per_client < self.max_concurrent_episodes:
            raise UserError(
                "limits.max_connections_per_client must be at least max_concurrent_episodes: the "
                "programs of one machine count as one client"
            )
        if self.pool_size and not self.command:
            raise UserError("a pool of programs needs a command")
        if not self.command and not (self.port and os.environ.get(self.token_variable)):
            raise UserError(
                "programs from outside need a port, and token_variable: an environment variable "
                "that holds their token"
            )
        return self

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if self._runner is None or self._runner.runtime is not runtime:
            self._runner = _ProgramRunner(self.check(), runtime)
        runner = self._runner
        await runner.ensure_started()
        return await gather_group(
            task, [runner.episode(task, (*key, sample)) for sample in range(self.group_size)]
        )


class _ProgramRunner:
    """A run's capture server, pool of programs and episodes: tasks of the runtime's event loop."""

    def __init__(self, config: CapturedEpisodes, runtime: Runtime) -> None:
        from agentrl_jax.capture.server import CaptureServer  # an extra

        self.config, self.runtime = config, runtime
        self.server: CaptureServer = CaptureServer(
            config.host, config.port, os.environ.get(config.token_variable, ""), config.limits
        )
        self._semaphore = asyncio.Semaphore(config.max_concurrent_episodes)
        self._start_task: asyncio.Task[None] | None = None
        self._pool_task: asyncio.Future[Any] | None = None

    async def ensure_started(self) -> None:
        """Start the server and the pool, once."""
        if self._start_task is None:
            self._start_task = asyncio.ensure_future(self._start())
        await asyncio.shield(self._start_task)

    async def _start(self) -> None:
        await self.server.start()
        if self.config.pool_size:
            self._pool_task = asyncio.gather(
                *(self._run_pool_program() for _ in range(self.config.pool_size))
            )
            self._pool_task.add_done_callback(ignore_result)

    async def episode(self, task: Task, key: RandomKey) -> Trajectory | None:
        """`key` is (run, step, task, sample)."""
        async with self._semaphore:
            return await self.runtime.run_episode(
                task, key[-1], lambda _, track_wait: self._play_episode(task, key, track_wait)
            )

    async def _play_episode(
        self, task: Task, key: RandomKey, track_wait: WaitTracker
    ) -> Trajectory:
        runtime, c = self.runtime, self.config
        agent_table = AgentTable(
            runtime.agents,
            runtime.engines,
            c.agent,
            runtime.timeouts.turn,
            c.allow_sampling_overrides,
            max_bytes_per_token=c.limits.max_bytes_per_token,
            invariants=runtime.invariants,
        )
        episode_id = f"{key[-1]}-{secrets.token_hex(6)}"
        prompt = c.prompt(task) if c.prompt else ""
        secret = f"sk-{episode_id}-{secrets.token_hex(16)}"
        session = CaptureSession(episode_id, secret, task, key[-1], key, agent_table, prompt)
        self.server.open(session)
        try:
            with track_wait(0, lambda: "its program"):
                if c.command and not c.pool_size:
                    await self._run_program(session)
                else:
                    self.server.offer(session)
                    await _wait_for_first(session.claim_event.wait(), self._wait_for_pool_failure())
                    await _wait_for_first(
                        session.end_event.wait(), session.wait_until_silent(runtime.timeouts.turn)
                    )
            return session.trajectory()
        finally:
            self.server.close(session)

    async def _run_program(self, session: CaptureSession) -> None:
        """Run the session's own program. Raises EnvironmentFailure if it dies before the end."""
        values = session.task_description
        command = [_fill_placeholders(word, values) for word in self.config.command]
        environment = self._process_env(self.server.url_of(session), session.secret, values)
        async with start_agent_process(command, environment) as program:
            await _wait_for_first(
                session.end_event.wait(),
                program.exit_event.wait(),
                session.wait_until_silent(self.runtime.timeouts.turn),
            )
            if session.end_event.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(program.exit_event.wait(), self.config.grace)
            elif program.exit_code:
                raise EnvironmentFailure(
                    f"the program of sample {session.sample} {program.exit_description}", "died"
                )

    async def _run_pool_program(self) -> None:
        """Run and restart a program of the pool.

        Raises:
            UserError: it exits again and again without a request for an episode.
        """
        command = [_fill_placeholders(word, {}) for word in self.config.command]
        num_claims, idle_exits = 0, 0
        while True:
            token = self.server.issue_token()
            environment = self._process_env(self.server.url, token, {})
            async with start_agent_process(command, environment) as program:
                await program.exit_event.wait()
            message = f"a program of the pool {program.exit_description}"
            self.server.revoke_token(token, EnvironmentFailure(message, "died"))
            idle_exits = idle_exits + 1 if self.server.num_claims == num_claims else 0
            num_claims = self.server.num_claims
            if idle_exits == MAX_IDLE_EXITS:
                raise UserError(message)
            await asyncio.sleep(0.5)

    async def _wait_for_pool_failure(self) -> None:
        """Raises the exception of the pool; without a pool it waits forever."""
        await (asyncio.shield(self._pool_task) if self._pool_task else asyncio.Event().wait())

    def _process_env(self, url: str, key: str, variables: dict[str, Any]) -> dict[str, str]:
        no_proxy = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
        hosts = ",".join(filter(None, [no_proxy, self.config.host]))
        task_variables = {
            f"AGENTRL_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
            for name, value in variables.items()
        }
        return {
            **os.environ,
            **task_variables,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": key,
            "AGENTRL_URL": url,
            "NO_PROXY": hosts,
            "no_proxy": hosts,
        }


def _fill_placeholders(text: str, values: dict[str, Any]) -> str:
    for name, value in {"python": sys.executable, **values}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


async def _wait_for_first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them ends; raises its exception."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
