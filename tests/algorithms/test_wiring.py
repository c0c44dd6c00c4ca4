"""The slots of a policy-gradient step at work: critics, replay, filters, mismatch, auxiliaries, probes, and an exact resume of all."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import Averaging, counted_compilations, grown_groups, logp_alone, mesh_of, sampled_by, told, whole
from test_methods import ADAM, GROUPS, HEAD, PARAMS, POLICY, SHAPE, equal, experience, trained, written

from agentrl_jax.algorithms.advantages import group_normalized
from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.auxiliary import Imitation
from agentrl_jax.algorithms.critics import CriticConfig, explained_variance, turn_starts
from agentrl_jax.algorithms.filters import StdAbove
from agentrl_jax.algorithms.gae import GAE
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.keying import call_of_token, row_of_token, turn_of_token
from agentrl_jax.algorithms.losses import kl_k1
from agentrl_jax.algorithms.methods import critics, dialogue, gui, tools
from agentrl_jax.algorithms.mismatch import Clipped, RatioRejection
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.probing import GoldProbe
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.algorithms.surrogates import PPO
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.checkpoint import Keeper
from agentrl_jax.errors import UserError
from agentrl_jax.learner import fetch_metrics
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.rows import collate, evidence_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers import InProcess


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InProcess()) as runtime:
        yield runtime


def base(**settings: Any) -> PolicyGradientConfig:
    return PolicyGradientConfig(**{"advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), **SHAPE, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vapo", "spear", "arpo", "epo"])
def test_a_resumed_step_is_the_step_that_was_not_interrupted(name: str, runtime: Runtime, tmp_path: Path):
    config = {
        "vapo": critics.vapo(HEAD, warmup=1, **SHAPE), "spear": tools.spear(12.0, size=2, **SHAPE),
        "arpo": gui.arpo_gui(**SHAPE), "epo": dialogue.epo(**SHAPE),
    }[name]  # fmt: skip
    batches = [experience(seed) for seed in (3, 4, 5, 6)]

    def run(algorithm: Any, state: Any, batches: Sequence[Sequence[Group]]) -> Any:
        for batch in batches:
            state, _ = algorithm.step(state, batch, runtime)
        return state

    unbroken = config.build(POLICY, mesh_of(), 10)
    want = run(unbroken, unbroken.init(jax.random.key(0), PARAMS), batches)
    first = config.build(POLICY, mesh_of(), 10)
    state = run(first, first.init(jax.random.key(0), PARAMS), batches[:2])
    keeper = Keeper(tmp_path)
    keeper.save(2, state, {"algorithm": first.host_state()})
    second = config.build(POLICY, mesh_of(), 10)
    state, host = keeper.restore(second.init(jax.random.key(0), PARAMS))
    keeper.close()
    second.load_host_state(json.loads(json.dumps(host["algorithm"])))
    got = run(second, state, batches[2:])
    assert equal(jax.device_get((got.params, got.opt_state)), jax.device_get((want.params, want.opt_state)))
    if got.extra.critic is not None:
        assert equal(jax.device_get(got.extra.critic.params), jax.device_get(want.extra.critic.params))
    assert json.dumps(second.host_state()) == json.dumps(unbroken.host_state())


@pytest.mark.slow
def test_a_critic_learns_the_returns_while_the_policy_waits(runtime: Runtime):
    critic = CriticConfig(HEAD, AdamWConfig(0.05), clip=float("inf"), warmup=40)
    config = critics.ppo(HEAD, critic=critic, advantage=GAE(critic_lam=1.0), **SHAPE)
    params, metrics = trained(config, runtime, [GROUPS] * 40)
    assert equal(params, PARAMS)
    first, last = metrics[0], metrics[-1]
    assert first["critic/explained_variance"] < 0.1 < 0.3 < last["critic/explained_variance"]
    losses = [fetch_metrics(one["critic"][0])["value_loss"] for one in (first, last)]
    assert losses[1] < 0.6 * losses[0] and last["skipped"] == 1


def test_an_advantage_and_a_critic_need_each_other(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    for config in (base(critic=CriticConfig(HEAD)), base(advantage=GAE())):
        with pytest.raises(UserError, match="critic"):
            written(config, [GROUPS], runtime, monkeypatch)


def test_explained_variance():
    target = np.array([1.0, 2.0, 4.0])
    assert explained_variance(target, target) == 1.0 and explained_variance(np.full(3, 7.0), target) == 0.0
    assert explained_variance(np.zeros(2), np.ones(2)) == 0.0 and explained_variance(np.zeros(0), np.zeros(0)) == 0.0


def test_the_first_token_of_each_turn_stands_for_it():
    indices = collate(GROUPS).indices
    weight = turn_starts(indices)
    assert weight.sum() == pytest.approx(1) and np.count_nonzero(weight) == len(np.unique(indices.token_turn))


@pytest.mark.parametrize("rescore", [True, False])
def test_at_ratio_one_a_mismatch_correction_is_none(rescore: bool, runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    plain, corrected = (
        written(base(rescore=rescore, mismatch=mismatch), [GROUPS], runtime, monkeypatch)[1] for mismatch in (None, Clipped(1.0, 1.0))
    )
    assert all(equal(a.advantage, b.advantage) for a, b in zip(plain, corrected))


def test_what_a_correction_rejects_is_neither_trained_nor_counted(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    _, given, _ = written(base(rescore=True, mismatch=RatioRejection(0.5, 3.0)), [GROUPS], runtime, monkeypatch)
    weights = np.concatenate([one.batch.weight[one.batch.action_mask] for one in given])
    kept = np.count_nonzero(weights)
    assert 0 < kept < len(weights) and np.allclose(weights[weights != 0], weights.max())
    every = collate(GROUPS)
    gap = _paper_logp(every) - every.tokens("sampler_logp")
    inside = (np.exp(gap) >= 0.5) & (np.exp(gap) <= 3.0)
    assert weights.max() == pytest.approx(1 / inside.sum())


def _paper_logp(every: Any) -> np.ndarray:
    tokens, positions = every.tokens("tokens"), every.indices.token_position
    return 0.1 * np.sin(1.7 * tokens + 0.3 * positions).astype(np.float32) - 2.0


def test_truncated_weights_scale_advantages(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    plain, scaled = (
        written(base(rescore=True, mismatch=mismatch), [GROUPS], runtime, monkeypatch)[1] for mismatch in (None, Clipped(high=1.0))
    )
    for a, b in zip(plain, scaled):
        mask = a.batch.action_mask
        trust = np.minimum(np.exp(a.proximal_logp - a.batch.sampler_logp)[mask], 1.0)
        np.testing.assert_allclose(b.advantage[mask], a.advantage[mask] * trust, rtol=1e-4)


def test_weights_of_mean_one(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    settings: dict[str, Any] = {"rescore": True, "mismatch": Clipped(high=1.0)}
    plain, level = (written(base(**settings, mismatch_mean_one=one), [GROUPS], runtime, monkeypatch)[1] for one in (False, True))
    gap = _paper_logp(collate(GROUPS)) - collate(GROUPS).tokens("sampler_logp")
    mean = np.minimum(np.exp(gap), 1.0).mean()
    for a, b in zip(plain, level):
        np.testing.assert_allclose(b.advantage * mean, a.advantage, rtol=1e-4)
    with pytest.raises(UserError, match="set mismatch and rescore"):
        base(mismatch_mean_one=True).build(POLICY, mesh_of(), 1)


@pytest.mark.parametrize("sequence", [row_of_token, turn_of_token, call_of_token])
def test_sequences_are_told_apart_in_packed_rows(sequence: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    _, given, _ = written(base(sequence=sequence, bin_length=48), [GROUPS], runtime, monkeypatch)
    evidence = evidence_of(GROUPS, collate(GROUPS))
    key = sequence(evidence)
    sizes = sorted(np.unique(np.stack([evidence.token_row, key]), axis=1, return_counts=True)[1].tolist())
    found = []
    for one in given:
        for ids, mask in zip(one.ids, one.batch.action_mask):
            assert (ids < one.ids.shape[1]).all()
            found += np.unique(ids[mask], return_counts=True)[1].tolist()
    trained = sum(mask.sum() for one in given for mask in one.batch.action_mask)
    assert sum(found) == trained and set(found) <= set(sizes)


def test_a_filter_is_seen_in_the_metrics(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    level = [dataclasses.replace(g, trajectories=(g.trajectories[0],) * 4) for g in GROUPS[:2]]
    _, _, (metrics,) = written(base(filter=StdAbove(0.1)), [[*level, *GROUPS[2:]]], runtime, monkeypatch)
    assert metrics["groups_kept"] == pytest.approx(4 / 6)


@pytest.mark.slow
def test_demonstrations_beside_rollouts_are_imitated(runtime: Runtime):
    shown = [
        dataclasses.replace(group, trajectories=(_as_shown(group.trajectories[0]),))
        for group in sampled_by(POLICY, PARAMS, grown_groups([[[(3, 4, False, 0.0)]]] * 5, seed=9))
    ]
    config = base(auxiliaries=(Imitation(1.0),), optimizer=ADAM)
    ours, (metrics,) = trained(config, runtime, [shown])
    algorithm = SupervisedConfig(optimizer=ADAM, bin_length=24, microbatch=4).build(POLICY, mesh_of(), 100)
    state, _ = algorithm.step(algorithm.init(jax.random.key(0), PARAMS), shown, runtime)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ours, jax.device_get(state.params))
    assert metrics["groups_with_signal"] == 0 and metrics["tokens"] == 0
    both, _ = trained(config, runtime, [[*GROUPS, *shown]])
    alone, _ = trained(base(optimizer=ADAM), runtime, [GROUPS])
    assert not equal(both, alone) and not equal(both, ours)


def test_what_a_policy_ranked_is_its_own_and_no_demonstration():
    sources = ("sampled", "demonstration", "ranked")
    groups = [dataclasses.replace(GROUPS[0], trajectories=(_as_shown(GROUPS[0].trajectories[0], source),)) for source in sources]
    assert Imitation(1.0).split(groups) == ([groups[0], groups[2]], [groups[1]])


def _as_shown(trajectory: Any, source: str = "demonstration") -> Any:
    turns = tuple(
        dataclasses.replace(turn, calls=tuple(dataclasses.replace(call, source=source) for call in turn.calls)) for turn in trajectory.turns
    )
    return trajectory.replace(turns=turns)


@pytest.mark.slow
def test_no_program_is_compiled_after_the_first_steps(runtime: Runtime):
    config = critics.vapo(HEAD, warmup=1, filter=StdAbove(0.01), mismatch=Clipped(), rescore=True, epochs=2, minibatches=2, **SHAPE)
    config.regularisers["kl"] = KL(0.1, kl_k1)
    algorithm = config.build(POLICY, mesh_of(), 100)
    state = algorithm.init(jax.random.key(0), PARAMS)
    for seed in (3, 4, 5):
        state, _ = algorithm.step(state, experience(seed), runtime)
    with counted_compilations() as compiled:
        for seed in range(6, 12):
            state, _ = algorithm.step(state, experience(seed)[: 1 + seed % 6], runtime)
    assert compiled == []


@pytest.mark.slow
def test_a_probe_says_how_likely_the_answer_is():
    renderer = TextRenderer(byte_tokenizer())
    policy = Averaging(vocab_size=len(byte_tokenizer()))
    params = policy.init(jax.random.key(0))
    groups = told(grown_groups([[[(3, 2, False, 0.0), (2, 2, False, 1.0)]], [[(4, 1, False, 0.0)]]]), gold=lambda turn, place: f"no{place}")
    algorithm = grpo(optimizer=ADAM, bin_length=48, microbatch=2).build(policy, mesh_of(), 10)
    state = algorithm.init(jax.random.key(0), params)
    probe = GoldProbe("the answer is ")

    def judge(rows: list, indices: Any) -> np.ndarray:
        from agentrl_jax.hosts import Hosts

        return algorithm._judge(state, Hosts(), rows, indices)

    for trajectory in whole(probe(groups, renderer, judge)):
        for turn in trajectory.turns:
            row = probe._row(turn, renderer)
            ids = row.tokens[row.action_mask]
            assert renderer.parse(ids).text == str(turn.info["gold"])
            want = logp_alone(policy, params, row, 48)[row.action_mask].mean()
            assert turn.info["gold_logp"] == pytest.approx(want, abs=1e-5)
