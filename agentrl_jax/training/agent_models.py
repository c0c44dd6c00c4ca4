"""The agents of an experiment with their models, in a run and from its checkpoints."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from agentrl_jax.engine import Engine
from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.builders import agent_policy_config, make_agent
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.phase_checkpoint import load_phase_params


@dataclass(frozen=True)
class AgentModel:
    """An agent with weights of its own."""

    agent: Agent
    policy: Policy
    params: Params


def initial_models(
    experiment: Experiment, tokenizer: Any, context: Any, mesh: Mesh
) -> dict[str, AgentModel]:
    """The agents with weights of their own, with their initial weights; see `make_agent`."""
    return _models(
        experiment, tokenizer, context, functools.partial(initial_params, experiment, mesh)
    )


def saved_models(
    experiment: Experiment,
    run_dir: Path,
    tokenizer: Any,
    context: Any,
    phase: str,
    best: bool | None = None,
) -> dict[str, AgentModel]:
    """The agents with weights of their own, with the weights that they had after a phase, on the
    devices of the engine; `best` as for `phase_checkpoint`, of that phase.
    """
    names = list(experiment.phases)
    past, mesh = names[: names.index(phase) + 1], experiment.engine.devices()

    def load(agent: str, policy: Policy) -> Params:
        return params_after(experiment, run_dir, past, agent, policy, mesh, best)

    return _models(experiment, tokenizer, context, load)


def params_after(
    experiment: Experiment,
    run_dir: Path,
    phases: Sequence[str],
    agent: str,
    policy: Policy,
    mesh: Mesh,
    best: bool | None = None,
) -> Params:
    """The weights that an agent had after the given first phases, its initial ones where none of
    them trains it; sharded over the mesh. `best` as for `phase_checkpoint`, of the last of them.
    """
    trained = [name for name in phases if agent in experiment.phases[name].trained_agents]
    if not trained:
        return initial_params(experiment, mesh, agent, policy)
    of_phase = best if trained[-1] == phases[-1] else None
    return load_phase_params(experiment, run_dir, trained[-1], agent, policy, mesh, best=of_phase)


def _models(
    experiment: Experiment,
    tokenizer: Any,
    context: Any,
    params_of: Callable[[str, Policy], Params],
) -> dict[str, AgentModel]:
    models = {}
    for name, config in experiment.agent_configs.items():
        if not config.shares:
            policy = agent_policy_config(experiment, name).build(len(tokenizer))
            agent = make_agent(experiment, tokenizer, context, name)
            models[name] = AgentModel(agent, policy, params_of(name, policy))
    return models


def initial_params(experiment: Experiment, mesh: Mesh, agent: str, policy: Policy) -> Params:
    """An agent's initial weights; each agent has random numbers of its own."""
    key, index = jax.random.key(experiment.seed), list(experiment.agent_configs).index(agent)
    key = jax.random.fold_in(key, index) if index else key
    return agent_policy_config(experiment, agent).initial_params(policy, key, mesh)


def add_agents(
    runtime: Runtime,
    experiment: Experiment,
    models: Mapping[str, AgentModel],
    tokenizer: Any,
    context: Any,
    wrap_engine: Callable[[Engine], Engine] = lambda engine: engine,
) -> None:
    """Add all agents of the experiment to a runtime, and an engine for each that has weights.

    Args:
        runtime: of the run.
        experiment: describes the agents.
        models: those with weights of their own.
        tokenizer: of the run.
        context: the environment's context manager.
        wrap_engine: what the runtime gets in place of an engine.
    """
    for name, model in models.items():
        engine = make_engine(
            model.policy,
            experiment.engine,
            model.params,
            tokenizer.decode,
            runtime.invariants.call_checksum,
        )
        runtime.add_agent(name, model.agent, wrap_engine(engine))
    for name, config in experiment.agent_configs.items():
        if config.shares:
            runtime.agents[name] = make_agent(experiment, tokenizer, context, name)
