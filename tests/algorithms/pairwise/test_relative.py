"""REFUEL's update against plain implementations: losses, pairs, the fixed point of a small
dialogue, meshes and microbatches.
"""

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
from jax import Array
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    make_call,
    make_trajectory,
    make_turn,
    record_compilations,
    tiny_policy,
    trees_equal,
    unpacked_logp,
)

from agentrl_jax.algorithms.losses.pairwise import DPOLoss, RegressionLoss, dpo_loss, rebel_loss
from agentrl_jax.algorithms.methods import dpo, rebel, refuel, refuel_online
from agentrl_jax.algorithms.pairwise.algorithm import PairwiseConfig, PairwiseTrainer
from agentrl_jax.algorithms.pairwise.pairs import preference_pairs_of
from agentrl_jax.algorithms.pairwise.pairwise_batch import log_ratio
from agentrl_jax.algorithms.pairwise.train_last_layers import last_layers_mask
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import TrainingSequence
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import PolicyInputs, PolicyOutput
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(0))
ADAM = AdamWConfig(learning_rate=0.03, eps=1e-3)
SHAPE: dict[str, Any] = {"optimizer": ADAM, "bin_length": 48, "microbatch": 4}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


def make_dialogue(
    replies: Sequence[Sequence[int]],
    rewards: Sequence[float],
    prompts: Sequence[Sequence[int]],
    temperature: float,
) -> Trajectory:
    """A dialogue of these replies, each after new prompt tokens."""
    turns, so_far = [], np.zeros(0, np.int32)
    for i, (prompt, reply) in enumerate(zip(prompts, replies)):
        call = make_call(np.concatenate([so_far, prompt]), reply, temperature)
        so_far = call.ids
        turns.append(make_turn([call], rewards[i], terminated=i == len(replies) - 1))
    return make_trajectory(*turns)


def random_pairs(count: int, seed: int, turns: int = 3) -> list[Group]:
    """Pairs of dialogues that diverge at any of their turns, with temperature .5."""
    rng, groups = np.random.default_rng(seed), []

    def random_tokens(low: int, high: int) -> list[int]:
        return rng.integers(0, 24, rng.integers(low, high)).tolist()

    for i in range(count):
        h, opening = int(rng.integers(turns)), [random_tokens(1, 5) for _ in range(turns)]
        first, second = (
            [random_tokens(1, 4) for _ in range(turns)],
            [random_tokens(1, 4) for _ in range(turns)],
        )
        replies, prompts = (
            [*first[:h], *second[h:]],
            [*opening[: h + 1], *[random_tokens(1, 4) for _ in range(h + 1, turns)]],
        )
        dialogue = make_dialogue(first, rng.normal(size=turns).tolist(), opening, 0.5)
        rewards = [turn.reward for turn in dialogue.turns[:h]] + rng.normal(size=turns - h).tolist()
        groups.append(
            Group(
                str(i),
                (
                    dialogue,
                    make_dialogue(replies, rewards, prompts, 0.5).replace(parent=0, branch_turn=h),
                ),
            )
        )
    return groups


GROUPS = random_pairs(7, 3)


def build(config: PairwiseConfig, policy: Any = POLICY, **mesh: int) -> PairwiseTrainer:
    return config.build(policy, device_mesh(**mesh), 100)


def steps(
    algorithm: PairwiseTrainer,
    runtime: Runtime,
    experience: Sequence[Sequence[Group]],
    params: Any = PARAMS,
) -> tuple[Any, list]:
    state, metrics = algorithm.init(jax.random.key(0), params), []
    for groups in experience:
        state, step_metrics = algorithm.step(state, groups, runtime)
        metrics.append(step_metrics)
    return jax.device_get(state.params), metrics


# A reference implementation in NumPy: loops over pairs, each reply's log-prob alone.


def reply_logp(params: Any, dialogue: Trajectory, turn: int) -> float:
    """ln pi(y_h | s_h)."""
    (call,) = dialogue.turns[turn].calls
    n, none = len(call.ids), np.zeros(len(call.ids), np.int32)
    row = TrainingSequence(
        call.ids,
        none.astype(bool),
        np.zeros(n, np.float32),
        none,
        np.full(n, call.sampling.temperature, np.float32),
        none,
    )
    return float(unpacked_logp(POLICY, params, row)[len(call.prompt) :].sum())


def expected_loss(
    params: Any,
    before: Any,
    start: Any,
    groups: Sequence[Group],
    eta: float = 0.0,
    beta: float = 0.0,
    kl: float = 0.0,
) -> float:
    """The mean over pairs of (d - eta (r - r'))^2, or with a beta of log(1 + exp(-beta d)), where d
    is the log-ratio of the dialogue with the larger reward minus that of the other.
    """
    losses = []
    for group in groups:
        first, second = group.trajectories
        h = second.branch_turn or 0
        d = [
            reply_logp(params, dialogue, h) - reply_logp(before, dialogue, h)
            for dialogue in (first, second)
        ]
        r = [
            dialogue.total_reward
            - kl * (reply_logp(before, dialogue, h) - reply_logp(start, dialogue, h))
            for dialogue in (first, second)
        ]
        if beta:
            losses.append(np.log1p(np.exp(-beta * (d[0] - d[1]) * (1 if r[0] > r[1] else -1))))
        else:
            losses.append((d[0] - d[1] - eta * (r[0] - r[1])) ** 2)
    return float(np.mean(losses))


def test_the_losses_by_hand():
    logp_diff, gap = jnp.array([0.0, 1.0, -2.0, 3.0]), jnp.array([0.5, -1.0, 1.0, 0.0])
    np.testing.assert_allclose(rebel_loss(logp_diff, gap, eta=2.0), [1.0, 9.0, 16.0, 9.0])
    want = [np.log(2), np.log1p(np.exp(0.5)), np.log1p(np.exp(1.0)), np.log(2)]
    np.testing.assert_allclose(dpo_loss(logp_diff, gap, beta=0.5), want, rtol=1e-6)
    slope = jax.vmap(jax.grad(lambda d, g: dpo_loss(d, g, beta=0.5)))(logp_diff, gap)
    np.testing.assert_allclose(
        slope, [-0.25, 0.5 / (1 + np.exp(-0.5)), -0.5 / (1 + np.exp(-1.0)), 0.0], atol=1e-6
    )


@pytest.mark.parametrize(
    ("config", "constants"),
    [
        (PairwiseConfig(RegressionLoss(2.0), kl=0.3), {"eta": 2.0, "kl": 0.3}),
        (PairwiseConfig(DPOLoss(1.5)), {"beta": 1.5}),
    ],
)
def test_every_update_has_the_loss_of_a_loop_over_pairs(
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    config: PairwiseConfig,
    constants: dict[str, float],
):
    """Two steps of two epochs each: the log-ratio is to the policy before the step, the KL to the
    one before the first step.
    """
    algorithm, seen = build(dataclasses.replace(config, epochs=2, **SHAPE)), list[Any]()
    update = algorithm._learner.update

    def recorded_update(state: TrainState, parts: Any) -> Any:
        seen.append(jax.device_get(state.params))
        return update(state, parts)

    monkeypatch.setattr(algorithm._learner, "update", recorded_update)
    state = algorithm.init(jax.random.key(0), PARAMS)
    for groups in (GROUPS, random_pairs(5, 4)):
        seen.clear()
        state, metrics = algorithm.step(state, groups, runtime)
        assert len(seen) == 2 and not trees_equal(*seen)
        for now, on_device in zip(seen, metrics["device"], strict=True):
            assert fetch_metrics(on_device)["loss"] == pytest.approx(
                expected_loss(now, seen[0], PARAMS, groups, **constants), rel=1e-4
            )


@pytest.mark.slow
def test_the_first_log_ratio_is_exactly_0(runtime: Runtime):
    policy = tiny_policy(layers=1)
    config = refuel(1.0, epochs=2, **SHAPE)
    _, metrics = steps(
        build(config, policy), runtime, [GROUPS, GROUPS], policy.init(jax.random.key(1))
    )
    for step in metrics:
        first, second = (jax.device_get(x) for x in step["device"])
        assert first["first/log_ratio"] == 0.0 == first["log_ratio"] and second["log_ratio"] > 0.01
        assert (
            first["first/logp_gap"] / first["tokens"] < 1e-6
        )  # the forward pass alone, with the same weights
    _, metrics = steps(build(dpo(1.0, **SHAPE)), runtime, [GROUPS, GROUPS])
    ratios = [float(step["device"][0]["first/log_ratio"]) for step in metrics]
    assert ratios[0] < 1e-4 < ratios[1]  # to the initial policy, not to the one before the step


def test_only_the_tokens_of_turn_h_have_a_gradient(runtime: Runtime):
    algorithm = build(PairwiseConfig(RegressionLoss(3.0), **SHAPE))
    state, pairs = algorithm.init(jax.random.key(0), PARAMS), preference_pairs_of(GROUPS)[0]
    gaps = np.array(
        [a.total_reward - b.total_reward for a, b in (pair.dialogues for pair in pairs)]
    )
    batches = algorithm._microbatches(state, pairs, gaps, runtime)
    slopes: list[float] = []
    for part in batches:
        logp_diff = np.random.default_rng(0).normal(size=part.reward_diff.shape).astype(np.float32)

        def total(logp: Array, part: Any = part) -> Array:
            return jnp.sum(part.batch.weight * algorithm._loss(logp, logp, part)[0])

        slope = np.asarray(jax.grad(total)(jnp.asarray(part.anchor_logp + logp_diff)))
        assert ((slope != 0) == part.batch.action_mask).all()
        d = np.asarray(log_ratio(jnp.asarray(part.anchor_logp + logp_diff), part))
        np.testing.assert_allclose(
            slope, 2 * (d - 3.0 * part.reward_diff) * part.sign / len(pairs), atol=1e-4
        )
        slopes += slope[slope != 0].tolist()
    reply_lengths = [
        len(dialogue.turns[pair.turn].calls[0].action)
        for pair in pairs
        for dialogue in pair.dialogues
    ]
    assert len(slopes) == sum(reply_lengths) and all(
        len(row) == len(d.turns[p.turn].calls[0].ids)
        for p in pairs
        for row, d in zip(p.sequences, p.dialogues)
    )


def test_identical_replies_and_failed_dialogues_are_dropped(runtime: Runtime):
    first, second = GROUPS[0].trajectories
    h = second.branch_turn or 0
    same = Group("same", (first, first.replace(branch_turn=h)))
    alone = Group("alone", (first,), num_dropped=1)
    short = Group("short", (first, second.replace(turns=second.turns[:h])))
    failed = Group("failed", (first.replace(error="it broke"), second))
    without_reward = Group(
        "nan",
        (
            first,
            make_trajectory(
                *second.turns[:-1], dataclasses.replace(second.turns[-1], reward=np.nan)
            ).replace(branch_turn=h),
        ),
    )
    pairs, dropped = preference_pairs_of([*GROUPS, same, alone, short, failed, without_reward])
    assert len(pairs) == len(GROUPS) and dropped == {"broken": 4, "identical": 1}
    algorithm = build(PairwiseConfig(RegressionLoss(1.0), **SHAPE))
    params, (metrics,) = steps(algorithm, runtime, [[same, alone, short]])
    assert (
        trees_equal(params, PARAMS)
        and metrics["skipped"] == 1
        and metrics["pairs"] == 0
        and metrics["pairs/broken"] == 2
    )
    with pytest.raises(UserError, match="different prompts"):
        preference_pairs_of(
            [Group("mixed", (first, GROUPS[1].trajectories[1].replace(branch_turn=0)))]
        )


def test_a_truncated_reply_gets_only_the_penalty(runtime: Runtime):
    """At turn h; a reply that is truncated at another turn changes nothing."""
    penalty, groups, rewards = -4.0, list[Group](), list[list[float]]()
    for i, group in enumerate(GROUPS):
        h, members = group.trajectories[1].branch_turn or 0, list(group.trajectories)
        cut_reply, index = i % 2, h if i < 4 else (h + 1) % 3
        turns = list(members[cut_reply].turns)
        turns[index] = dataclasses.replace(
            turns[index],
            calls=(dataclasses.replace(turns[index].calls[0], finish_reason="budget"),),
        )
        members[cut_reply] = members[cut_reply].replace(turns=tuple(turns))
        groups.append(Group(group.task, tuple(members)))
        rewards.append(
            [
                penalty if i < 4 and k == cut_reply else dialogue.total_reward
                for k, dialogue in enumerate(members)
            ]
        )
    config = PairwiseConfig(RegressionLoss(2.0), unfinished_reward=penalty, **SHAPE)
    _, (metrics,) = steps(build(config), runtime, [groups])
    want = [(2.0 * (first - second)) ** 2 for first, second in rewards]  # the first log-ratio is 0
    assert fetch_metrics(metrics["device"][0])["loss"] == pytest.approx(np.mean(want), rel=1e-5)


class Tabular:
    """A policy with a free distribution after every history of at most four tokens out of five."""

    vocab_size = 5
    supports_branches = False

    def init(self, key: Array) -> Any:
        return {"table": jax.random.normal(key, (5**4, 5))}

    def axes(self) -> Any:
        return {"table": ("vocab", "embed")}

    def trainable(self) -> Any:
        return {"table": True}

    def apply(
        self, params: Any, inputs: PolicyInputs, cache: Any = None, key: Any = None
    ) -> PolicyOutput:
        segments, positions = jnp.asarray(inputs.segment_ids), jnp.asarray(inputs.positions)
        seen = (segments[:, :, None] == segments[:, None]) & (
            positions[:, :, None] >= positions[:, None]
        )
        index = jnp.sum(
            jnp.where(seen, (inputs.tokens * 5 ** jnp.minimum(positions, 3))[:, None], 0), axis=-1
        )
        return PolicyOutput(hidden=params["table"][index % 5**4])

    def logits(self, params: Any, hidden: Array) -> Array:
        return hidden

    def init_cache(self, rows: int, positions: int) -> Any: ...

    def unstack(self, params: Any) -> Any:
        return params


def test_the_minimizer_of_a_dialogue_of_two_turns_is_the_improved_policy(runtime: Runtime):
    """d = eta (Q - Q') at both turns, with Q under pi_t by brute force.

    Token 0 opens, 1 and 2 are replies, the user replies with 3 or 4. pi_t has probability 3/4 for
    1, the user has 1/3 for 3 after a 1 and 2/3 after a 2; every pair occurs in proportion to its
    probability.
    """
    eta, rng = 1.5, np.random.default_rng(0)
    pi, user = {1: 3, 2: 1}, {(1, 3): 1, (1, 4): 2, (2, 3): 2, (2, 4): 1}
    reward = {(a, o, b): float(rng.normal()) for a in (1, 2) for o in (3, 4) for b in (1, 2)}
    futures = {
        a: [(o, b) for o in (3, 4) for b in (1, 2) for _ in range(user[a, o] * pi[b])]
        for a in (1, 2)
    }

    def dialogue(a: int, o: int, b: int, h: int | None = None) -> Trajectory:
        return make_dialogue([[a], [b]], [0.0, reward[a, o, b]], [[0], [o]], 1.0).replace(
            branch_turn=h
        )

    groups = [
        Group("", (dialogue(1, *x), dialogue(2, *y, h=0)))
        for x, y in itertools.product(futures[1], futures[2])
    ]
    groups += [Group("", (dialogue(a, o, 1), dialogue(a, o, 2, h=1))) for a, o in user]
    policy = Tabular()
    params = {"table": jnp.zeros((5**4, 5)).at[:, 1].set(jnp.log(3.0))}
    adam = AdamWConfig(0.3, final_fraction=0.0, clip_norm=1e6)
    config = refuel(eta, optimizer=adam, bin_length=64, microbatch=16, epochs=150)
    state = config.build(policy, device_mesh(), 1)
    table = np.asarray(steps(state, runtime, [groups], params)[0]["table"]) - np.asarray(
        params["table"]
    )

    def d(*history: int) -> float:
        index = sum(token * 5**i for i, token in enumerate(history))
        return float(table[index, 1] - table[index, 2])

    q = {
        a: sum(user[a, o] / 3 * pi[b] / 4 * reward[a, o, b] for o in (3, 4) for b in (1, 2))
        for a in (1, 2)
    }
    assert d(0) == pytest.approx(eta * (q[1] - q[2]), abs=1e-3)
    for a, o in user:
        assert d(0, a, o) == pytest.approx(eta * (reward[a, o, 1] - reward[a, o, 2]), abs=1e-3)


def test_one_turn_is_rebel_bit_for_bit(runtime: Runtime):
    """Two independent answers, and a pair that branches at its only turn: the update is the
    same.
    """
    pairs = random_pairs(6, 5, turns=1)
    answers = [
        Group(g.task, tuple(t.replace(parent=None, branch_turn=None) for t in g.trajectories))
        for g in pairs
    ]
    from_pairs, (metrics,) = steps(build(refuel(2.0, epochs=3, **SHAPE)), runtime, [pairs])
    from_answers, _ = steps(build(rebel(2.0, epochs=3, **SHAPE)), runtime, [answers])
    assert trees_equal(from_pairs, from_answers) and not trees_equal(from_pairs, PARAMS)
    assert fetch_metrics(metrics["device"][0])["loss"] == pytest.approx(
        expected_loss(PARAMS, PARAMS, PARAMS, pairs, eta=2.0), rel=1e-4
    )


TWO_STEPS = PairwiseConfig(RegressionLoss(1.0), kl=0.1, epochs=2, minibatches=2, **SHAPE)


@pytest.fixture(scope="module")
def params_after_two_steps(runtime: Runtime) -> Any:
    """The parameters after two steps on one device."""
    return steps(build(TWO_STEPS), runtime, [GROUPS, GROUPS])[0]


SPLITS = [
    ({"data": 8}, {"microbatch": 8}),
    ({"data": 2, "fsdp": 4}, {"microbatch": 8, "bin_length": 80}),
    ({}, {"microbatch": 1}),
]


@pytest.mark.parametrize(
    ("mesh", "shape"),
    [SPLITS[0], *(pytest.param(*split, marks=pytest.mark.slow) for split in SPLITS[1:])],
)
def test_meshes_bins_and_microbatches_change_nothing(
    runtime: Runtime, params_after_two_steps: Any, mesh: dict[str, int], shape: dict[str, int]
):
    got, metrics = steps(
        build(dataclasses.replace(TWO_STEPS, **shape), **mesh), runtime, [GROUPS, GROUPS]
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, params_after_two_steps
    )
    assert float(metrics[0]["device"][0]["first/log_ratio"]) == 0.0


def test_nothing_recompiles_after_the_first_step(runtime: Runtime):
    algorithm = build(refuel(1.0, epochs=2, minibatches=2, kl=0.1, **SHAPE))
    state = algorithm.init(jax.random.key(0), PARAMS)
    state, _ = algorithm.step(state, GROUPS, runtime)
    with record_compilations() as compiled:
        for seed in range(4):
            state, _ = algorithm.step(state, random_pairs(1 + 4 * seed, seed), runtime)
    assert compiled == []


@pytest.mark.slow
def test_a_shared_prompt_can_be_computed_once_for_both_replies(runtime: Runtime):
    policy = tiny_policy(layers=1)
    params = policy.init(jax.random.key(1))
    config = PairwiseConfig(RegressionLoss(1.0), epochs=2, **SHAPE)
    want, _ = steps(build(config, policy), runtime, [GROUPS], params)
    got, _ = steps(
        build(dataclasses.replace(config, prompt_length=6, bin_length=20), policy),
        runtime,
        [GROUPS],
        params,
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, want)


@pytest.mark.slow
def test_only_the_last_layers_are_trained(runtime: Runtime):
    policy = tiny_policy(layers=3)
    params = policy.init(jax.random.key(1))
    after, _ = steps(
        build(refuel_online(**SHAPE | {"top_layers": 2, "bin_length": 64}), policy),
        runtime,
        [GROUPS, GROUPS],
        params,
    )
    for (path, new), old in zip(
        jax.tree_util.tree_leaves_with_path(after), jax.tree.leaves(params), strict=True
    ):
        logp_diff = np.abs(np.asarray(new) - np.asarray(old))
        if "layers" in jax.tree_util.keystr(path):
            logp_diff = logp_diff.reshape(3, -1).max(axis=1)
            assert logp_diff[0] == 0 and (logp_diff[1:] > 0).all()
        else:
            assert logp_diff.max() == 0
    with pytest.raises(UserError, match="3 layers"):
        last_layers_mask(policy, 4)


@pytest.mark.slow
def test_a_resumed_step_equals_the_uninterrupted_one(runtime: Runtime, tmp_path: Path):
    """With a reference policy."""
    config = PairwiseConfig(RegressionLoss(1.0), kl=0.1, **SHAPE)
    batches = [random_pairs(5, seed) for seed in range(4)]
    want, _ = steps(build(config), runtime, batches)
    first, second, keeper = build(config), build(config), PhaseCheckpointer(tmp_path)
    state = first.init(jax.random.key(0), PARAMS)
    state, _ = first.step(state, batches[0], runtime)
    keeper.save(1, state, {"algorithm": first.host_state()})
    state, host = keeper.restore(second.init(jax.random.key(0), PARAMS))
    keeper.close()
    second.load_host_state(json.loads(json.dumps(host["algorithm"])))
    for groups in batches[1:]:
        state, _ = second.step(state, groups, runtime)
    assert trees_equal(jax.device_get(state.params), want) and not trees_equal(want, PARAMS)


def test_invalid_settings_are_refused():
    settings: list[dict[str, Any]] = [{"epochs": 0}, {"kl": -1.0}, {"prompt_length": 4}]
    for wrong in settings:
        with pytest.raises(UserError):
            build(PairwiseConfig(RegressionLoss(1.0), **wrong))
