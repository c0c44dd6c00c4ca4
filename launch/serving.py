"""A checkpoint behind OpenAI's routes: what is served, and the server that serves it until it is told to stop."""

import asyncio
import contextlib
import dataclasses
import os
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax import models
from agentrl_jax.capture.calls import Seats
from agentrl_jax.capture.session import Session
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rendering import ChatRenderer, TextRenderer
from agentrl_jax.run import load_policy, make_agent
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers import Task


@dataclass(frozen=True, eq=False)
class Served:
    """A policy with its weights, and how it reads and writes."""

    policy: Policy
    params: Params
    agent: Agent
    engine: EngineConfig
    tokenizer: Any


def of_run(run_dir: Path, phase: str | None, positions: int, rows: int) -> Served:
    """The policy of a run folder, as its config has it speak; `positions` and `rows` of its engine unless they are 0."""
    experiment, tokenizer, policy, params = load_policy(run_dir, phase)
    world = make(experiment.environment.name, experiment.environment.options)
    agent = make_agent(experiment, tokenizer, world.context)
    world.close()
    sizes = {name: size for name, size in (("positions", positions), ("rows", rows)) if size}
    engine = dataclasses.replace(experiment.engine, **sizes)
    return Served(policy, params, _spoken(agent, engine), engine, tokenizer)


def of_folder(folder: Path, dtype: str, positions: int, rows: int) -> Served:
    """The model of a Hugging Face folder, in its chat template; without one chats are plain transcripts of lines."""
    engine = EngineConfig(rows=rows or 16, positions=positions or 2048, chunk=64)
    policy, params = models.load(folder, param_dtype=dtype, compute_dtype=dtype)
    tokenizer = FolderTokenizer(str(folder))(())
    renderer = ChatRenderer(tokenizer) if tokenizer.chat_template else TextRenderer(tokenizer)
    agent = Agent("policy", renderer, FullHistory(), Sampling(), trainable=False)
    return Served(policy, params, _spoken(agent, engine), engine, tokenizer)


def _spoken(agent: Agent, engine: EngineConfig) -> Agent:
    """The agent as a server has it: it is not trained, and writes as much as fits."""
    return dataclasses.replace(agent, trainable=False, sampling=dataclasses.replace(agent.sampling, budget=engine.positions))


def key_of(variable: str) -> str:
    """The key that the environment variable holds; without a variable, a new one. Raises UserError where it holds none."""
    if variable and not os.environ.get(variable):
        raise UserError(f"the environment variable {variable} should hold the key that clients send: set it, or leave the flag out")
    return os.environ[variable] if variable else f"sk-{secrets.token_urlsafe(24)}"


@contextlib.asynccontextmanager
async def serving(served: Served, name: str, host: str, port: int, key: str, seed: int = 0) -> AsyncIterator[str]:
    """The address of a server of it, for as long as the block runs. Raises UserError where the port is taken."""
    from agentrl_jax.capture.server import CaptureServer  # an extra

    server = CaptureServer(host, port, key)
    engine = LocalEngine(served.policy, served.engine, served.params, text=served.tokenizer.decode)
    try:
        seats = Seats({name: served.agent}, {served.agent.engine: engine}, name, kept=engine.places)
        session = Session("everyones", key, Task("served", seed), 0, (seed,), seats)
        server.everyones = server.open(session)
        await server.start()
        yield f"{server.url}/v1"
    finally:
        await server.stop()
        engine.close()


async def until_told(served: Served, name: str, host: str, port: int, key: str, shown: bool) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, told.set)
    async with serving(served, name, host, port, key) as url:
        print(f"serving {name} at OPENAI_BASE_URL={url}" + (f" OPENAI_API_KEY={key}" if shown else ""), flush=True)
        await told.wait()
