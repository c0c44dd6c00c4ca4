"""Expert iteration: what is stored and trained, the filter of the middle, starting over, and exact resume."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import Averaging, make_call, mesh_of, same_leaves
from tactics import TacticEngine, expert, runtime_of, theorem

from agentrl_jax.algorithms.masks import Deviations, LikelihoodBand, Quantiles
from agentrl_jax.algorithms.methods.dialogue import bfs_prover
from agentrl_jax.algorithms.methods.expert_iteration import ExpertIteration, ExpertIterationConfig, Restart
from agentrl_jax.algorithms.schedules import RaiseOnPlateau
from agentrl_jax.algorithms.strategies.best_first import BestFirst
from agentrl_jax.algorithms.strategies.recallable import Recallable
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.configs.prover_bfs import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, user
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rows import collate, evidence_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers import InProcess

POLICY = Averaging()
PARAMS = POLICY.init(jax.random.key(1))
SHAPE: dict[str, Any] = {"optimizer": AdamWConfig(1e-2, warmup_steps=0), "bin_length": 16, "microbatch": 8}


def proof(task: str, pairs: Sequence[tuple[int, int, bool]], success: bool = True) -> Trajectory:
    """(prompt token, action token, whether the world took it) for each turn."""
    turns = tuple(
        Turn((make_call([p, 1], [a], logp=[-1.0]),), assistant("a"), (user("o"),), 0.0, info={"legal": legal}) for p, a, legal in pairs
    )
    return Trajectory((user("go"),), turns, task, success=success)


def groups(step: int, solved: int = 4, of: int = 4) -> list[Group]:
    tasks = [f"task {step}-{i}" for i in range(of)]
    return [Group(t, (proof(t, [(2 + i, 3 + (i + j + step) % 20, True) for j in range(3)], i < solved),)) for i, t in enumerate(tasks)]


def config(low: float = 0.0, high: float = 1.0, **fields: Any) -> ExpertIterationConfig:
    return ExpertIterationConfig(bfs_prover(low, high, rescore=True, **SHAPE), **{"draw": 8, **fields})


def built(made: ExpertIterationConfig) -> tuple[ExpertIteration, Any]:
    algorithm = made.build(POLICY, mesh_of(), steps=20)
    return algorithm, algorithm.init(jax.random.key(7), PARAMS)


@pytest.fixture(scope="module")
def runtime():
    with Runtime({}, {}, InProcess()) as runtime:
        yield runtime


@pytest.mark.parametrize(("low", "high", "kept"), [(0.1, 0.9, range(1, 10)), (0.0, 1.0, range(11)), (0.2, 0.5, range(2, 6))])
def test_the_filter_leaves_what_lies_between_the_quantiles(low: float, high: float, kept: range):
    """Eleven tactics of negative log-likelihoods 0 to 10, in any order: quantile q is 10 q."""
    order = np.random.default_rng(0).permutation(11)
    turns = [Turn((make_call([1], [2, 3], logp=[-float(nll)] * 2),), assistant("a"), (user("o"),), 0.0) for nll in order]
    batch = [Group("t", (Trajectory((user("go"),), tuple(turns)),))]
    mask = LikelihoodBand(Quantiles(low, high))(evidence_of(batch, collate(batch)))
    assert sorted(order[mask.reshape(11, 2).all(1)]) == list(kept) and (mask[::2] == mask[1::2]).all()


@pytest.mark.parametrize("band", [Quantiles(0.15, 0.85), Deviations(1.0), Deviations(0.5)])
def test_the_filter_is_symmetric(band: Quantiles | Deviations):
    nll = np.random.default_rng(1).gamma(2.0, size=101)
    assert np.array_equal(band(nll), band(-nll)) and 0 < band(nll).sum() < 101


def test_only_what_was_accepted_on_the_way_to_success_is_stored_and_trained(runtime: Runtime):
    algorithm, state = built(config(draw=100))
    batch = [
        Group("x", (proof("x", [(2, 5, True), (2, 6, False), (3, 7, True)]), proof("x", [(4, 8, True)], success=False))),
        Group("y", (proof("y", [(2, 5, True), (3, 9, True)]),)),  # its first pair is known
        Group("z", ()),
    ]
    after, metrics = algorithm.step(state, batch, runtime)
    assert metrics["store/pairs"] == 3.0 == metrics["tokens"] and metrics["theorems/solved"] == pytest.approx(2 / 3)
    expected, _ = algorithm._update.step(
        algorithm._update.init(jax.random.key(7), PARAMS),
        [Group(t.task, (_weighted(t),)) for t in algorithm._config.store.all()],
        runtime,
    )
    assert same_leaves(after.params, expected.params) and not same_leaves(after.params, PARAMS)
    moved = [algorithm.step(state_of(algorithm), batch[:i], runtime)[1]["tokens"] for i in (0, 1)]
    assert moved == [3.0, 3.0]  # the store is still there when nothing new comes


def _weighted(step: Trajectory) -> Trajectory:
    return step.replace(turns=tuple(dataclasses.replace(turn, info={**turn.info, "weight": 1.0}) for turn in step.turns))


def state_of(algorithm: ExpertIteration) -> Any:
    return algorithm.init(jax.random.key(7), PARAMS)


def test_the_tails_are_left_out(runtime: Runtime):
    algorithm, state = built(config(0.25, 0.75, draw=100))
    _, metrics = algorithm.step(state, groups(0), runtime)
    assert metrics["tokens/masked"] == pytest.approx(0.5, abs=0.1)


def test_nothing_solved_changes_nothing(runtime: Runtime):
    algorithm, state = built(config())
    after, metrics = algorithm.step(state, groups(0, solved=0), runtime)
    assert metrics["theorems/solved"] == 0 and metrics["skipped"] == 1 and same_leaves(after.params, PARAMS)


def test_on_a_plateau_training_starts_over_from_the_base_weights(runtime: Runtime):
    restart = Restart(RaiseOnPlateau((0, 1), patience=2), updates=3)
    algorithm, state = built(config(restart=restart, draw=1000))
    restarts, kept = [], ()
    for step in range(4):
        state, metrics = algorithm.step(state, groups(0), runtime)
        restarts.append(metrics["restarts"])
        if step == 2:
            kept = jax.device_get((state.params, state.opt_state, state.extra.start))
    assert restarts == [0, 0, 1, 1]
    fresh = algorithm._update.init(jax.random.key(7), PARAMS)
    for _ in range(3):
        drawn = [Group(t.task, (_weighted(t),)) for t in algorithm._config.store.all()]
        fresh, _ = algorithm._update.step(fresh, drawn, runtime)
    assert same_leaves(kept, (fresh.params, fresh.opt_state, PARAMS))


def test_without_a_plateau_a_restart_changes_nothing(runtime: Runtime):
    """The neutral knob: a plateau that never comes."""
    with_one, without = built(config(restart=Restart(RaiseOnPlateau((0, 1), patience=99), updates=3))), built(config())
    for step in range(2):
        ours, theirs = with_one[0].step(with_one[1], groups(step), runtime), without[0].step(without[1], groups(step), runtime)
        with_one, without = (with_one[0], ours[0]), (without[0], theirs[0])
        assert same_leaves(ours[0].params, theirs[0].params)


def test_old_problems_are_solved_anew_and_the_new_proofs_take_the_place_of_the_old():
    task, other = theorem("a,a>b,b>c|-c"), dataclasses.replace(theorem("a,b|-b"), seed=1)
    strategy = Recallable(BestFirst(8, 2))
    made = config(restart=Restart(RaiseOnPlateau((0, 1), patience=1), updates=1, resolve=strategy))
    made.update.bin_length = 64
    with runtime_of(TacticEngine(expert)) as runtime:
        first = runtime.collect(strategy, [task, other], (0, 0))
        long = first[0].trajectories[0]
        stored = [dataclasses.replace(first[0], trajectories=(long.replace(turns=(long.turns[0], *long.turns)),)), first[1]]
        algorithm = made.build(Averaging(264), mesh_of(), steps=4)
        state = algorithm.init(jax.random.key(7), Averaging(264).init(jax.random.key(1)))
        state, _ = algorithm.step(state, stored, runtime)
        before = [t.calls[0].key for t in algorithm._config.store.all()]
        _, metrics = algorithm.step(state, [], runtime)
    after = [t.calls[0].key for t in algorithm._config.store.all()]
    assert metrics["restarts/resolved"] == 2.0 and metrics["restarts"] == 1.0
    assert len(after) == 4 and not set(before) & set(after)


def test_solving_anew_needs_to_know_the_tasks(runtime: Runtime):
    made = config(restart=Restart(RaiseOnPlateau((0, 1), patience=1), updates=1, resolve=BestFirst(2, 2)))
    algorithm, state = built(made)
    state, _ = algorithm.step(state, groups(0), runtime)
    with pytest.raises(UserError, match="Recallable"):
        algorithm.step(state, groups(1, solved=0), runtime)


def test_a_run_that_goes_on_from_its_host_state_is_the_run_that_never_stopped(runtime: Runtime):
    made = config(0.1, 0.9, restart=Restart(RaiseOnPlateau((0, 1, 2), patience=2), updates=2))
    solved = [4, 3, 2, 4, 4, 1]
    algorithm, state = built(made)
    kept: list[Any] = []
    for step, n in enumerate(solved):
        kept.append((json.loads(json.dumps(algorithm.host_state())), jax.tree.map(np.asarray, (state.params, state.opt_state)), step))
        if step == 3:
            other, again = built(made)
            other.load_host_state(kept[-1][0])
            resumed = dataclasses.replace(again, params=jax.tree.map(jax.numpy.copy, state.params))
            resumed = dataclasses.replace(resumed, opt_state=jax.tree.map(jax.numpy.copy, state.opt_state), step=state.step + 0)
            resumed = dataclasses.replace(resumed, extra=jax.tree.map(jax.numpy.copy, state.extra))
        state, metrics = algorithm.step(state, groups(step, n), runtime)
        if step >= 3:
            resumed, found = other.step(resumed, groups(step, n), runtime)
            assert same_leaves(resumed.params, state.params) and found["restarts"] == metrics["restarts"]
            assert {k: v for k, v in found.items() if k != "device"} == {k: v for k, v in metrics.items() if k != "device"}
    assert json.dumps(other.host_state()) == json.dumps(algorithm.host_state()) and metrics["restarts"] >= 1


@pytest.mark.parametrize("wrong", [{"draw": 0}, {"updates": 0}, {"restart": Restart(RaiseOnPlateau((0, 1), patience=1), updates=0)}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UserError):
        built(config(**wrong))


@pytest.mark.parametrize("variant", ["method", "base", "planner"])
def test_the_config_is_remembered_by_a_run_folder(variant: str):
    made = get_config(variant)
    assert to_json(from_json(json.loads(json.dumps(to_json(made))))) == to_json(made)
