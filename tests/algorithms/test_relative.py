"""REFUEL's update against plain statements of it: losses, pairs, the fixed point of a small dialogue, meshes and microbatches."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import (
    Averaging,
    counted_compilations,
    logp_alone,
    make_call,
    make_trajectory,
    make_turn,
    mesh_of,
    minute_policy,
    same_leaves,
)
from jax import Array

from agentrl_jax.algorithms.losses import direct_preference, relative_regression
from agentrl_jax.algorithms.methods.refuel import dpo, rebel, refuel, refuel_online
from agentrl_jax.algorithms.pairing import pairs_of
from agentrl_jax.algorithms.preferences import PreferenceConfig
from agentrl_jax.algorithms.relative import Preferred, Regression, Relative, RelativeConfig, log_ratio
from agentrl_jax.algorithms.top_layers import top_layers
from agentrl_jax.checkpoint import Keeper
from agentrl_jax.errors import UserError
from agentrl_jax.learner import TrainState, fetch_metrics
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Inputs, Output
from agentrl_jax.rows import Row
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers import InProcess

POLICY = Averaging()
PARAMS = POLICY.init(jax.random.key(0))
ADAM = AdamWConfig(learning_rate=0.03, eps=1e-3)
SHAPE: dict[str, Any] = {"optimizer": ADAM, "bin_length": 48, "microbatch": 4}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InProcess()) as runtime:
        yield runtime


def spoken(replies: Sequence[Sequence[int]], rewards: Sequence[float], heard: Sequence[Sequence[int]], temperature: float) -> Trajectory:
    """A dialogue of these replies; `heard` is what was read before each."""
    turns, so_far = [], np.zeros(0, np.int32)
    for i, (prompt, reply) in enumerate(zip(heard, replies)):
        call = make_call(np.concatenate([so_far, prompt]), reply, temperature)
        so_far = call.ids
        turns.append(make_turn([call], rewards[i], terminated=i == len(replies) - 1))
    return make_trajectory(*turns)


def some_pairs(count: int, seed: int, turns: int = 3) -> list[Group]:
    """Pairs of dialogues of some turns that part at any of them; the temperature of all is .5."""
    rng, groups = np.random.default_rng(seed), []

    def some(low: int, high: int) -> list[int]:
        return rng.integers(0, 24, rng.integers(low, high)).tolist()

    for i in range(count):
        h, opening = int(rng.integers(turns)), [some(1, 5) for _ in range(turns)]
        first, second = [some(1, 4) for _ in range(turns)], [some(1, 4) for _ in range(turns)]
        replies, heard = [*first[:h], *second[h:]], [*opening[: h + 1], *[some(1, 4) for _ in range(h + 1, turns)]]
        one = spoken(first, rng.normal(size=turns).tolist(), opening, 0.5)
        rewards = [turn.reward for turn in one.turns[:h]] + rng.normal(size=turns - h).tolist()
        groups.append(Group(str(i), (one, spoken(replies, rewards, heard, 0.5).replace(parent=0, branch_turn=h))))
    return groups


GROUPS = some_pairs(7, 3)


def build(config: RelativeConfig, policy: Any = POLICY, **mesh: int) -> Relative:
    return config.build(policy, mesh_of(**mesh), 100)


def steps(algorithm: Relative, runtime: Runtime, experience: Sequence[Sequence[Group]], params: Any = PARAMS) -> tuple[Any, list]:
    state, metrics = algorithm.init(jax.random.key(0), params), []
    for groups in experience:
        state, found = algorithm.step(state, groups, runtime)
        metrics.append(found)
    return jax.device_get(state.params), metrics


# The same again in NumPy: loops over pairs, each reply's log-prob alone.


def said(params: Any, dialogue: Trajectory, turn: int) -> float:
    """ln pi(y_h | s_h)."""
    (call,) = dialogue.turns[turn].calls
    n, none = len(call.ids), np.zeros(len(call.ids), np.int32)
    row = Row(call.ids, none.astype(bool), np.zeros(n, np.float32), none, np.full(n, call.sampling.temperature, np.float32), none)
    return float(logp_alone(POLICY, params, row)[len(call.prompt) :].sum())


def stated(params: Any, before: Any, start: Any, groups: Sequence[Group], eta: float = 0.0, beta: float = 0.0, kl: float = 0.0) -> float:
    """The mean over pairs of (d - eta (r - r'))^2, or with a beta of log(1 + exp(-beta d)), d with what earned more first."""
    losses = []
    for group in groups:
        first, second = group.trajectories
        h = second.branch_turn or 0
        d = [said(params, one, h) - said(before, one, h) for one in (first, second)]
        r = [one.total_reward - kl * (said(before, one, h) - said(start, one, h)) for one in (first, second)]
        if beta:
            losses.append(np.log1p(np.exp(-beta * (d[0] - d[1]) * (1 if r[0] > r[1] else -1))))
        else:
            losses.append((d[0] - d[1] - eta * (r[0] - r[1])) ** 2)
    return float(np.mean(losses))


def test_the_losses_by_hand():
    moved, gap = jnp.array([0.0, 1.0, -2.0, 3.0]), jnp.array([0.5, -1.0, 1.0, 0.0])
    np.testing.assert_allclose(relative_regression(moved, gap, eta=2.0), [1.0, 9.0, 16.0, 9.0])
    want = [np.log(2), np.log1p(np.exp(0.5)), np.log1p(np.exp(1.0)), np.log(2)]
    np.testing.assert_allclose(direct_preference(moved, gap, beta=0.5), want, rtol=1e-6)
    slope = jax.vmap(jax.grad(lambda d, g: direct_preference(d, g, beta=0.5)))(moved, gap)
    np.testing.assert_allclose(slope, [-0.25, 0.5 / (1 + np.exp(-0.5)), -0.5 / (1 + np.exp(-1.0)), 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("config", "constants"),
    [(RelativeConfig(Regression(2.0), kl=0.3), {"eta": 2.0, "kl": 0.3}), (RelativeConfig(Preferred(1.5)), {"beta": 1.5})],
)
def test_every_update_has_the_loss_of_a_loop_over_pairs(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, config: RelativeConfig, constants: dict[str, float]
):
    """Two steps, of two passes each: the log-ratio is to the policy before the step, the KL to that before the first."""
    algorithm, seen = build(dataclasses.replace(config, epochs=2, **SHAPE)), list[Any]()
    update = algorithm._learner.update

    def told(state: TrainState, parts: Any) -> Any:
        seen.append(jax.device_get(state.params))
        return update(state, parts)

    monkeypatch.setattr(algorithm._learner, "update", told)
    state = algorithm.init(jax.random.key(0), PARAMS)
    for groups in (GROUPS, some_pairs(5, 4)):
        seen.clear()
        state, metrics = algorithm.step(state, groups, runtime)
        assert len(seen) == 2 and not same_leaves(*seen)
        for now, found in zip(seen, metrics["device"], strict=True):
            assert fetch_metrics(found)["loss"] == pytest.approx(stated(now, seen[0], PARAMS, groups, **constants), rel=1e-4)


@pytest.mark.slow
def test_the_first_log_ratio_is_exactly_0(runtime: Runtime):
    policy = minute_policy(layers=1)
    config = refuel(1.0, epochs=2, **SHAPE)
    _, metrics = steps(build(config, policy), runtime, [GROUPS, GROUPS], policy.init(jax.random.key(1)))
    for step in metrics:
        first, second = (jax.device_get(found) for found in step["device"])
        assert first["first/log_ratio"] == 0.0 == first["log_ratio"] and second["log_ratio"] > 0.01
        assert first["first/logp_gap"] / first["tokens"] < 1e-6  # what the forward pass alone says of the same weights
    _, metrics = steps(build(dpo(1.0, **SHAPE)), runtime, [GROUPS, GROUPS])
    ratios = [float(step["device"][0]["first/log_ratio"]) for step in metrics]
    assert ratios[0] < 1e-4 < ratios[1]  # to the start, not to the policy before the step


def test_only_the_tokens_of_turn_h_have_a_gradient(runtime: Runtime):
    algorithm = build(RelativeConfig(Regression(3.0), **SHAPE))
    state, pairs = algorithm.init(jax.random.key(0), PARAMS), pairs_of(GROUPS)[0]
    gaps = np.array([a.total_reward - b.total_reward for a, b in (pair.dialogues for pair in pairs)])
    batches = algorithm._batches(state, pairs, gaps, runtime.hosts)
    slopes: list[float] = []
    for part in batches:
        moved = np.random.default_rng(0).normal(size=part.gap.shape).astype(np.float32)

        def total(logp: Array, part: Any = part) -> Array:
            return jnp.sum(part.batch.weight * algorithm._loss(logp, logp, part)[0])

        slope = np.asarray(jax.grad(total)(jnp.asarray(part.anchor_logp + moved)))
        assert ((slope != 0) == part.batch.action_mask).all()
        d = np.asarray(log_ratio(jnp.asarray(part.anchor_logp + moved), part))
        np.testing.assert_allclose(slope, 2 * (d - 3.0 * part.gap) * part.sign / len(pairs), atol=1e-4)
        slopes += slope[slope != 0].tolist()
    written = [len(one.turns[pair.turn].calls[0].action) for pair in pairs for one in pair.dialogues]
    assert len(slopes) == sum(written) and all(
        len(row) == len(d.turns[p.turn].calls[0].ids) for p in pairs for row, d in zip(p.rows, p.dialogues)
    )


def test_identical_replies_and_broken_dialogues_are_left_out(runtime: Runtime):
    first, second = GROUPS[0].trajectories
    h = second.branch_turn or 0
    same = Group("same", (first, first.replace(branch_turn=h)))
    alone = Group("alone", (first,), dropped=1)
    short = Group("short", (first, second.replace(turns=second.turns[:h])))
    failed = Group("failed", (first.replace(error="it broke"), second))
    nameless = Group(
        "nan", (first, make_trajectory(*second.turns[:-1], dataclasses.replace(second.turns[-1], reward=np.nan)).replace(branch_turn=h))
    )
    pairs, left_out = pairs_of([*GROUPS, same, alone, short, failed, nameless])
    assert len(pairs) == len(GROUPS) and left_out == {"broken": 4, "identical": 1}
    algorithm = build(RelativeConfig(Regression(1.0), **SHAPE))
    params, (metrics,) = steps(algorithm, runtime, [[same, alone, short]])
    assert same_leaves(params, PARAMS) and metrics["skipped"] == 1 and metrics["pairs"] == 0 and metrics["pairs/broken"] == 2
    with pytest.raises(UserError, match="different prompts"):
        pairs_of([Group("mixed", (first, GROUPS[1].trajectories[1].replace(branch_turn=0)))])


def test_a_reply_that_did_not_end_earns_the_penalty_alone(runtime: Runtime):
    """At turn h; a reply that was cut elsewhere changes nothing."""
    penalty, groups, rewards = -4.0, list[Group](), list[list[float]]()
    for i, group in enumerate(GROUPS):
        h, members = group.trajectories[1].branch_turn or 0, list(group.trajectories)
        which, place = i % 2, h if i < 4 else (h + 1) % 3
        turns = list(members[which].turns)
        turns[place] = dataclasses.replace(turns[place], calls=(dataclasses.replace(turns[place].calls[0], finish_reason="budget"),))
        members[which] = members[which].replace(turns=tuple(turns))
        groups.append(Group(group.task, tuple(members)))
        rewards.append([penalty if i < 4 and k == which else one.total_reward for k, one in enumerate(members)])
    config = RelativeConfig(Regression(2.0), unended=penalty, **SHAPE)
    _, (metrics,) = steps(build(config), runtime, [groups])
    want = [(2.0 * (first - second)) ** 2 for first, second in rewards]  # the first log-ratio is 0
    assert fetch_metrics(metrics["device"][0])["loss"] == pytest.approx(np.mean(want), rel=1e-5)


class Tabular:
    """A policy with a free distribution after every history of at most four tokens out of five."""

    vocab_size = 5

    def init(self, key: Array) -> Any:
        return {"table": jax.random.normal(key, (5**4, 5))}

    def axes(self) -> Any:
        return {"table": ("vocab", "embed")}

    def trainable(self) -> Any:
        return {"table": True}

    def apply(self, params: Any, inputs: Inputs, cache: Any = None, key: Any = None) -> Output:
        segments, positions = jnp.asarray(inputs.segment_ids), jnp.asarray(inputs.positions)
        seen = (segments[:, :, None] == segments[:, None]) & (positions[:, :, None] >= positions[:, None])
        place = jnp.sum(jnp.where(seen, (inputs.tokens * 5 ** jnp.minimum(positions, 3))[:, None], 0), axis=-1)
        return Output(hidden=params["table"][place % 5**4])

    def logits(self, params: Any, hidden: Array) -> Array:
        return hidden

    def init_cache(self, rows: int, positions: int) -> Any: ...

    def unstack(self, params: Any) -> Any:
        return params


def test_the_minimiser_of_a_dialogue_of_two_turns_is_the_improved_policy(runtime: Runtime):
    """d = eta (Q - Q') at both turns, Q under pi_t by brute force. Token 0 opens, 1 and 2 are replies, the user says 3 or 4.

    pi_t says 1 with 3/4, the user 3 with 1/3 after a 1 and with 2/3 after a 2; every pair comes as often as it is likely.
    """
    eta, rng = 1.5, np.random.default_rng(0)
    pi, user = {1: 3, 2: 1}, {(1, 3): 1, (1, 4): 2, (2, 3): 2, (2, 4): 1}
    reward = {(a, o, b): float(rng.normal()) for a in (1, 2) for o in (3, 4) for b in (1, 2)}
    futures = {a: [(o, b) for o in (3, 4) for b in (1, 2) for _ in range(user[a, o] * pi[b])] for a in (1, 2)}

    def dialogue(a: int, o: int, b: int, h: int | None = None) -> Trajectory:
        return spoken([[a], [b]], [0.0, reward[a, o, b]], [[0], [o]], 1.0).replace(branch_turn=h)

    groups = [Group("", (dialogue(1, *x), dialogue(2, *y, h=0))) for x, y in itertools.product(futures[1], futures[2])]
    groups += [Group("", (dialogue(a, o, 1), dialogue(a, o, 2, h=1))) for a, o in user]
    policy = Tabular()
    params = {"table": jnp.zeros((5**4, 5)).at[:, 1].set(jnp.log(3.0))}
    adam = AdamWConfig(0.3, final_fraction=0.0, clip_norm=1e6)
    config = refuel(eta, optimizer=adam, bin_length=64, microbatch=16, epochs=150)
    state = config.build(policy, mesh_of(), 1)
    table = np.asarray(steps(state, runtime, [groups], params)[0]["table"]) - np.asarray(params["table"])

    def d(*history: int) -> float:
        place = sum(token * 5**i for i, token in enumerate(history))
        return float(table[place, 1] - table[place, 2])

    q = {a: sum(user[a, o] / 3 * pi[b] / 4 * reward[a, o, b] for o in (3, 4) for b in (1, 2)) for a in (1, 2)}
    assert d(0) == pytest.approx(eta * (q[1] - q[2]), abs=1e-3)
    for a, o in user:
        assert d(0, a, o) == pytest.approx(eta * (reward[a, o, 1] - reward[a, o, 2]), abs=1e-3)


def test_one_turn_is_rebel_to_the_bit(runtime: Runtime):
    """Two independent answers, and a pair that parts at its only turn: the update is the same."""
    pairs = some_pairs(6, 5, turns=1)
    answers = [Group(g.task, tuple(t.replace(parent=None, branch_turn=None) for t in g.trajectories)) for g in pairs]
    one, (metrics,) = steps(build(refuel(2.0, epochs=3, **SHAPE)), runtime, [pairs])
    other, _ = steps(build(rebel(2.0, epochs=3, **SHAPE)), runtime, [answers])
    assert same_leaves(one, other) and not same_leaves(one, PARAMS)
    assert fetch_metrics(metrics["device"][0])["loss"] == pytest.approx(stated(PARAMS, PARAMS, PARAMS, pairs, eta=2.0), rel=1e-4)


TWICE = RelativeConfig(Regression(1.0), kl=0.1, epochs=2, minibatches=2, **SHAPE)


@pytest.fixture(scope="module")
def twice(runtime: Runtime) -> Any:
    """The parameters after two steps on one device."""
    return steps(build(TWICE), runtime, [GROUPS, GROUPS])[0]


SPLITS = [({"data": 8}, {"microbatch": 8}), ({"data": 2, "fsdp": 4}, {"microbatch": 8, "bin_length": 80}), ({}, {"microbatch": 1})]


@pytest.mark.parametrize(("mesh", "shape"), [SPLITS[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in SPLITS[1:])])
def test_meshes_bins_and_microbatches_change_nothing(runtime: Runtime, twice: Any, mesh: dict[str, int], shape: dict[str, int]):
    got, metrics = steps(build(dataclasses.replace(TWICE, **shape), **mesh), runtime, [GROUPS, GROUPS])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, twice)
    assert float(metrics[0]["device"][0]["first/log_ratio"]) == 0.0


def test_nothing_compiles_after_the_first_step(runtime: Runtime):
    algorithm = build(refuel(1.0, epochs=2, minibatches=2, kl=0.1, **SHAPE))
    state = algorithm.init(jax.random.key(0), PARAMS)
    state, _ = algorithm.step(state, GROUPS, runtime)
    with counted_compilations() as compiled:
        for seed in range(4):
            state, _ = algorithm.step(state, some_pairs(1 + 4 * seed, seed), runtime)
    assert compiled == []


@pytest.mark.slow
def test_what_a_pair_was_shown_can_be_read_once_for_both(runtime: Runtime):
    policy = minute_policy(layers=1)
    params = policy.init(jax.random.key(1))
    config = RelativeConfig(Regression(1.0), epochs=2, **SHAPE)
    want, _ = steps(build(config, policy), runtime, [GROUPS], params)
    got, _ = steps(build(dataclasses.replace(config, prompt=6, bin_length=20), policy), runtime, [GROUPS], params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, want)


@pytest.mark.slow
def test_only_the_last_layers_move(runtime: Runtime):
    policy = minute_policy(layers=3)
    params = policy.init(jax.random.key(1))
    after, _ = steps(build(refuel_online(**SHAPE | {"top_layers": 2, "bin_length": 64}), policy), runtime, [GROUPS, GROUPS], params)
    for (path, new), old in zip(jax.tree_util.tree_leaves_with_path(after), jax.tree.leaves(params), strict=True):
        moved = np.abs(np.asarray(new) - np.asarray(old))
        if "layers" in jax.tree_util.keystr(path):
            moved = moved.reshape(3, -1).max(axis=1)
            assert moved[0] == 0 and (moved[1:] > 0).all()
        else:
            assert moved.max() == 0
    with pytest.raises(UserError, match="3 layers"):
        top_layers(policy, 4)


@pytest.mark.slow
def test_a_reward_model_judges_in_place_of_the_reward(runtime: Runtime):
    """While it learns the policy waits; then dialogues are worth what it says, and it stays as it is."""
    judge = PreferenceConfig(HeadConfig(layers=1, scale=1.0), optimizer=AdamWConfig(0.03), length=40, microbatch=4)
    algorithm = build(RelativeConfig(Regression(1.0), judge=judge, judge_steps=2, **SHAPE))
    state = algorithm.init(jax.random.key(0), PARAMS)
    for _ in range(2):
        state, metrics = algorithm.step(state, GROUPS, runtime)
        assert metrics["skipped"] == 1 and metrics["critic/pairs"] == len(GROUPS) and same_leaves(jax.device_get(state.params), PARAMS)
    learnt = jax.device_get(state.extra.judge.params)
    assert algorithm._judge is not None
    scores = algorithm._judge.score(state.extra.judge, [one for group in GROUPS for one in group.trajectories])
    state, metrics = algorithm.step(state, GROUPS, runtime)
    assert same_leaves(learnt, jax.device_get(state.extra.judge.params)) and metrics["skipped"] == 0
    assert metrics["pairs/gap"] == pytest.approx(np.abs(scores[0::2] - scores[1::2]).mean(), rel=1e-4)


@pytest.mark.slow
def test_a_resumed_step_is_the_step_that_was_not_interrupted(runtime: Runtime, tmp_path: Path):
    """With a reference and a reward model that is learning when the run stops."""
    judge = PreferenceConfig(HeadConfig(layers=1, scale=1.0), optimizer=AdamWConfig(0.03), length=40, microbatch=4)
    config = RelativeConfig(Regression(1.0), judge=judge, judge_steps=2, kl=0.1, **SHAPE)
    batches = [some_pairs(5, seed) for seed in range(4)]
    want, _ = steps(build(config), runtime, batches)
    first, second, keeper = build(config), build(config), Keeper(tmp_path)
    state = first.init(jax.random.key(0), PARAMS)
    state, _ = first.step(state, batches[0], runtime)
    keeper.save(1, state, {"algorithm": first.host_state()})
    state, host = keeper.restore(second.init(jax.random.key(0), PARAMS))
    keeper.close()
    second.load_host_state(json.loads(json.dumps(host["algorithm"])))
    for groups in batches[1:]:
        state, _ = second.step(state, groups, runtime)
    assert same_leaves(jax.device_get(state.params), want) and not same_leaves(want, PARAMS)


def test_what_makes_no_sense_is_refused():
    settings: list[dict[str, Any]] = [{"epochs": 0}, {"kl": -1.0}, {"prompt": 4}]
    for wrong in settings:
        with pytest.raises(UserError):
            build(RelativeConfig(Regression(1.0), **wrong))
