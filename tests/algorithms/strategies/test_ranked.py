"""Ranking: scores against sums in numpy over every token alone, how a choice is made, and episodes that are played by it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hand_made import Averaging
from stages import AGENT, CHAIN, KEY, RENDERER, TOKENIZER, Whimsical

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.ranking import Choice, Ranker, action_value, advantage, decided, likelihood
from agentrl_jax.algorithms.strategies.ranked import Ranked
from agentrl_jax.compilations import compilations
from agentrl_jax.context import LastMessages
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.messages import assistant
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import Copies, HeadConfig
from agentrl_jax.models.steered import Steered, SteeredConfig
from agentrl_jax.policy import Inputs
from agentrl_jax.rows import collate, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Limits
from agentrl_jax.trajectories import Call, Sampling
from agentrl_jax.workers import InProcess, Task

MAZE = Task("agentrl_jax.envs:agentrl/MazeFO-v0", 3)
MOVES = ("move left", "move right", "move up", "move down")
LONGEST = 160
ENGINE = EngineConfig(rows=8, positions=LONGEST)
WALKER = dataclasses.replace(
    AGENT, context=LastMessages(1), limits=Limits(turns=12), sampling=Sampling(budget=16, temperature=0.0, stop_ids=RENDERER.stop_ids)
)  # fmt: skip


def steered(beta: float = 1.0) -> tuple[Steered, Any]:
    """A policy with values, all of whose parts have weights of their own."""
    head, trunk = HeadConfig(layers=0, scale=1.0), Averaging(len(TOKENIZER))
    policy = Steered(trunk, Copies(head.build(trunk.width, trunk.vocab_size), 2), head.build(trunk.width), beta)
    params = policy.init(jax.random.key(0))
    params["target"] = policy.init(jax.random.key(1))["target"]
    params["values"]["trunk"] = trunk.init(jax.random.key(2))
    return policy, params


def alone(policy: Steered, params: Any, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, list[float]]:
    """Scores of actions after their prompts, summed in numpy over what each part of the model says of a sequence of its own."""

    @jax.jit
    def said(tokens: Any, segment_ids: Any) -> Any:
        inputs = Inputs(tokens=tokens, positions=jnp.arange(LONGEST)[None], segment_ids=segment_ids)
        own, slow = (policy.policy.apply(params[part]["trunk"], inputs).hidden for part in ("values", "target"))
        logits = policy.logits(params, policy.apply(params, inputs).hidden)
        return policy.v.apply(params["values"]["v"], own)[0], policy.q.apply(params["target"]["q"], slow)[:, 0], logits[0]

    scores: dict[str, list[float]] = {"advantage": [], "action_value": [], "likelihood": []}
    for prompt, action in rows:
        ids = np.concatenate([prompt, action])
        n, places = len(ids), range(len(prompt), len(prompt) + len(action))
        tokens = np.zeros((1, LONGEST), np.int32)
        tokens[0, :n] = ids
        v, q, logits = map(np.asarray, said(tokens, (np.arange(LONGEST) < n).astype(np.int32)[None]))
        least, logp = q.min(0), scipy.special.log_softmax(logits, axis=-1)
        scores["advantage"].append(sum(least[t - 1, ids[t]] - v[t - 1] for t in places))
        scores["action_value"].append(sum(least[t - 1, ids[t]] for t in places))
        scores["likelihood"].append(sum(logp[t - 1, ids[t]] for t in places))
    return scores


def test_scores_are_sums_over_tokens_whatever_else_is_asked():
    policy, params = steered(beta=2.0)
    rng = np.random.default_rng(0)
    rows = [(rng.integers(0, 250, 3 + i).astype(np.int32), rng.integers(0, 250, 1 + i % 3).astype(np.int32)) for i in range(6)]
    expected = alone(policy, params, rows)
    asked = [(prompt.tobytes(), action.tobytes()) for prompt, action in rows]
    for score in (advantage, action_value, likelihood):
        ranker = Ranker(score, policy, EngineConfig(rows=4, positions=16), params)
        found = ranker.scores(asked, params)
        assert found == pytest.approx(expected[score.__name__], abs=2e-4)
        assert ranker.scores(asked[4:5], params)[0] == found[4]  # neighbours do not matter
        before = compilations()
        ranker.scores(asked[:3], params)
        assert compilations() == before
    with pytest.raises(UserError, match=r"config\.engine\.positions"):
        ranker.scores([(np.zeros(16, np.int32).tobytes(), np.zeros(1, np.int32).tobytes())], params)


def test_a_prompt_is_read_once_for_its_actions():
    """A decoder scores actions beside each other as it scores each alone."""
    head = HeadConfig(layers=0, scale=1.0)
    decoder = DecoderConfig(layers=2, width=16, hidden=16, heads=2, kv_heads=1, head_size=8)
    policy = SteeredConfig(decoder, head, head, beta=1.0).build(250)
    params = jax.tree.map(lambda x: 3 * x, policy.init(jax.random.key(0)))
    rng = np.random.default_rng(0)
    rows = [
        (rng.integers(0, 250, n, np.int32).tobytes(), rng.integers(0, 250, 1 + i % 3, np.int32).tobytes())
        for n in (1, 9, 13)
        for i in range(5)
    ]
    rows = [(rows[i // 5 * 5][0], action) for i, (_, action) in enumerate(rows)]
    engine = EngineConfig(rows=8, positions=16)
    for score in (advantage, likelihood):
        alone = Ranker(score, policy, engine, params, longest=3, together=1)
        beside = Ranker(score, policy, engine, params, longest=3, together=4)
        expected, found = alone.scores(rows, params), beside.scores(rows, params)
        assert np.std(expected) > 0.1 and found == pytest.approx(expected, abs=1e-4)
        before = compilations()
        assert beside.scores(rows[:2], params).tolist() == found[:2].tolist() and compilations() == before
    with pytest.raises(UserError, match="`longest`"):
        beside.scores([(rows[0][0], np.zeros(4, np.int32).tobytes())], params)


def test_the_best_is_chosen_of_equals_the_first_or_one_by_its_share():
    actions, rng = [np.array(ids, np.int32) for ids in ([1, 2, 9], [1, 3, 9], [4, 9])], np.random.default_rng(0)
    chosen, logp = decided(actions, np.array([0.5, 2.0, 2.0]), 0.0, rng)
    assert chosen == 1 and logp.tolist() == [0.0, 0.0, 0.0]
    scores = np.log([0.1, 0.3, 0.6]) * 2.0
    drawn = [decided(actions, scores, 2.0, rng) for _ in range(4000)]
    share = np.bincount([chosen for chosen, _ in drawn], minlength=3) / 4000
    assert share == pytest.approx([0.1, 0.3, 0.6], abs=0.03)
    told = dict(drawn)
    assert np.exp(told[0]) == pytest.approx([0.4, 0.25, 1.0]) and np.exp(told[1]) == pytest.approx([0.4, 0.75, 1.0])
    assert np.exp(told[2]) == pytest.approx([0.6, 1.0])


def test_episodes_are_played_by_the_ranking_and_recorded_as_they_were():
    policy, params = steered()
    strategy = Ranked(advantage, group_size=2)
    strategy.hold(policy, params, ENGINE)
    with Runtime({"policy": Whimsical()}, {"policy": WALKER}, InProcess()) as runtime:
        (group,) = runtime.collect(strategy, [MAZE], KEY)
        strategy.hold(policy, params, ENGINE, version=5)
        before = compilations()
        (again,) = runtime.collect(strategy, [MAZE], KEY)
        assert compilations() == before
    first, second = group.trajectories
    assert [t.action for t in first.turns] == [t.action for t in second.turns] and len(first.turns) > 5
    calls, ids = [call for turn in first.turns[:4] for call in turn.calls], [RENDERER.action_ids(assistant(text)) for text in MOVES]
    scores = np.reshape(alone(policy, params, [(call.prompt, action) for call in calls for action in ids])["advantage"], (4, 4))
    assert [turn.action.text for turn in first.turns[:4]] == [MOVES[best] for best in scores.argmax(axis=1)]
    assert {(call.source, *call.sampler_logp.tolist()) for call in calls} <= {("ranked", *[0.0] * len(action)) for action in ids}
    assert {int(v) for call in again.trajectories[0].calls for v in call.version} == {5}
    assert token_identity([group], collate([group])) == 1.0


def test_a_row_is_scored_once_for_the_weights_that_are_held(monkeypatch: pytest.MonkeyPatch):
    policy, params = steered()
    ranker, scored = Ranker(advantage, policy, ENGINE, params), []
    real = ranker.scores
    monkeypatch.setattr(ranker, "scores", lambda rows, params: (scored.extend(rows), real(rows, params))[1])

    def choose(prompt: list[int], *actions: list[int]) -> Call:
        prompts, ids = np.array(prompt, np.int32), [np.array(action, np.int32) for action in actions]
        return ranker.choose(Choice(prompts, ids, WALKER.sampling, KEY, None)).result(60)

    first = choose([5, 6], [7], [8, 9])
    again, longer = choose([5, 6], [8, 9], [7]), choose([5, 6, 8], [9], [4])  # where a prompt ends matters
    assert len(scored) == 4 and again.action.tolist() == first.action.tolist() and longer.action.tolist() in ([9], [4])
    ranker.hold(jax.tree.map(lambda x: 2 * x, params), 1)
    choose([5, 6], [7], [8, 9])
    assert len(scored) == 6


def test_what_cannot_be_ranked_is_said():
    policy, params = steered()
    ready = Ranked()
    ready.hold(policy, params, ENGINE)
    filtered = dataclasses.replace(WALKER, sampling=dataclasses.replace(WALKER.sampling, top_k=3))
    brief = dataclasses.replace(WALKER, sampling=dataclasses.replace(WALKER.sampling, budget=4))
    for strategy, task, agent, why in (
        (Ranked(), MAZE, WALKER, "weights"),
        (ready, MAZE, filtered, "top_k"),
        (ready, MAZE, brief, "budget is 4"),
        (ready, Task(CHAIN, 0, {"length": 4}), WALKER, "names no actions"),
    ):
        with Runtime({"policy": Whimsical()}, {"policy": agent}, InProcess()) as runtime, pytest.raises(UserError, match=why):
            runtime.collect(strategy, [task], KEY)
    with pytest.raises(UserError, match="no values to rank by"):
        Ranked(advantage).hold(policy.policy, params["policy"], ENGINE)
