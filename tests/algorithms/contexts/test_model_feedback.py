"""Feedback of a named model: what it reads, what the policy sees, and that nothing leaks."""

import pytest

from agentrl_jax.algorithms.contexts.model_feedback import ModelFeedback
from agentrl_jax.envs.code.scripted import call_python
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, assistant, texts, user
from agentrl_jax.trajectories import Turn

OPENING = (user("2 + 5?"),)


def turn(action: Message, answer: str, *notes: str, gold: str = "7") -> Turn:
    written = tuple(assistant(note) for note in notes)
    return Turn((), action, (user(answer),), 0.0, info={"gold": gold}, notes=written)


def request(context: ModelFeedback, *turns: Turn) -> str:
    note_request = context.next_note_request(OPENING, turns, (), 0)
    assert note_request is not None and note_request.model == "judge"
    (prompt,) = texts(note_request.messages)
    return prompt


def test_the_model_reads_the_transcript_and_the_answer_only_where_it_may():
    turns = (turn(call_python("Add.", "2 + 6"), "8"), turn(assistant("8"), "wrong", "Check it."))
    prompt = request(ModelFeedback("judge"), *turns)
    assert prompt.startswith(
        'Environment: 2 + 5?\nAgent: Add. python {"code": "2 + 6"}\nEnvironment: 8\n'
        "Environment: Expert feedback:\nCheck it.\nAgent: 8\nEnvironment: wrong\nYou are an expert."
    )
    assert "7" not in prompt
    assert "The right answer is 7" in request(ModelFeedback("judge", knows_answer=True), *turns)
    assert request(ModelFeedback("judge", instruction="Well?"), *turns).endswith("\nWell?")


def test_the_policy_sees_feedback_before_its_next_action_without_the_answer():
    first, note = turn(assistant("8"), "wrong"), assistant("It is 7, not 8.")
    knowing = ModelFeedback("judge", knows_answer=True)
    view = texts(knowing.view(OPENING, (first,), (note,)))
    assert view == ["2 + 5?", "8", "wrong", "Expert feedback:\nIt is ..., not 8."]
    later = turn(assistant("7"), "right", "It is 7, not 8.")
    assert texts(knowing.view(OPENING, (first, later)))[:4] == view
    assert texts(ModelFeedback("judge").view(OPENING, (first,), (note,)))[-1].endswith("7, not 8.")


@pytest.mark.parametrize(
    "written,verdict", [("good, go on", "GOOD"), (" BAD. It is 7", "BAD"), ("perhaps", "BAD")]
)
def test_binary_feedback_is_the_first_word(written: str, verdict: str):
    context = ModelFeedback("judge", knows_answer=True, binary=True)
    view = texts(context.view(OPENING, (turn(assistant("8"), "x"),), (assistant(written),)))
    assert view[-1] == f"Expert feedback:\nThis is {verdict}."


def test_there_is_feedback_after_each_turn_once_and_none_in_demonstrations():
    context, first = ModelFeedback("judge"), turn(assistant("8"), "wrong")
    assert context.next_note_request(OPENING, (), (), 0) is None
    assert context.next_note_request(OPENING, (first,), (assistant("x"),), 0) is None
    note = context.demonstrated_note(OPENING, (first,), (), assistant("7"))
    assert note is not None
    assert texts(context.view(OPENING, (first,), (note,))) == ["2 + 5?", "8", "wrong"]


def test_an_environment_without_an_answer_is_an_error():
    bare = Turn((), assistant("8"), (user("x"),), 0.0)
    with pytest.raises(UserError, match="gold"):
        ModelFeedback("judge", knows_answer=True).next_note_request(OPENING, (bare,), (), 0)
