"""What each context manager shows, by hand; neutral knobs show all; every action is scored in the context it was sampled in."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from conversations import recorded
from hand_made import logp_alone, minute_policy
from hypothesis import given
from hypothesis import strategies as st

from agentrl_jax.algorithms.contexts.asking import Decomposed, Summarize
from agentrl_jax.algorithms.contexts.rewriting import Instruction, LastImages, Placeholders, Rewritten, Thinking
from agentrl_jax.context import Asking, ContextManager, FullHistory, LastMessages
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.messages import ImagePart, Message, TextPart, assistant, texts, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.rows import collate, rows_of, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Group, Sampling, Turn
from agentrl_jax.workers import InProcess, Task

RENDERER = TextRenderer(byte_tokenizer())
OPENING = (user("go"),)


def turns(*said: str) -> list[Turn]:
    """Turns of "action|observation"."""
    return [Turn((), assistant(a), (user(o),), 0.0) for a, _, o in (one.partition("|") for one in said)]


def test_all_observations_but_the_last_have_a_placeholder():
    """Exactly one observation is whole, however many turns there were; all actions are there."""
    played = turns(*(f"a{i}|o{i}" for i in range(6)))
    for t in range(1, 7):
        seen = texts(Placeholders("old").view(OPENING, played[:t]))
        assert seen == ["go", *(text for i in range(t) for text in (f"a{i}", f"o{i}" if i == t - 1 else "old"))]
    assert texts(Placeholders("old", keep=2).view(OPENING, played[:3])) == ["go", "a0", "old", "a1", "o1", "a2", "o2"]
    with pytest.raises(UserError, match="at least the last observation"):
        Placeholders("old", keep=0)


def test_a_placeholder_keeps_whose_message_it_was():
    answer = Message("tool", "long", tool_call_id="7")
    first, second = Turn((), assistant("a"), (answer, user("x")), 0.0), turns("b|o")[0]
    assert Placeholders("").view((), [first, second])[1:3] == [answer.replace(content=""), user("")]


def picture(*parts: str) -> Message:
    """Images are capital letters, texts the others."""
    return Message("user", tuple(ImagePart(part) if part.isupper() else TextPart(part) for part in parts))


@pytest.mark.parametrize(
    ("count", "text", "shown"),
    [
        (9, "-", ["A", "x", "BC", "y"]),
        (2, "-", ["-", "x", "BC", "y"]),
        (1, "-", ["-", "x", "-C", "y"]),
        (1, "", ["", "x", "C", "y"]),
        (0, "-", ["-", "x", "--", "y"]),
    ],
)
def test_only_the_last_images_stay(count: int, text: str, shown: list[str]):
    messages = [picture("A"), user("x"), picture("B", "C"), picture("y")]
    seen = LastImages(count, text, inner=Fixed(messages)).view((), ())
    assert ["".join(_part(part) for part in message.content) for message in seen] == shown


def _part(part: Any) -> str:
    return part if isinstance(part, str) else part.url if isinstance(part, ImagePart) else part.text


class Fixed(FullHistory):
    def __init__(self, messages: Sequence[Message]) -> None:
        object.__setattr__(self, "messages", messages)

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        return self.messages  # type: ignore[attr-defined]


def test_the_last_messages_and_images_of_dart_compose():
    """The opening, the last 3 messages, of them (and it) the last 1 image."""
    played = [Turn((), assistant(f"a{i}"), (picture(letter),), 0.0) for i, letter in enumerate("ABC")]
    seen = LastImages(1, "-", inner=LastMessages(3, opening=True)).view([picture("O", "task")], played)
    assert ["".join(_part(part) for part in message.content) for message in seen] == ["-task", "-", "a2", "C"]


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
    assert Thinking().stripped(text) == left
    (turn,) = turns(f"{text}|o")
    assert texts(Thinking().view([user("<think>mine</think>")], [turn])) == ["<think>mine</think>", left, "o"]
    assert texts(Thinking(keep=True).view([user("go")], [turn])) == ["go", text, "o"]


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "\n", "<", "think>"]), max_size=12).map("".join))
def test_no_whole_thought_is_left(text: str):
    left = Thinking().stripped(text)
    assert "</think>" not in left.partition("<think>")[0] and len(left) <= len(text)
    assert not any(inner in left for inner in ("<think>a</think>", "<think></think>"))


@pytest.mark.parametrize(
    ("text", "opening", "shown"),
    [
        ("", [user("go")], [user("go")]),
        ("be brief", [user("go")], [Message("system", "be brief\n"), user("go")]),
        ("be brief", [Message("system", "you help"), user("go")], [Message("system", "be brief\nyou help"), user("go")]),
        ("be brief", [], [Message("system", "be brief\n")]),
    ],
)
def test_an_instruction_stands_before_everything(text: str, opening: list[Message], shown: list[Message]):
    assert list(Instruction(text).view(opening, ())) == shown


def test_a_rewriter_asks_what_its_inner_manager_asks():
    inner = Decomposed("!", 3)
    question = Instruction("be brief", inner=inner).ask(OPENING, (), [assistant("hm")], 5)
    assert question is not None and texts(question.messages) == ["be brief\n", "go", "hm"] and question.ends(assistant("x!"))
    assert isinstance(Thinking(), Asking) and Thinking().ask(OPENING, (), (), 5) is None
    with pytest.raises(UserError, match="cannot say what demonstrations answer"):
        Thinking().shown(OPENING, (), (), assistant("x"))
    with pytest.raises(NotImplementedError, match="must define rewrite"):
        Rewritten().view(OPENING, ())


POLICY = minute_policy(len(byte_tokenizer()))
PARAMS = POLICY.init(jax.random.key(0))
TASKS = [Task("agentrl_jax.envs:agentrl/Chain-v0", seed, {"length": 3, "horizon": 4}) for seed in range(2)]


@pytest.fixture(scope="module")
def engine() -> Any:
    with_text = LocalEngine(POLICY, EngineConfig(rows=8, positions=96, chunk=16, burst=6, patience=0.0), PARAMS)
    yield with_text
    with_text.close()


class Kept:
    """An engine that outlives its runtimes."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine, self.places = engine, engine.places

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None: ...


def played(engine: LocalEngine, context: ContextManager, budget: int = 6) -> list[Group]:
    agent = Agent("policy", RENDERER, context, Sampling(budget=budget))
    kept: Any = Kept(engine)
    with Runtime({"policy": kept}, {"policy": agent}, InProcess()) as runtime:
        return runtime.collect(Independent(3), TASKS, (0, 0))


NEUTRAL: dict[str, ContextManager] = {
    "as many placeholders as none": Placeholders("x", keep=99),
    "all images": LastImages(99),
    "thinking kept": Thinking(keep=True),
    "no thinking to strip": Thinking(),
    "no instruction": Instruction(),
    "all messages": LastMessages(99, opening=True),
    "no summaries": Summarize(1, 0, "sum up"),
    "a window that is never full": Summarize(10**6, 7, "sum up"),
    "one unit": Decomposed("x", 1),
    "several": Thinking(keep=True, inner=LastImages(9, inner=Instruction(inner=Summarize(10**6, 7, "sum up")))),
}


@pytest.fixture(scope="module")
def plain(engine: LocalEngine) -> list[Group]:
    return played(engine, FullHistory())


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_knob_gives_the_whole_history_exactly(engine: LocalEngine, plain: list[Group], name: str):
    """The same ids, log-probs and keys, and so the same batch: whatever is computed from it is the same, bit for bit."""
    found = played(engine, NEUTRAL[name])
    for mine, theirs in zip(found, plain, strict=True):
        for one, other in zip(mine.trajectories, theirs.trajectories, strict=True):
            assert recorded(one.calls) == recorded(other.calls) and [c.key for c in one.calls] == [c.key for c in other.calls]
            assert one.turns[0].notes == () and one.messages == other.messages
            assert [turn.info for turn in one.turns] == [turn.info for turn in other.turns]
    a, b = collate(found), collate(plain)
    assert all(np.array_equal(vars(x)[k], vars(y)[k]) for x, y in zip(a.rows, b.rows, strict=True) for k in vars(x))
    assert all(np.array_equal(vars(a.indices)[k], vars(b.indices)[k]) for k in vars(a.indices))


CHANGING: dict[str, ContextManager] = {
    "placeholders": Placeholders("~\n"),
    "the last messages": LastMessages(3, opening=True),
    "an instruction": Instruction("be right"),
    "summaries": Summarize(14, 7, "so far?\n", budget=4),
    "units of thought": Decomposed("a", 3),
    "placeholders under an instruction": Instruction("x", inner=Placeholders("~\n")),
    "units and summaries of an instructed one": Instruction("x", inner=Summarize(18, 2, "so?\n", "had: ")),
}


@pytest.mark.parametrize("name", CHANGING)
def test_every_action_is_scored_in_the_context_it_was_sampled_in(engine: LocalEngine, plain: list[Group], name: str):
    """What the sampler said of each token is what its row says alone: old == rescored, notes included."""
    groups = played(engine, CHANGING[name])
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    assert token_identity(groups, collate(groups)) == 1.0
    assert any(recorded(t.calls) != recorded(p.calls) for t, p in zip(trajectories, (p for g in plain for p in g.trajectories)))
    for trajectory in trajectories:
        for row in rows_of(trajectory):
            expected = logp_alone(POLICY, PARAMS, row, 96)
            np.testing.assert_allclose(row.sampler_logp[row.action_mask], expected[row.action_mask], atol=1e-5)


def test_old_observations_make_a_row_a_turn_once_they_are_replaced(engine: LocalEngine):
    for group in played(engine, Placeholders("~\n")):
        for trajectory in group.trajectories:
            assert len(rows_of(trajectory)) == max(1, len(trajectory.turns) - 1)  # the second prompt still extends the first
