"""The slots of a policy-gradient step in use: critics, replay, filters, mismatch corrections,
auxiliary objectives, probes, and an exact resume of all.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    record_compilations,
    trajectories_with_turns,
    unpacked_logp,
    with_info,
    with_sampler_logp,
)
from support.method_runs import (
    ADAM,
    GROUPS,
    HEAD,
    PARAMS,
    POLICY,
    SHAPE,
    random_experience,
    recorded_run,
    train,
    trees_equal,
)

from agentrl_jax.algorithms.advantages.gae import GAE
from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.grouping import (
    call_of_token,
    sequence_of_token,
    turn_of_token,
)
from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.experience.filters import MinScoreStd
from agentrl_jax.algorithms.experience.self_imitation import PositiveReplay
from agentrl_jax.algorithms.losses.importance import RatioRejection, TruncatedIS
from agentrl_jax.algorithms.losses.kl import kl_k1
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import actor_critic, grpo, gui, multi_turn, tool_use
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.answer_probe import AnswerProbe
from agentrl_jax.algorithms.policy_gradient.auxiliary import Imitation, SelfImitation
from agentrl_jax.algorithms.policy_gradient.credited_batch import TokenTargets, credit_metrics
from agentrl_jax.algorithms.policy_gradient.critic import (
    CriticConfig,
    explained_variance,
    first_token_mean,
)
from agentrl_jax.algorithms.policy_gradient.scoring import ScoringPass
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import pack
from agentrl_jax.learner.sequences import CreditInputs, collate, make_credit_inputs, sequences_of
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


def credit_inputs(groups: Sequence[Group]) -> CreditInputs:
    return make_credit_inputs(groups, collate(groups))


def base(**settings: Any) -> PolicyGradientConfig:
    return PolicyGradientConfig(
        **{
            "advantage": group_normalized,
            "aggregation": token_mean,
            "surrogate": PPO(),
            **SHAPE,
            **settings,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vapo", "spear", "arpo", "epo"])
def test_a_resumed_step_equals_the_uninterrupted_one(name: str, runtime: Runtime, tmp_path: Path):
    config = {
        "vapo": actor_critic.vapo(HEAD, warmup=1, **SHAPE),
        "spear": tool_use.spear(12.0, replay_size=2, **SHAPE),
        "arpo": gui.arpo_gui(**SHAPE),
        "epo": multi_turn.epo(**SHAPE),
    }[name]
    batches = [random_experience(seed) for seed in (3, 4, 5, 6)]

    def run(algorithm: Any, state: Any, batches: Sequence[Sequence[Group]]) -> Any:
        for batch in batches:
            state, _ = algorithm.step(state, batch, runtime)
        return state

    unbroken = config.build(POLICY, device_mesh(), 10)
    want = run(unbroken, unbroken.init(jax.random.key(0), PARAMS), batches)
    first = config.build(POLICY, device_mesh(), 10)
    state = run(first, first.init(jax.random.key(0), PARAMS), batches[:2])
    keeper = PhaseCheckpointer(tmp_path)
    keeper.save(2, state, {"algorithm": first.host_state()})
    second = config.build(POLICY, device_mesh(), 10)
    state, host = keeper.restore(second.init(jax.random.key(0), PARAMS))
    keeper.close()
    second.load_host_state(json.loads(json.dumps(host["algorithm"])))
    got = run(second, state, batches[2:])
    assert trees_equal(
        jax.device_get((got.params, got.opt_state)), jax.device_get((want.params, want.opt_state))
    )
    if got.extra.critic is not None:
        assert trees_equal(
            jax.device_get(got.extra.critic.params), jax.device_get(want.extra.critic.params)
        )
    assert json.dumps(second.host_state()) == json.dumps(unbroken.host_state())


@pytest.mark.slow
def test_a_critic_learns_the_returns_during_the_policys_warmup(runtime: Runtime):
    critic = CriticConfig(HEAD, AdamWConfig(0.05), clip=float("inf"), warmup_steps=40)
    config = actor_critic.ppo(HEAD, critic=critic, advantage=GAE(critic_lam=1.0), **SHAPE)
    params, metrics = train(config, runtime, [GROUPS] * 40)
    assert trees_equal(params, PARAMS)
    first, last = metrics[0], metrics[-1]
    assert first["critic/explained_variance"] < 0.1 < 0.3 < last["critic/explained_variance"]
    losses = [
        fetch_metrics(metrics_of_step["critic"][0])["value_loss"]
        for metrics_of_step in (first, last)
    ]
    assert losses[1] < 0.6 * losses[0] and last["skipped"] == 1


def test_an_advantage_that_needs_a_critic_and_a_critic_require_each_other(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    for config in (base(critic=CriticConfig(HEAD)), base(advantage=GAE())):
        with pytest.raises(UserError, match="critic"):
            recorded_run(config, [GROUPS], runtime, monkeypatch)


def test_explained_variance():
    target = np.array([1.0, 2.0, 4.0])
    assert (
        explained_variance(target, target) == 1.0
        and explained_variance(np.full(3, 7.0), target) == 0.0
    )
    assert (
        explained_variance(np.zeros(2), np.ones(2)) == 0.0
        and explained_variance(np.zeros(0), np.zeros(0)) == 0.0
    )


def test_first_token_mean_gives_each_turn_one_weighted_token():
    indices = collate(GROUPS).token_index
    weight = first_token_mean(indices)
    assert weight.sum() == pytest.approx(1) and np.count_nonzero(weight) == len(
        np.unique(indices.token_turn)
    )

    single = collate([Group("a", (make_trajectory(make_turn([make_call([1], [5, 6])])),))])
    assert first_token_mean(single.token_index).tolist() == [1.0, 0.0]


def test_a_value_before_a_token_is_the_one_after_the_token_before_it():
    model = CriticConfig(HeadConfig(layers=0)).build_model(POLICY)
    params = {
        "trunk": PARAMS,
        "head": jax.tree.map(jnp.ones_like, model.init(jax.random.key(0))["head"]),
    }
    (trajectory, *_) = GROUPS[0].trajectories
    layout = pack(sequences_of(trajectory), 16, 1)
    batch = layout.to_batch(np.ones((layout.num_bins, 16), np.float32))
    (after,), _ = model.values_after_tokens(params, batch, None)
    (before,), _ = model.values_before_tokens(params, batch, None)
    assert before.shape == after.shape and np.asarray(after).any()
    np.testing.assert_array_equal(before[:, 1:], after[:, :-1])
    assert not np.asarray(before[:, 0]).any()


def test_without_a_sequence_there_is_no_importance_weight():
    scoring = ScoringPass(None, collate([]).token_index, 1)
    is_used: Any
    weights, is_used = scoring.importance_weights(None, np.zeros(0), np.zeros(0, np.int64))  # type: ignore[arg-type]
    assert weights.shape == is_used.shape == (0,) and is_used.dtype == bool


def test_metrics_of_credit_count_only_trained_tokens():
    turns = [make_turn([make_call([1], [5, 6])]), make_turn([make_call([1, 5, 6], [7])])]
    inputs = credit_inputs([Group("a", (make_trajectory(*turns),))])
    mask = np.array([True, False, True])
    metrics = credit_metrics(inputs, TokenTargets(np.array([1.0, 9.0, -3.0]), mask, token_mean))
    assert metrics == pytest.approx(
        {
            "advantage/mean": -1.0,
            "advantage/std": 2.0,
            "advantage/positive": 0.5,
            "tokens/masked": 1 / 3,
            "advantage/turn_0": 1.0,
            "advantage/turn_1": -3.0,
        }
    )


def test_staleness_is_the_mean_over_tokens_of_known_weights(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    versions = iter([0, 0, 1, -1])
    groups = [
        Group(
            "a",
            tuple(
                make_trajectory(make_turn([make_call([1], [5], version=[next(versions)])]))
                for _ in "ab"
            ),
        )
        for _ in "ab"
    ]
    _, _, metrics = recorded_run(base(), [GROUPS, groups], runtime, monkeypatch)
    assert metrics[1]["staleness"] == pytest.approx(2 / 3)  # at step 1: 1, 1 and 0


def test_stored_trajectories_are_compared_with_zero_until_the_replay_is_ready():
    imitation = SelfImitation(1.0, PositiveReplay(require_tool_call=False))
    assert imitation.groups_for_step([], np.random.default_rng(0)) == []
    groups = [Group("a", (make_trajectory(make_turn([make_call([1], [5])], 0.75)),))]
    inputs = credit_inputs(groups)
    assert imitation.targets(inputs, 0).advantage.tolist() == [0.75]


@pytest.mark.parametrize("rescore", [True, False])
def test_at_ratio_one_a_mismatch_correction_changes_nothing(
    rescore: bool, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    plain, corrected = (
        recorded_run(base(rescore=rescore, mismatch=mismatch), [GROUPS], runtime, monkeypatch)[1]
        for mismatch in (None, TruncatedIS(1.0, 1.0))
    )
    assert all(trees_equal(a.advantage, b.advantage) for a, b in zip(plain, corrected))


def test_rejected_tokens_are_neither_trained_nor_counted_in_the_mean(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    _, microbatches, _ = recorded_run(
        base(rescore=True, mismatch=RatioRejection(0.5, 3.0)), [GROUPS], runtime, monkeypatch
    )
    weights = np.concatenate(
        [microbatch.batch.weight[microbatch.batch.action_mask] for microbatch in microbatches]
    )
    num_trained = np.count_nonzero(weights)
    assert 0 < num_trained < len(weights) and np.allclose(weights[weights != 0], weights.max())
    collated = collate(GROUPS)
    gap = _recording_logp(collated) - collated.token_values("sampler_logp")
    inside = (np.exp(gap) >= 0.5) & (np.exp(gap) <= 3.0)
    assert weights.max() == pytest.approx(1 / inside.sum())


def _recording_logp(collated: Any) -> np.ndarray:
    tokens, positions = collated.token_values("tokens"), collated.token_index.token_position
    return 0.1 * np.sin(1.7 * tokens + 0.3 * positions).astype(np.float32) - 2.0


def test_truncated_weights_scale_advantages(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    plain, scaled = (
        recorded_run(base(rescore=True, mismatch=mismatch), [GROUPS], runtime, monkeypatch)[1]
        for mismatch in (None, TruncatedIS(high=1.0))
    )
    for a, b in zip(plain, scaled):
        mask = a.batch.action_mask
        trust = np.minimum(np.exp(a.proximal_logp - a.batch.sampler_logp)[mask], 1.0)
        np.testing.assert_allclose(b.advantage[mask], a.advantage[mask] * trust, rtol=1e-4)


def test_normalized_mismatch_weights_have_mean_one(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    settings: dict[str, Any] = {"rescore": True, "mismatch": TruncatedIS(high=1.0)}
    plain, level = (
        recorded_run(
            base(**settings, mismatch_normalize=normalize), [GROUPS], runtime, monkeypatch
        )[1]
        for normalize in (False, True)
    )
    gap = _recording_logp(collate(GROUPS)) - collate(GROUPS).token_values("sampler_logp")
    mean = np.minimum(np.exp(gap), 1.0).mean()
    for a, b in zip(plain, level):
        np.testing.assert_allclose(b.advantage * mean, a.advantage, rtol=1e-4)
    with pytest.raises(UserError, match="set mismatch and rescore"):
        base(mismatch_normalize=True).build(POLICY, device_mesh(), 1)


@pytest.mark.parametrize("sequence", [sequence_of_token, turn_of_token, call_of_token])
def test_sequences_of_a_packed_row_have_distinct_ids(
    sequence: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    _, microbatches, _ = recorded_run(
        base(sequence=sequence, bin_length=48), [GROUPS], runtime, monkeypatch
    )
    inputs = make_credit_inputs(GROUPS, collate(GROUPS))
    key = sequence(inputs)
    sizes = sorted(
        np.unique(np.stack([inputs.token_sequence, key]), axis=1, return_counts=True)[1].tolist()
    )
    packed_sizes = []
    for microbatch in microbatches:
        for ids, mask in zip(microbatch.sequence_ids, microbatch.batch.action_mask):
            assert (ids < microbatch.sequence_ids.shape[1]).all()
            packed_sizes += np.unique(ids[mask], return_counts=True)[1].tolist()
    num_trained = sum(
        mask.sum() for microbatch in microbatches for mask in microbatch.batch.action_mask
    )
    assert sum(packed_sizes) == num_trained and set(packed_sizes) <= set(sizes)


def test_a_filter_is_reported_in_the_metrics(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    level = [dataclasses.replace(g, trajectories=(g.trajectories[0],) * 4) for g in GROUPS[:2]]
    _, _, (metrics,) = recorded_run(
        base(filter=MinScoreStd(0.1)), [[*level, *GROUPS[2:]]], runtime, monkeypatch
    )
    assert metrics["groups_kept"] == pytest.approx(4 / 6)


@pytest.mark.slow
def test_demonstrations_in_addition_to_rollouts_are_imitated(runtime: Runtime):
    demonstrations = [
        dataclasses.replace(group, trajectories=(_as_demonstration(group.trajectories[0]),))
        for group in with_sampler_logp(
            POLICY, PARAMS, random_groups([[[(3, 4, False, 0.0)]]] * 5, seed=9)
        )
    ]
    config = base(auxiliaries=(Imitation(1.0),), optimizer=ADAM)
    ours, (metrics,) = train(config, runtime, [demonstrations])
    algorithm = BehaviorCloningConfig(optimizer=ADAM, bin_length=24, microbatch=4).build(
        POLICY, device_mesh(), 100
    )
    state, _ = algorithm.step(algorithm.init(jax.random.key(0), PARAMS), demonstrations, runtime)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ours, jax.device_get(state.params)
    )
    assert metrics["groups_with_signal"] == 0 and metrics["tokens"] == 0
    both, _ = train(config, runtime, [[*GROUPS, *demonstrations]])
    alone, _ = train(base(optimizer=ADAM), runtime, [GROUPS])
    assert not trees_equal(both, alone) and not trees_equal(both, ours)


def test_a_ranked_action_is_not_imitated():
    sources = ("sampled", "demonstration", "ranked")
    groups = [
        dataclasses.replace(
            GROUPS[0], trajectories=(_as_demonstration(GROUPS[0].trajectories[0], source),)
        )
        for source in sources
    ]
    assert Imitation(1.0).split_groups(groups) == ([groups[0], groups[2]], [groups[1]])


def _as_demonstration(trajectory: Any, source: str = "demonstration") -> Any:
    turns = tuple(
        dataclasses.replace(
            turn, calls=tuple(dataclasses.replace(call, source=source) for call in turn.calls)
        )
        for turn in trajectory.turns
    )
    return trajectory.replace(turns=turns)


@pytest.mark.slow
def test_nothing_recompiles_after_the_first_steps(runtime: Runtime):
    config = actor_critic.vapo(
        HEAD,
        warmup=1,
        filter=MinScoreStd(0.01),
        mismatch=TruncatedIS(),
        rescore=True,
        epochs=2,
        minibatches=2,
        **SHAPE,
    )
    config.regularizers["kl"] = KL(0.1, kl_k1)
    algorithm = config.build(POLICY, device_mesh(), 100)
    state = algorithm.init(jax.random.key(0), PARAMS)
    for seed in (3, 4, 5):
        state, _ = algorithm.step(state, random_experience(seed), runtime)
    with record_compilations() as compiled:
        for seed in range(6, 12):
            state, _ = algorithm.step(state, random_experience(seed)[: 1 + seed % 6], runtime)
    assert compiled == []


@pytest.mark.slow
def test_a_probe_measures_the_log_prob_of_the_answer():
    renderer = TextRenderer(byte_tokenizer())
    policy = MeanEmbeddingPolicy(vocab_size=len(byte_tokenizer()))
    params = policy.init(jax.random.key(0))
    groups = with_info(
        random_groups([[[(3, 2, False, 0.0), (2, 2, False, 1.0)]], [[(4, 1, False, 0.0)]]]),
        gold=lambda turn, place: f"no{place}",
    )
    algorithm = grpo(optimizer=ADAM, bin_length=48, microbatch=2).build(policy, device_mesh(), 10)
    state = algorithm.init(jax.random.key(0), params)
    probe = AnswerProbe("the answer is ")

    def judge(rows: list, indices: Any) -> np.ndarray:
        from agentrl_jax.distributed.process_group import ProcessGroup

        return algorithm.token_logp(state, ProcessGroup(), rows, indices)

    for trajectory in trajectories_with_turns(probe(groups, renderer, judge)):
        for turn in trajectory.turns:
            row = probe._answer_sequence(turn, renderer)
            ids = row.tokens[row.action_mask]
            assert renderer.parse(ids).text == str(turn.info["gold"])
            want = unpacked_logp(policy, params, row, 48)[row.action_mask].mean()
            assert turn.info["gold_logp"] == pytest.approx(want, abs=1e-5)
            inner = dataclasses.replace(probe, suffix="o1 end")._answer_sequence(turn, renderer)
            ids = inner.tokens[inner.action_mask]
            assert renderer.codec.decode(tuple(ids.tolist())) == str(turn.info["gold"])
