"""Expert iteration: what is stored and trained, the band of likelihoods, restarts, and exact
resume.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from support.fixtures import MeanEmbeddingPolicy, device_mesh, make_call, trees_equal
from support.prover_tactics import TacticEngine, expert_tactic, make_runtime, theorem_task

from agentrl_jax.algorithms.advantages.token_masks import QuantileBand, StdBand, TurnNLLBand
from agentrl_jax.algorithms.experience.schedules import RaiseOnPlateau
from agentrl_jax.algorithms.methods.expert_iteration import (
    ExpertIteration,
    ExpertIterationConfig,
    Restart,
)
from agentrl_jax.algorithms.methods.multi_turn import bfs_prover
from agentrl_jax.algorithms.strategies.best_first import BestFirstSearch
from agentrl_jax.algorithms.strategies.task_reference import WithTaskReference
from agentrl_jax.configs.prover_bfs import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import collate, make_credit_inputs
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(1))
SHAPE: dict[str, Any] = {
    "optimizer": AdamWConfig(1e-2, warmup_steps=0),
    "bin_length": 16,
    "microbatch": 8,
}


def proof(task: str, pairs: Sequence[tuple[int, int, bool]], success: bool = True) -> Trajectory:
    """A trajectory of (prompt token, action token, whether the environment accepted it) for each
    turn.
    """
    turns = tuple(
        Turn(
            (make_call([p, 1], [a], logp=[-1.0]),),
            assistant("a"),
            (user("o"),),
            0.0,
            info={"legal": legal},
        )
        for p, a, legal in pairs
    )
    return Trajectory((user("go"),), turns, task, success=success)


def groups(step: int, solved: int = 4, of: int = 4) -> list[Group]:
    tasks = [f"task {step}-{i}" for i in range(of)]
    return [
        Group(
            t, (proof(t, [(2 + i, 3 + (i + j + step) % 20, True) for j in range(3)], i < solved),)
        )
        for i, t in enumerate(tasks)
    ]


def config(low: float = 0.0, high: float = 1.0, **fields: Any) -> ExpertIterationConfig:
    return ExpertIterationConfig(
        bfs_prover(low, high, rescore=True, **SHAPE), **{"batch": 8, **fields}
    )


def built(experiment_config: ExpertIterationConfig) -> tuple[ExpertIteration, Any]:
    algorithm = experiment_config.build(POLICY, device_mesh(), steps=20)
    return algorithm, algorithm.init(jax.random.key(7), PARAMS)


@pytest.fixture(scope="module")
def runtime():
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.1, 0.9, range(1, 10)), (0.0, 1.0, range(11)), (0.2, 0.5, range(2, 6))],
)
def test_the_filter_selects_turns_between_the_quantiles(low: float, high: float, expected: range):
    """Eleven tactics of negative log-likelihoods 0 to 10, in any order: quantile q is 10 q."""
    order = np.random.default_rng(0).permutation(11)
    turns = [
        Turn((make_call([1], [2, 3], logp=[-float(nll)] * 2),), assistant("a"), (user("o"),), 0.0)
        for nll in order
    ]
    batch = [Group("t", (Trajectory((user("go"),), tuple(turns)),))]
    mask = TurnNLLBand(QuantileBand(low, high))(make_credit_inputs(batch, collate(batch)))
    assert (
        sorted(order[mask.reshape(11, 2).all(1)]) == list(expected)
        and (mask[::2] == mask[1::2]).all()
    )


@pytest.mark.parametrize("band", [QuantileBand(0.15, 0.85), StdBand(1.0), StdBand(0.5)])
def test_the_filter_is_symmetric(band: QuantileBand | StdBand):
    nll = np.random.default_rng(1).gamma(2.0, size=101)
    assert np.array_equal(band(nll), band(-nll)) and 0 < band(nll).sum() < 101


def test_only_accepted_turns_of_successes_are_stored_and_trained(runtime: Runtime):
    algorithm, state = built(config(batch=100))
    batch = [
        Group(
            "x",
            (
                proof("x", [(2, 5, True), (2, 6, False), (3, 7, True)]),
                proof("x", [(4, 8, True)], success=False),
            ),
        ),
        Group("y", (proof("y", [(2, 5, True), (3, 9, True)]),)),  # its first pair is already stored
        Group("z", ()),
    ]
    after, metrics = algorithm.step(state, batch, runtime)
    assert metrics["store/pairs"] == 3.0 == metrics["tokens"] and metrics[
        "theorems/solved"
    ] == pytest.approx(2 / 3)
    expected, _ = algorithm._update.step(
        algorithm._update.init(jax.random.key(7), PARAMS),
        [Group(t.task, (_weighted(t),)) for t in algorithm._config.store.trajectories()],
        runtime,
    )
    assert trees_equal(after.params, expected.params) and not trees_equal(after.params, PARAMS)
    num_tokens = [
        algorithm.step(state_of(algorithm), batch[:i], runtime)[1]["tokens"] for i in (0, 1)
    ]
    assert num_tokens == [3.0, 3.0]  # the stored pairs are trained when nothing new is added


def _weighted(step: Trajectory) -> Trajectory:
    return step.replace(
        turns=tuple(
            dataclasses.replace(turn, info={**turn.info, "weight": 1.0}) for turn in step.turns
        )
    )


def state_of(algorithm: ExpertIteration) -> Any:
    return algorithm.init(jax.random.key(7), PARAMS)


def test_the_tails_are_not_trained(runtime: Runtime):
    algorithm, state = built(config(0.25, 0.75, batch=100))
    _, metrics = algorithm.step(state, groups(0), runtime)
    assert metrics["tokens/masked"] == pytest.approx(0.5, abs=0.1)


def test_without_a_solved_task_nothing_changes(runtime: Runtime):
    algorithm, state = built(config())
    after, metrics = algorithm.step(state, groups(0, solved=0), runtime)
    assert (
        metrics["theorems/solved"] == 0
        and metrics["skipped"] == 1
        and trees_equal(after.params, PARAMS)
    )


def test_on_a_plateau_training_restarts_from_the_base_weights(runtime: Runtime):
    restart = Restart(RaiseOnPlateau((0, 1), patience=2), num_updates=3)
    algorithm, state = built(config(restart=restart, batch=1000))
    restarts, restarted = [], ()
    for step in range(4):
        state, metrics = algorithm.step(state, groups(0), runtime)
        restarts.append(metrics["restarts"])
        if step == 2:
            restarted = jax.device_get((state.params, state.opt_state, state.extra.base_params))
    assert restarts == [0, 0, 1, 1]
    fresh = algorithm._update.init(jax.random.key(7), PARAMS)
    for _ in range(3):
        stored_pairs = [
            Group(t.task, (_weighted(t),)) for t in algorithm._config.store.trajectories()
        ]
        fresh, _ = algorithm._update.step(fresh, stored_pairs, runtime)
    assert trees_equal(restarted, (fresh.params, fresh.opt_state, PARAMS))


def test_without_a_plateau_a_restart_changes_nothing(runtime: Runtime):
    """The neutral setting: a plateau that never occurs."""
    with_one, without = (
        built(config(restart=Restart(RaiseOnPlateau((0, 1), patience=99), num_updates=3))),
        built(config()),
    )
    for step in range(2):
        ours, theirs = (
            with_one[0].step(with_one[1], groups(step), runtime),
            without[0].step(without[1], groups(step), runtime),
        )
        with_one, without = (with_one[0], ours[0]), (without[0], theirs[0])
        assert trees_equal(ours[0].params, theirs[0].params)


def test_stored_tasks_are_attempted_again_and_new_proofs_replace_the_old():
    task, other = theorem_task("a,a>b,b>c|-c"), dataclasses.replace(theorem_task("a,b|-b"), seed=1)
    strategy = WithTaskReference(BestFirstSearch(8, 2))
    experiment_config = config(
        restart=Restart(
            RaiseOnPlateau((0, 1), patience=1), num_updates=1, resolve_strategy=strategy
        )
    )
    experiment_config.update.bin_length = 64
    with make_runtime(TacticEngine(expert_tactic)) as runtime:
        first = runtime.collect(strategy, [task, other], (0, 0))
        long = first[0].trajectories[0]
        stored = [
            dataclasses.replace(
                first[0], trajectories=(long.replace(turns=(long.turns[0], *long.turns)),)
            ),
            first[1],
        ]
        algorithm = experiment_config.build(MeanEmbeddingPolicy(264), device_mesh(), steps=4)
        state = algorithm.init(jax.random.key(7), MeanEmbeddingPolicy(264).init(jax.random.key(1)))
        state, _ = algorithm.step(state, stored, runtime)
        before = [t.calls[0].key for t in algorithm._config.store.trajectories()]
        _, metrics = algorithm.step(state, [], runtime)
    after = [t.calls[0].key for t in algorithm._config.store.trajectories()]
    assert metrics["restarts/resolved"] == 2.0 and metrics["restarts"] == 1.0
    assert len(after) == 4 and not set(before) & set(after)


def test_attempting_stored_tasks_again_needs_task_references(runtime: Runtime):
    experiment_config = config(
        restart=Restart(
            RaiseOnPlateau((0, 1), patience=1),
            num_updates=1,
            resolve_strategy=BestFirstSearch(2, 2),
        )
    )
    algorithm, state = built(experiment_config)
    state, _ = algorithm.step(state, groups(0), runtime)
    with pytest.raises(UserError, match="WithTaskReference"):
        algorithm.step(state, groups(1, solved=0), runtime)


def test_a_resumed_run_equals_the_uninterrupted_run(runtime: Runtime):
    experiment_config = config(
        0.1, 0.9, restart=Restart(RaiseOnPlateau((0, 1, 2), patience=2), num_updates=2)
    )
    solved = [4, 3, 2, 4, 4, 1]
    algorithm, state = built(experiment_config)
    checkpoints: list[Any] = []
    for step, n in enumerate(solved):
        checkpoints.append(
            (
                json.loads(json.dumps(algorithm.host_state())),
                jax.tree.map(np.asarray, (state.params, state.opt_state)),
                step,
            )
        )
        if step == 3:
            other, again = built(experiment_config)
            other.load_host_state(checkpoints[-1][0])
            resumed = dataclasses.replace(again, params=jax.tree.map(jax.numpy.copy, state.params))
            resumed = dataclasses.replace(
                resumed,
                opt_state=jax.tree.map(jax.numpy.copy, state.opt_state),
                step=state.step + 0,
            )
            resumed = dataclasses.replace(resumed, extra=jax.tree.map(jax.numpy.copy, state.extra))
        state, metrics = algorithm.step(state, groups(step, n), runtime)
        if step >= 3:
            resumed, resumed_metrics = other.step(resumed, groups(step, n), runtime)
            assert (
                trees_equal(resumed.params, state.params)
                and resumed_metrics["restarts"] == metrics["restarts"]
            )
            assert {k: v for k, v in resumed_metrics.items() if k != "device"} == {
                k: v for k, v in metrics.items() if k != "device"
            }
    assert (
        json.dumps(other.host_state()) == json.dumps(algorithm.host_state())
        and metrics["restarts"] >= 1
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"num_updates": 0},
        {"restart": Restart(RaiseOnPlateau((0, 1), patience=1), num_updates=0)},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UserError):
        built(config(**wrong))


@pytest.mark.parametrize("variant", ["method", "base", "planner"])
def test_a_run_folder_stores_the_config(variant: str):
    experiment_config = get_config(variant)
    assert to_json(from_json(json.loads(json.dumps(to_json(experiment_config))))) == to_json(
        experiment_config
    )
