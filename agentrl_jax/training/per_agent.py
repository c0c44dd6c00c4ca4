"""Phases that train several agents: an algorithm for each, on that agent's trajectories."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm, PerAgent
from agentrl_jax.training.config import Phase
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining


def build_algorithm(phase: Phase, policies: Mapping[str, Policy], mesh: Mesh) -> Algorithm:
    """The phase's algorithm, given the policies of the agents with weights of their own."""
    if isinstance(phase.algorithm, PerAgent):
        return PerAgentAlgorithm(
            {
                agent: config.build(policies[agent], mesh, phase.steps)
                for agent, config in phase.algorithm.algorithms.items()
            }
        )
    return phase.algorithm.build(policies[phase.agent], mesh, phase.steps)


def agent_weights(phase: Phase, params: Params) -> dict[str, Params]:
    """The weights of the agents that a phase trains, in the parameters of its train state."""
    if isinstance(phase.algorithm, PerAgent):
        return params
    return dict.fromkeys(phase.trained_agents, params)


@dataclass(frozen=True)
class PerAgentAlgorithm(Algorithm):
    """Implements `Algorithm` on train states whose parts are dicts by agent."""

    algorithms: Mapping[str, Algorithm]

    def init(self, key: Array, params: Params) -> TrainState:
        """The first state; `params` by agent."""
        return _joined(
            {
                agent: algorithm.init(jax.random.fold_in(key, i) if i else key, params[agent])
                for i, (agent, algorithm) in enumerate(self.algorithms.items())
            }
        )

    def begin_phase(self, state: TrainState, runtime: Runtime) -> None:
        for agent, part in _split(state).items():
            self.algorithms[agent].begin_phase(part, runtime)

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """A step of each agent's algorithm; its metrics are named `<agent>/...`."""
        states, metrics = _split(state), dict[str, Any]()
        for agent, algorithm in self.algorithms.items():
            groups = groups_of(experience, {agent}, runtime)
            states[agent], agent_metrics = algorithm.step(states[agent], groups, runtime)
            metrics |= {f"{agent}/{name}": value for name, value in agent_metrics.items()}
        tokens = [metrics.get(f"{agent}/tokens", 0.0) for agent in self.algorithms]
        return _joined(states), {"tokens": sum(tokens), **metrics}

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        by_agent = [algorithm.training_of(trajectories) for algorithm in self.algorithms.values()]
        return [
            next((training for training in options if training is not None), None)
            for options in zip(*by_agent)
        ]

    def host_state(self) -> Any:
        return {agent: algorithm.host_state() for agent, algorithm in self.algorithms.items()}

    def load_host_state(self, state: Any) -> None:
        for agent, algorithm in self.algorithms.items():
            algorithm.load_host_state(state[agent])


def _joined(states: Mapping[str, TrainState]) -> TrainState:
    """One state of the states by agent, for a checkpoint that holds them all."""
    first = next(iter(states.values()))
    return TrainState(
        step=first.step,
        params={agent: state.params for agent, state in states.items()},
        opt_state={agent: state.opt_state for agent, state in states.items()},
        key=first.key,
        extra={
            agent: {"step": state.step, "key": state.key, "extra": state.extra}
            for agent, state in states.items()
        },
    )


def _split(state: TrainState) -> dict[str, TrainState]:
    """The inverse of `_joined`."""
    return {
        agent: TrainState(params=params, opt_state=state.opt_state[agent], **state.extra[agent])
        for agent, params in state.params.items()
    }


def groups_of(groups: Sequence[Group], trained: Collection[str], runtime: Runtime) -> list[Group]:
    """The groups without the trajectories of agents that play with other weights than those of
    the trained agents; no trajectory of any other origin is left out.
    """

    def belongs(trajectory: Trajectory) -> bool:
        agent = runtime.agents.get(trajectory.agent)
        return agent is None or agent.engine in trained

    return [
        dataclasses.replace(group, trajectories=tuple(filter(belongs, group.trajectories)))
        for group in groups
    ]


def returns_by_agent(groups: Sequence[Group], agents: Iterable[str]) -> dict[str, list[float]]:
    """The returns of each agent's trajectories."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    return {
        agent: [float(t.total_reward) for t in trajectories if t.agent == agent] for agent in agents
    }


def return_metrics(processes: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """The mean return of each agent, from `returns_by_agent` of all processes."""
    metrics = {}
    for agent in processes[0]:
        returns = [x for process in processes for x in process[agent]]
        if returns:
            metrics[f"{agent}/return"] = float(np.mean(returns))
    return metrics
