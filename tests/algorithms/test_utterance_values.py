"""Critics of utterances: every loss in numpy, fixed points on a chain, what moves, few shapes that compile once."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import Averaging, counted_compilations, mesh_of
from tables import Cells, Descent, Markov, TableCritic

from agentrl_jax.algorithms.turn_replay import Said, Transition
from agentrl_jax.algorithms.utterance_learner import UtteranceValues, ValuesConfig
from agentrl_jax.algorithms.utterance_values import Goal, OnData, Returns, Sampled
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.utterance_critic import PolicyTrunk, UtteranceCriticConfig

STILL = Descent(0.0)


def text(*ids: int) -> Said:
    return Said(np.array(ids, np.int32), "")


def turn(state: int, action: int, reward: float, after: int, end: str = "", to_go: float = 0.0) -> Transition:
    return Transition(text(9, state), text(action, 10), reward, text(9, after), end == "terminated", end == "truncated", to_go)


def built(steps: int = 1, **settings: Any) -> tuple[UtteranceValues, Any]:
    made = ValuesConfig(TableCritic(), Cells(), **{"states": (4,), "utterances": (4,), "batch": 8, "microbatch": 8, **settings})
    values = made.build(Markov(), mesh_of(), steps)
    return values, values.init(jax.random.key(1), {})


def other_target(state: Any) -> Any:
    """A target that differs from the critic."""
    return dataclasses.replace(state, params={**state.params, "target": jax.tree.map(lambda x: 1.0 - 0.5 * x, state.params["target"])})


@pytest.mark.parametrize("goal", [Sampled(0.9), OnData(0.9, 0.8), Returns(0.9)])
def test_the_loss_is_the_equations_in_numpy(goal: Goal):
    rng = np.random.default_rng(0)
    ends = ("", "terminated", "truncated")
    data = [
        turn(s, a, rng.normal(), after, ends[i % 3], rng.normal()) for i, (s, a, after) in enumerate(rng.integers(0, 9, (7, 3)).tolist())
    ]
    judged = [text(int(a), 10) for a in rng.integers(0, 9, 7)]
    values, state = built(goal=goal, batch=7, scale=2.0, microbatch=4, cut_is_end=False, optimizer=STILL)
    state = other_target(state)
    online, target = (jax.tree.map(lambda x: np.asarray(x, np.float64), state.params[name]) for name in ("critic", "target"))
    total = 0.0
    for t, fresh in zip(data, judged):
        s, a, after = t.state.ids[-1], t.utterance.ids[0], t.following.ids[-1]
        for k in range(2):
            q, v = online["q"][k, s, a], online["v"][k, s]
            y = t.reward + (0.0 if t.terminated else 0.9 * target["v"][k, after])
            z = target["q"][k, s, fresh.ids[0]]
            if isinstance(goal, Returns):
                y = z = t.to_go
            weight = 1.0 if not isinstance(goal, OnData) else 0.8 if z > v else 0.2
            total += ((y - q) ** 2 + weight * (z - v) ** 2) / 7
    _, found = values.update(state, data, judged, Hosts())
    assert float(found["loss"]) == pytest.approx(2.0 * total, rel=1e-5) and float(found["tokens"]) == 7


GAMMA = 0.8
CHAIN = [turn(1, 3, 0.0, 2), turn(2, 3, 0.0, 5), turn(5, 3, 1.0, 0, "terminated"), turn(6, 3, 0.5, 5, "truncated", 0.5)]
CHAIN = [dataclasses.replace(t, to_go=g) for t, g in zip(CHAIN, (GAMMA**2, GAMMA, 1.0, 0.5))]


@pytest.mark.parametrize(
    ("goal", "cut_is_end", "cut"),
    [
        (Sampled(GAMMA), True, 0.5),
        (Sampled(GAMMA), False, 0.5 + GAMMA),
        (OnData(GAMMA, 0.9), False, 0.5 + GAMMA),
        (Returns(GAMMA), False, 0.5),
    ],
)
def test_on_a_chain_values_are_those_of_bellmans_equations(goal: Goal, cut_is_end: bool, cut: float):
    values, state = built(goal=goal, cut_is_end=cut_is_end, optimizer=Descent(1.0), polyak=0.5)
    for _ in range(80):
        state, _ = values.update(state, CHAIN * 2, [text(3, 10)] * 8, Hosts())
    for name in ("critic", "target"):
        params = jax.tree.map(np.asarray, state.params[name])
        for k in range(2):
            expected = [GAMMA**2, GAMMA, 1.0, cut]
            assert params["q"][k, [1, 2, 5, 6], 3] == pytest.approx(expected, abs=1e-3)
            assert params["v"][k, [1, 2, 5, 6]] == pytest.approx(expected, abs=1e-3)


def test_on_a_two_turn_bandit_v_is_the_mean_of_q_under_the_policy():
    """In state 1 A leads to 2 and B to 5, where they earn 1 and 0, -1 and 2; the policy says A in a quarter of all cases."""
    second = [turn(s, a, r, 0, "terminated") for s, a, r in ((2, 3, 1.0), (2, 4, 0.0), (5, 3, -1.0), (5, 4, 2.0))]
    data = [turn(1, 3, 0.0, 2), turn(1, 4, 0.0, 5), *second]
    exchanges = [(t, text(a, 10)) for t in data for a in (3, 4, 4, 4)]
    values, state = built(goal=Sampled(0.9), batch=24, microbatch=24, optimizer=Descent(2.0), polyak=0.5)
    for _ in range(60):
        state, _ = values.update(state, [t for t, _ in exchanges], [a for _, a in exchanges], Hosts())
    params = jax.tree.map(np.asarray, state.params["critic"])
    v2, v5 = 0.25, -0.25 + 0.75 * 2.0
    for q, v in zip(params["q"], params["v"]):
        assert q[[2, 2, 5, 5], [3, 4, 3, 4]] == pytest.approx([1.0, 0.0, -1.0, 2.0], abs=1e-3)
        assert q[1, [3, 4]] == pytest.approx([0.9 * v2, 0.9 * v5], abs=1e-3)
        assert v[[1, 2, 5]] == pytest.approx([0.9 * (0.25 * v2 + 0.75 * v5), v2, v5], abs=1e-3)


def test_the_target_follows_the_critic_and_is_not_trained_itself():
    values, state = built(polyak=0.25, optimizer=Descent(0.1))
    state = other_target(state)
    before = jax.tree.map(np.asarray, state.params)
    state, _ = values.update(state, CHAIN, [text(4, 10)] * 4, Hosts())
    after = jax.tree.map(np.asarray, state.params)
    assert not np.array_equal(before["critic"]["q"], after["critic"]["q"])
    moved = jax.tree.map(lambda old, new: old + 0.25 * (new - old), before["target"], after["critic"])
    assert jax.tree.all(jax.tree.map(lambda x, y: np.allclose(x, y, atol=1e-6), moved, after["target"]))


def test_texts_of_any_length_are_judged_as_alone_and_nothing_compiles():
    """One text at a time, or many of mixed lengths together; buckets of two lengths, all compiled at the start."""
    made = ValuesConfig(
        UtteranceCriticConfig(head=HeadConfig(layers=0, scale=1.0)), PolicyTrunk(), states=(4, 8), utterances=(6,), batch=6, microbatch=4
    )
    policy, rng = Averaging(), np.random.default_rng(0)
    values = made.build(policy, mesh_of(), 10)
    state = values.init(jax.random.key(1), policy.init(jax.random.key(2)))
    state, _ = values.update(state, [_wordy(1, 1, rng)], [text(1)], Hosts())
    data = [_wordy(m, n, rng) for m, n in ((3, 1), (8, 2), (1, 6), (12, 5), (4, 4), (2, 9))]
    with counted_compilations() as compiled:
        together = values.advantage(state, [t.state for t in data], [t.utterance for t in data], Hosts())
        alone = [values.advantage(state, [t.state], [t.utterance], Hosts())[0] for t in data]
        for some in (data[:1], data, data[2:3]):
            state, _ = values.update(state, some, [t.utterance for t in some], Hosts())
    assert together == pytest.approx(alone, abs=1e-5) and len({round(float(x), 4) for x in alone}) == 6
    assert compiled == []
    assert values.advantage(state, [], [], Hosts()).shape == (0,)


def _wordy(m: int, n: int, rng: np.random.Generator) -> Transition:
    state, utterance, after = (Said(rng.integers(0, 24, size, np.int32), "") for size in (m, n, m + n))
    return Transition(state, utterance, float(rng.normal()), after, False, False, 0.0)


def test_an_advantage_is_the_least_q_less_the_least_v_and_worth_the_targets_least_q():
    values, state = built()
    state = other_target(state)
    params = jax.tree.map(np.asarray, state.params)
    pairs = [(s, a) for s in (1, 2) for a in (3, 4, 5)]
    states, utterances = [text(9, s) for s, _ in pairs], [text(a, 10) for _, a in pairs]
    q = np.array([params["critic"]["q"][:, s, a].min() - params["critic"]["v"][:, s].min() for s, a in pairs])
    assert values.advantage(state, states, utterances, Hosts()) == pytest.approx(q, abs=1e-6)
    slow = [params["target"]["q"][:, s, a].min() for s, a in pairs]
    assert values.worth(state.params["target"], states, utterances) == pytest.approx(slow, abs=1e-6)


def test_what_cannot_be_is_refused():
    wrong: dict[str, Any] = {"polyak": 0.0, "scale": 0.0, "goal": Sampled(1.5), "states": (), "utterances": (0,), "batch": 0}
    for name, value in wrong.items():
        with pytest.raises(UserError, match="values need"):
            built(**{name: value})
