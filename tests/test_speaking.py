"""One seat's side of an episode: notes before an action, branches from another's turns, and being stopped from outside."""

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import naughty
import pytest
from hand_made import ScriptedEngine

from agentrl_jax import journal
from agentrl_jax.context import Asking, FullHistory, Question
from agentrl_jax.episodes import Prefix
from agentrl_jax.messages import Message, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.rows import collate, rows_of, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent, Limits, Speaker
from agentrl_jax.trajectories import Group, Key, Sampling, Trajectory, Turn
from agentrl_jax.workers import InProcess, Task

RENDERER = TextRenderer(byte_tokenizer())
TASK, KEY = Task(naughty.NAME, 0), (0, 0, 0)


@dataclass(frozen=True)
class Twice:
    """Has a note written before each action, over the opening alone; or, `thinking`, until the second thought, which is the action."""

    thinking: bool = False

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        told = [(*(turn.notes if self.thinking else ()), turn.action, *turn.observation) for turn in turns]
        return [*opening, *(message for turn in told for message in turn), *notes]

    def ask(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], length: int) -> Question | None:
        assert length == len(RENDERER.render(self.view(opening, turns, notes)).ids)
        if self.thinking:
            return Question(self.view(opening, turns, notes), ends=lambda answer: len(notes) == 1)
        return None if notes else Question([*opening, user("note?\n")], budget=2)


def episode(agent: Agent, engine: ScriptedEngine, prefix: Prefix | None = None, sample: int = 0, **more: object) -> Trajectory | None:
    with Runtime({"policy": engine}, {"policy": agent}, InProcess()) as runtime:
        return runtime.run(runtime.episode(TASK, agent, KEY, sample, prefix, **more))  # type: ignore[arg-type]


def agent_with(context: object, limits: Limits | None = None) -> Agent:
    return Agent("policy", RENDERER, context, Sampling(budget=8), limits=limits or Limits())  # type: ignore[arg-type]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def test_notes_are_calls_of_the_turn_and_all_of_them_are_trained():
    engine = ScriptedEngine(RENDERER, "abc")
    assert isinstance(Twice(), Asking) and not isinstance(FullHistory(), Asking)
    trajectory = episode(agent_with(Twice()), engine)
    assert trajectory is not None and engine.held == []
    assert [texts(turn.notes) for turn in trajectory.turns] == [["abc"]] * 3
    assert [[call.sampling.budget for call in turn.calls] for turn in trajectory.turns] == [[2, 8]] * 3
    first = trajectory.turns[0].calls
    assert [call.key[-2:] for call in first] == [(0, 0), (0, 1)] and first[0].key == (*KEY, 0, 0, 0)  # that of a turn without notes
    prompts = [RENDERER.codec.text(tuple(call.prompt.tolist())) for call in first]
    assert prompts == ["begin\nnote?\n", "begin\nabc\n"]
    collated = collate([Group("t", (trajectory,))])
    assert token_identity([Group("t", (trajectory,))], collated) == 1.0
    assert len(collated.indices.token_row) == sum(len(call.action) for call in trajectory.calls) == 24


def test_thoughts_extend_each_other_until_the_last_one_acts():
    trajectory = episode(agent_with(Twice(thinking=True)), ScriptedEngine(RENDERER, "abc"))
    assert trajectory is not None and len(trajectory.calls) == 6 and len(rows_of(trajectory)) == 1
    assert all(call.parent is before for call, before in zip(trajectory.calls[1:], trajectory.calls))


def test_the_journal_keeps_notes(tmp_path: object):
    trajectory = episode(agent_with(Twice()), ScriptedEngine(RENDERER, "abc"))
    assert trajectory is not None
    again = journal.decode(journal.encode(trajectory))
    assert [turn.notes for turn in again.turns] == [turn.notes for turn in trajectory.turns]


@pytest.mark.parametrize(("tokens", "stop", "turns"), [(3, "tokens", 0), (4, "tokens", 0), (8, "tokens", 1), (9, "tokens", 1)])
def test_limits_count_notes_too(tokens: int, stop: str, turns: int):
    trajectory = episode(agent_with(Twice(), Limits(tokens=tokens)), ScriptedEngine(RENDERER, "abc"))
    assert trajectory is not None and (trajectory.stop_reason, len(trajectory.turns)) == (stop, turns)


def prefix_of(trajectory: Trajectory, turns: int) -> Prefix:
    return Prefix(trajectory.opening, trajectory.turns[:turns], trajectory.sample)


@pytest.mark.parametrize("context", [FullHistory(), Twice(), Twice(thinking=True)])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_branch_goes_on_from_anothers_turns(context: object, turns: int):
    agent, engine = agent_with(context), ScriptedEngine(RENDERER, "abc")
    root = episode(agent, engine)
    assert root is not None
    asked = engine.submitted
    branch = episode(agent, engine, prefix_of(root, turns), sample=1)
    assert branch is not None and (branch.parent, branch.branch_turn, branch.sample) == (0, turns, 1)
    assert all(a is b for a, b in zip(branch.turns[:turns], root.turns))  # the calls are shared, not copied
    assert engine.submitted - asked == sum(len(turn.calls) for turn in root.turns[turns:])  # and not sampled again
    for mine, theirs in zip(branch.calls, root.calls):
        assert mine.prompt.tolist() == theirs.prompt.tolist()
    assert len(rows_of(branch)) == len(rows_of(root)) and engine.held == []
    fresh = [call.key[3] for call in branch.calls[sum(len(turn.calls) for turn in root.turns[:turns]) :]]
    assert set(fresh) <= {1}


def test_a_prefix_counts_towards_limits():
    agent = agent_with(FullHistory(), Limits(turns=2))
    root = episode(agent, ScriptedEngine(RENDERER, "abc"))
    assert root is not None and len(root.turns) == 2
    branch = episode(agent, ScriptedEngine(RENDERER, "abc"), prefix_of(root, 1))
    assert branch is not None and len(branch.turns) == 2 and branch.stop_reason == "turns"


def test_a_world_that_answers_a_prefix_otherwise_fails():
    agent, engine = agent_with(FullHistory()), ScriptedEngine(RENDERER, "abc")
    root = episode(agent, engine)
    assert root is not None
    turn = dataclasses.replace(root.turns[0], observation=(user("something else\n"),))
    with Runtime({"policy": engine}, {"policy": agent}, InProcess(), retries=1) as runtime:
        assert runtime.run(runtime.episode(TASK, "policy", KEY, 1, Prefix(root.opening, (turn,), 0))) is None
        assert sum(runtime.failures.metrics().values()) > 0


def test_a_strategy_looks_after_each_turn_and_may_stop_an_episode():
    seen: list[int] = []

    async def after(speaker: Speaker) -> None:
        await asyncio.sleep(0)
        seen.append(len(speaker.turns))
        if len(speaker.turns) == 2:
            speaker.stop = "early"

    engine = ScriptedEngine(RENDERER, "abc")
    trajectory = episode(agent_with(FullHistory()), engine, after=after)
    assert trajectory is not None and seen == [1, 2] and engine.held == []
    assert trajectory.stop_reason == "early" and trajectory.truncated and len(trajectory.turns) == 2


def test_keys_of_plain_calls_name_run_step_task_sample_seat_and_turn():
    trajectory = episode(agent_with(FullHistory()), ScriptedEngine(RENDERER, "abc"), sample=5)
    assert trajectory is not None
    keys: list[Key] = [call.key for call in trajectory.calls]
    assert keys == [(*KEY, 5, 0, turn) for turn in range(3)]
