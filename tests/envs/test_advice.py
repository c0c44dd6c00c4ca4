"""`Advice` against its restated rules, and its expert against brute force."""

import functools
import itertools

import numpy as np
import pytest
from support.env_episodes import (
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.envs.dialogue.advice import TOPICS, Advice
from agentrl_jax.errors import UserError

WORDS = ["ask", "go", *TOPICS, *itertools.chain(*TOPICS.values()), "", "?"]


def restated(
    wish: dict[str, str], values: int, horizon: int, cost: float, texts: list[str]
) -> list[tuple[str, float]]:
    """The (answer, reward) of every text, from the whole history of texts."""
    out = []
    for turn in range(len(texts)):
        closed = [t for t in texts[:turn] if _advised_values(t, wish, values)]
        now, left = texts[turn], horizon - turn - 1
        if now in [f"ask {topic}" for topic in wish]:
            out.append((f"{'no' if closed else wish[now[4:]]} {left}\n", -cost))
        elif named := _advised_values(now, wish, values):
            right = len(named & set(wish.values()))
            out.append((f"thanks {left}\n", 0.0 if closed else right / len(wish)))
        else:
            out.append((f"? {left}\n", 0.0))
    return out


def _advised_values(text: str, wish: dict[str, str], values: int) -> set[str]:
    """The values of an advice; empty where it is none."""
    words = text.split(" ")
    sets = [set(TOPICS[topic][:values]) for topic in wish]
    valid = words[0] == "go" and all(
        sum(word in topic_values for topic_values in sets) == 1 for word in words[1:]
    )
    return (
        set(words[1:])
        if valid
        and all(
            len(topic_values & set(words[1:])) == sum(w in topic_values for w in words[1:]) <= 1
            for topic_values in sets
        )
        else set()
    )


@pytest.mark.parametrize(
    ("topics", "values", "horizon", "cost"),
    [(3, 3, 4, 0.02), (1, 2, 1, 0.1), (2, 4, 6, 0.0), (5, 3, 5, 0.05)],
)
def test_answers_and_rewards_match_the_restated_rules(
    topics: int, values: int, horizon: int, cost: float
):
    rng = np.random.default_rng(topics)
    env = make_env(Advice, topics=topics, values=values, horizon=horizon, cost=cost)
    for seed in range(60):
        opening, _ = env.reset(seed=seed)
        assert opening[0].text == f"trip? {horizon}\n"
        questions, wished_values = (
            [f"ask {topic}" for topic in env.topics],
            list(env.wishes.values()),
        )
        actions = [
            *questions,
            *questions,
            "go " + " ".join(wished_values),
            "go " + " ".join(wished_values[::-1][:2]),
            "go",
            f"go {wished_values[0]} {wished_values[0]}",
        ]
        texts = [
            actions[rng.integers(len(actions))]
            if rng.random() < 0.7
            else " ".join(rng.choice(WORDS, rng.integers(1, 4))).strip()
            for _ in range(horizon)
        ]
        t = play_actions(env, *texts)
        expected = restated(dict(env.wishes), values, horizon, cost, texts)
        assert list(zip(observation_texts(t), rewards(t))) == [
            (answer, pytest.approx(paid)) for answer, paid in expected
        ]
        assert t.turns[-1].terminated and not any(turn.terminated for turn in t.turns[:-1])
        shares = [turn.rewards["advice"] for turn in t.turns]
        assert (
            t.total_reward == pytest.approx(sum(shares) - cost * info_values(t, "questions")[-1])
            and sum(x > 0 for x in shares) <= 1
        )
        assert t.success is (sum(shares) == 1)


def test_a_dialogue_by_hand():
    env = make_env(Advice)
    food, place, _ = env.wishes.values()
    t = play_actions(env, "ask food", "ask place", f"go {place} {food}", "ask month")
    assert observation_texts(t) == [f"{food} 3\n", f"{place} 2\n", "thanks 1\n", "no 0\n"]
    assert rewards(t) == [-0.02, -0.02, pytest.approx(2 / 3), -0.02] and t.success is False
    assert (
        info_values(t, "facts") == [1, 2, 2, 2]
        and info_values(t, "right") == [None, None, 2, 2]
        and info_values(t, "questions") == [1, 2, 2, 3]
    )


@pytest.mark.parametrize(
    ("topics", "values", "horizon", "cost"),
    [
        (1, 2, 1, 0.02),
        (2, 2, 1, 0.0),
        (2, 3, 2, 0.02),
        (2, 2, 3, 0.02),
        (2, 2, 3, 0.4),
        (1, 4, 3, 0.0),
    ],
)
def test_the_optimal_return_is_that_of_expectimax_search(
    topics: int, values: int, horizon: int, cost: float
):
    """All wishes consistent with a history are equally likely; the environment itself is run."""
    env = make_env(Advice, topics=topics, values=values, horizon=horizon, cost=cost)
    sets = [env.values_of(topic) for topic in env.topics]
    actions = [f"ask {topic}" for topic in env.topics] + [
        "go " + " ".join(choice) for choice in itertools.product(*sets)
    ]

    def after(wish: tuple[int, ...], texts: tuple[str, ...]) -> tuple[str, float]:
        twin = env.fork(0)
        assert isinstance(twin, Advice)
        twin.wish_indices = wish
        t = play_actions(twin, *texts)
        return observation_texts(t)[-1], rewards(t)[-1]

    @functools.cache
    def best(wishes: tuple[tuple[int, ...], ...], texts: tuple[str, ...]) -> float:
        if len(texts) == horizon:
            return 0.0
        action_values = []
        for text in actions:
            outcomes = [(*after(wish, (*texts, text)), wish) for wish in wishes]
            value = float(np.mean([paid for _, paid, _ in outcomes]))
            for answer in {answer for answer, _, _ in outcomes}:
                consistent = tuple(wish for observed, _, wish in outcomes if observed == answer)
                value += len(consistent) / len(wishes) * best(consistent, (*texts, text))
            action_values.append(value)
        return max(action_values)

    everything = tuple(itertools.product(range(values), repeat=topics))
    assert best(everything, ()) == pytest.approx(env.optimal_return)
    expert = np.mean(
        [
            play_scripted_episode(_with_wish(env, wish), "expert", 0).total_reward
            for wish in everything
        ]
    )
    assert expert == pytest.approx(env.optimal_return)


def _with_wish(env: Advice, wish: tuple[int, ...]) -> Advice:
    """The environment with this wish for every seed."""
    env._sample_task = lambda: setattr(env, "wish_indices", wish)
    return env


def test_the_greedy_policy_earns_a_guess_and_the_expert_more_with_every_turn():
    for topics in (1, 3, 5):
        env = make_env(Advice, topics=topics)
        means = [
            np.mean([play_scripted_episode(env, player, seed).total_reward for seed in range(150)])
            for player in ("random", "greedy", "expert")
        ]
        assert (
            means[0] < means[1] + 0.1
            and means[1] == pytest.approx(1 / 3, abs=0.12)
            and means[2] == pytest.approx(env.optimal_return)
        )
    assert [
        make_env(Advice, topics=4, horizon=h).optimal_return for h in range(1, 7)
    ] == pytest.approx([1 / 3 + min(h - 1, 4) * (1 / 6 - 0.02) for h in range(1, 7)])


def test_options_out_of_range_are_errors():
    for wrong in ({"topics": 6}, {"values": 1}, {"horizon": 0}, {"cost": -1}):
        with pytest.raises(UserError):
            make_env(Advice, **wrong)
