"""Corruptions of a small run, each planted by replacing a function, with the invariant that it
violates.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_runs import rollout_source, small_experiment

from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.policy_gradient import crediting, microbatches
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradient
from agentrl_jax.algorithms.policy_gradient.credited_batch import CreditedBatch
from agentrl_jax.inference.request import Request
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import PackedLayout
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.messages import assistant
from agentrl_jax.rollout import runtime
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.training.config import Experiment
from agentrl_jax.trajectories import Call, Group, Trajectory

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Corruption:
    """What is planted, and the invariant that it violates; None: none notices it."""

    invariant: str | None
    plant: Callable[[Patch], None]


def trajectory_number(inputs: CreditInputs) -> np.ndarray:
    """An advantage that differs between all trajectories and is never 0."""
    return 1.0 + inputs.token_trajectory


def experiment() -> Experiment:
    """GRPO with a reference, two minibatches and two epochs on the letter task."""
    config = small_experiment(rollout_source(4, 3), steps=10_000, checkpoint_every=100_000)
    config.phases["rl"].algorithm = dataclasses.replace(
        grpo(optimizer=AdamWConfig(1e-6), bin_length=32, microbatch=8),
        advantage=trajectory_number,
        regularizers={"kl": KL(0.01)},
        minibatches=2,
        epochs=2,
    )
    return config


def wrap(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by `change(its result, *its arguments)`."""
    original = getattr(owner, name)

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(original(*args, **kwargs), *args)

    patch.setattr(owner, name, changed)


def in_groups(change: Callable[[list[Group]], list[Group]]) -> Callable[[Patch], None]:
    """A corruption of the groups as the runtime returns them."""
    return lambda patch: wrap(
        patch, runtime.Runtime, "collect", lambda groups, *_: change(list(groups))
    )


def in_first_trajectory(change: Callable[[Trajectory], Trajectory]) -> Callable[[Patch], None]:
    def changed(groups: list[Group]) -> list[Group]:
        first, *others = groups
        trajectory, *members = first.trajectories
        return [
            dataclasses.replace(first, trajectories=(change(trajectory), *members)),
            *others,
        ]

    return in_groups(changed)


def swap_actions(trajectory: Trajectory) -> Trajectory:
    """The tokens of the actions of the first two turns are exchanged."""
    first, second, *others = trajectory.turns
    (a,), (b,) = first.calls, second.calls
    fields = ("action", "sampler_logp", "version", "entropy")
    call_a = dataclasses.replace(a, **{name: getattr(b, name) for name in fields})
    call_b = dataclasses.replace(b, **{name: getattr(a, name) for name in fields})
    turns = (
        dataclasses.replace(first, calls=(call_a,)),
        dataclasses.replace(second, calls=(call_b,)),
    )
    return trajectory.replace(turns=(*turns, *others))


def swap_calls(trajectory: Trajectory) -> Trajectory:
    """The calls of the first two turns are exchanged, each whole."""
    first, second, *others = trajectory.turns
    turns = (
        dataclasses.replace(first, calls=second.calls),
        dataclasses.replace(second, calls=first.calls),
    )
    return trajectory.replace(turns=(*turns, *others))


def swap_turns(trajectory: Trajectory) -> Trajectory:
    first, second, *others = trajectory.turns
    return trajectory.replace(turns=(second, first, *others))


def swap_messages(trajectory: Trajectory) -> Trajectory:
    """The record says another text than what the tokens are."""
    turns = (
        dataclasses.replace(turn, action=assistant(turn.action.text + "z"))
        for turn in trajectory.turns
    )
    return trajectory.replace(turns=tuple(turns))


def exchange_rewards(groups: list[Group]) -> list[Group]:
    """Every trajectory has the rewards of the next one of its group."""

    def with_rewards_of(trajectory: Trajectory, other: Trajectory) -> Trajectory:
        pairs = zip(trajectory.turns, other.turns)
        turns = (
            dataclasses.replace(turn, reward=donor.reward + 0.5, rewards=donor.rewards)
            for turn, donor in pairs
        )
        return trajectory.replace(turns=tuple(turns))

    return [
        dataclasses.replace(
            group,
            trajectories=tuple(
                with_rewards_of(t, group.trajectories[i - 1])
                for i, t in enumerate(group.trajectories)
            ),
        )
        for group in groups
    ]


def exchange_members(groups: list[Group]) -> list[Group]:
    """The first trajectories of two groups are exchanged."""
    first, second, *others = groups
    (a, *first_others), (b, *second_others) = first.trajectories, second.trajectories
    return [
        dataclasses.replace(first, trajectories=(b, *first_others)),
        dataclasses.replace(second, trajectories=(a, *second_others)),
        *others,
    ]


def exchange_turns(groups: list[Group]) -> list[Group]:
    """The first turns of two trajectories of a group are exchanged, each whole."""
    first, *others = groups
    a, b, *members = first.trajectories
    changed = (
        a.replace(turns=(b.turns[0], *a.turns[1:])),
        b.replace(turns=(a.turns[0], *b.turns[1:])),
    )
    return [dataclasses.replace(first, trajectories=(*changed, *members)), *others]


def in_engine(change: Callable[[Call], Call]) -> Callable[[Patch], None]:
    """A corruption of what the engine itself records of every call."""
    return lambda patch: wrap(
        patch, Request, "to_call", lambda call, *_: change(call).with_checksum()
    )


def emptied(call: Call) -> Call:
    """The action is recorded as empty, as if it had ended before its first token."""
    arrays = ("action", "sampler_logp", "version", "entropy", "alternatives", "alternative_logp")
    empty = {name: x[:0] for name in arrays if (x := getattr(call, name)) is not None}
    return dataclasses.replace(call, **empty)


def with_shorter_prompt(call: Call) -> Call:
    """The engine has cut the prompt at its start and says so nowhere."""
    return dataclasses.replace(call, prompt=call.prompt[1:])


def with_other_key(call: Call) -> Call:
    return dataclasses.replace(call, key=(*call.key[:-1], call.key[-1] + 1))


def with_other_sampling(call: Call) -> Call:
    return dataclasses.replace(call, sampling=dataclasses.replace(call.sampling, top_k=1))


def longer_than_budget(call: Call) -> Call:
    """The engine samples on after its budget, and says that a stop token ended it."""
    sampling = dataclasses.replace(call.sampling, budget=1)
    return dataclasses.replace(call, sampling=sampling) if len(call.action) > 1 else call


def with_shorter_logp(call: Call) -> Call:
    return dataclasses.replace(call, sampler_logp=call.sampler_logp[:-1])


def in_policy_batch(**changes: Callable[[Any], np.ndarray]) -> Callable[[Patch], None]:
    """A corruption of fields of the packed batch that the policy's update gets."""

    def plant(patch: Patch) -> None:
        def changed(batch: Any, *_: Any) -> Any:
            own_value = {name: f(batch) for name, f in changes.items() if name != "weight"}
            if "weight" in changes:
                own_value["batch"] = dataclasses.replace(
                    batch.batch, weight=changes["weight"](batch)
                )
            return dataclasses.replace(batch, **own_value)

        wrap(patch, microbatches, "_policy_batch", changed)

    return plant


def rolled(values: Any) -> np.ndarray:
    return np.roll(np.asarray(values), 1, axis=-1)


def merge_segments(patch: Patch) -> None:
    """All sequences of a bin are one segment: they attend to each other."""

    def changed(batch: Any, *_: Any) -> Any:
        return dataclasses.replace(batch, segment_ids=np.minimum(batch.segment_ids, 1))

    wrap(patch, PackedLayout, "to_batch", changed)


def in_minibatches(change: Callable[[list[np.ndarray]], Sequence[np.ndarray]]) -> Any:
    """A corruption of which groups each of an epoch's minibatches trains."""

    def plant(patch: Patch) -> None:
        original = np.array_split

        def split(array: Any, count: int, *args: Any, **kwargs: Any) -> Any:
            parts = original(array, count, *args, **kwargs)
            return change(parts) if count == 2 else parts

        patch.setattr(np, "array_split", split)

    return plant


def drop_a_microbatch(patch: Patch) -> None:
    """The update of a minibatch leaves its last microbatch out."""
    original = Learner.update

    def update(learner: Learner, state: Any, batches: Sequence[Any], proceed: Any = None) -> Any:
        batch = batches[-1].batch
        mask, weight = np.zeros_like(batch.action_mask), np.zeros_like(batch.weight)
        batch = dataclasses.replace(batch, action_mask=mask, weight=weight)
        last = dataclasses.replace(batches[-1], batch=batch)
        return original(learner, state, [*batches[:-1], last])

    patch.setattr(Learner, "update", update)


def repeat_a_microbatch(patch: Patch) -> None:
    original = Learner.update

    def update(learner: Learner, state: Any, batches: Sequence[Any], proceed: Any = None) -> Any:
        return original(learner, state, [*batches, batches[0]])

    patch.setattr(Learner, "update", update)


def negate_a_group(patch: Patch) -> None:
    """The advantages of one group are negated after credit was given."""
    original = CreditedBatch.select_groups

    def select(batch: CreditedBatch, groups: np.ndarray) -> Any:
        inputs, tokens, local = original(batch, groups)
        batch.token_columns.advantage[local] *= -1
        return inputs, tokens, local

    patch.setattr(CreditedBatch, "select_groups", select)


def negate_a_group_in_credit(patch: Patch) -> None:
    """The advantage function itself is wrong: no invariant knows what it should say."""

    def changed(targets: Any, *_: Any) -> Any:
        return dataclasses.replace(targets, advantage=-targets.advantage)

    wrap(patch, crediting, "token_targets", changed)


def follow_the_policy(patch: Patch) -> None:
    """The reference is the policy before each update, so its penalty is always 0."""
    original = PolicyGradient.step

    def step(algorithm: Any, state: Any, *args: Any) -> Any:
        right = jax.tree.map(jnp.copy, state.extra.reference)
        wrong = jax.tree.map(lambda x: x * 1.0001, state.params)
        extra = dataclasses.replace(state.extra, reference=wrong)
        state, metrics = original(algorithm, dataclasses.replace(state, extra=extra), *args)
        extra = dataclasses.replace(state.extra, reference=right)
        return dataclasses.replace(state, extra=extra), metrics

    patch.setattr(PolicyGradient, "step", step)


def observe_another_reward(patch: Patch) -> None:
    """A session credits another reward than what the environment gave."""
    original = AgentSession.observe

    def observe(session: AgentSession, *args: Any, time: Any) -> None:
        action, observation, reward, terminated, truncated, info = args
        original(session, action, observation, reward + 1.0, terminated, truncated, info, time)

    patch.setattr(AgentSession, "observe", observe)


def lose_a_turn(trajectory: Trajectory) -> Trajectory:
    return trajectory.replace(turns=trajectory.turns[1:])


CORRUPTIONS: dict[str, Corruption] = {
    # of the record
    "tokens exchanged between two turns": Corruption(
        "recorded_calls", in_first_trajectory(swap_actions)
    ),
    "calls exchanged between two turns": Corruption(
        "placed_calls", in_first_trajectory(swap_calls)
    ),
    "turns exchanged": Corruption("placed_calls", in_first_trajectory(swap_turns)),
    "a turn lost": Corruption("placed_calls", in_first_trajectory(lose_a_turn)),
    "turns exchanged between two episodes": Corruption("placed_calls", in_groups(exchange_turns)),
    "episodes exchanged between two groups": Corruption(
        "placed_calls", in_groups(exchange_members)
    ),
    "another text than the tokens": Corruption(
        "recorded_actions",
        in_groups(lambda groups: [map_group(group, swap_messages) for group in groups]),
    ),
    "reward of another episode": Corruption("recorded_rewards", in_groups(exchange_rewards)),
    "another reward than the environment's": Corruption("recorded_rewards", observe_another_reward),
    # of the engine
    "action recorded as empty": Corruption("answered_calls", in_engine(emptied)),
    "prompt cut by the engine": Corruption("answered_calls", in_engine(with_shorter_prompt)),
    "key of another call": Corruption("answered_calls", in_engine(with_other_key)),
    "filters recorded that were not asked for": Corruption(
        "answered_calls", in_engine(with_other_sampling)
    ),
    "more tokens than the budget": Corruption("answered_calls", in_engine(longer_than_budget)),
    "a log-prob missing": Corruption("answered_calls", in_engine(with_shorter_logp)),
    # of batches
    "segment ids merged": Corruption("packed_rows", merge_segments),
    "loss weights of the neighboring token": Corruption(
        "token_advantages", in_policy_batch(weight=lambda x: rolled(x.batch.weight))
    ),
    "reference log-probs of the neighboring token": Corruption(
        "token_advantages", in_policy_batch(ref_logp=lambda x: rolled(x.ref_logp))
    ),
    "log-probs before the update of the neighboring token": Corruption(
        "token_advantages", in_policy_batch(proximal_logp=lambda x: rolled(x.proximal_logp))
    ),
    "minibatch duplicated": Corruption(
        "trained_minibatches", in_minibatches(lambda parts: [parts[0], parts[0]])
    ),
    "minibatch dropped": Corruption(
        "trained_minibatches", in_minibatches(lambda parts: [parts[0], parts[1][:0]])
    ),
    "microbatch dropped": Corruption("updated_tokens", drop_a_microbatch),
    "microbatch duplicated": Corruption("updated_tokens", repeat_a_microbatch),
    "advantages of a group negated": Corruption("token_advantages", negate_a_group),
    "advantages negated where credit is given": Corruption(None, negate_a_group_in_credit),
    "reference that follows the policy": Corruption("reference_weights", follow_the_policy),
}


def map_group(group: Group, change: Callable[[Trajectory], Trajectory]) -> Group:
    return dataclasses.replace(group, trajectories=tuple(map(change, group.trajectories)))
