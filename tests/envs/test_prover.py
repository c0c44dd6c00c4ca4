"""The prover proves nothing that is not true, its theorems can be proved, and its texts say all."""

import asyncio
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import fresh, played

from agentrl_jax.environment import make
from agentrl_jax.envs.prover.formulas import ATOMS, canonical, follows, holds, join, parts
from agentrl_jax.envs.prover.planner import Forward
from agentrl_jax.envs.prover.prover import Prover
from agentrl_jax.envs.prover.sequents import MOST, TACTICS, Refused, Sequent, State, applicable, applied, shown, stated
from agentrl_jax.envs.prover.theorems import Shortest, theorem
from agentrl_jax.errors import UserError

formulas = st.recursive(st.sampled_from("abc"), lambda inner: st.builds(join, st.sampled_from("&+>="), inner, inner), max_leaves=4)
# Records are made in the tests and not by strategies: checked annotations draw random numbers, which a strategy must not.
sequents = st.tuples(st.lists(formulas, max_size=4, unique=True).map(tuple), formulas)


@given(formula=formulas)
def test_a_formula_is_read_back_from_its_text(formula: str):
    assert canonical(formula) == canonical(f"({formula})") == formula
    connective, left, right = parts(formula)
    assert (join(connective, left, right) if connective else left) == formula


@pytest.mark.parametrize(
    ("text", "found"),
    [("a>b>c", "a>b>c"), ("a>(b>c)", "a>b>c"), ("(a>b)>c", "(a>b)>c"), ("a>b&c", "a>(b&c)"), ("((a))", "a"), (" a+b ", "a+b")],
)
def test_brackets_are_only_where_they_tell(text: str, found: str):
    assert canonical(text) == found


@pytest.mark.parametrize(
    "text", ["", "a&", "&a", "a&b&c", "a&b>c", "(a", "a)", "i", "ab", "a~b", "(" * 300, "é", "\ud800", "a>" * 150 + "a"]
)
def test_what_is_no_formula_is_refused(text: str):
    with pytest.raises(ValueError):
        canonical(text)


def test_truth_tables():
    assert [holds("a&b", {"a": x, "b": y}) for x, y in itertools.product((False, True), repeat=2)] == [False, False, False, True]
    assert follows(["a", "a>b"], "b") and not follows(["b", "a>b"], "a") and follows([], "((a>b)>a)>a") and follows(["a=b", "b"], "a")


@given(drawn=sequents, tactic=st.sampled_from(TACTICS))
@settings(max_examples=200, deadline=None)
def test_a_tactic_leaves_goals_from_which_the_old_one_follows(drawn: tuple[tuple[str, ...], str], tactic: str):
    sequent = Sequent(*drawn)
    try:
        goals = applied(sequent, tactic)
    except Refused:
        return
    if all(follows(goal.hypotheses, goal.goal) for goal in goals):
        assert follows(sequent.hypotheses, sequent.goal)


@given(drawn=sequents, seed=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_what_the_world_calls_proved_is_true(drawn: tuple[tuple[str, ...], str], seed: int):
    """Any theorem that somebody states, true or not, and whatever is played."""
    sequent = Sequent(*drawn)
    env, rng = make("agentrl/Prover-v0", {"horizon": 30, "longest": 400}), np.random.default_rng(seed)
    assert isinstance(env, Prover)
    env.reset(seed=0, options={"theorem": f"{','.join(sequent.hypotheses)}|-{sequent.goal}"})
    for _ in range(30):
        _, reward, terminated, truncated, info = env.step(env.players["random"](env, rng))
        if terminated or truncated:
            assert reward == float(info["success"])
            assert follows(sequent.hypotheses, sequent.goal) or not info["success"]
            return


@given(drawn=sequents)
@settings(max_examples=60, deadline=None)
def test_no_search_proves_what_is_false(drawn: tuple[tuple[str, ...], str]):
    if not follows(*drawn):
        assert Shortest()(Sequent(*drawn), 3) is None


@pytest.mark.parametrize("depth", range(1, 9))
def test_a_theorem_has_a_shortest_proof_of_the_depth_that_was_asked_for(depth: int):
    """Checked by brute force: no shorter sequence of tactics ends with nothing to show."""
    for seed in range(6):
        start: State = (theorem(seed, depth, 2, 80),)
        assert follows(start[0].hypotheses, start[0].goal)
        reached, proved = {start}, 0
        while () not in reached:
            reached = {
                (*applied(state[0], tactic), *state[1:]) for state in reached for tactic in applicable(state[0])
            }  # fmt: skip
            reached = {state for state in reached if len(state) <= depth}
            proved += 1
        assert proved == depth


def test_hypotheses_that_mislead_make_theorems_harder():
    won = {n: np.mean([_won({"misleading": n}, "random", seed) for seed in range(80)]) for n in (0, 4)}
    assert won[0] > won[4] + 0.15


def _won(options: dict[str, int], player: str, seed: int) -> bool:
    env, rng = make("agentrl/Prover-v0", options), np.random.default_rng([seed, 1])
    env.reset(seed=seed)
    while True:
        _, _, terminated, truncated, info = env.step(env.players[player](env, rng))
        if terminated or truncated:
            return info["success"]


def test_the_expert_proves_every_theorem_that_is_drawn_in_as_few_turns_as_can_be():
    env = make("agentrl/Prover-v0", {"least": 4, "depth": 7, "misleading": 4})
    assert isinstance(env, Prover)
    for seed in range(20):
        trajectory = played(env, "expert", seed)
        proof = Shortest()(env.start[0], 7)
        assert trajectory.success and proof is not None and len(trajectory.turns) == len(proof) and 4 <= len(proof) <= 7


@pytest.mark.parametrize(
    ("theorem", "tactics"),
    [
        ("a|-a", "1"), ("a>b,a|-b", "12"), ("a>b>c,a,b|-c", "123"), ("a&b|-b&a", "s1211"), ("a+b,a>c,b>c|-c", "11323"),
        ("a=b,b|-a", "12"), ("a=b,a|-b", "12"), ("|-a>a+b", "il1"), ("|-a=a", "si1i1"), ("a>b,b>c|-a>c", "i213"),
    ],
)  # fmt: skip
def test_proofs_by_hand(theorem: str, tactics: str):
    env = fresh(Prover)
    env.reset(options={"theorem": theorem})
    for i, tactic in enumerate(tactics):
        last = i == len(tactics) - 1
        (*_, message), reward, terminated, _, info = env.step(tactic)
        assert info["legal"] and terminated == last and reward == float(last), (tactic, message)
    assert message.text == "proved\n"


@pytest.mark.parametrize(
    ("theorem", "tactic", "why"),
    [
        ("a|-b", "1", "a does not show the goal"), ("a|-b", "2", "there is no hypothesis 2"), ("a|-b", "i", "i needs a goal like a>b"),
        ("a|-b", "s", "s needs a goal like a&b or a=b"), ("a|-b", "l", "l needs a goal like a+b"), ("a=c|-b", "1", "neither a nor c is"),
        ("a|-b", "intro", "tactics are i s l r 1"), ("a|-b", "", "tactics are"), ("a|-b", "12", "tactics are"),
    ],
)  # fmt: skip
def test_a_tactic_that_does_not_apply_is_answered_by_the_reason_and_the_goals(theorem: str, tactic: str, why: str):
    env = fresh(Prover)
    opening, _ = env.reset(options={"theorem": theorem})
    (reason, goals), reward, terminated, _, info = env.step(tactic)
    assert reason.text.startswith(why) and (goals,) == opening and not info["legal"] and not reward and not terminated


def test_what_applies_is_named_and_the_first_goal_comes_last():
    env = fresh(Prover)
    assert env.reset(options={"theorem": "a,a>b|-b&a"})[0][0].text == "a,a>b|-b&a s\n"
    assert env.step("s")[0][0].text == "a,a2>b|-a;b\n"
    assert env.step("2")[0][0].text == "a1,a>b|-a;a\n"


@given(drawn=sequents)
@settings(deadline=None)
def test_what_is_shown_can_be_stated(drawn: tuple[tuple[str, ...], str]):
    assert stated(shown((Sequent(*drawn),))) == Sequent(*drawn)


def test_two_states_never_have_one_text():
    texts: dict[str, State] = {}
    env = make("agentrl/Prover-v0", {"depth": 8, "misleading": 4, "longest": 300})
    assert isinstance(env, Prover)
    for seed in range(40):
        rng, over = np.random.default_rng(seed), False
        env.reset(seed=seed)
        while not over:
            assert texts.setdefault(shown(env.state), env.state) == env.state
            _, _, terminated, truncated, _ = env.step(env.players["random"](env, rng))
            over = terminated or truncated
    assert len(texts) > 100


def test_lemmas_are_given_and_a_claim_is_what_is_to_be_shown():
    env = fresh(Prover)
    env.reset(seed=5)
    drawn = env.start[0]
    env.reset(seed=5, options={"lemmas": ["(a)", "c>d"], "claim": "(c>d)"})
    assert env.start[0].goal == "c>d" and set(env.start[0].hypotheses) == {*drawn.hypotheses, "a", "c>d"}
    env.reset(seed=5, options={"lemmas": []})
    assert env.start[0] == drawn


@pytest.mark.parametrize(
    "options",
    [
        {"theorem": "a"},
        {"theorem": 3},
        {"claim": "a b"},
        {"lemmas": ["q"]},
        {"lemmas": 3},
        {"lemmas": list(ATOMS)},
        {"claim": "&".join("a" * 99)},
    ],
)
def test_what_cannot_be_stated_is_an_error_that_says_so(options: dict[str, object]):
    assert MOST == 12
    with pytest.raises(UserError, match="theorem"):
        fresh(Prover).reset(seed=0, options=options)


def test_a_state_that_would_be_too_long_is_refused():
    env = fresh(Prover, longest=60)
    env.reset(options={"theorem": "a+b,c>d,d>e,e>f,f>g,g>h,h>j,j>k,k>m,m>n|-n"})
    reason, _ = env.step("1")[0]
    assert reason.text == "no room for more than 60 letters\n"


@pytest.mark.parametrize(
    ("theorem", "proven", "failed", "claims"),
    [
        ("a,a>b,b>c|-c", [], [], ["b"]), ("a,a>b,b>c|-c", ["b"], [], ["c"]), ("a,a>b,b>c|-c", [], ["b"], []),
        ("a&b,c=d,d|-e", [], [], ["a", "b", "c"]), ("a,b,a>b>c|-d", [], [], ["c"]), ("a,a>b>c|-c", [], [], ["b>c"]), ("|-a", [], [], []),
    ],
)  # fmt: skip
def test_the_planner_claims_what_follows_in_one_step(theorem: str, proven: list[str], failed: list[str], claims: list[str]):
    found = asyncio.run(Forward().plan(theorem, proven, failed))
    assert found == claims
    assert all(follows([*stated(theorem).hypotheses, *proven], claim) for claim in found)


def test_facts_are_plain_data():
    env = fresh(Prover)
    assert json.loads(json.dumps(env.step("?")[4]))["anchor"] == shown(env.state)
