"""Making environments, views of their history, and the prompts rendered from them."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import ScriptedEngine

from agentrl_jax.context import ContextManager, FullHistory, LastMessages
from agentrl_jax.environment import make, normalized_score
from agentrl_jax.envs import ENVIRONMENTS
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import collate, sequences_of
from agentrl_jax.messages import Message, assistant, texts, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())
WORDLE, MAZE_PO, MAZE_FO = (
    f"agentrl_jax.envs:agentrl/{name}" for name in ("Wordle-v0", "MazePO-v0", "MazeFO-v0")
)


@pytest.mark.parametrize(
    "name",
    [
        "agentrl/Wordle-v7",
        "agentrl/Nowhere-v0",
        "Wordle",
        "two words",
        "a/b/c-v0",
        "agentrl_jax.envs:nothing",
    ],
)
def test_an_unknown_id_is_refused_with_the_known_ones(name: str):
    with pytest.raises(
        UserError,
        match=rf"no environment is called .*; there are {', '.join(sorted(ENVIRONMENTS))}$",
    ):
        make(name)


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(UserError, match=r"No module named 'no_such_module'.* PYTHONPATH"):
        make("no_such_module:agentrl/Wordle-v0")


@pytest.mark.parametrize(
    "options", [{"wordz": 3}, {"words": "many"}, {"words": -1}, {"bad_word_reward": "x"}]
)
def test_an_invalid_option_is_a_user_error(options: dict[str, Any]):
    with pytest.raises(UserError):
        make(WORDLE, options)


def test_an_environment_without_messages_is_refused():
    with pytest.raises(UserError, match="CartPole-v1 is not a message environment"):
        make("CartPole-v1")


def test_made_environments_are_unwrapped_and_take_their_options():
    env = make(WORDLE, {"words": 12})
    assert env is env.unwrapped and len(env.words) == 12  # type: ignore[attr-defined]
    assert env.spec is not None and env.spec.max_episode_steps is None
    assert gymnasium.spec("agentrl/Wordle-v0").max_episode_steps is None


@pytest.mark.parametrize(
    ("mean_return", "score"),
    [
        (-6.0, 0),
        (-9.0, 0),
        (-5.0, 25),
        (-4.0, 50),
        (-3.0, 75),
        (-2.0, 100),
        (-1.0, 125),
        (-4.5, 37.5),
        (-2.5, 87.5),
    ],
)
def test_a_score_is_piecewise_linear_between_its_anchors(mean_return: float, score: float):
    assert normalized_score(mean_return, (-6.0, -4.0, -2.0)) == pytest.approx(score)


@pytest.mark.parametrize("name", [WORDLE, MAZE_PO, MAZE_FO])
def test_the_anchors_of_an_environment_score_0_50_and_100(name: str):
    anchors = make(name).score_anchors
    assert anchors is not None and [normalized_score(x, anchors) for x in anchors] == [
        0.0,
        50.0,
        100.0,
    ]


def turns_of(*forget: bool) -> list[Turn]:
    """Turns "a0" -> "o0", "a1" -> "o1" ... with two messages in reply to every odd one."""
    return [
        Turn(
            (),
            assistant(f"a{i}"),
            (user(f"o{i}"), user(f"p{i}"))[: 1 + i % 2],
            0.0,
            info={"forget": True} if flag else {},
        )
        for i, flag in enumerate(forget)
    ]


OPENING = (user("go"),)


@pytest.mark.parametrize(
    ("forget", "count", "view"),
    [
        ([], 3, ["go"]),
        ([False], 1, ["o0"]),
        ([False], 2, ["a0", "o0"]),
        ([False], 40, ["go", "a0", "o0"]),
        ([False, False], 4, ["o0", "a1", "o1", "p1"]),
        ([True], 40, ["o0"]),
        ([False, True], 40, ["o1", "p1"]),
        ([False, True], 1, ["p1"]),
        ([False, True, False], 40, ["o1", "p1", "a2", "o2"]),
        ([True, False, True], 40, ["o2"]),
    ],
)
def test_views_of_the_last_messages(forget: list[bool], count: int, view: list[str]):
    assert texts(LastMessages(count).view(OPENING, turns_of(*forget))) == view


@given(forget=st.lists(st.booleans(), max_size=8), count=st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_views_are_those_of_a_loop(forget: list[bool], count: int):
    turns, everything = turns_of(*forget), list(OPENING)
    start = 0
    for turn in turns:
        everything += [turn.action, *turn.observation]
        if turn.info.get("forget"):
            start = len(everything) - len(turn.observation)
    assert list(FullHistory().view(OPENING, turns)) == everything
    assert list(LastMessages(count).view(OPENING, turns)) == everything[start:][-count:]


def agent(context: ContextManager, budget: int = 16) -> Agent:
    return Agent("policy", RENDERER, context, Sampling(budget=budget))


def bytes_of(text: str) -> list[int]:
    return list(text.encode())


def test_an_agents_stop_ids_are_its_renderers_unless_given():
    assert agent(FullHistory()).sampling.stop_ids == RENDERER.stop_ids == (10,)
    assert Agent("policy", RENDERER, FullHistory(), Sampling(stop_ids=(5,))).sampling.stop_ids == (
        5,
    )


def call_after(ids: np.ndarray, action: str) -> Call:
    n = len(action)
    return Call(
        ids,
        np.asarray(bytes_of(action), np.int32),
        np.zeros(n, np.float32),
        np.zeros(n, np.int32),
        Sampling(),
        "stop",
    )


def test_a_prompt_that_only_grows_extends_the_last_call_token_by_token():
    builder = PromptBuilder(agent(FullHistory()), (user("go\n"),))
    first, parent = builder.action_prompt([])
    assert first.tolist() == bytes_of("go\n") and parent is None
    call = call_after(first, "left\n")
    builder.add_call(call, assistant("left"))
    second, parent = builder.action_prompt(
        [Turn((call,), assistant("left"), (user("wall\n"), user("again\n")), 0.0)]
    )
    assert second.tolist() == bytes_of("go\nleft\nwall\nagain\n") and parent is call


def test_a_turn_that_its_budget_truncated_is_closed():
    builder = PromptBuilder(agent(FullHistory()), (user("go\n"),))
    call = call_after(builder.action_prompt([])[0], "le")
    builder.add_call(call, assistant("le"))
    ids, parent = builder.action_prompt([Turn((call,), assistant("le"), (user("what?\n"),), 0.0)])
    assert ids.tolist() == bytes_of("go\nle\nwhat?\n") and parent is call


@pytest.mark.parametrize("info", [{}, {"forget": True}])
def test_a_rewritten_context_is_rendered_anew(info: dict[str, Any]):
    builder = PromptBuilder(
        agent(LastMessages(1) if not info else LastMessages(40)), (user("go\n"),)
    )
    call = call_after(builder.action_prompt([])[0], "left\n")
    builder.add_call(call, assistant("left"))
    ids, parent = builder.action_prompt(
        [Turn((call,), assistant("left"), (user("wall\n"),), 0.0, info=info)]
    )
    assert ids.tolist() == bytes_of("wall\n") and parent is None


def collect(
    name: str, strategy: Any, engine: ScriptedEngine | None = None, **options: Any
) -> Trajectory:
    """One episode in a fresh environment."""
    agents = {"policy": agent(make(name, options).context)}
    with Runtime(
        {} if engine is None else {"policy": engine}, {} if engine is None else agents, InlinePool()
    ) as runtime:
        (group,) = runtime.collect(strategy, [Task(name, 3, options)], (0, 0))
    assert isinstance(group, Group)
    return group.trajectories[0]


def expected_prompts(trajectory: Trajectory, context: ContextManager) -> list[str]:
    """The expected prompt of each turn as text, from the messages alone."""
    views = [
        context.view(trajectory.opening, trajectory.turns[:t]) for t in range(len(trajectory.turns))
    ]
    return ["".join(m.text if m.role == "user" else m.text + "\n" for m in view) for view in views]


@pytest.mark.parametrize(
    ("name", "action", "turns"),
    [
        (MAZE_FO, "move up", 101),
        (MAZE_PO, "move left", 101),
        (MAZE_PO, "jump", 101),
        (WORDLE, "s l a t e", 6),
    ],
)
def test_prompts_follow_the_default_context_of_the_environment(name: str, action: str, turns: int):
    engine = ScriptedEngine(RENDERER, action)
    trajectory = collect(name, IndependentEpisodes(1), engine)
    assert len(trajectory.turns) == turns and trajectory.success is False
    prompts = [bytes(ids.tolist()).decode() for ids in engine.prompts]
    assert prompts == expected_prompts(trajectory, make(name).context)
    assert engine.held_calls == []


def test_a_fully_observed_maze_is_a_sequence_per_turn_and_wordle_one_per_game():
    assert (
        len(
            sequences_of(
                collect(MAZE_FO, IndependentEpisodes(1), ScriptedEngine(RENDERER, "move up"))
            )
        )
        == 101
    )
    assert (
        len(
            sequences_of(
                collect(WORDLE, IndependentEpisodes(1), ScriptedEngine(RENDERER, "s l a t e"))
            )
        )
        == 1
    )
    # The partly observed maze shows forty messages: an even number, which begins with an action
    # once the first one is out.
    rows = sequences_of(
        collect(MAZE_PO, IndependentEpisodes(1), ScriptedEngine(RENDERER, "move left"))
    )
    assert (
        len(rows) == 1 + 101 - 20
        and [int((row.turn >= 0).sum()) for row in rows[1:]] == [len("move left\n")] * 81
    )


def test_an_illegal_move_makes_the_partly_observed_maze_forget():
    rows = sequences_of(collect(MAZE_PO, IndependentEpisodes(1), ScriptedEngine(RENDERER, "jump")))
    assert len(rows) == 101


def without_calls(trajectory: Trajectory) -> Trajectory:
    return trajectory.replace(
        turns=tuple(dataclasses.replace(turn, calls=()) for turn in trajectory.turns)
    )


def calls_equal(a: Sequence[Call], b: Sequence[Call]) -> bool:
    return all(
        x.prompt.tolist() == y.prompt.tolist() and x.action.tolist() == y.action.tolist()
        for x, y in itertools.zip_longest(a, b)
    )


@pytest.mark.parametrize(
    ("name", "action"),
    [
        (MAZE_FO, "move up"),
        (MAZE_PO, "move left"),
        (MAZE_PO, "jump"),
        (WORDLE, "s l a t e"),
        (WORDLE, ""),
    ],
)
def test_demonstrations_and_samples_have_the_same_ids(name: str, action: str):
    sampled = collect(name, IndependentEpisodes(1), ScriptedEngine(RENDERER, action))
    demonstrated = add_demonstration_calls(without_calls(sampled), agent(make(name).context))
    assert calls_equal(demonstrated.calls, sampled.calls)
    for first, second in zip(sampled.calls, demonstrated.calls):
        assert (first.parent is None) == (second.parent is None)
    a, b = sequences_of(sampled), sequences_of(demonstrated)
    assert [row.tokens.tolist() for row in a] == [row.tokens.tolist() for row in b]
    assert [row.turn.tolist() for row in a] == [row.turn.tolist() for row in b]


@pytest.mark.parametrize("name", [WORDLE, MAZE_PO, MAZE_FO])
@pytest.mark.parametrize("player", ["random", "mixture", "expert"])
def test_a_demonstration_is_a_trajectory_with_calls(name: str, player: str):
    scripted = collect(name, ScriptedEpisodes(player))
    assert scripted.calls == () and scripted.agent == player
    context = make(name).context
    demonstrated = add_demonstration_calls(
        scripted, dataclasses.replace(agent(context), sampling=Sampling(temperature=0.3))
    )
    assert (
        demonstrated.messages == scripted.messages
        and demonstrated.total_reward == scripted.total_reward
    )
    assert [
        bytes(call.prompt.tolist()).decode() for call in demonstrated.calls
    ] == expected_prompts(scripted, context)
    for turn in demonstrated.turns:
        (call,) = turn.calls
        assert (
            bytes(call.action.tolist()).decode() == turn.action.text + "\n"
            and call.source == "demonstration"
        )
        assert (
            call.sampling.temperature == 1.0
            and (call.version == -1).all()
            and not call.sampler_logp.any()
        )
    collated = collate([Group("", (demonstrated,))])
    assert len(collated.token_index.token_sequence) == sum(
        len(turn.action.text) + 1 for turn in scripted.turns
    )


def test_an_action_is_recorded_as_the_environment_parsed_it():
    trajectory = collect(
        WORDLE, IndependentEpisodes(1), ScriptedEngine(RENDERER, "<eos> no word \t ü")
    )
    assert [turn.action for turn in trajectory.turns] == [
        Message("assistant", "<eos> no word \t ü")
    ] * 6
    assert trajectory.total_reward == -6.0 and trajectory.stop_reason == "terminated"
