"""What each context manager shows, by hand; neutral settings show everything; every action is
scored in the context in which it was sampled.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import call_contents
from support.fixtures import tiny_policy, unpacked_logp

from agentrl_jax.algorithms.contexts.history_views import (
    LastImages,
    ObservationPlaceholders,
    RewritingContext,
    SystemInstruction,
    ThinkingFilter,
)
from agentrl_jax.algorithms.contexts.policy_notes import StepwiseThinking, Summarize
from agentrl_jax.context import ContextManager, FullHistory, LastMessages
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.learner.sequences import collate, sequences_of, token_identity
from agentrl_jax.messages import ImagePart, Message, TextPart, assistant, texts, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Group, Sampling, Turn
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())
OPENING = (user("go"),)


def turns(*lines: str) -> list[Turn]:
    """Turns of "action|observation"."""
    return [
        Turn((), assistant(a), (user(o),), 0.0)
        for a, _, o in (line.partition("|") for line in lines)
    ]


def test_all_observations_but_the_last_have_a_placeholder():
    """Exactly one observation is complete, for any number of turns; all actions are there."""
    past_turns = turns(*(f"a{i}|o{i}" for i in range(6)))
    for t in range(1, 7):
        view = texts(ObservationPlaceholders("old").view(OPENING, past_turns[:t]))
        assert view == [
            "go",
            *(text for i in range(t) for text in (f"a{i}", f"o{i}" if i == t - 1 else "old")),
        ]
    assert texts(ObservationPlaceholders("old", keep_last=2).view(OPENING, past_turns[:3])) == [
        "go",
        "a0",
        "old",
        "a1",
        "o1",
        "a2",
        "o2",
    ]
    with pytest.raises(UserError, match="at least the last observation"):
        ObservationPlaceholders("old", keep_last=0)


def test_a_placeholder_keeps_the_role_of_its_message():
    answer = Message("tool", "long", tool_call_id="7")
    first, second = Turn((), assistant("a"), (answer, user("x")), 0.0), turns("b|o")[0]
    assert ObservationPlaceholders("").view((), [first, second])[1:3] == [
        answer.replace(content=""),
        user(""),
    ]


def picture(*parts: str) -> Message:
    """An image for each capital letter, a text for any other part."""
    return Message(
        "user", tuple(ImagePart(part) if part.isupper() else TextPart(part) for part in parts)
    )


@pytest.mark.parametrize(
    ("count", "text", "expected"),
    [
        (9, "-", ["A", "x", "BC", "y"]),
        (2, "-", ["-", "x", "BC", "y"]),
        (1, "-", ["-", "x", "-C", "y"]),
        (1, "", ["", "x", "C", "y"]),
        (0, "-", ["-", "x", "--", "y"]),
    ],
)
def test_only_the_newest_images_remain(count: int, text: str, expected: list[str]):
    messages = [picture("A"), user("x"), picture("B", "C"), picture("y")]
    view = LastImages(count, text, inner=Fixed(messages)).view((), ())
    assert ["".join(_part(part) for part in message.content) for message in view] == expected


def _part(part: Any) -> str:
    return part if isinstance(part, str) else part.url if isinstance(part, ImagePart) else part.text


class Fixed(FullHistory):
    def __init__(self, messages: Sequence[Message]) -> None:
        object.__setattr__(self, "messages", messages)

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        return self.messages  # type: ignore[attr-defined]


def test_the_last_messages_and_images_of_dart_compose():
    """The opening, the last 3 messages, and of their images the newest."""
    collect_groups = [
        Turn((), assistant(f"a{i}"), (picture(letter),), 0.0) for i, letter in enumerate("ABC")
    ]
    view = LastImages(1, "-", inner=LastMessages(3, keep_opening=True)).view(
        [picture("O", "task")], collect_groups
    )
    assert ["".join(_part(part) for part in message.content) for message in view] == [
        "-task",
        "-",
        "a2",
        "C",
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("42", "42"),
        ("<think>6*7</think>\n42", "42"),
        ("<think>a</think>1<think>b</think>2", "12"),
        ("so <think>never ends", "so "),
        ("the template began</think> 42", "42"),
        ("<think></think>", ""),
        ("<think>", ""),
        ("</think>", ""),
    ],
)
def test_past_thinking_is_stripped(text: str, left: str):
    assert ThinkingFilter().strip_thinking(text) == left
    (turn,) = turns(f"{text}|o")
    assert texts(ThinkingFilter().view([user("<think>mine</think>")], [turn])) == [
        "<think>mine</think>",
        left,
        "o",
    ]
    assert texts(ThinkingFilter(keep_thinking=True).view([user("go")], [turn])) == ["go", text, "o"]


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "a", "\n", "<", "think>"]), max_size=12).map(
        "".join
    )
)
def test_no_complete_thought_remains(text: str):
    left = ThinkingFilter().strip_thinking(text)
    assert "</think>" not in left.partition("<think>")[0] and len(left) <= len(text)
    assert not any(inner in left for inner in ("<think>a</think>", "<think></think>"))


@pytest.mark.parametrize(
    ("text", "opening", "expected"),
    [
        ("", [user("go")], [user("go")]),
        ("be brief", [user("go")], [Message("system", "be brief\n"), user("go")]),
        (
            "be brief",
            [Message("system", "you help"), user("go")],
            [Message("system", "be brief\nyou help"), user("go")],
        ),
        ("be brief", [], [Message("system", "be brief\n")]),
    ],
)
def test_an_instruction_comes_first(text: str, opening: list[Message], expected: list[Message]):
    assert list(SystemInstruction(text).view(opening, ())) == expected


def test_a_rewriting_context_forwards_note_requests():
    inner = StepwiseThinking("!", 3)
    question = SystemInstruction("be brief", inner=inner).next_note_request(
        OPENING, (), [assistant("hm")], 5
    )
    assert (
        question is not None
        and texts(question.messages) == ["be brief\n", "go", "hm"]
        and question.is_action(assistant("x!"))
    )
    assert ThinkingFilter().next_note_request(OPENING, (), (), 5) is None
    assert not ThinkingFilter().writes_notes
    with pytest.raises(
        UserError, match="FullHistory requests notes and has none for demonstrations"
    ):
        ThinkingFilter().demonstrated_note(OPENING, (), (), assistant("x"))
    with pytest.raises(NotImplementedError, match="must define rewrite"):
        RewritingContext().view(OPENING, ())


POLICY = tiny_policy(len(byte_tokenizer()))
PARAMS = POLICY.init(jax.random.key(0))
TASKS = [
    Task("agentrl_jax.envs:agentrl/Chain-v0", seed, {"length": 3, "horizon": 4})
    for seed in range(2)
]


@pytest.fixture(scope="module")
def engine() -> Any:
    with_text = LocalEngine(
        POLICY,
        EngineConfig(
            rows=8, positions=96, prefill_chunk=16, min_decode_steps=6, batching_delay=0.0
        ),
        PARAMS,
    )
    yield with_text
    with_text.close()


class ReleaseCounter:
    """An engine that outlives its runtimes; it has the protocol's methods as attributes of its own,
    since from Python 3.12 on `isinstance` does not use `__getattr__`.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self.num_slots = engine.num_slots
        self.submit, self.release, self.publish = engine.submit, engine.release, engine.publish

    def close(self) -> None: ...


def collect_groups(engine: LocalEngine, context: ContextManager, budget: int = 6) -> list[Group]:
    agent = Agent("policy", RENDERER, context, Sampling(budget=budget))
    wrapper: Any = ReleaseCounter(engine)
    with Runtime({"policy": wrapper}, {"policy": agent}, InlinePool()) as runtime:
        return runtime.collect(IndependentEpisodes(3), TASKS, (0, 0))


NEUTRAL: dict[str, ContextManager] = {
    "as many placeholders as none": ObservationPlaceholders("x", keep_last=99),
    "all images": LastImages(99),
    "thinking kept": ThinkingFilter(keep_thinking=True),
    "no thinking to strip": ThinkingFilter(),
    "no instruction": SystemInstruction(),
    "all messages": LastMessages(99, keep_opening=True),
    "no summaries": Summarize(1, 0, "sum up"),
    "a window that is never full": Summarize(10**6, 7, "sum up"),
    "one unit": StepwiseThinking("x", 1),
    "several": ThinkingFilter(
        keep_thinking=True,
        inner=LastImages(9, inner=SystemInstruction(inner=Summarize(10**6, 7, "sum up"))),
    ),
}


@pytest.fixture(scope="module")
def plain(engine: LocalEngine) -> list[Group]:
    return collect_groups(engine, FullHistory())


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_setting_equals_the_full_history(
    engine: LocalEngine, plain: list[Group], name: str
):
    """The same ids, log-probs and keys, and so the same batch: everything computed from it is
    equal, bit for bit.
    """
    groups = collect_groups(engine, NEUTRAL[name])
    for group, plain_group in zip(groups, plain, strict=True):
        for trajectory, plain_trajectory in zip(
            group.trajectories, plain_group.trajectories, strict=True
        ):
            assert call_contents(trajectory.calls) == call_contents(plain_trajectory.calls) and [
                c.key for c in trajectory.calls
            ] == [c.key for c in plain_trajectory.calls]
            assert (
                trajectory.turns[0].notes == () and trajectory.messages == plain_trajectory.messages
            )
            assert [turn.info for turn in trajectory.turns] == [
                turn.info for turn in plain_trajectory.turns
            ]
    a, b = collate(groups), collate(plain)
    assert all(
        np.array_equal(vars(x)[k], vars(y)[k])
        for x, y in zip(a.sequences, b.sequences, strict=True)
        for k in vars(x)
    )
    assert all(
        np.array_equal(vars(a.token_index)[k], vars(b.token_index)[k]) for k in vars(a.token_index)
    )


CHANGING: dict[str, ContextManager] = {
    "placeholders": ObservationPlaceholders("~\n"),
    "the last messages": LastMessages(3, keep_opening=True),
    "an instruction": SystemInstruction("be right"),
    "summaries": Summarize(14, 7, "so far?\n", max_tokens=4),
    "units of thought": StepwiseThinking("a", 3),
    "placeholders under an instruction": SystemInstruction(
        "x", inner=ObservationPlaceholders("~\n")
    ),
    "units and summaries of an instructed one": SystemInstruction(
        "x", inner=Summarize(18, 2, "so?\n", "had: ")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGING)
def test_every_action_is_scored_in_the_context_it_was_sampled_in(
    engine: LocalEngine, plain: list[Group], name: str
):
    """The sampler's log-probs equal those of each training sequence alone, notes included."""
    groups = collect_groups(engine, CHANGING[name])
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    assert token_identity(groups, collate(groups)) == 1.0
    assert any(
        call_contents(t.calls) != call_contents(p.calls)
        for t, p in zip(trajectories, (p for g in plain for p in g.trajectories))
    )
    for trajectory in trajectories:
        for row in sequences_of(trajectory):
            expected = unpacked_logp(POLICY, PARAMS, row, 96)
            np.testing.assert_allclose(
                row.sampler_logp[row.action_mask], expected[row.action_mask], atol=1e-5
            )


def test_replaced_observations_start_a_new_sequence_each_turn(engine: LocalEngine):
    for group in collect_groups(engine, ObservationPlaceholders("~\n")):
        for trajectory in group.trajectories:
            assert len(sequences_of(trajectory)) == max(
                1, len(trajectory.turns) - 1
            )  # the second prompt still extends the first
