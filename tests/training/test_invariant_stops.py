"""Each planted corruption of a small run stops it with the invariant that it violates."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.small_runs import rollout_source, small_experiment
from support.stepped_phase import SteppedPhase

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.policy_gradient import crediting, microbatches
from agentrl_jax.errors import UserError
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.request import Request
from agentrl_jax.learner import sequences
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import Batch, PackedLayout
from agentrl_jax.learner.sequences import CreditInputs, TrainingSequence
from agentrl_jax.pytree import AnyArray
from agentrl_jax.rollout import runtime, strategy
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.storage import trajectory_log
from agentrl_jax.training import staleness
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import Experiment, Phase, Source
from agentrl_jax.training.run_invariants import MIN_EPISODES
from agentrl_jax.training.shuffled_batches import ShuffledBatches
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.staleness import InFlight
from agentrl_jax.trajectories import Call, Group, Trajectory, Turn, TurnTime

pytestmark = pytest.mark.slow
Patch = pytest.MonkeyPatch


def trajectory_number(inputs: CreditInputs) -> np.ndarray:
    """An advantage that differs between all trajectories and is never 0."""
    return 1.0 + inputs.token_trajectory


def experiment(source: Source | None = None) -> Experiment:
    config = small_experiment(source or rollout_source(3, 4), steps=10_000)
    config.phases["rl"].algorithm = dataclasses.replace(
        grpo(optimizer=AdamWConfig(1e-6), bin_length=32, microbatch=8), advantage=trajectory_number
    )
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    config.phases["sft"] = Phase("SFT", Demonstrations(4), cloning, steps=10_000)
    for phase in config.phases.values():
        phase.checkpoint_every = 100_000
    return config


@pytest.fixture(scope="module")
def rl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedPhase]:
    """GRPO, after two steps."""
    phase = SteppedPhase(experiment(), tmp_path_factory.mktemp("rl"), "rl")
    for _ in range(2):
        phase.step()
    yield phase
    phase.close()


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedPhase]:
    """Fine-tuning, after a step."""
    phase = SteppedPhase(experiment(), tmp_path_factory.mktemp("sft"), "sft")
    phase.step()
    yield phase
    phase.close()


def wrap(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by `change(its result, *its arguments)`."""
    original = getattr(owner, name)

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(original(*args, **kwargs), *args)

    patch.setattr(owner, name, changed)


def shifted(mask: AnyArray) -> np.ndarray:
    return np.roll(np.asarray(mask), 1, axis=-1)


def change_first_call(group: Group, change: Callable[[Call], Call]) -> Group:
    """The group with the first call of its first trajectory changed."""
    first, *others = group.trajectories
    turn = first.turns[0]
    turn = dataclasses.replace(turn, calls=(change(turn.calls[0]), *turn.calls[1:]))
    first = first.replace(turns=(turn, *first.turns[1:]))
    return dataclasses.replace(group, trajectories=(first, *others))


def in_groups(change: Callable[[Group], Group]) -> Callable[[Patch], None]:
    """A corruption of the groups as the runtime returns them."""

    def plant(patch: Patch) -> None:
        def changed(groups: list[Group], *_: Any) -> list[Group]:
            return [change(group) for group in groups]

        wrap(patch, runtime.Runtime, "collect", changed)

    return plant


def in_calls(**changes: Callable[[Call], Any]) -> Callable[[Patch], None]:
    """A corruption of fields of the first call of every group."""

    def change(call: Call) -> Call:
        return dataclasses.replace(call, **{name: f(call) for name, f in changes.items()})

    return in_groups(lambda group: change_first_call(group, change))


def in_engine(**changes: Callable[[Call], Any]) -> Callable[[Patch], None]:
    """A corruption of what the engine itself records of every call."""

    def plant(patch: Patch) -> None:
        def changed(call: Call, *_: Any) -> Call:
            values = {name: f(call) for name, f in changes.items()}
            return dataclasses.replace(call, **values).with_checksum()

        wrap(patch, Request, "to_call", changed)

    return plant


def in_sequences(**changes: Callable[[TrainingSequence], Any]) -> Callable[[Patch], None]:
    """A corruption of every training sequence."""

    def plant(patch: Patch) -> None:
        def changed(sequence: TrainingSequence, *_: Any) -> TrainingSequence:
            return dataclasses.replace(
                sequence, **{name: f(sequence) for name, f in changes.items()}
            )

        wrap(patch, sequences, "_sequence_of_chain", changed)

    return plant


def in_batch(**changes: Callable[[Batch], Any]) -> Callable[[Patch], None]:
    """A corruption of every packed batch."""

    def plant(patch: Patch) -> None:
        def changed(batch: Batch, *_: Any) -> Batch:
            return dataclasses.replace(batch, **{name: f(batch) for name, f in changes.items()})

        wrap(patch, PackedLayout, "to_batch", changed)

    return plant


def retokenized(call: Call) -> np.ndarray:
    """The action's tokens in another split of the same text, as a tokenizer may choose it."""
    return np.concatenate([call.action[:1] + 1, call.action[1:]])


def without_last(values: np.ndarray) -> np.ndarray:
    """Without the last of several values: an empty action would be no turn."""
    return values[:-1] if len(values) > 1 else values


def in_all_trajectories(change: Callable[[Trajectory], Trajectory]) -> Callable[[Group], Group]:
    return lambda group: dataclasses.replace(
        group, trajectories=tuple(map(change, group.trajectories))
    )


def first_twice(group: Group) -> Group:
    return dataclasses.replace(group, trajectories=(*group.trajectories, group.trajectories[0]))


def terminated_where_cut(patch: Patch) -> None:
    """A limit of two turns cuts every episode, and the session calls that the environment's end."""

    def changed(_: None, session: AgentSession, turn: Turn) -> None:
        session.stop_reason = "terminated" if len(session.turns) == 2 else session.stop_reason

    wrap(patch, AgentSession, "_add_turn", changed)


def terminated_flag_where_cut(patch: Patch) -> None:
    """The same, where the turn says so, too."""
    original = AgentSession.observe

    def observe(session: AgentSession, *args: Any, time: TurnTime | None) -> None:
        action, observation, reward, _, truncated, info = args
        is_cut = len(session.turns) == 1
        original(session, action, observation, reward, is_cut, truncated, info, time)

    patch.setattr(AgentSession, "observe", observe)


def keep_old_weights(patch: Patch) -> None:
    """The engine takes the new version, and goes on with its weights."""

    def publish(engine: LocalEngine, params: Any, version: int, recompute: bool = False) -> None:
        with engine._condition:
            engine._pending_weights = engine._params, version, recompute
            engine._notify()

    patch.setattr(LocalEngine, "publish", publish)


def change_a_weight(patch: Patch) -> None:
    """One number of the weights is another one in the engine's copy."""

    def publish(engine: LocalEngine, params: Any, version: int, recompute: bool = False) -> None:
        leaves, tree = jax.tree.flatten(params)
        leaves[0] = leaves[0].at[(0,) * leaves[0].ndim].add(1e-6)
        original(engine, jax.tree.unflatten(tree, leaves), version, recompute)

    original = LocalEngine.publish
    patch.setattr(LocalEngine, "publish", publish)


def permute_advantages(patch: Patch) -> None:
    """Every token of the batch gets the advantage of another one of its group."""

    def changed(columns: Any, *_: Any) -> Any:
        return dataclasses.replace(columns, advantage=np.roll(columns.advantage, 3))

    wrap(patch, crediting, "TokenColumns", changed)


def permute_packed_advantages(patch: Patch) -> None:
    def changed(batch: Any, *_: Any) -> Any:
        return dataclasses.replace(batch, advantage=batch.advantage[::-1])

    wrap(patch, microbatches, "_policy_batch", changed)


def repeat_a_row(patch: Patch) -> None:
    """The first packed row stands in the place of an empty one, too."""

    def changed(batch: Any, *_: Any) -> Any:
        def repeat(x: np.ndarray) -> np.ndarray:
            return np.concatenate([x[:-1], x[:1]])

        return jax.tree.map(repeat, batch)

    wrap(patch, microbatches, "_policy_batch", changed)


def collate_twice(patch: Patch) -> None:
    """The sequences of the first group are trained twice."""

    originals = {"collate": crediting.collate, "make_credit_inputs": crediting.make_credit_inputs}
    for name in originals:

        def twice(groups: Sequence[Group], *args: Any, original: Any = originals[name]) -> Any:
            return original([*groups, groups[0]], *args)

        patch.setattr(crediting, name, twice)


def lose_an_episode(patch: Patch) -> None:
    """A group without the last of its episodes."""

    async def gather_group(task: Any, episodes: Sequence[Any]) -> Group:
        group = await original(task, episodes)
        return dataclasses.replace(group, trajectories=group.trajectories[:-1])

    original = strategy.gather_group
    patch.setattr(strategy, "gather_group", gather_group)


def drop_all(patch: Patch) -> None:
    """Every environment fails at every attempt."""

    async def fail(*_: Any, **__: Any) -> None:
        return None

    patch.setattr(runtime.EpisodeRetries, "run", fail)


def in_demonstrations(change: Callable[[Call], np.ndarray]) -> Callable[[Patch], None]:
    """Another action in every call of every demonstration."""

    def change_call(call: Call) -> Call:
        action = change(call)
        zeros = np.zeros(len(action))
        return dataclasses.replace(
            call, action=action, sampler_logp=zeros.astype(np.float32), version=zeros - 1
        )

    def plant(patch: Patch) -> None:
        def change_turn(turn: Turn) -> Turn:
            return dataclasses.replace(turn, calls=tuple(map(change_call, turn.calls)))

        def change_turns(trajectory: Trajectory) -> Trajectory:
            return trajectory.replace(turns=tuple(map(change_turn, trajectory.turns)))

        def changed(groups: list[Group], *_: Any) -> list[Group]:
            return list(map(in_all_trajectories(change_turns), groups))

        wrap(patch, ShuffledBatches, "next", changed)

    return plant


ONE_VERSION = np.int32(1)
ROLLOUTS: dict[str, tuple[str, Callable[[Patch], None]]] = {
    # of the sequences
    "mask shifted in the rows": (
        "trained_tokens",
        in_sequences(action_mask=lambda x: shifted(x.action_mask)),
    ),
    "stop token out of the mask": (
        "trained_tokens",
        in_sequences(action_mask=lambda x: x.action_mask & (np.arange(len(x)) < len(x) - 1)),
    ),
    "observations in the mask": (
        "trained_tokens",
        in_sequences(action_mask=lambda x: np.ones_like(x.action_mask)),
    ),
    "log-probs off by one in the rows": (
        "trained_tokens",
        in_sequences(sampler_logp=lambda x: shifted(x.sampler_logp)),
    ),
    "temperature of another call in the rows": (
        "trained_tokens",
        in_sequences(temperature=lambda x: x.temperature * np.float32(0.5)),
    ),
    "version one too low in the rows": (
        "trained_tokens",
        in_sequences(version=lambda x: x.version - ONE_VERSION),
    ),
    "trajectory duplicated in the rows": ("trained_tokens", collate_twice),
    # of the packed batch
    "mask shifted in the packed batch": (
        "packed_rows",
        in_batch(action_mask=lambda x: shifted(x.action_mask)),
    ),
    "log-probs off by one in the packed batch": (
        "packed_rows",
        in_batch(sampler_logp=lambda x: shifted(x.sampler_logp)),
    ),
    "row duplicated": ("packed_rows", repeat_a_row),
    "one token changed in the packed batch": (
        "packed_rows",
        in_batch(
            tokens=lambda x: np.where(
                np.arange(x.tokens.size).reshape(x.tokens.shape) == 1, 5, x.tokens
            )
        ),
    ),
    "positions off by one": ("packed_rows", in_batch(positions=lambda x: x.positions + 1)),
    # of credit
    "advantages permuted in the group": ("token_advantages", permute_advantages),
    "advantages permuted in the packed batch": ("token_advantages", permute_packed_advantages),
    # of the record, after the engine
    "turn re-tokenized from text": ("recorded_calls", in_calls(action=retokenized)),
    "prompt re-tokenized from text": (
        "recorded_calls",
        in_calls(prompt=lambda call: np.concatenate([call.prompt[:-1], call.prompt[-1:] + 1])),
    ),
    "stop token out of the record": (
        "recorded_calls",
        in_calls(
            action=lambda call: call.action[:-1],
            sampler_logp=lambda call: call.sampler_logp[:-1],
            version=lambda call: call.version[:-1],
        ),
    ),
    "log-probs off by one in the record": (
        "recorded_calls",
        in_calls(sampler_logp=lambda call: np.roll(call.sampler_logp, 1) - np.float32(0.1)),
    ),
    "wrong temperature in the record": (
        "recorded_calls",
        in_calls(sampling=lambda call: dataclasses.replace(call.sampling, temperature=0.9)),
    ),
    "version one too low in the record": (
        "recorded_calls",
        in_calls(version=lambda call: call.version - ONE_VERSION),
    ),
    # of the record, by the engine itself
    "stop token not recorded by the engine": (
        "recorded_calls",
        in_engine(
            action=lambda call: without_last(call.action),
            sampler_logp=lambda call: without_last(call.sampler_logp),
            version=lambda call: without_last(call.version),
        ),
    ),
    "version one too low by the engine": (
        "weight_versions",
        in_engine(version=lambda call: call.version - ONE_VERSION),
    ),
    "log-probs off by one by the engine": (
        "sampler_logp",
        in_engine(sampler_logp=lambda call: np.append(call.sampler_logp[1:], np.float32(0))),
    ),
    "wrong temperature recorded by the engine": (
        "answered_calls",
        in_engine(sampling=lambda call: dataclasses.replace(call.sampling, temperature=0.5)),
    ),
    # of episodes
    "trajectory duplicated": ("distinct_episodes", in_groups(first_twice)),
    "cut episode called terminated": ("recorded_ends", terminated_where_cut),
    "cut episode called terminated in its turn": ("recorded_ends", terminated_flag_where_cut),
    "truncated trajectory called terminated": (
        "recorded_ends",
        in_groups(
            in_all_trajectories(lambda t: t.replace(turns=t.turns[:2], stop_reason="terminated"))
        ),
    ),
    "episode lost": ("conserved_episodes", lose_an_episode),
}

WEIGHTS = {
    "stale weights labelled new": keep_old_weights,
    "a number of the weights changed in the engine": change_a_weight,
}
FINE_TUNING: dict[str, tuple[str, Callable[[Patch], None]]] = {
    "observations in the mask": (
        "trained_tokens",
        in_sequences(action_mask=lambda x: np.ones_like(x.action_mask)),
    ),
    "mask shifted in the rows": (
        "trained_tokens",
        in_sequences(action_mask=lambda x: shifted(x.action_mask)),
    ),
    "mask shifted in the packed batch": (
        "packed_rows",
        in_batch(action_mask=lambda x: shifted(x.action_mask)),
    ),
    "observations in the demonstrated actions": (
        "demonstrated_tokens",
        in_demonstrations(lambda call: np.concatenate([call.action, call.prompt[-2:]])),
    ),
    "stop token out of the demonstrated actions": (
        "demonstrated_tokens",
        in_demonstrations(lambda call: call.action[:-1]),
    ),
}


@pytest.mark.parametrize(("name", "plant"), ROLLOUTS.values(), ids=list(ROLLOUTS))
def test_a_corruption_stops_the_run(
    rl: SteppedPhase, monkeypatch: Patch, name: str, plant: Callable[[Patch], None]
):
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(UserError, match=f"the invariant {name} does not hold in step") as error:
            rl.step()
    path = Path(str(error.value).split("experience is in ")[1].split(":")[0])
    assert len(list(trajectory_log.read(path))) >= 9
    rl.step()  # without the corruption nothing stops it


@pytest.mark.parametrize("plant", WEIGHTS.values(), ids=list(WEIGHTS))
def test_an_engine_with_other_weights_than_those_published_stops_the_run(
    rl: SteppedPhase, monkeypatch: Patch, plant: Callable[[Patch], None]
):
    with monkeypatch.context() as patch:
        plant(patch)
        rl.step()  # its publication is the first wrong one
        with pytest.raises(UserError, match="the invariant engine_weights does not hold"):
            rl.step()
    rl.trainer._publish(rl.next_step)
    rl.step()


def test_episodes_that_are_dropped_stop_the_run(rl: SteppedPhase, monkeypatch: Patch):
    with monkeypatch.context() as patch:
        drop_all(patch)
        with pytest.raises(
            UserError, match=r"dropped_episodes .* were dropped after their retries"
        ):
            for _ in range(2 * MIN_EPISODES // 12):
                rl.step()
    rl.trainer._invariants._dropped = rl.trainer._invariants._episodes = 0
    rl.step()


@pytest.mark.parametrize(("name", "plant"), FINE_TUNING.values(), ids=list(FINE_TUNING))
def test_a_corruption_stops_fine_tuning(
    sft: SteppedPhase, monkeypatch: Patch, name: str, plant: Callable[[Patch], None]
):
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(UserError, match=f"the invariant {name} does not hold in step"):
            sft.step()
    sft.step()


def test_a_run_that_only_warns_goes_on_and_counts(rl: SteppedPhase, monkeypatch: Patch):
    messages: list[str] = []
    monkeypatch.setattr(rl.run.reporter, "warn", messages.append)
    monkeypatch.setattr(rl.trainer._invariants, "_reaction", "warn")
    with monkeypatch.context() as patch:
        permute_advantages(patch)
        metrics = [rl.step() for _ in range(2)]
    assert [line["invariants/violated"] for line in metrics] == [1, 1]
    (message,) = messages
    assert "the invariant token_advantages does not hold in step" in message
    assert "invariants/violated" not in rl.step()


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedPhase]:
    """GRPO on asynchronous rollouts, after three steps."""
    config = experiment(AsyncRollouts(rollout_source(3, 4), staleness=2))
    phase = SteppedPhase(config, tmp_path_factory.mktemp("stale"), "rl")
    for _ in range(3):
        phase.step()
    yield phase
    phase.close()


def lose_a_group(patch: Patch) -> None:
    """A step takes one group more than it trains on."""

    def changed(taken: list[InFlight] | None, in_flight: list[InFlight], *_: Any) -> Any:
        if taken is not None:
            in_flight.remove(taken[0])
            return taken[1:]
        return None

    wrap(patch, staleness, "select_groups", changed)


ASYNCHRONOUS: dict[str, tuple[str, Callable[[Patch], None]]] = {
    "version below what the staleness allows": (
        "weight_versions",
        in_engine(version=lambda call: call.version - np.int32(3)),
    ),
    "version of weights to come": (
        "weight_versions",
        in_engine(version=lambda call: call.version + np.int32(3)),
    ),
}


@pytest.mark.parametrize(("name", "plant"), ASYNCHRONOUS.values(), ids=list(ASYNCHRONOUS))
def test_a_corruption_stops_asynchronous_rollouts(
    stale: SteppedPhase, monkeypatch: Patch, name: str, plant: Callable[[Patch], None]
):
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(UserError, match=f"the invariant {name} does not hold in step"):
            for _ in range(6):  # groups that are sampled already come first
                stale.step()
    monkeypatch.setattr(stale.trainer._invariants, "_reaction", "warn")
    for _ in range(6):  # and those that were sampled so
        metrics = stale.step()
    assert "invariants/violated" not in metrics


def test_a_lost_group_stops_asynchronous_rollouts(stale: SteppedPhase, monkeypatch: Patch):
    lose_a_group(monkeypatch)
    with pytest.raises(UserError, match="the invariant conserved_episodes does not hold in step"):
        stale.step()
