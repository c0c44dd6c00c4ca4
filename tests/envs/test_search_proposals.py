"""`SearchProposals`: rules of valid questions, the expert's; questions that are given."""

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.search.scripted import search_for
from agentrl_jax.envs.search.search_proposals import PREFIX, SearchProposals
from agentrl_jax.envs.search.search_questions import SearchQuestions
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message

PAGES = 1000


def make_proposals(seed: int = 0, **options) -> SearchProposals:
    env = make("agentrl/SearchProposals-v0", {"pages": PAGES, **options})
    assert isinstance(env, SearchProposals)
    env.reset(seed=seed)
    return env


def test_the_experts_questions_have_the_given_answer():
    env, rng = make_proposals(), np.random.default_rng(0)
    valid = 0
    for seed in range(30):
        (opening,), _ = env.reset(seed=seed)
        answer, over = env.question.answers[0], False
        assert opening.text.startswith(f"Ask a question over {len(env.question.hops)} facts")
        assert f"answer is: {answer}" in opening.text
        while not over:
            action = env.scripted_policies["expert"](env, rng)
            _, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        assert info["gold"] == answer and info["answer"] == f"{PREFIX} {env.question.text}"
        assert reward == float(info["valid"]) == float(info["success"])
        valid += info["valid"]
    assert valid > 20


LONG = "Which of the towns in this old encyclopedia was settled first of all?"


@pytest.mark.parametrize(
    ("queries", "question", "valid"),
    [
        (("river", "town"), LONG, True),
        (("river", "The river!"), LONG, False),  # the same search twice
        (("river",), LONG, False),
        (("river", "qqqq"), LONG, True),
        (("zzzz", "qqqq"), LONG, False),  # nothing was found
        (("river", "town"), "Which town was settled first?", False),
        (("river", "town"), f"{LONG} Not {{answer}}?", False),
        (("river", "town"), f"{LONG} {'x' * 1000}", False),
    ],
)
def test_rules_of_a_valid_question(queries: tuple[str, ...], question: str, valid: bool):
    env = make_proposals()
    for query in queries:
        env.step(search_for(env, "", query))
    text = question.replace("{answer}", env.question.answers[0].upper())
    _, reward, terminated, _, info = env.step(f"<question>{text}</question>")
    assert terminated and info["valid"] is valid and reward == float(valid)


def test_an_episode_without_a_question_is_not_valid():
    env = make_proposals(horizon=1)
    _, reward, _, truncated, info = env.step(search_for(env, "", "river"))
    assert truncated and reward == 0.0 and not info["valid"] and info["answer"] is None


def test_a_question_that_is_given_is_asked():
    env = make("agentrl/SearchQuestions-v0", {"pages": PAGES, "instruction": False})
    (opening,), _ = env.reset(seed=0, options={"question": ["Who <answer> is it?", "The Ox"]})
    assert opening.text == "Who &lt;answer> is it?"
    action = Message("assistant", "<think>x</think><answer>ox</answer>")
    _, reward, terminated, _, info = env.step(action)
    assert reward == 1.0 and terminated and info["success"] and info["gold"] == "The Ox"
    for wrong in ("text", ["only one"], ["a", ""], [1, 2]):
        with pytest.raises(UserError, match="question"):
            env.reset(seed=0, options={"question": wrong})


def test_turns_cost_what_queries_do():
    env = make(
        "agentrl/SearchQuestions-v0",
        {"pages": PAGES, "protocol": "planner", "search_cost": 0.1, "turn_cost": 0.5},
    )
    assert isinstance(env, SearchQuestions)
    assert isinstance(env, SearchQuestions)
    env.reset(seed=0)
    env.step(search_for(env, "", "river\ntown"))
    *_, info = env.step("<stop></stop>")
    assert info["rewards"]["cost"] == pytest.approx(-(2 * 0.1 + 2 * 0.5))
