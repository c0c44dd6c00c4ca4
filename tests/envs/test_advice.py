"""The dialogue world against its rules said a second time, and its best player against brute force."""

import functools
import itertools

import numpy as np
import pytest
from worlds import answers, by_hand, facts, fresh, played, rewards

from agentrl_jax.envs.dialogue.advice import TOPICS, Advice
from agentrl_jax.errors import UserError

WORDS = ["ask", "go", *TOPICS, *itertools.chain(*TOPICS.values()), "", "?"]


def restated(wish: dict[str, str], values: int, horizon: int, cost: float, texts: list[str]) -> list[tuple[str, float]]:
    """What the user says to each text and what that earns; dialogues are read anew for each turn."""
    out = []
    for turn in range(len(texts)):
        closed = [t for t in texts[:turn] if _named(t, wish, values)]
        now, left = texts[turn], horizon - turn - 1
        if now in [f"ask {topic}" for topic in wish]:
            out.append((f"{'no' if closed else wish[now[4:]]} {left}\n", -cost))
        elif named := _named(now, wish, values):
            right = len(named & set(wish.values()))
            out.append((f"thanks {left}\n", 0.0 if closed else right / len(wish)))
        else:
            out.append((f"? {left}\n", 0.0))
    return out


def _named(text: str, wish: dict[str, str], values: int) -> set[str]:
    """The values of an advice; empty where it is none."""
    words = text.split(" ")
    sets = [set(TOPICS[topic][:values]) for topic in wish]
    good = words[0] == "go" and all(sum(word in one for one in sets) == 1 for word in words[1:])
    return set(words[1:]) if good and all(len(one & set(words[1:])) == sum(w in one for w in words[1:]) <= 1 for one in sets) else set()


@pytest.mark.parametrize(("topics", "values", "horizon", "cost"), [(3, 3, 4, 0.02), (1, 2, 1, 0.1), (2, 4, 6, 0.0), (5, 3, 5, 0.05)])
def test_it_answers_and_pays_as_its_rules_say(topics: int, values: int, horizon: int, cost: float):
    rng = np.random.default_rng(topics)
    env = fresh(Advice, topics=topics, values=values, horizon=horizon, cost=cost)
    for seed in range(60):
        opening, _ = env.reset(seed=seed)
        assert opening[0].text == f"trip? {horizon}\n"
        asked, wanted = [f"ask {topic}" for topic in env.topics], list(env.wish.values())
        some = [*asked, *asked, "go " + " ".join(wanted), "go " + " ".join(wanted[::-1][:2]), "go", f"go {wanted[0]} {wanted[0]}"]
        texts = [
            some[rng.integers(len(some))] if rng.random() < 0.7 else " ".join(rng.choice(WORDS, rng.integers(1, 4))).strip()
            for _ in range(horizon)
        ]
        t = by_hand(env, *texts)
        want = restated(dict(env.wish), values, horizon, cost, texts)
        assert list(zip(answers(t), rewards(t))) == [(said, pytest.approx(paid)) for said, paid in want]
        assert t.turns[-1].terminated and not any(turn.terminated for turn in t.turns[:-1])
        shares = [turn.rewards["advice"] for turn in t.turns]
        assert t.total_reward == pytest.approx(sum(shares) - cost * facts(t, "questions")[-1]) and sum(x > 0 for x in shares) <= 1
        assert t.success is (sum(shares) == 1)


def test_a_dialogue_by_hand():
    env = fresh(Advice)
    food, place, _ = env.wish.values()
    t = by_hand(env, "ask food", "ask place", f"go {place} {food}", "ask month")
    assert answers(t) == [f"{food} 3\n", f"{place} 2\n", "thanks 1\n", "no 0\n"]
    assert rewards(t) == [-0.02, -0.02, pytest.approx(2 / 3), -0.02] and t.success is False
    assert facts(t, "facts") == [1, 2, 2, 2] and facts(t, "right") == [None, None, 2, 2] and facts(t, "questions") == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("topics", "values", "horizon", "cost"),
    [(1, 2, 1, 0.02), (2, 2, 1, 0.0), (2, 3, 2, 0.02), (2, 2, 3, 0.02), (2, 2, 3, 0.4), (1, 4, 3, 0.0)],
)
def test_nobody_does_better_than_the_optimum(topics: int, values: int, horizon: int, cost: float):
    """Expectimax over all that may be said, the wishes that a history leaves open being equally likely; the world is played itself."""
    env = fresh(Advice, topics=topics, values=values, horizon=horizon, cost=cost)
    sets = [env.values_of(topic) for topic in env.topics]
    said = [f"ask {topic}" for topic in env.topics] + ["go " + " ".join(choice) for choice in itertools.product(*sets)]

    def after(drawn: tuple[int, ...], texts: tuple[str, ...]) -> tuple[str, float]:
        twin = env.fork(0)
        assert isinstance(twin, Advice)
        twin.drawn = drawn
        t = by_hand(twin, *texts)
        return answers(t)[-1], rewards(t)[-1]

    @functools.cache
    def best(open_: tuple[tuple[int, ...], ...], texts: tuple[str, ...]) -> float:
        if len(texts) == horizon:
            return 0.0
        values_ = []
        for text in said:
            found = [(*after(drawn, (*texts, text)), drawn) for drawn in open_]
            value = float(np.mean([paid for _, paid, _ in found]))
            for answer in {answer for answer, _, _ in found}:
                rest = tuple(drawn for one, _, drawn in found if one == answer)
                value += len(rest) / len(open_) * best(rest, (*texts, text))
            values_.append(value)
        return max(values_)

    everything = tuple(itertools.product(range(values), repeat=topics))
    assert best(everything, ()) == pytest.approx(env.optimum)
    expert = np.mean([played(_with(env, drawn), "expert", 0).total_reward for drawn in everything])
    assert expert == pytest.approx(env.optimum)


def _with(env: Advice, drawn: tuple[int, ...]) -> Advice:
    """The world with this wish whatever the seed."""
    env._draw = lambda: setattr(env, "drawn", drawn)
    return env


def test_greed_earns_a_guess_and_planning_more_with_every_turn():
    for topics in (1, 3, 5):
        env = fresh(Advice, topics=topics)
        means = [np.mean([played(env, player, seed).total_reward for seed in range(150)]) for player in ("random", "greedy", "expert")]
        assert means[0] < means[1] + 0.1 and means[1] == pytest.approx(1 / 3, abs=0.12) and means[2] == pytest.approx(env.optimum)
    assert [fresh(Advice, topics=4, horizon=h).optimum for h in range(1, 7)] == pytest.approx(
        [1 / 3 + min(h - 1, 4) * (1 / 6 - 0.02) for h in range(1, 7)]
    )


def test_options_that_make_no_sense_are_refused():
    for wrong in ({"topics": 6}, {"values": 1}, {"horizon": 0}, {"cost": -1}):
        with pytest.raises(UserError):
            fresh(Advice, **wrong)
