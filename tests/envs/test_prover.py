"""The prover is sound, its theorems have proofs, and its texts determine the state."""

import asyncio
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.env_episodes import make_env, play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.prover.formulas import (
    ATOMS,
    canonical_formula,
    compose,
    decompose,
    is_entailed,
    is_true,
)
from agentrl_jax.envs.prover.planner import ForwardPlanner
from agentrl_jax.envs.prover.prover import Prover
from agentrl_jax.envs.prover.sequents import (
    MAX_HYPOTHESES,
    TACTICS,
    ProofState,
    Sequent,
    TacticError,
    applicable_tactics,
    apply_tactic,
    parse_sequent,
    state_text,
)
from agentrl_jax.envs.prover.theorems import ShortestProofSearch, sample_theorem
from agentrl_jax.errors import UserError

formulas = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.builds(compose, st.sampled_from("&+>="), inner, inner),
    max_leaves=4,
)
# Records are made in the tests and not by strategies: checked annotations draw random numbers,
# which a strategy must not.
sequents = st.tuples(st.lists(formulas, max_size=4, unique=True).map(tuple), formulas)


@given(formula=formulas)
def test_a_formula_is_parsed_from_its_canonical_text(formula: str):
    assert canonical_formula(formula) == canonical_formula(f"({formula})") == formula
    connective, left, right = decompose(formula)
    assert (compose(connective, left, right) if connective else left) == formula


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a>b>c", "a>b>c"),
        ("a>(b>c)", "a>b>c"),
        ("(a>b)>c", "(a>b)>c"),
        ("a>b&c", "a>(b&c)"),
        ("((a))", "a"),
        (" a+b ", "a+b"),
    ],
)
def test_canonical_texts_have_no_redundant_brackets(text: str, canonical: str):
    assert canonical_formula(text) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a&",
        "&a",
        "a&b&c",
        "a&b>c",
        "(a",
        "a)",
        "i",
        "ab",
        "a~b",
        "(" * 300,
        "é",
        "\ud800",
        "a>" * 150 + "a",
    ],
)
def test_malformed_formulas_are_refused(text: str):
    with pytest.raises(ValueError):
        canonical_formula(text)


def test_truth_tables():
    assert [
        is_true("a&b", {"a": x, "b": y}) for x, y in itertools.product((False, True), repeat=2)
    ] == [False, False, False, True]
    assert (
        is_entailed(["a", "a>b"], "b")
        and not is_entailed(["b", "a>b"], "a")
        and is_entailed([], "((a>b)>a)>a")
        and is_entailed(["a=b", "b"], "a")
    )


@given(sampled=sequents, tactic=st.sampled_from(TACTICS))
@settings(max_examples=200, deadline=None)
def test_the_goals_after_a_tactic_entail_the_old_goal(
    sampled: tuple[tuple[str, ...], str], tactic: str
):
    sequent = Sequent(*sampled)
    try:
        goals = apply_tactic(sequent, tactic)
    except TacticError:
        return
    if all(is_entailed(goal.hypotheses, goal.goal) for goal in goals):
        assert is_entailed(sequent.hypotheses, sequent.goal)


@pytest.mark.slow
@given(sampled=sequents, seed=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_proved_sequents_are_true(sampled: tuple[tuple[str, ...], str], seed: int):
    """For any sequent, true or not, and any tactics."""
    sequent = Sequent(*sampled)
    env, rng = (
        make("agentrl/Prover-v0", {"horizon": 30, "longest": 400}),
        np.random.default_rng(seed),
    )
    assert isinstance(env, Prover)
    env.reset(seed=0, options={"theorem": f"{','.join(sequent.hypotheses)}|-{sequent.goal}"})
    for _ in range(30):
        _, reward, terminated, truncated, info = env.step(env.scripted_policies["random"](env, rng))
        if terminated or truncated:
            assert reward == float(info["success"])
            assert is_entailed(sequent.hypotheses, sequent.goal) or not info["success"]
            return


@given(sampled=sequents)
@settings(max_examples=60, deadline=None)
def test_the_search_proves_no_false_sequent(sampled: tuple[tuple[str, ...], str]):
    if not is_entailed(*sampled):
        assert ShortestProofSearch()(Sequent(*sampled), 3) is None


@pytest.mark.parametrize("depth", range(1, 9))
def test_a_theorem_has_a_shortest_proof_of_the_requested_depth(depth: int):
    """By brute force: no shorter sequence of tactics is a proof."""
    for seed in range(6):
        start: ProofState = (sample_theorem(seed, depth, 2, 80),)
        assert is_entailed(start[0].hypotheses, start[0].goal)
        reached, proved = {start}, 0
        while () not in reached:
            reached = {
                (*apply_tactic(state[0], tactic), *state[1:])
                for state in reached
                for tactic in applicable_tactics(state[0])
            }
            reached = {state for state in reached if len(state) <= depth}
            proved += 1
        assert proved == depth


def test_misleading_hypotheses_make_theorems_harder():
    won = {
        n: np.mean([_is_won({"misleading": n}, "random", seed) for seed in range(80)])
        for n in (0, 4)
    }
    assert won[0] > won[4] + 0.15


def _is_won(options: dict[str, int], player: str, seed: int) -> bool:
    env, rng = make("agentrl/Prover-v0", options), np.random.default_rng([seed, 1])
    env.reset(seed=seed)
    while True:
        _, _, terminated, truncated, info = env.step(env.scripted_policies[player](env, rng))
        if terminated or truncated:
            return info["success"]


def test_the_expert_proves_every_sampled_theorem_in_the_fewest_turns():
    env = make("agentrl/Prover-v0", {"least": 4, "depth": 7, "misleading": 4})
    assert isinstance(env, Prover)
    for seed in range(20):
        trajectory = play_scripted_episode(env, "expert", seed)
        proof = ShortestProofSearch()(env.start_state[0], 7)
        assert (
            trajectory.success
            and proof is not None
            and len(trajectory.turns) == len(proof)
            and 4 <= len(proof) <= 7
        )


@pytest.mark.parametrize(
    ("theorem", "tactics"),
    [
        ("a|-a", "1"),
        ("a>b,a|-b", "12"),
        ("a>b>c,a,b|-c", "123"),
        ("a&b|-b&a", "s1211"),
        ("a+b,a>c,b>c|-c", "11323"),
        ("a=b,b|-a", "12"),
        ("a=b,a|-b", "12"),
        ("|-a>a+b", "il1"),
        ("|-a=a", "si1i1"),
        ("a>b,b>c|-a>c", "i213"),
    ],
)
def test_proofs_by_hand(theorem: str, tactics: str):
    env = make_env(Prover)
    env.reset(options={"theorem": theorem})
    for i, tactic in enumerate(tactics):
        last = i == len(tactics) - 1
        (*_, message), reward, terminated, _, info = env.step(tactic)
        assert info["legal"] and terminated == last and reward == float(last), (tactic, message)
    assert message.text == "proved\n"


@pytest.mark.parametrize(
    ("theorem", "tactic", "why"),
    [
        ("a|-b", "1", "a does not show the goal"),
        ("a|-b", "2", "there is no hypothesis 2"),
        ("a|-b", "i", "i needs a goal like a>b"),
        ("a|-b", "s", "s needs a goal like a&b or a=b"),
        ("a|-b", "l", "l needs a goal like a+b"),
        ("a=c|-b", "1", "neither a nor c is"),
        ("a|-b", "intro", "tactics are i s l r 1"),
        ("a|-b", "", "tactics are"),
        ("a|-b", "12", "tactics are"),
    ],
)
def test_an_inapplicable_tactic_is_answered_by_the_reason_and_the_goals(
    theorem: str, tactic: str, why: str
):
    env = make_env(Prover)
    opening, _ = env.reset(options={"theorem": theorem})
    (reason, goals), reward, terminated, _, info = env.step(tactic)
    assert (
        reason.text.startswith(why)
        and (goals,) == opening
        and not info["legal"]
        and not reward
        and not terminated
    )


def test_applicable_tactics_are_named_and_the_first_goal_is_printed_last():
    env = make_env(Prover)
    assert env.reset(options={"theorem": "a,a>b|-b&a"})[0][0].text == "a,a>b|-b&a s\n"
    assert env.step("s")[0][0].text == "a,a2>b|-a;b\n"
    assert env.step("2")[0][0].text == "a1,a>b|-a;a\n"


@given(sampled=sequents)
@settings(deadline=None)
def test_the_text_of_a_state_can_be_parsed(sampled: tuple[tuple[str, ...], str]):
    assert parse_sequent(state_text((Sequent(*sampled),))) == Sequent(*sampled)


def test_different_states_have_different_texts():
    texts: dict[str, ProofState] = {}
    env = make("agentrl/Prover-v0", {"depth": 8, "misleading": 4, "longest": 300})
    assert isinstance(env, Prover)
    for seed in range(40):
        rng, over = np.random.default_rng(seed), False
        env.reset(seed=seed)
        while not over:
            assert texts.setdefault(state_text(env.state), env.state) == env.state
            _, _, terminated, truncated, _ = env.step(env.scripted_policies["random"](env, rng))
            over = terminated or truncated
    assert len(texts) > 100


def test_lemmas_become_hypotheses_and_a_claim_the_goal():
    env = make_env(Prover)
    env.reset(seed=5)
    sampled = env.start_state[0]
    env.reset(seed=5, options={"lemmas": ["(a)", "c>d"], "claim": "(c>d)"})
    assert env.start_state[0].goal == "c>d" and set(env.start_state[0].hypotheses) == {
        *sampled.hypotheses,
        "a",
        "c>d",
    }
    env.reset(seed=5, options={"lemmas": []})
    assert env.start_state[0] == sampled


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
def test_invalid_reset_options_are_errors(options: dict[str, object]):
    assert MAX_HYPOTHESES == 12
    with pytest.raises(UserError, match="theorem"):
        make_env(Prover).reset(seed=0, options=options)


def test_a_tactic_with_a_too_long_result_is_refused():
    env = make_env(Prover, longest=60)
    env.reset(options={"theorem": "a+b,c>d,d>e,e>f,f>g,g>h,h>j,j>k,k>m,m>n|-n"})
    reason, _ = env.step("1")[0]
    assert reason.text == "no room for more than 60 letters\n"


@pytest.mark.parametrize(
    ("theorem", "proven", "failed", "claims"),
    [
        ("a,a>b,b>c|-c", [], [], ["b"]),
        ("a,a>b,b>c|-c", ["b"], [], ["c"]),
        ("a,a>b,b>c|-c", [], ["b"], []),
        ("a&b,c=d,d|-e", [], [], ["a", "b", "c"]),
        ("a,b,a>b>c|-d", [], [], ["c"]),
        ("a,a>b>c|-c", [], [], ["b>c"]),
        ("|-a", [], [], []),
    ],
)
def test_the_planner_proposes_one_step_consequences(
    theorem: str, proven: list[str], failed: list[str], claims: list[str]
):
    planned = asyncio.run(ForwardPlanner().plan(theorem, proven, failed))
    assert planned == claims
    assert all(
        is_entailed([*parse_sequent(theorem).hypotheses, *proven], claim) for claim in planned
    )


def test_info_is_plain_data():
    env = make_env(Prover)
    assert json.loads(json.dumps(env.step("?")[4]))["anchor"] == state_text(env.state)
