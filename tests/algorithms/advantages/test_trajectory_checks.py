"""Faults of texts against plain loops over words, letters and braces."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import make_call, make_trajectory, make_turn

from agentrl_jax.algorithms.advantages.info_fields import (
    add_reward_part,
    called_tools,
    succeeded,
)
from agentrl_jax.algorithms.advantages.trajectory_checks import (
    RepetitionCheck,
    UnreadableTextCheck,
    has_void_turn,
    is_illegal,
    is_malformed,
    is_overlong,
    is_void_text,
)
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant
from agentrl_jax.trajectories import Trajectory, Turn

MANY = settings(max_examples=100, deadline=None)


def turn_of(text: str, **info: object) -> Turn:
    turn = make_turn([make_call([1], [2])])
    return dataclasses.replace(turn, action=assistant(text), info=info)


def trajectory_of(*texts: str) -> Trajectory:
    return make_trajectory(*map(turn_of, texts))


@given(
    texts=st.lists(st.lists(st.sampled_from("ab"), max_size=6), max_size=3),
    size=st.integers(1, 3),
    limit=st.sampled_from([0.0, 0.25, 0.5, 0.75]),
)
@MANY
def test_repeated_word_ngrams(texts: list[list[str]], size: int, limit: float):
    is_repetitive = False
    for words in texts:
        ngrams = [tuple(words[i : i + size]) for i in range(len(words)) if i + size <= len(words)]
        repeated = [i for i, ngram in enumerate(ngrams) if ngram in ngrams[:i]]
        is_repetitive |= bool(ngrams) and len(repeated) / len(ngrams) > limit
    assert RepetitionCheck(size, limit)(trajectory_of(*map(" ".join, texts))) == is_repetitive


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("num_repeated", [1, 2, 3])
def test_the_share_of_repeated_ngrams_is_exact(size: int, num_repeated: int):
    words = [*map(str, range(size + 2)), *map(str, range(size + num_repeated - 1))]
    count = len(words) - size + 1  # of which the last ones repeat the first
    text = trajectory_of(" ".join(words))
    assert RepetitionCheck(size, num_repeated / count - 1e-6)(text)
    assert not RepetitionCheck(size, num_repeated / count + 1e-6)(text)


@given(
    texts=st.lists(st.text(st.sampled_from("ab \n\t�\x00\x1b"), max_size=6), max_size=3),
    limit=st.sampled_from([0.0, 0.25, 0.5]),
)
@MANY
def test_unreadable_letters(texts: list[str], limit: float):
    expected = any(
        sum(letter in "�\x00\x1b" for letter in text) / len(text) > limit for text in texts if text
    )
    assert UnreadableTextCheck(limit)(trajectory_of(*texts)) == expected


@given(st.lists(st.sampled_from(["\\boxed{", "\\boxed {", "{", "}", "x"]), max_size=8))
@MANY
def test_an_answer_is_boxed_in_braces_that_close(parts: list[str]):
    has_answer = False
    for i, part in enumerate(parts):
        depth = 1 if part.startswith("\\boxed") else 0
        for other in parts[i + 1 :] if depth else ():
            depth += other.count("{") - other.count("}")
            if depth == 0:
                has_answer = True
                break
    assert is_void_text("".join(parts)) == (not has_answer)


@pytest.mark.parametrize(
    ("text", "is_void"),
    [
        ("```python\nx\n```", False), ("```py\nx\n```", False), ("```python \t\nx```", False),
        ("```python\n \n```", True), ("```python\nx", True), ("```bash\nx\n```", True),
        ("```python\n```", True), ("```python\n\n``` then ```python\nx\n```", False), ("", True),
        ("\\boxed{}", False), ("boxed{1}", True),
    ],
)  # fmt: skip
def test_code_is_a_complete_block_with_a_statement(text: str, is_void: bool):
    assert is_void_text(text) == is_void
    assert has_void_turn(trajectory_of("\\boxed{1}", text)) == is_void
    assert has_void_turn(make_trajectory(turn_of(text, void=True)))
    assert not has_void_turn(make_trajectory(turn_of(text, void=False)))


def test_what_the_environment_says_of_a_turn():
    assert not is_illegal(turn_of("x")) and not is_malformed(turn_of("x"))
    assert is_illegal(turn_of("x", legal=False)) and not is_illegal(turn_of("x", legal=True))
    assert is_malformed(turn_of("x", formatted=False))
    assert not is_malformed(turn_of("x", formatted=True))
    reasons = ("terminated", "truncated", "turns", "tokens", "context", "early", "error")
    overlong = [r for r in reasons if is_overlong(trajectory_of("x").replace(stop_reason=r))]
    assert overlong == ["turns", "tokens", "context"]


def test_tools_rewards_and_success_are_read_from_records():
    assert called_tools(turn_of("x")) == ()
    assert called_tools(turn_of("x", called_tools=["a", "b"])) == ("a", "b")
    assert called_tools(turn_of("x", called_tools=("a",))) == ("a",)
    for wrong in ("ab", ["a", 1], [1, "a"], {"a": 1}, None):
        with pytest.raises(UserError, match="must be a list of names"):
            called_tools(turn_of("x", called_tools=wrong))
    turn = dataclasses.replace(turn_of("x"), reward=1.0, rewards={"won": 1.0})
    more = add_reward_part(add_reward_part(turn, "fast", 0.5), "won", -0.25)
    assert (more.reward, more.rewards) == (1.25, {"won": 0.75, "fast": 0.5})
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(UserError, match=r"'fast' is (nan|inf|-inf)"):
            add_reward_part(turn, "fast", value)
    named, unnamed = trajectory_of("x").replace(task="maze#3"), trajectory_of("x")
    assert succeeded(named.replace(success=True)) and not succeeded(named.replace(success=False))
    with pytest.raises(UserError, match=r"^maze#3 does not say"):
        succeeded(named)
    with pytest.raises(UserError, match=r"^a task does not say"):
        succeeded(unnamed.replace(task=""))
