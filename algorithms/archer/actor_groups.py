"""Utterances as groups for the actor: of replayed states, sampled anew, or replayed themselves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array

from agentrl_jax.algorithms.archer.replay_buffer import Transition
from agentrl_jax.messages import assistant
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Source, Trajectory, Turn


def sample_utterances(
    transitions: Sequence[Transition], runtime: Runtime, agent: str, count: int, key: RandomKey
) -> list[list[Call]]:
    """`count` utterances that the agent's current policy samples in the state of each turn."""
    prompts, key = [t.state.ids for t in transitions], (*key, runtime.process_group.index)
    return runtime.run(runtime.sample(agent, prompts, count, key))


def replayed_call(transition: Transition, source: Source) -> Call:
    """A replayed utterance as a call; the weights that sampled it and its log-probs are unknown."""
    n = len(transition.utterance.ids)
    version = np.full(n, -1, np.int32)
    sampling = Sampling(temperature=transition.temperature)
    return Call(
        transition.state.ids,
        transition.utterance.ids,
        np.zeros(n, np.float32),
        version,
        sampling,
        "stop",
        source,
    )


def single_turn_group(call: Call, weight: float | None = None) -> Group:
    """An utterance as a trajectory of one turn, with its weight in the actor's loss."""
    turn = Turn((call,), assistant(""), (), 0.0, info={} if weight is None else {"weight": weight})
    return Group("", (Trajectory((), (turn,)),))


def with_baseline_metrics(actor_metrics: dict[str, Any]) -> list[dict[str, Array]]:
    """The device metrics of each actor update, with those of its token critic as `baseline/...`."""
    updates = actor_metrics["device"]
    baseline = [
        {f"baseline/{name}": update[name] for name in ("value", "value_loss")}
        for update in actor_metrics.get("critic", [])
    ]
    return [update | extra for update, extra in zip(updates, baseline or [{}] * len(updates))]
