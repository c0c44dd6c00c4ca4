"""A checkpoint behind OpenAI's routes: `ServedPolicy`, and its server until it is stopped."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax import models
from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.capture.session import CaptureSession
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.launch.stop_signals import stop_event
from agentrl_jax.models.hf.image_settings import folder_images, image_programs
from agentrl_jax.models.layers import DTYPES
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.policy import Params, Policy
from agentrl_jax.renderer import ChatRenderer, TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.storage import config_json
from agentrl_jax.training.builders import find_checkpoint, load_policy, make_agent
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import Task


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A policy with its weights, renderer, sampling parameters and engine settings."""

    policy: Policy
    params: Params
    agent: Agent
    engine: EngineConfig
    tokenizer: Any


def served_from_run(
    run_dir: Path,
    phase: str | None,
    agent: str | None,
    positions: int,
    rows: int,
    best: bool | None = None,
) -> ServedPolicy:
    """An agent of a run folder with its own renderer and sampling parameters.

    `positions` and `rows` replace those of its engine unless they are 0; `best` is whether the best
    checkpoint or the newest, None: as the phase's config says.
    """
    mesh = config_json.load_config(run_dir).engine.devices()
    experiment, tokenizer, policy, params = load_policy(run_dir, phase, agent, best, mesh)
    _, agent_name = find_checkpoint(experiment, run_dir, phase, agent)
    env = make(experiment.environment.name, experiment.environment.options)
    player = make_agent(experiment, tokenizer, env.context, agent_name)
    env.close()
    sizes = {name: size for name, size in (("positions", positions), ("rows", rows)) if size}
    engine = dataclasses.replace(experiment.engine, **sizes)
    return ServedPolicy(policy, params, _serving_agent(player, engine), engine, tokenizer)


def check_dtype(name: str) -> None:
    """Raises UserError where there is no such type of weights and activations."""
    if name not in DTYPES:
        raise UserError(f"--dtype must be one of {', '.join(DTYPES)}, not {name!r}")


def served_from_folder(folder: Path, dtype: str, positions: int, rows: int) -> ServedPolicy:
    """The model of a Hugging Face folder with its chat template, or else plain transcripts.

    A model with a vision tower is shown images, of at most half of the positions each, and videos
    where its tokenizer has their token.
    """
    engine = EngineConfig(rows=rows or 16, positions=positions or 2048, prefill_chunk=64)
    policy, params = models.load(folder, engine.devices(), param_dtype=dtype, compute_dtype=dtype)
    tokenizer = FolderTokenizer(str(folder))(())
    images = None
    if tokenizer.chat_template and policy.origin is not None:
        tokens = tokenizer.get_added_vocab()
        images = folder_images(policy.origin, engine.positions // 2, tokens)
    if images is not None:
        engine = dataclasses.replace(engine, image_patches=image_programs(images.processor))
    renderer = (
        ChatRenderer(tokenizer, images=images)
        if tokenizer.chat_template
        else TextRenderer(tokenizer)
    )
    agent = Agent("policy", renderer, FullHistory(), Sampling(), trainable=False)
    return ServedPolicy(policy, params, _serving_agent(agent, engine), engine, tokenizer)


def _serving_agent(agent: Agent, engine: EngineConfig) -> Agent:
    """The agent for serving: not trained, and its budget is all positions of the engine."""
    return dataclasses.replace(
        agent,
        trainable=False,
        sampling=dataclasses.replace(agent.sampling, budget=engine.positions),
    )


@contextlib.asynccontextmanager
async def start_server(
    served_policy: ServedPolicy,
    name: str,
    host: str,
    port: int,
    api_key: str,
    limits: ServerLimits = ServerLimits(),  # noqa: B008  it is not changed
    seed: int = 0,
) -> AsyncIterator[str]:
    """Serve while the block runs; yields the server's address.

    Raises:
        UserError: the port is taken.
    """
    from agentrl_jax.capture.server import CaptureServer  # an extra

    server = CaptureServer(host, port, api_key, limits)
    engine = make_engine(
        served_policy.policy,
        served_policy.engine,
        served_policy.params,
        detokenize=served_policy.tokenizer.decode,
    )
    try:
        agents = AgentTable(
            {name: served_policy.agent},
            {served_policy.agent.engine: engine},
            name,
            max_calls=engine.num_slots,
            max_bytes_per_token=limits.max_bytes_per_token,
        )
        session = CaptureSession("everyones", api_key, Task("served", seed), 0, (seed,), agents)
        server.default_session = server.open(session)
        await server.start()
        yield f"{server.url}/v1"
    finally:
        await server.stop()
        engine.close()


async def serve_until_signal(
    served_policy: ServedPolicy,
    name: str,
    host: str,
    port: int,
    api_key: str,
    limits: ServerLimits,
    print_key: bool,
) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    stop_requested = stop_event()
    async with start_server(served_policy, name, host, port, api_key, limits) as url:
        print(
            f"serving {name} at OPENAI_BASE_URL={url}"
            + (f" OPENAI_API_KEY={api_key}" if print_key else ""),
            flush=True,
        )
        await stop_requested.wait()
