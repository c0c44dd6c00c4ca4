"""Look-ups: texts and rewards by hand, F1, and what each entry tells about the answer."""

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import answers, by_hand, facts, fresh, played, rewards

from agentrl_jax.environment import make
from agentrl_jax.envs.probes.lookup import Lookup, f1
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

STORE = {
    "ann": {"boss": "bob", "pal": "cat"},
    "bob": {"boss": "cat", "pal": "ann"},
    "cat": {"boss": "ann", "pal": "bob"},
}


def world(**options) -> Lookup:
    """boss of pal of ann? Her pal is cat, whose boss is ann."""
    env = fresh(Lookup, people=3, **options)
    env.store, env.asked, env.way = STORE, ("pal", "boss"), ("ann", "cat", "ann")
    return env


def test_the_question_is_solved_look_up_by_look_up():
    env = world()
    assert env._question() == "boss of pal of ann?"
    t = by_hand(env, "find ann", "find cat", "answer ann")
    assert answers(t) == ["ann boss bob pal cat\n", "cat boss ann pal bob\n", "Done.\n"]
    assert rewards(t) == [0.0, 0.0, 1.0] and t.turns[-1].rewards == {"outcome": 1.0}
    assert facts(t, "tool_calls") == [1, 1, 0] and facts(t, "stopped") == [False, False, True]
    assert facts(t, "gold") == ["ann"] * 3 and facts(t, "answer") == [None, None, "ann"]
    assert t.success is True and t.turns[-1].terminated


@pytest.mark.parametrize(
    ("answer", "paid", "success"), [("ann", 1.0, True), ("bob", 0.0, False), ("ann bob", 2 / 3, False), ("bob ann cat", 0.5, False)]
)
def test_an_answer_earns_its_f1_and_exact_only_all_of_it(answer, paid, success):
    t = by_hand(world(), f"answer {answer}")
    assert rewards(t) == [paid] and t.success is success and facts(t, "answer") == [answer]
    assert rewards(by_hand(world(exact=True), f"answer {answer}")) == [float(success)]


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1).map(" ".join), st.lists(st.sampled_from("abcd"), min_size=1).map(" ".join))
def test_f1_is_the_harmonic_mean_of_precision_and_recall(answer, gold):
    common = len(set(answer.split()) & set(gold.split()))
    precision, recall = common / len(set(answer.split())), common / len(set(gold.split()))
    assert f1(answer, gold) == pytest.approx(2 * precision * recall / (precision + recall) if common else 0.0)
    assert (f1(answer, gold) == 1.0) == (set(answer.split()) == set(gold.split()))


@pytest.mark.parametrize(
    "text", ["", "ann", "find", "find ann bob", "find Ann", "answer", "answer  ann", "answer ann.", "answer 7", "answer" + " ann" * 13]
)
def test_anything_else_is_malformed_and_answered(text):
    t = by_hand(world(), text)
    assert answers(t) == ["?\n"] and rewards(t) == [0.0] and facts(t, "formatted") == facts(t, "legal") == [False]


def test_nobody_is_found_under_another_name():
    t = by_hand(world(), "find dan", "find zoe")
    assert answers(t) == ["nobody\n"] * 2 and facts(t, "formatted") == [True, True]


def test_the_horizon_truncates():
    t = by_hand(world(), *["find ann"] * 8)
    assert t.turns[-1].truncated and t.success is False


def test_an_ambiguous_look_up_returns_others_too_and_always_the_same():
    env = make("agentrl/Lookup-v0", {"ambiguous": 2})
    places = set()
    for seed in range(60):
        env.reset(seed=seed)
        said = answers(by_hand(env, "find bob", "find bob"))
        found = [entry.split()[0] for entry in said[0].split("; ")]
        assert said[0] == said[1] and len(set(found)) == 3 and "bob" in found
        places.add(found.index("bob"))
    assert places == {0, 1, 2}


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_questions_have_their_hops_and_relations_are_circles(hops):
    env = make("agentrl/Lookup-v0", {"hops": hops, "relations": 3})
    assert isinstance(env, Lookup)
    for seed in range(30):
        (question,) = texts(env.reset(seed=seed)[0])
        *relations, name = question.removesuffix("?\n").split(" of ")
        assert len(relations) == hops
        for relation in reversed(relations):
            name = env.store[name][relation]
        assert name == env.gold
        assert len(played(env, "expert", seed).turns) == hops + 1
        for relation in env.relations:
            seen, at = [], "ann"
            while at not in seen:
                seen.append(at)
                at = env.store[at][relation]
            assert at == "ann" and sorted(seen) == sorted(env.names)


def circles(names: str) -> list[dict[str, str]]:
    return [dict(zip((names[0], *rest), (*rest, names[0]))) for rest in permutations(names[1:])]


@pytest.mark.parametrize("asked", list(product((0, 1), repeat=2)))
def test_every_entry_on_the_way_raises_the_probability_of_the_right_answer(asked):
    """All pairs of circles of four people are equally likely; what is left after each entry is counted."""
    stores = list(product(circles("abcd"), repeat=2))

    def entry(store, name):
        return tuple(circle[name] for circle in store)

    def gold(store):
        return store[asked[1]][store[asked[0]]["a"]]

    for true in stores:
        probabilities = []
        left = stores
        for name in (None, "a", true[asked[0]]["a"]):
            left = [store for store in left if name is None or entry(store, name) == entry(true, name)]
            probabilities.append(sum(gold(store) == gold(true) for store in left) / len(left))
        assert probabilities[0] < probabilities[1] <= probabilities[2] == 1.0


@pytest.mark.parametrize("option", [{"hops": 0}, {"hops": 4}, {"relations": 4}, {"ambiguous": 3}, {"horizon": 0}])
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        world(**option)
    with pytest.raises(UserError, match="people"):
        make("agentrl/Lookup-v0", {"people": 2})
