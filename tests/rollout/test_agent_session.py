"""One agent's session: notes before an action, branches from another session's turns, and callbacks
that stop an episode.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine

from agentrl_jax.context import ContextManager, FullHistory, NoteRequest
from agentrl_jax.learner.sequences import collate, sequences_of, token_identity
from agentrl_jax.messages import Message, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent, Limits
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.rollout.episode import Prefix
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage import trajectory_json
from agentrl_jax.trajectories import Group, RandomKey, Sampling, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())
TASK, KEY = Task(faulty_envs.ENVIRONMENT_ID, 0), (0, 0, 0)


@dataclass(frozen=True)
class Twice(ContextManager):
    """Requests a note before each action, from the opening alone; or, if `thinking`, two thoughts,
    of which the second is the action.
    """

    thinking: bool = False

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        messages = [
            (*(turn.notes if self.thinking else ()), turn.action, *turn.observation)
            for turn in turns
        ]
        return [*opening, *(message for turn in messages for message in turn), *notes]

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        assert prompt_length == len(RENDERER.render(self.view(opening, turns, notes)).ids)
        if self.thinking:
            return NoteRequest(
                self.view(opening, turns, notes), is_action=lambda answer: len(notes) == 1
            )
        return None if notes else NoteRequest([*opening, user("note?\n")], budget=2)


def episode(
    agent: Agent,
    engine: ScriptedEngine,
    prefix: Prefix | None = None,
    sample: int = 0,
    **more: object,
) -> Trajectory | None:
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool()) as runtime:
        return runtime.run(runtime.episode(TASK, agent, KEY, sample, prefix, **more))  # type: ignore[arg-type]


def agent_with(context: object, limits: Limits | None = None) -> Agent:
    return Agent("policy", RENDERER, context, Sampling(budget=8), limits=limits or Limits())  # type: ignore[arg-type]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def test_notes_are_calls_of_the_turn_and_all_of_them_are_trained():
    engine = ScriptedEngine(RENDERER, "abc")
    trajectory = episode(agent_with(Twice()), engine)
    assert trajectory is not None and engine.held_calls == []
    assert [texts(turn.notes) for turn in trajectory.turns] == [["abc"]] * 3
    assert [[call.sampling.budget for call in turn.calls] for turn in trajectory.turns] == [
        [2, 8]
    ] * 3
    first = trajectory.turns[0].calls
    assert [call.key[-2:] for call in first] == [(0, 0), (0, 1)] and first[0].key == (
        *KEY,
        0,
        0,
        0,
    )  # the same as that of a turn without notes
    prompts = [RENDERER.codec.decode(tuple(call.prompt.tolist())) for call in first]
    assert prompts == ["begin\nnote?\n", "begin\nabc\n"]
    collated = collate([Group("t", (trajectory,))])
    assert token_identity([Group("t", (trajectory,))], collated) == 1.0
    assert (
        len(collated.token_index.token_sequence)
        == sum(len(call.action) for call in trajectory.calls)
        == 24
    )


def test_thoughts_extend_each_other_and_the_last_one_is_the_action():
    trajectory = episode(agent_with(Twice(thinking=True)), ScriptedEngine(RENDERER, "abc"))
    assert (
        trajectory is not None and len(trajectory.calls) == 6 and len(sequences_of(trajectory)) == 1
    )
    assert all(
        call.parent is before for call, before in zip(trajectory.calls[1:], trajectory.calls)
    )


def test_the_trajectory_log_stores_notes(tmp_path: object):
    trajectory = episode(agent_with(Twice()), ScriptedEngine(RENDERER, "abc"))
    assert trajectory is not None
    again = trajectory_json.decode(trajectory_json.encode(trajectory))
    assert [turn.notes for turn in again.turns] == [turn.notes for turn in trajectory.turns]


@pytest.mark.parametrize(
    ("tokens", "stop", "turns"),
    [(3, "tokens", 0), (4, "tokens", 0), (8, "tokens", 1), (9, "tokens", 1)],
)
def test_limits_count_notes_too(tokens: int, stop: str, turns: int):
    trajectory = episode(
        agent_with(Twice(), Limits(tokens=tokens)), ScriptedEngine(RENDERER, "abc")
    )
    assert trajectory is not None and (trajectory.stop_reason, len(trajectory.turns)) == (
        stop,
        turns,
    )


def prefix_of(trajectory: Trajectory, turns: int) -> Prefix:
    return Prefix(trajectory.opening, trajectory.turns[:turns], trajectory.sample)


@pytest.mark.parametrize("context", [FullHistory(), Twice(), Twice(thinking=True)])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_branch_continues_from_another_sessions_turns(context: object, turns: int):
    agent, engine = agent_with(context), ScriptedEngine(RENDERER, "abc")
    root = episode(agent, engine)
    assert root is not None
    num_before = engine.num_submitted
    branch = episode(agent, engine, prefix_of(root, turns), sample=1)
    assert branch is not None and (branch.parent, branch.branch_turn, branch.sample) == (
        0,
        turns,
        1,
    )
    assert all(
        a is b for a, b in zip(branch.turns[:turns], root.turns)
    )  # the calls are shared, not copied
    assert engine.num_submitted - num_before == sum(
        len(turn.calls) for turn in root.turns[turns:]
    )  # and not sampled again
    for call, root_call in zip(branch.calls, root.calls):
        assert call.prompt.tolist() == root_call.prompt.tolist()
    assert len(sequences_of(branch)) == len(sequences_of(root)) and engine.held_calls == []
    fresh = [
        call.key[3] for call in branch.calls[sum(len(turn.calls) for turn in root.turns[:turns]) :]
    ]
    assert set(fresh) <= {1}


def test_a_prefix_counts_towards_limits():
    agent = agent_with(FullHistory(), Limits(turns=2))
    root = episode(agent, ScriptedEngine(RENDERER, "abc"))
    assert root is not None and len(root.turns) == 2
    branch = episode(agent, ScriptedEngine(RENDERER, "abc"), prefix_of(root, 1))
    assert branch is not None and len(branch.turns) == 2 and branch.stop_reason == "turns"


def test_an_environment_that_replies_differently_to_a_prefix_fails():
    agent, engine = agent_with(FullHistory()), ScriptedEngine(RENDERER, "abc")
    root = episode(agent, engine)
    assert root is not None
    turn = dataclasses.replace(root.turns[0], observation=(user("something else\n"),))
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool(), retries=1) as runtime:
        assert (
            runtime.run(runtime.episode(TASK, "policy", KEY, 1, Prefix(root.opening, (turn,), 0)))
            is None
        )
        assert sum(runtime.failures.metrics().values()) > 0


def test_a_turn_callback_sees_each_turn_and_may_stop_the_episode():
    turn_counts: list[int] = []

    async def after(session: AgentSession) -> None:
        await asyncio.sleep(0)
        turn_counts.append(len(session.turns))
        if len(session.turns) == 2:
            session.stop_reason = "early"

    engine = ScriptedEngine(RENDERER, "abc")
    trajectory = episode(agent_with(FullHistory()), engine, on_turn=after)
    assert trajectory is not None and turn_counts == [1, 2] and engine.held_calls == []
    assert trajectory.stop_reason == "early" and trajectory.truncated and len(trajectory.turns) == 2


def test_keys_of_calls_are_run_step_task_sample_agent_and_turn():
    trajectory = episode(agent_with(FullHistory()), ScriptedEngine(RENDERER, "abc"), sample=5)
    assert trajectory is not None
    keys: list[RandomKey] = [call.key for call in trajectory.calls]
    assert keys == [(*KEY, 5, 0, turn) for turn in range(3)]
