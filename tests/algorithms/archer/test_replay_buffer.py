"""Turns as transitions, the replay buffer with its checkpoint, and batches of texts in few
shapes.
"""

import json

import numpy as np
import pytest
from support.fixtures import make_call, make_trajectory, make_turn, random_trajectory

from agentrl_jax.algorithms.archer.replay_buffer import (
    RecentShare,
    ReplayBuffer,
    TokenizedText,
    Transition,
    decode_ids,
    transitions_of,
)
from agentrl_jax.algorithms.archer.text_batches import make_text_tokenizer, pad_texts
from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Sampling

AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling())


def ids(text: str) -> list[int]:
    return list(text.encode())


def test_a_transition_has_state_utterance_reward_and_next_state():
    first = make_call(ids("Questions:\n"), ids("A dog?\n"))
    second = make_call([*first.ids.tolist(), *ids("No.\n")], ids("A pen?\n"), temperature=0.5)
    turns = [
        make_turn([make_call(ids("x"), ids("note\n")), first], -1.0),
        make_turn([second], 2.0, terminated=True),
    ]
    first_turn, second_turn = transitions_of(make_trajectory(*turns), AGENT, gamma=0.5)
    assert (
        first_turn.state.text,
        first_turn.utterance.text,
        first_turn.reward,
        first_turn.return_to_go,
    ) == (
        "Questions:",
        "A dog?",
        -1.0,
        0.0,
    )
    assert first_turn.utterance.ids[-1] == ord("\n")  # the policy's ids include the end of the turn
    assert (
        first_turn.next_state is second_turn.state
        and second_turn.state.text == "Questions:\nA dog?\nNo."
    )
    assert (
        not (first_turn.terminated or first_turn.truncated or second_turn.truncated)
        and second_turn.terminated
        and second_turn.temperature == 0.5
    )
    assert second_turn.next_state.text == "" and len(second_turn.next_state.ids) == 0
    (cut,) = transitions_of(make_trajectory(make_turn([first], 1.0)), AGENT, gamma=0.5)
    assert cut.truncated and not cut.terminated and "o" in cut.next_state.text


def test_turns_without_calls_are_refused_and_empty_utterances_are_no_transitions():
    with pytest.raises(UserError, match="without a call"):
        transitions_of(make_trajectory(make_turn([])), AGENT, 1.0)
    assert transitions_of(make_trajectory(make_turn([make_call([1], [])])), AGENT, 1.0) == []
    with pytest.raises(UserError, match="at least 1"):
        ReplayBuffer(0)


def test_the_newest_turns_are_stored_and_a_checkpoint_has_the_same_draws():
    rng, replay, seen = np.random.default_rng(0), ReplayBuffer(5), []
    for _ in range(4):
        seen += transitions_of(
            random_trajectory(
                [(2, 2, False, 1.0), (1, 3, False, -1.0), (2, 1, False, 0.5)], rng, 250
            ),
            AGENT,
            0.9,
        )
        replay.add(seen[-3:])
    assert len(replay) == 5 and {id(t) for t in replay.draw(200, rng)} == {id(t) for t in seen[-5:]}
    again = ReplayBuffer(5)
    again.load(json.loads(json.dumps(replay.state())))
    assert len(replay.state()["texts"]) < 3 * 5  # adjacent transitions share theirs
    draws = [buffer.draw(50, np.random.default_rng(3)) for buffer in (replay, again)]
    for a, b in zip(*draws):
        for name in ("state", "utterance", "next_state"):
            x, y = getattr(a, name), getattr(b, name)
            assert x.text == y.text and np.array_equal(x.ids, y.ids) and y.ids.dtype == np.int32
        numbers = ("reward", "terminated", "truncated", "return_to_go", "temperature")
        assert [getattr(a, name) for name in numbers] == [getattr(b, name) for name in numbers]
    again.add(seen[:1])
    assert len(again) == 5


def numbered_episodes(*lengths: int) -> list[list[Transition]]:
    """Episodes of so many turns, whose rewards number them."""
    empty = TokenizedText(np.zeros(0, np.int32), "")
    return [
        [Transition(empty, empty, float(i), empty, False, False, 0.0) for _ in range(length)]
        for i, length in enumerate(lengths)
    ]


def test_recent_and_older_turns_are_drawn_apart():
    replay, rng = ReplayBuffer(100), np.random.default_rng(0)
    episodes = numbered_episodes(9, 1, 2, 4)
    for episode in episodes:  # an iteration each
        replay.begin_iteration()
        replay.add(episode)
    rewards = np.array([t.reward for t in replay.draw(4001, rng, RecentShare(0.25, 2))])
    counts = np.bincount(rewards.astype(int)) / 4001
    assert counts[2:].sum() == pytest.approx(0.25, abs=1e-3) and len(rewards) == 4001
    assert counts == pytest.approx([0.675, 0.075, 0.25 / 3, 0.5 / 3], abs=0.02)
    assert {t.reward for t in replay.draw(50, rng, RecentShare(1.0, 1))} == {3.0}
    only_new = ReplayBuffer(100)
    only_new.add(episodes[0])
    assert len(only_new.draw(7, rng, RecentShare(0.5, 2))) == 7
    for wrong in ((1.5, 1), (0.5, 0)):
        with pytest.raises(UserError, match="recent share"):
            RecentShare(*wrong)


def test_episodes_are_drawn_whole_and_turns_as_often_as_alone():
    replay, rng = ReplayBuffer(15), np.random.default_rng(0)
    for episode in numbered_episodes(3, 9, 1, 4):
        replay.add(episode)
    counts, turns = np.zeros(4), 0
    for _ in range(2000):
        sample = [int(t.reward) for t in replay.draw_episodes(8, rng)]
        counts += np.bincount(sample, minlength=4)
        turns += len(sample)
    # two turns of the first episode were dropped
    assert counts / turns == pytest.approx(np.array([1, 9, 1, 4]) / 15, abs=0.02)
    assert turns / 2000 == pytest.approx(2 * 15 / 4, abs=0.1)  # two episodes
    assert len(replay.draw_episodes(1, rng)) in (1, 4, 9)  # at least one


def test_long_texts_keep_their_end_and_empty_ones_have_one_token():
    tokenizer = byte_tokenizer()
    texts = [
        TokenizedText(np.array([7, 8, 9], np.int32), "a<eos>é"),
        TokenizedText(np.zeros(0, np.int32), ""),
    ]
    assert [x.tolist() for x in make_text_tokenizer(None)(texts, 2)] == [[8, 9], []]
    assert make_text_tokenizer(tokenizer)(texts, 100)[0].tolist() == ids(
        "a<eos>é"
    )  # no text is a special token
    tokenizer.cls_token, tokenizer.sep_token = "<pad>", "<eos>"
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert [x.tolist() for x in make_text_tokenizer(tokenizer)(texts, 4)] == [
        [first, *"é".encode(), last],
        [first, last],
    ]
    with pytest.raises(UserError, match="no room"):
        make_text_tokenizer(tokenizer)(texts, 2)
    padded = pad_texts([np.array([5, 6]), np.array([], np.int32)], 3, 4, np.array([2, 0]))
    assert padded.tokens.tolist() == [[0, 0, 0], [0, 0, 0], [5, 6, 0], [0, 0, 0]]
    assert padded.mask.astype(int).tolist() == [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]


def test_an_utterances_text_is_the_decoded_ids_of_the_policy():
    assert decode_ids(np.array(ids("Is it é?\n")), AGENT).text == "Is it é?"
