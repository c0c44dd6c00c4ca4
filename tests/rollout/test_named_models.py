"""Asking the models of a run: messages, scores, deadlines, and notes that another model writes."""

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from support.fake_engines import FakeEngine
from support.fixtures import ScriptedEngine, make_call, make_trajectory, make_turn
from support.strategy_runs import AGENT, KEY, RENDERER, ListEngine, chain_task, make_runtime

from agentrl_jax.context import ContextManager, NoteRequest
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import Message, assistant, texts, user
from agentrl_jax.models.tokenizers import character_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.episode import Prefix
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Call, RandomKey, Sampling, Trajectory, Turn

JUDGE = dataclasses.replace(AGENT, name="judge", engine="judge", trainable=False)


class CountingScorer:
    """A `Scorer` whose score is 100 x scored tokens + tokens; it records what it scored."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []  # the text, and its scored part
        self.closed = False

    def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        decode = RENDERER.codec.decode
        scored = decode(tuple(tokens[is_scored].tolist()))
        self.requests.append((decode(tuple(tokens.tolist())), scored))
        future: Future[float] = Future()
        future.set_result(100.0 * is_scored.sum() + len(tokens))
        return future

    def close(self) -> None:
        self.closed = True


class SilentEngine(FakeEngine):
    """An `Engine` that never answers."""

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        return Future()


def test_an_agent_answers_messages_with_its_own_or_other_sampling():
    judge = ScriptedEngine(RENDERER, "yes, it is")
    with make_runtime(ListEngine()) as runtime:
        runtime.add_model("judge", Model(JUDGE, judge))
        question = [user("right?\n")]
        assert runtime.run(runtime.models.ask("judge", question, KEY)) == assistant("yes, it is")
        runtime.run(runtime.models.ask("judge", question, KEY, Sampling(budget=7)))
    assert judge.held_calls == []  # no cache is kept
    assert [RENDERER.codec.decode(tuple(p.tolist())) for p in judge.prompts] == ["right?\n"] * 2


def test_an_unknown_model_a_late_one_and_one_without_room_are_errors():
    with make_runtime(ListEngine()) as runtime:
        runtime.add_model("judge", Model(JUDGE, SilentEngine()))
        runtime.add_model("full", Model(JUDGE, ScriptedEngine(RENDERER, "x", max_calls=0)))
        models = runtime.models
        with pytest.raises(UserError, match="no model called 'nobody' writes messages; policy, "):
            runtime.run(models.ask("nobody", [user("?")], KEY))
        with pytest.raises(UserError, match="no model called 'judge' can score"):
            runtime.run(models.score("judge", [[user("?")]], ["yes"]))
        with pytest.raises(EnvironmentFailure, match="no room for an answer") as failure:
            runtime.run(models.ask("full", [user("?")], KEY))
        assert failure.value.kind == "malformed"
        runtime.add_model("judge", Model(JUDGE, SilentEngine()))
        with pytest.raises(DeadlineExceeded, match=r"'judge' took longer than 0\.05 s"):
            runtime.run(models.ask("judge", [user("?")], KEY, seconds=0.05))


def test_a_late_score_is_a_deadline():
    class SilentScorer(CountingScorer):
        def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
            return Future()

    with make_runtime(ListEngine(), timeouts=Timeouts(0.05)) as runtime:
        runtime.add_model("reward", Model(JUDGE, scorer=SilentScorer()))
        with pytest.raises(DeadlineExceeded, match="a score of the model 'reward' took longer"):
            runtime.run(runtime.models.score("reward", [[user("?")]], ["yes"]))


def test_a_continuation_is_scored_without_a_stop_token():
    scorer = CountingScorer()
    with make_runtime(ListEngine()) as runtime:
        runtime.add_model("verifier", Model(JUDGE, scorer=scorer))
        prompts = [[user("1+1=2\n"), user("right?\n")], [user("1+1=3\n")]]
        scores = runtime.run(runtime.models.score("verifier", prompts, ["yes", "no"]))
        assert "verifier" not in runtime.agents  # it cannot play
    assert scorer.requests == [("1+1=2\nright?\nyes", "yes"), ("1+1=3\nno", "no")]
    assert scores == [300.0 + 16, 200.0 + 8] and scorer.closed


def test_a_trajectory_is_scored_by_its_recorded_tokens():
    scorer = CountingScorer()
    first = make_call(RENDERER.codec.encode_plain("go\n"), RENDERER.action_ids(assistant("a")))
    ids = np.concatenate([first.ids, RENDERER.codec.encode_plain("ok\n")])
    second = make_call(ids, RENDERER.action_ids(assistant("b")))
    trajectory = make_trajectory(make_turn([first]), make_turn([second]))
    rewritten = make_trajectory(make_turn([second]), make_turn([first]))
    other = dataclasses.replace(JUDGE, renderer=TextRenderer(character_tokenizer(["ab\n"])))
    with make_runtime(ListEngine()) as runtime:
        runtime.add_model("reward", Model(JUDGE, scorer=scorer))
        runtime.add_model("foreign", Model(other, scorer=scorer))
        score = runtime.models.score_trajectories
        assert runtime.run(score("reward", [trajectory])) == [400.0 + 10]
        assert scorer.requests == [("go\na\nok\nb\n", "a\nb\n")]
        with pytest.raises(UserError, match="as one context"):
            runtime.run(score("reward", [rewritten]))
        with pytest.raises(UserError, match="another tokenizer than the agent 'policy'"):
            runtime.run(score("foreign", [trajectory]))


@dataclasses.dataclass(frozen=True)
class Advised(ContextManager):
    """Before each action another model reads the history; its advice is in view for that turn."""

    model: str = "judge"

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        history = [m for turn in turns for m in (turn.action, *turn.observation)]
        return [*opening, *history, *(user(f"advice: {note.text}\n") for note in notes)]

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        if notes:
            return None
        return NoteRequest([*opening, user("advise\n")], budget=3, model=self.model)

    def demonstrated_note(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        action: Message,
    ) -> Message | None:
        return None if notes else assistant("demonstrated")


def advised_episode(judge: ListEngine, prefix: Prefix | None = None) -> Trajectory:
    agent = Agent("policy", RENDERER, Advised(), Sampling(budget=4))
    with make_runtime(ListEngine(*"aaaaaaaa"), agent) as runtime:
        runtime.add_model("judge", Model(JUDGE, judge))
        trajectory = runtime.run(runtime.episode(chain_task(horizon=3), "policy", KEY, 0, prefix))
    assert trajectory is not None
    return trajectory


def test_notes_of_another_model_are_in_view_and_no_calls_of_the_turn():
    judge = ListEngine("one", "two", "three")
    trajectory = advised_episode(judge)
    advice = [texts(turn.notes) for turn in trajectory.turns]
    assert advice == [["one"], ["two"], ["thr"]]  # cut at the request's budget
    assert [len(turn.calls) for turn in trajectory.turns] == [1, 1, 1]
    assert all("calls" not in turn.info for turn in trajectory.turns)
    prompt = RENDERER.codec.decode(tuple(trajectory.turns[1].calls[0].prompt.tolist()))
    assert prompt.endswith("advice: two\n") and "one" not in prompt
    assert judge.prompts[0].endswith("advise\n") and judge.left == []


def test_a_branch_takes_over_the_notes_of_its_prefix():
    trajectory = advised_episode(ListEngine("one", "two", "three"))
    prefix = Prefix(trajectory.opening, trajectory.turns[:2], 0)
    branch = advised_episode(ListEngine("new"), prefix)
    assert [texts(turn.notes) for turn in branch.turns] == [["one"], ["two"], ["new"]]
    assert branch.turns[1].calls[0] is not None and branch.branch_turn == 2


def test_demonstrated_notes_of_another_model_have_no_call():
    agent = Agent("policy", RENDERER, Advised(), Sampling(budget=4))
    turn = Turn((), assistant("a"), (user("ok\n"),), 1.0, terminated=True)
    (with_calls,) = add_demonstration_calls(Trajectory((user("go\n"),), (turn,)), agent).turns
    assert texts(with_calls.notes) == ["demonstrated"] and len(with_calls.calls) == 1
    prompt = RENDERER.codec.decode(tuple(with_calls.calls[0].prompt.tolist()))
    assert prompt == "go\nadvice: demonstrated\n"


def test_a_model_that_fails_within_an_episode_fails_the_attempt_and_never_scores_zero():
    agent = Agent("policy", RENDERER, Advised(), Sampling(budget=4))
    with make_runtime(ListEngine(*"aaaa"), agent, retries=1, timeouts=Timeouts(0.1)) as runtime:
        runtime.add_model("judge", Model(JUDGE, SilentEngine()))
        assert runtime.run(runtime.episode(chain_task(), "policy", KEY)) is None
        assert runtime.failures.counts == {"deadline": 2} and runtime.failures.dropped == 1


def test_episodes_that_hold_every_slot_of_an_engine_may_ask_its_model():
    engine = ScriptedEngine(RENDERER, "a")
    engine.num_slots = 1
    agent = Agent("policy", RENDERER, Advised("policy"), Sampling(budget=4))
    with make_runtime(engine, agent) as runtime:

        async def play() -> list[Trajectory | None]:
            task = chain_task(horizon=2)
            episodes = (runtime.episode(task, "policy", KEY, i) for i in range(3))
            async with asyncio.timeout(10):
                return await asyncio.gather(*episodes)

        assert all(trajectory is not None for trajectory in runtime.run(play()))


class ClosedOnce(FakeEngine):
    """An `Engine` that counts how often it is closed."""

    def __init__(self) -> None:
        self.times_closed = 0

    def close(self) -> None:
        self.times_closed += 1


def test_a_replaced_engine_is_closed_unless_it_has_another_name():
    plain, wrapped, last = ClosedOnce(), ClosedOnce(), ClosedOnce()
    with make_runtime(plain) as runtime:
        runtime.add_agent("plain", dataclasses.replace(AGENT, engine="plain"), plain)
        runtime.add_agent("policy", AGENT, wrapped)
        assert (plain.times_closed, wrapped.times_closed) == (0, 0)
        runtime.add_agent("policy", AGENT, last)
        assert (plain.times_closed, wrapped.times_closed, last.times_closed) == (0, 1, 0)
    assert (plain.times_closed, wrapped.times_closed, last.times_closed) == (1, 1, 1)
