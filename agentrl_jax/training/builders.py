"""Builds the parts that an experiment names, and loads those that a run folder holds."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from transformers import AutoTokenizer

from agentrl_jax.context import ContextManager
from agentrl_jax.distributed.auto_mesh import memory_need, resolve_mesh_config
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import (
    MeshConfig,
    first_devices_per_process,
    make_mesh,
    slice_ids,
)
from agentrl_jax.engine import Engine
from agentrl_jax.errors import UserError
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage import config_json
from agentrl_jax.storage.digests import folder_damage
from agentrl_jax.training.config import (
    AgentConfig,
    EnvironmentConfig,
    Experiment,
    PolicyConfig,
)
from agentrl_jax.training.phase_checkpoint import load_phase_params
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.latency import WithLatency
from agentrl_jax.workers.observation_limit import ObservationLimit
from agentrl_jax.workers.pool import InlinePool, WorkerPool
from agentrl_jax.workers.process_pool import ProcessPool
from agentrl_jax.workers.ray_pool import RayPool
from agentrl_jax.workers.routed_pool import RoutedPool
from agentrl_jax.workers.thread_pool import ThreadPool

MIN_MEMORY_MB = 256
DEFAULT_MEMORY_MB = 4096  # of a worker process; most take less than 300
MAX_WORKERS = 10_000


def make_workers(environment: EnvironmentConfig) -> WorkerPool:
    """The pool that the config describes, not started yet.

    Raises:
        UserError: the fields of the config do not go together.
    """
    _check_worker_fields(environment)
    pool = _pool(environment, environment.interpreter)
    if environment.interpreters:
        pools = {
            interpreter: _pool(environment, interpreter)
            for interpreter in dict.fromkeys(environment.interpreters.values())
        }
        pool = RoutedPool(pool, {name: pools[x] for name, x in environment.interpreters.items()})
    return WithLatency(pool, environment.delay) if environment.delay.seconds else pool


def _pool(environment: EnvironmentConfig, interpreter: str) -> WorkerPool:
    max_reply_bytes = environment.reply_mb * 2**20
    memory_bytes = max(environment.memory_mb or DEFAULT_MEMORY_MB, 0) * 2**20
    count = environment.workers
    limit = ObservationLimit(environment.observation_kb * 2**10, environment.truncate_observations)
    if environment.cluster.actors:
        return RayPool(
            environment.cluster,
            count,
            interpreter,
            memory_bytes,
            max_reply_bytes,
            limit,
            environment.pass_variables,
            environment.sandbox,
        )
    if environment.threads:
        return ThreadPool(count, max_reply_bytes, limit)
    if count:
        return ProcessPool(
            count,
            interpreter,
            memory_bytes,
            max_reply_bytes,
            observations=limit,
            pass_variables=environment.pass_variables,
            sandbox=environment.sandbox,
        )
    return InlinePool(max_reply_bytes, limit)


def _check_worker_fields(environment: EnvironmentConfig) -> None:
    e, prefix = environment, "config.environment"
    in_processes = e.workers and not e.threads
    if e.workers < 0 or min(e.reply_mb, e.observation_kb) < 1 or e.retries < 0:
        raise UserError(
            f"{prefix}.workers and retries must be at least 0, observation_kb and reply_mb at "
            "least 1"
        )
    if e.workers > MAX_WORKERS:
        raise UserError(f"{prefix}.workers must be at most {MAX_WORKERS:,}, not {e.workers:,}")
    if e.memory_mb < MIN_MEMORY_MB and e.memory_mb not in (0, -1):
        raise UserError(
            f"{prefix}.memory_mb must be 0 ({DEFAULT_MEMORY_MB:,}), -1 (unlimited) or at least "
            f"{MIN_MEMORY_MB}, so that a worker can start"
        )
    if e.threads and not e.workers:
        raise UserError(
            f"{prefix}.threads needs {prefix}.workers, the number of threads, to be at least 1"
        )
    separate = e.interpreter or e.interpreters or e.memory_mb > 0 or e.sandbox.enabled
    if separate and not in_processes:
        raise UserError(
            f"{prefix}.interpreter, interpreters, memory_mb and sandbox are for worker processes: "
            "set workers to at least 1 and threads to False"
        )
    for name, interpreter in e.interpreters.items():
        if ":" not in name or not interpreter:
            raise UserError(
                f"{prefix}.interpreters has a Python for each environment, by the name with the "
                f"module that registers it (module:id), not {name!r}: {interpreter!r}"
            )
    if e.cluster.actors and not in_processes:
        raise UserError(
            f"{prefix}.cluster is for worker processes: "
            "set workers to at least 1 and threads to False"
        )


def make_runtime(
    environment: EnvironmentConfig,
    engines: Mapping[str, Engine] | None = None,
    agents: Mapping[str, Agent] | None = None,
    log: Callable[[str], None] | None = None,
    process_group: ProcessGroup | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Runtime:
    """A runtime with the workers, retries and timeouts of the config; the rest as `Runtime`."""
    return Runtime(
        engines or {},
        agents or {},
        make_workers(environment),
        environment.retries,
        environment.timeouts,
        log,
        process_group,
        loop,
    )


def make_agent(experiment: Experiment, tokenizer: Any, context: Any, name: str = "policy") -> Agent:
    """An agent of the experiment; the engine that samples for it is called as the agent with whose
    weights it plays.

    Args:
        experiment: describes the agent.
        tokenizer: of the run.
        context: the environment's context manager, used where the config has none.
        name: of the agent.
    """
    config = experiment.agent_configs[name]
    field = "agent" if name == "policy" else f"agents.{name}"
    agent = agent_of_config(config, tokenizer, context, name, f"config.{field}")
    return dataclasses.replace(agent, engine=config.shares or name)


def agent_of_config(
    config: AgentConfig, tokenizer: Any, context: ContextManager, name: str, location: str
) -> Agent:
    """An agent on an engine of its own name.

    Args:
        config: describes it.
        tokenizer: of its model.
        context: used where the config has none.
        name: of the agent.
        location: where the config stands, for error messages.
    """
    try:
        sampling = Sampling(
            config.budget, config.temperature, config.top_k, config.top_p, config.min_p
        )
    except ValueError as error:
        raise UserError(f"{location}: {error}") from error
    return Agent(
        name,
        config.renderer(tokenizer),
        config.context or context,
        sampling,
        engine=name,
        limits=config.limits,
    )


def make_learner_mesh(experiment: Experiment, policy: Policy) -> Mesh:
    """The learner's mesh: of the sizes in the config, or chosen by the policy's memory need."""
    config, engine = experiment.mesh, experiment.engine
    if not config.memory_gb:
        return make_mesh(config)
    devices = jax.devices()
    if config.devices_per_process:
        devices = first_devices_per_process(config.devices_per_process, devices)
    engine_is_apart = 0 < config.devices_per_process <= engine.first_device
    engine_shards = max(engine.mesh.expert, 1) * max(engine.mesh.tensor, 1)
    need = memory_need(policy, 0 if engine_is_apart else engine_shards, engine.dtype)
    return make_mesh(resolve_mesh_config(config, need, len(devices), len(slice_ids(devices))))


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder; UserError where there is none, or a damaged one."""
    damage = folder_damage(folder)
    if damage:
        raise UserError(
            f"the tokenizer {folder} is damaged ({damage}): restore the run folder from a copy, "
            "or train again with --fresh"
        )
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder} holds no tokenizer: is this the folder of a run that has started?"
        ) from error


def load_policy(
    run_dir: Path,
    phase: str | None = None,
    agent: str | None = None,
    best: bool | None = None,
    mesh: Mesh | None = None,
) -> tuple[Experiment, Any, Any, Params]:
    """The experiment, the tokenizer, and an agent's policy and parameters of a run folder.

    Args:
        run_dir: of a run that has a checkpoint.
        phase: see `find_checkpoint`.
        agent: see `find_checkpoint`.
        best: see `phase_checkpoint`.
        mesh: over which the weights are sharded; None: `local_fsdp_mesh`.

    Raises:
        UserError: the folder is no run folder, has another format version, or lacks a part.
    """
    experiment = config_json.load_config(run_dir)
    tokenizer = load_tokenizer(run_dir / "tokenizer")
    phase, agent = find_checkpoint(experiment, run_dir, phase, agent)
    policy = agent_policy_config(experiment, agent).build(len(tokenizer))
    mesh = mesh or local_fsdp_mesh()
    params = load_phase_params(experiment, run_dir, phase, agent, policy, mesh, best=best)
    return experiment, tokenizer, policy, params


def local_fsdp_mesh() -> Mesh:
    """All devices of this process, over which weights are split as far as they can be."""
    return make_mesh(MeshConfig(data=1, fsdp=-1), jax.local_devices())


def agent_policy_config(experiment: Experiment, agent: str) -> PolicyConfig:
    """The model of an agent with weights of its own."""
    return experiment.agent_configs[agent].policy or experiment.policy


def find_checkpoint(
    experiment: Experiment, run_dir: Path, phase: str | None = None, agent: str | None = None
) -> tuple[str, str]:
    """The phase and the agent whose checkpoint is meant.

    Args:
        experiment: of the run.
        run_dir: the run folder.
        phase: None: the last with a checkpoint of the agent.
        agent: None: the first that the phase trains.

    Raises:
        UserError: there is no such phase or checkpoint.
    """
    phases = {
        name: config.trained_agents
        for name, config in experiment.phases.items()
        if (agent in config.trained_agents if agent else config.trained_agents)
    }
    trained = [name for name in phases if (run_dir / "checkpoints" / name).is_dir()]
    if phase is not None and phase not in phases:
        raise UserError(
            f"{run_dir} has no phase {phase!r} that trains {agent or 'an agent'}, only "
            f"{', '.join(phases) or 'phases of other agents'}"
        )
    if not trained:
        raise UserError(f"there is no checkpoint in {run_dir}: train first")
    phase = phase or trained[-1]
    return phase, agent or phases[phase][0]
