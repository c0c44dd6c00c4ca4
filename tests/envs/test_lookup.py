"""`Lookup`: texts and rewards by hand, F1, and the information in each entry."""

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.env_episodes import (
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.lookup import Lookup, f1_score
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

STORE = {
    "ann": {"boss": "bob", "pal": "cat"},
    "bob": {"boss": "cat", "pal": "ann"},
    "cat": {"boss": "ann", "pal": "bob"},
}


def make_lookup(**options) -> Lookup:
    """boss of pal of ann? Her pal is cat, whose boss is ann."""
    env = make_env(Lookup, people=3, **options)
    env.relation_table, env.question_relations, env.answer_path = (
        STORE,
        ("pal", "boss"),
        ("ann", "cat", "ann"),
    )
    return env


def test_an_episode_by_hand():
    env = make_lookup()
    assert env._opening_text() == "boss of pal of ann?"
    t = play_actions(env, "find ann", "find cat", "answer ann")
    assert observation_texts(t) == ["ann boss bob pal cat\n", "cat boss ann pal bob\n", "Done.\n"]
    assert rewards(t) == [0.0, 0.0, 1.0] and t.turns[-1].rewards == {"outcome": 1.0}
    assert info_values(t, "called_tools") == [["find"], ["find"], []] and info_values(
        t, "stopped"
    ) == [
        False,
        False,
        True,
    ]
    assert info_values(t, "gold") == ["ann"] * 3 and info_values(t, "answer") == [None, None, "ann"]
    assert t.success is True and t.turns[-1].terminated


@pytest.mark.parametrize(
    ("answer", "paid", "success"),
    [
        ("ann", 1.0, True),
        ("bob", 0.0, False),
        ("ann bob", 2 / 3, False),
        ("bob ann cat", 0.5, False),
    ],
)
def test_an_answer_earns_its_f1_or_an_exact_match(answer, paid, success):
    t = play_actions(make_lookup(), f"answer {answer}")
    assert rewards(t) == [paid] and t.success is success and info_values(t, "answer") == [answer]
    assert rewards(play_actions(make_lookup(exact=True), f"answer {answer}")) == [float(success)]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), min_size=1).map(" ".join),
    st.lists(st.sampled_from("abcd"), min_size=1).map(" ".join),
)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(answer, gold):
    common = len(set(answer.split()) & set(gold.split()))
    precision, recall = common / len(set(answer.split())), common / len(set(gold.split()))
    assert f1_score(answer, gold) == pytest.approx(
        2 * precision * recall / (precision + recall) if common else 0.0
    )
    assert (f1_score(answer, gold) == 1.0) == (set(answer.split()) == set(gold.split()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ann",
        "find",
        "find ann bob",
        "find Ann",
        "answer",
        "answer  ann",
        "answer ann.",
        "answer 7",
        "answer" + " ann" * 13,
    ],
)
def test_malformed_actions_are_answered(text):
    t = play_actions(make_lookup(), text)
    assert (
        observation_texts(t) == ["?\n"]
        and rewards(t) == [0.0]
        and info_values(t, "formatted") == info_values(t, "legal") == [False]
    )


def test_a_lookup_of_an_unknown_name_is_answered():
    t = play_actions(make_lookup(), "find dan", "find zoe")
    assert observation_texts(t) == ["nobody\n"] * 2 and info_values(t, "formatted") == [True, True]


def test_separate_tools_answer_one_relation_each():
    t = play_actions(
        make_lookup(separate_tools=True), "find ann", "pal ann", "boss cat", "answer ann"
    )
    assert observation_texts(t) == ["?\n", "ann pal cat\n", "cat boss ann\n", "Done.\n"]
    assert info_values(t, "called_tools") == [[], ["pal"], ["boss"], []] and t.success is True
    env = make("agentrl/Lookup-v0", {"separate_tools": True, "hops": 3, "relations": 3})
    assert isinstance(env, Lookup)
    for seed in range(20):
        t = play_scripted_episode(env, "expert", seed)
        tools = [tool for turn in t.turns for tool in turn.info["called_tools"]]
        assert t.success is True and tuple(tools) == env.question_relations


def test_the_horizon_truncates():
    t = play_actions(make_lookup(), *["find ann"] * 8)
    assert t.turns[-1].truncated and t.success is False


def test_an_ambiguous_lookup_returns_the_same_further_entries_each_time():
    env = make("agentrl/Lookup-v0", {"ambiguous": 2})
    positions = set()
    for seed in range(60):
        env.reset(seed=seed)
        answers = observation_texts(play_actions(env, "find bob", "find bob"))
        names_returned = [entry.split()[0] for entry in answers[0].split("; ")]
        assert (
            answers[0] == answers[1] and len(set(names_returned)) == 3 and "bob" in names_returned
        )
        positions.add(names_returned.index("bob"))
    assert positions == {0, 1, 2}


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_questions_have_their_hops_and_relations_are_circles(hops):
    env = make("agentrl/Lookup-v0", {"hops": hops, "relations": 3})
    assert isinstance(env, Lookup)
    for seed in range(30):
        (question,) = texts(env.reset(seed=seed)[0])
        *relations, name = question.removesuffix("?\n").split(" of ")
        assert len(relations) == hops
        for relation in reversed(relations):
            name = env.relation_table[name][relation]
        assert name == env.gold
        assert len(play_scripted_episode(env, "expert", seed).turns) == hops + 1
        for relation in env.relations:
            visited, at = [], "ann"
            while at not in visited:
                visited.append(at)
                at = env.relation_table[at][relation]
            assert at == "ann" and sorted(visited) == sorted(env.names)


def circles(names: str) -> list[dict[str, str]]:
    return [dict(zip((names[0], *order), (*order, names[0]))) for order in permutations(names[1:])]


@pytest.mark.parametrize("relation_order", list(product((0, 1), repeat=2)))
def test_every_entry_on_the_path_raises_the_posterior_of_the_right_answer(relation_order):
    """All pairs of cycles of four people are equally likely; consistent ones are counted."""
    stores = list(product(circles("abcd"), repeat=2))

    def entry(store, name):
        return tuple(circle[name] for circle in store)

    def gold(store):
        return store[relation_order[1]][store[relation_order[0]]["a"]]

    for true in stores:
        probabilities = []
        left = stores
        for name in (None, "a", true[relation_order[0]]["a"]):
            left = [
                store for store in left if name is None or entry(store, name) == entry(true, name)
            ]
            probabilities.append(sum(gold(store) == gold(true) for store in left) / len(left))
        assert probabilities[0] < probabilities[1] <= probabilities[2] == 1.0


@pytest.mark.parametrize(
    "option", [{"hops": 0}, {"hops": 4}, {"relations": 4}, {"ambiguous": 3}, {"horizon": 0}]
)
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        make_lookup(**option)
    with pytest.raises(UserError, match="people"):
        make("agentrl/Lookup-v0", {"people": 2})
