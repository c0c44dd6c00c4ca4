"""What a reader of search episodes is shown."""

import dataclasses
import re

import numpy as np

from agentrl_jax.envs.search.index import generated_index
from agentrl_jax.envs.search.reader import (
    UNKNOWN,
    ReaderExamples,
    RetrievalPrompt,
    documents_of,
    episode_prompt,
    is_rational,
    question_prompt,
    rationality_prompt,
)
from agentrl_jax.launch.benchmarks.search_index import plain_bm25
from agentrl_jax.messages import ToolCall, assistant, tool_result, user
from agentrl_jax.trajectories import Trajectory, Turn

PAGES = 200


def search_turn(number: int, text: str, evidence: float) -> Turn:
    calls = (ToolCall(f"c{number}", "search", f'{{"query": "q{number}"}}'),)
    action = dataclasses.replace(assistant("I search."), tool_calls=calls)
    observation = (tool_result(calls[0], text),)
    info = {"evidence": evidence, "gold": "Ox"}
    return Turn((), action, observation, 0.0, info=info)


def episode(*evidence: float) -> Trajectory:
    turns = [search_turn(i, f"page {i}", share) for i, share in enumerate(evidence)]
    last = {"evidence": evidence[-1] if evidence else 0.0, "gold": "Ox"}
    stop = Turn((), assistant("<stop></stop>"), (), 0.0, terminated=True, info=last)
    return Trajectory((user("Who leads?"),), (*turns, stop), task="t#1")


def test_prompts_of_an_episode():
    complete = episode(0.5, 1.0)
    assert documents_of(complete) == ("page 0", "page 1")
    assert episode_prompt(complete)[0].text == "page 0\npage 1\nAnswer shortly: Who leads?"
    assert question_prompt(complete)[0].text == "Answer shortly: Who leads?"
    plan = rationality_prompt(complete)[0].text
    assert "Who leads?" in plan and '"q0"' in plan and '"q1"' in plan
    assert "page" not in plan


def test_a_plan_is_rational_where_each_search_helps_and_none_is_missing():
    assert is_rational(episode(0.5, 1.0)) and is_rational(episode(1.0))
    assert not is_rational(episode(0.5, 0.5, 1.0))
    assert not is_rational(episode(0.5))
    assert not is_rational(episode(1.0, 1.0))
    assert not is_rational(episode())


def test_examples_answer_only_what_was_shown():
    examples = ReaderExamples(PAGES, noise=4)
    (reading, answer), (blind, unknown), (plan, verdict) = examples(episode(0.5, 1.0))
    assert (answer, unknown, verdict) == ("Ox", UNKNOWN, "Yes")
    text = reading[0].text
    assert "page 0" in text and "page 1" in text and text.endswith("Who leads?")
    assert blind == question_prompt(episode(1.0)) and plan == rationality_prompt(episode(0.5, 1.0))
    assert [x[1] for x in examples(episode(0.5))] == [UNKNOWN, UNKNOWN, "No"]
    most = max(
        len(examples(episode(1.0).replace(sample=i))[0][0][0].text.split("\n")) for i in range(30)
    )
    assert most == 1 + 4 + 1


def test_naive_retrieval_searches_for_the_question():
    page = generated_index(0, PAGES).pages[7]
    named = episode(1.0).replace(opening=(user(f"What of {page.title}?"),))
    text = RetrievalPrompt(PAGES, page_characters=50)(named)[0].text
    assert text.startswith(f"(Title: {page.title}) {page.text[:50]}\nAnswer shortly")


def test_the_benchmarks_bm25_is_that_of_the_index():
    pages, rng = generated_index(0, PAGES).pages, np.random.default_rng(0)
    words = sorted({w for p in pages for w in re.findall(r"[a-z]+", p.text.lower())})
    queries = [[str(w) for w in rng.choice(words, 3, replace=False)] for _ in range(200)]
    for query, best in zip(queries, plain_bm25(pages, queries, 3), strict=True):
        scores = [score for _, score in generated_index(0, PAGES).scored(" ".join(query), 3)]
        if len(best):  # a query of frequent words alone finds pages, but weighs nothing
            np.testing.assert_allclose(best, scores, rtol=1e-9)
