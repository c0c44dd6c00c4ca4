"""Ranked actions: scores against sums in numpy over each sequence alone, the choice among scores,
and whole episodes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from support.fixtures import MeanEmbeddingPolicy
from support.strategy_runs import AGENT, CHAIN_ID, KEY, RENDERER, TOKENIZER, KeyedTextEngine

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.offline.action_ranking import (
    ActionRanker,
    RankingRequest,
    action_value,
    choose_action,
    log_likelihood,
    token_advantage,
)
from agentrl_jax.algorithms.strategies.ranked_actions import RankedActions
from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.context import LastMessages
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.sequences import collate, token_identity
from agentrl_jax.messages import assistant
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig
from agentrl_jax.models.value_guided import ValueGuidedConfig, ValueGuidedPolicy
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Sampling
from agentrl_jax.workers.pool import InlinePool, Task

MAZE = Task("agentrl_jax.envs:agentrl/MazeFO-v0", 3)
MOVES = ("move left", "move right", "move up", "move down")
LONGEST = 160
ENGINE = EngineConfig(rows=8, positions=LONGEST)
WALKER = dataclasses.replace(
    AGENT,
    context=LastMessages(1),
    limits=Limits(turns=12),
    sampling=Sampling(budget=16, temperature=0.0, stop_ids=RENDERER.stop_ids),
)


def make_value_guided(beta: float = 1.0) -> tuple[ValueGuidedPolicy, Any]:
    """A value-guided policy in which every part has different weights."""
    head, trunk = HeadConfig(layers=0, scale=1.0), MeanEmbeddingPolicy(len(TOKENIZER))
    policy = ValueGuidedPolicy(
        trunk,
        CriticEnsemble(head.build(trunk.width, trunk.vocab_size), 2),
        head.build(trunk.width),
        beta,
    )
    params = policy.init(jax.random.key(0))
    params["target"] = policy.init(jax.random.key(1))["target"]
    params["values"]["trunk"] = trunk.init(jax.random.key(2))
    return policy, params


def reference_scores(
    policy: ValueGuidedPolicy, params: Any, rows: Sequence[tuple[np.ndarray, np.ndarray]]
) -> dict[str, list[float]]:
    """Scores of actions after their prompts, summed in numpy from the model's outputs on each
    sequence alone.
    """

    @jax.jit
    def outputs(tokens: Any, segment_ids: Any) -> Any:
        inputs = PolicyInputs(
            tokens=tokens, positions=jnp.arange(LONGEST)[None], segment_ids=segment_ids
        )
        online_hidden, target_hidden = (
            policy.policy.apply(params[part]["trunk"], inputs).hidden
            for part in ("values", "target")
        )
        logits = policy.logits(params, policy.apply(params, inputs).hidden)
        return (
            policy.v.apply(params["values"]["v"], online_hidden)[0],
            policy.q.apply(params["target"]["q"], target_hidden)[:, 0],
            logits[0],
        )

    scores: dict[str, list[float]] = {
        "token_advantage": [],
        "action_value": [],
        "log_likelihood": [],
    }
    for prompt, action in rows:
        ids = np.concatenate([prompt, action])
        n, positions = len(ids), range(len(prompt), len(prompt) + len(action))
        tokens = np.zeros((1, LONGEST), np.int32)
        tokens[0, :n] = ids
        v, q, logits = map(
            np.asarray, outputs(tokens, (np.arange(LONGEST) < n).astype(np.int32)[None])
        )
        least, logp = q.min(0), scipy.special.log_softmax(logits, axis=-1)
        scores["token_advantage"].append(sum(least[t - 1, ids[t]] - v[t - 1] for t in positions))
        scores["action_value"].append(sum(least[t - 1, ids[t]] for t in positions))
        scores["log_likelihood"].append(sum(logp[t - 1, ids[t]] for t in positions))
    return scores


def test_scores_are_sums_over_tokens_and_independent_of_the_batch():
    policy, params = make_value_guided(beta=2.0)
    rng = np.random.default_rng(0)
    rows = [
        (
            rng.integers(0, 250, 3 + i).astype(np.int32),
            rng.integers(0, 250, 1 + i % 3).astype(np.int32),
        )
        for i in range(6)
    ]
    expected = reference_scores(policy, params, rows)
    rows_as_bytes = [(prompt.tobytes(), action.tobytes()) for prompt, action in rows]
    for score in (token_advantage, action_value, log_likelihood):
        ranker = ActionRanker(score, policy, EngineConfig(rows=4, positions=16), params)
        scores = ranker.scores(rows_as_bytes, params)
        assert scores == pytest.approx(expected[score.__name__], abs=2e-4)
        # other rows of the batch make no difference
        assert ranker.scores(rows_as_bytes[4:5], params)[0] == scores[4]
        before = compile_count()
        ranker.scores(rows_as_bytes[:3], params)
        assert compile_count() == before
    with pytest.raises(UserError, match=r"config\.engine\.positions"):
        ranker.scores([(np.zeros(16, np.int32).tobytes(), np.zeros(1, np.int32).tobytes())], params)


@pytest.mark.slow
def test_a_prompt_is_computed_once_for_all_its_actions():
    """A decoder gives the actions of one prompt the scores that each has alone."""
    head = HeadConfig(layers=0, scale=1.0)
    decoder = DecoderConfig(layers=2, width=16, hidden=16, heads=2, kv_heads=1, head_size=8)
    policy = ValueGuidedConfig(decoder, head, head, beta=1.0).build(250)
    params = jax.tree.map(lambda x: 2 * x, policy.init(jax.random.key(0)))
    rng = np.random.default_rng(0)
    rows = [
        (
            rng.integers(0, 250, n, np.int32).tobytes(),
            rng.integers(0, 250, 1 + i % 3, np.int32).tobytes(),
        )
        for n in (1, 9, 13)
        for i in range(5)
    ]
    rows = [(rows[i // 5 * 5][0], action) for i, (_, action) in enumerate(rows)]
    engine = EngineConfig(rows=8, positions=16)
    for score in (token_advantage, log_likelihood):
        alone = ActionRanker(score, policy, engine, params, max_action_tokens=3, actions_per_row=1)
        shared = ActionRanker(score, policy, engine, params, max_action_tokens=3, actions_per_row=4)
        single_scores, shared_scores = alone.scores(rows, params), shared.scores(rows, params)
        assert np.std(single_scores) > 0.1 and shared_scores == pytest.approx(
            single_scores, abs=1e-4
        )
        before = compile_count()
        assert (
            shared.scores(rows[:2], params).tolist() == shared_scores[:2].tolist()
            and compile_count() == before
        )
    with pytest.raises(UserError, match="max_action_tokens"):
        shared.scores([(rows[0][0], np.zeros(4, np.int32).tobytes())], params)


def test_the_best_action_is_chosen_ties_go_to_the_first_or_one_is_sampled():
    actions, rng = (
        [np.array(ids, np.int32) for ids in ([1, 2, 9], [1, 3, 9], [4, 9])],
        np.random.default_rng(0),
    )
    chosen, logp = choose_action(actions, np.array([0.5, 2.0, 2.0]), 0.0, rng)
    assert chosen == 1 and logp.tolist() == [0.0, 0.0, 0.0]
    scores = np.log([0.1, 0.3, 0.6]) * 2.0
    choices = [choose_action(actions, scores, 2.0, rng) for _ in range(4000)]
    share = np.bincount([chosen for chosen, _ in choices], minlength=3) / 4000
    assert share == pytest.approx([0.1, 0.3, 0.6], abs=0.03)
    logp_of_choice = dict(choices)
    assert np.exp(logp_of_choice[0]) == pytest.approx([0.4, 0.25, 1.0]) and np.exp(
        logp_of_choice[1]
    ) == pytest.approx([0.4, 0.75, 1.0])
    assert np.exp(logp_of_choice[2]) == pytest.approx([0.6, 1.0])


def test_episodes_follow_the_ranking_and_are_recorded_as_played():
    policy, params = make_value_guided()
    strategy = RankedActions(token_advantage, group_size=2)
    strategy.set_policy(policy, params, ENGINE)
    with Runtime({"policy": KeyedTextEngine()}, {"policy": WALKER}, InlinePool()) as runtime:
        (group,) = runtime.collect(strategy, [MAZE], KEY)
        strategy.set_policy(policy, params, ENGINE, version=5)
        before = compile_count()
        (again,) = runtime.collect(strategy, [MAZE], KEY)
        assert compile_count() == before
    first, second = group.trajectories
    assert [t.action for t in first.turns] == [t.action for t in second.turns] and len(
        first.turns
    ) > 5
    calls, ids = (
        [call for turn in first.turns[:4] for call in turn.calls],
        [RENDERER.action_ids(assistant(text)) for text in MOVES],
    )
    scores = np.reshape(
        reference_scores(
            policy, params, [(call.prompt, action) for call in calls for action in ids]
        )["token_advantage"],
        (4, 4),
    )
    assert [turn.action.text for turn in first.turns[:4]] == [
        MOVES[best] for best in scores.argmax(axis=1)
    ]
    assert {(call.source, *call.sampler_logp.tolist()) for call in calls} <= {
        ("ranked", *[0.0] * len(action)) for action in ids
    }
    assert {int(v) for call in again.trajectories[0].calls for v in call.version} == {5}
    assert token_identity([group], collate([group])) == 1.0


def test_a_row_is_scored_once_for_each_version_of_the_weights(monkeypatch: pytest.MonkeyPatch):
    policy, params = make_value_guided()
    ranker, scored = ActionRanker(token_advantage, policy, ENGINE, params), []
    real = ranker.scores
    monkeypatch.setattr(
        ranker, "scores", lambda rows, params: (scored.extend(rows), real(rows, params))[1]
    )

    def choose(prompt: list[int], *actions: list[int]) -> Call:
        prompts, ids = (
            np.array(prompt, np.int32),
            [np.array(action, np.int32) for action in actions],
        )
        return ranker.submit(RankingRequest(prompts, ids, WALKER.sampling, KEY, None)).result(60)

    first = choose([5, 6], [7], [8, 9])
    again, longer = (
        choose([5, 6], [8, 9], [7]),
        choose([5, 6, 8], [9], [4]),
    )  # the end of the prompt is part of the key
    assert (
        len(scored) == 4
        and again.action.tolist() == first.action.tolist()
        and longer.action.tolist() in ([9], [4])
    )
    ranker.set_weights(jax.tree.map(lambda x: 2 * x, params), 1)
    choose([5, 6], [7], [8, 9])
    assert len(scored) == 6


def test_a_limit_ends_an_episode_before_an_action_that_has_no_room():
    policy, params = make_value_guided()
    strategy = RankedActions()
    strategy.set_policy(policy, params, ENGINE)
    agent = dataclasses.replace(WALKER, limits=Limits(tokens=25))
    with Runtime({"policy": KeyedTextEngine()}, {"policy": agent}, InlinePool()) as runtime:
        (group,) = runtime.collect(strategy, [MAZE], KEY)
    (trajectory,) = group.trajectories
    assert trajectory.stop_reason == "tokens" and trajectory.succeeded is False
    assert 2 <= len(trajectory.turns) <= 3
    assert {turn.action.text for turn in trajectory.turns} <= set(MOVES)
    num_tokens = sum(len(call.action) for call in trajectory.calls)
    assert 25 - max(map(len, MOVES)) <= num_tokens <= 25


def test_unrankable_settings_are_errors():
    policy, params = make_value_guided()
    ready = RankedActions()
    ready.set_policy(policy, params, ENGINE)
    filtered = dataclasses.replace(WALKER, sampling=dataclasses.replace(WALKER.sampling, top_k=3))
    brief = dataclasses.replace(WALKER, sampling=dataclasses.replace(WALKER.sampling, budget=4))
    for strategy, task, agent, why in (
        (RankedActions(), MAZE, WALKER, "weights"),
        (ready, MAZE, filtered, "top_k"),
        (ready, MAZE, brief, "budget is 4"),
        (ready, Task(CHAIN_ID, 0, {"length": 4}), WALKER, "names no actions"),
    ):
        with (
            Runtime({"policy": KeyedTextEngine()}, {"policy": agent}, InlinePool()) as runtime,
            pytest.raises(UserError, match=why),
        ):
            runtime.collect(strategy, [task], KEY)
    with pytest.raises(UserError, match="no values to rank by"):
        RankedActions(token_advantage).set_policy(policy.policy, params["policy"], ENGINE)
