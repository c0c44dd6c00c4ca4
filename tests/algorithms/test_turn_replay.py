"""Turns as transitions: what is in them, what is kept, and that a checkpoint brings back the same draws. Texts of few shapes."""

import json

import numpy as np
import pytest
from hand_made import grown, make_call, make_trajectory, make_turn

from agentrl_jax.algorithms.texts import padded, reader
from agentrl_jax.algorithms.turn_replay import Said, TurnReplay, said, transitions_of
from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Sampling

AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling())


def ids(text: str) -> list[int]:
    return list(text.encode())


def test_a_transition_is_what_was_shown_said_earned_and_shown_next():
    first = make_call(ids("Questions:\n"), ids("A dog?\n"))
    second = make_call([*first.ids.tolist(), *ids("No.\n")], ids("A pen?\n"), temperature=0.5)
    turns = [make_turn([make_call(ids("x"), ids("note\n")), first], -1.0), make_turn([second], 2.0, terminated=True)]
    one, two = transitions_of(make_trajectory(*turns), AGENT, gamma=0.5)
    assert (one.state.text, one.utterance.text, one.reward, one.to_go) == ("Questions:", "A dog?", -1.0, 0.0)
    assert one.utterance.ids[-1] == ord("\n")  # the policy's ids have the end
    assert one.following is two.state and two.state.text == "Questions:\nA dog?\nNo."
    assert not (one.terminated or one.truncated or two.truncated) and two.terminated and two.temperature == 0.5
    assert two.following.text == "" and len(two.following.ids) == 0
    (cut,) = transitions_of(make_trajectory(make_turn([first], 1.0)), AGENT, gamma=0.5)
    assert cut.truncated and not cut.terminated and "o" in cut.following.text


def test_turns_without_calls_are_refused_and_empty_utterances_are_no_transitions():
    with pytest.raises(UserError, match="without a call"):
        transitions_of(make_trajectory(make_turn([])), AGENT, 1.0)
    assert transitions_of(make_trajectory(make_turn([make_call([1], [])])), AGENT, 1.0) == []
    with pytest.raises(UserError, match="at least 1"):
        TurnReplay(0)


def test_the_last_turns_are_kept_and_a_checkpoint_draws_on_the_same():
    rng, replay, seen = np.random.default_rng(0), TurnReplay(5), []
    for _ in range(4):
        seen += transitions_of(grown([(2, 2, False, 1.0), (1, 3, False, -1.0), (2, 1, False, 0.5)], rng, 250), AGENT, 0.9)
        replay.add(seen[-3:])
    assert len(replay) == 5 and {id(t) for t in replay.draw(200, rng)} == {id(t) for t in seen[-5:]}
    again = TurnReplay(5)
    again.load(json.loads(json.dumps(replay.state())))
    assert len(replay.state()["texts"]) < 3 * 5  # neighbours share theirs
    draws = [one.draw(50, np.random.default_rng(3)) for one in (replay, again)]
    for a, b in zip(*draws):
        for name in ("state", "utterance", "following"):
            x, y = getattr(a, name), getattr(b, name)
            assert x.text == y.text and np.array_equal(x.ids, y.ids) and y.ids.dtype == np.int32
        numbers = ("reward", "terminated", "truncated", "to_go", "temperature")
        assert [getattr(a, name) for name in numbers] == [getattr(b, name) for name in numbers]
    again.add(seen[:1])
    assert len(again) == 5


def test_long_texts_keep_their_end_and_empty_ones_have_a_token():
    tokenizer = byte_tokenizer()
    texts = [Said(np.array([7, 8, 9], np.int32), "a<eos>é"), Said(np.zeros(0, np.int32), "")]
    assert [x.tolist() for x in reader(None)(texts, 2)] == [[8, 9], []]
    assert reader(tokenizer)(texts, 100)[0].tolist() == ids("a<eos>é")  # no text is a special token
    tokenizer.cls_token, tokenizer.sep_token = "<pad>", "<eos>"
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert [x.tolist() for x in reader(tokenizer)(texts, 4)] == [[first, *"é".encode(), last], [first, last]]
    with pytest.raises(UserError, match="no room"):
        reader(tokenizer)(texts, 2)
    made = padded([np.array([5, 6]), np.array([], np.int32)], 3, 4, np.array([2, 0]))
    assert made.tokens.tolist() == [[0, 0, 0], [0, 0, 0], [5, 6, 0], [0, 0, 0]]
    assert made.mask.astype(int).tolist() == [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]


def test_text_is_the_policys_ids_decoded():
    assert said(np.array(ids("Is it é?\n")), AGENT).text == "Is it é?"
