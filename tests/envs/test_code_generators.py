"""The generators of problems: each answer in a second way, checks, difficulty and splits."""

import sys

import numpy as np
import pytest

from agentrl_jax.envs.code.checks import Constraint, ExactText, ItemSet, NumberCheck, UnitTests
from agentrl_jax.envs.code.generators import (
    GENERATORS,
    GROUPS,
    draw_problem,
    shared_questions,
    split_generators,
    split_of,
)
from agentrl_jax.errors import UserError
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.python_tool import shared_sandbox
from agentrl_jax.sandbox.snippet import Outcome, Snippet

needs_sandbox = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)


def run(code: str) -> Outcome:
    return shared_sandbox(SandboxConfig()).run(Snippet(code))


def refuse(code: str) -> Outcome:
    raise AssertionError("this check runs no code")


def problems(name: str, count: int, difficulty: float) -> list:
    generate = GENERATORS[name].generate
    return [generate(np.random.default_rng([seed, 5]), difficulty) for seed in range(count)]


@needs_sandbox
@pytest.mark.parametrize("name", GENERATORS)
def test_a_program_in_the_sandbox_finds_the_same_answer_in_another_way(name: str):
    """The generators use formulas and dynamic programming, the programs mostly brute force."""
    for difficulty in (0.0, 0.5, 1.0):
        for problem in problems(name, 2, difficulty):
            assert problem.check(problem.answer, run), problem
            if isinstance(problem.check, UnitTests):
                continue
            outcome = run(problem.program)
            assert outcome.succeeded and problem.check(outcome.stdout.strip(), run), problem
            if not isinstance(problem.check, Constraint):
                other = outcome.stdout.strip()
                assert other == problem.answer or not isinstance(problem.check, ExactText)


@needs_sandbox
@pytest.mark.parametrize("name", GENERATORS)
def test_other_answers_are_wrong(name: str):
    """Answers of other problems of the generator are mostly wrong; texts that are none always."""
    first, *others = problems(name, 12, 0.7)
    wrong = ["", " ", "zz", "-1", "1e9", "[]", "9" * 3000, "(" * 500, "1 " * 900]
    run_or_refuse = run if isinstance(first.check, UnitTests) else refuse
    assert not any(first.check(answer, run_or_refuse) for answer in wrong)
    if not isinstance(first.check, UnitTests):
        assert sum(first.check(other.answer, refuse) for other in others) <= 5


@needs_sandbox
def test_functions_that_others_ask_for_fail_the_unit_tests():
    for name in ("sum_of_multiples", "letter_replacement", "combinations_with_remainder"):
        first, second = problems(name, 2, 0.5)
        assert first.check(first.program, run) and not first.check(second.program, run)
        assert not first.check("def f(*x):\n    import os\n    os._exit(0)", run)
        assert not first.check("def f(*x):\n    while True:\n        pass", run_shortly)


def run_shortly(code: str) -> Outcome:
    from agentrl_jax.sandbox.limits import SandboxLimits

    return shared_sandbox(SandboxConfig()).run(Snippet(code), SandboxLimits(seconds=0.2))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_has_a_thousand_questions(name: str):
    assert len({problem.question for problem in problems(name, 1500, 0.7)}) > 1000


def test_a_seed_fixes_the_problem_and_harder_ones_differ():
    for name in GENERATORS:
        assert problems(name, 2, 0.4) == problems(name, 2, 0.4)
        assert problems(name, 4, 0.0) != problems(name, 4, 1.0)


def test_the_table_has_five_groups_each_with_held_out_generators():
    assert len(GENERATORS) >= 30 and len(GROUPS) == 5
    for group in GROUPS:
        train, held_out = (split_generators(split, [group]) for split in ("train", "held_out"))
        assert len(train) >= 6 and len(held_out) >= 2
        assert not {entry.name for entry in train} & {entry.name for entry in held_out}
    assert split_generators("train") == split_generators("test")


def test_no_question_of_a_split_is_in_another():
    assert shared_questions(1500) == 0
    rng = np.random.default_rng(0)
    entries = split_generators("test", ["product"])
    texts = {draw_problem(rng, entries, "test", 0.0)[1].question for _ in range(200)}
    assert {split_of(GENERATORS["product"], text) for text in texts} == {"test"}
    # Without the split by text, questions recur: there are 700 easy products.
    free = [problem.question for problem in problems("product", 2000, 0.0)]
    assert texts & set(free)


def test_checks_by_hand():
    assert NumberCheck(1234)("1,234", refuse) and not NumberCheck(1234)("1234.5", refuse)
    assert NumberCheck(2.5, 0.005)("2.51", refuse) and not NumberCheck(2.5, 0.005)("2.52", refuse)
    assert NumberCheck(10**30)(str(10**30), refuse)
    assert not NumberCheck(10**30)(str(10**30 + 1), refuse)
    assert ExactText("ab")(" 'ab'\n", refuse) and not ExactText("ab")("a b", refuse)
    assert ItemSet(frozenset("ab"))("[b, a]", refuse)
    assert not ItemSet(frozenset("ab"))("a a", refuse) and ItemSet(frozenset())("none", refuse)


def test_several_solutions_of_a_constraint_are_right():
    (problem,) = problems("task_order", 1, 0.0)
    names, rules = problem.check.data
    assert problem.check(problem.answer, refuse)
    reverse = " ".join(reversed(problem.answer.split()))
    assert not problem.check(reverse, refuse) and not problem.check(names[:-1], refuse)
    assert not problem.check(f"{problem.answer} A", refuse) and rules


@pytest.mark.parametrize("split,names", [("all", []), ("train", ["halves"]), ("train", ["poems"])])
def test_unknown_splits_and_generators_are_errors(split: str, names: list[str]):
    with pytest.raises(UserError, match=names[0] if names else "all"):
        split_generators(split, names)
