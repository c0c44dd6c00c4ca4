"""Self-play: whose trajectories are in a group, each player's observations and rewards, and that no
opponent stalls a game.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine, make_credit_inputs, tiny_policy
from support.untimed import turn_time

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.advantages.grouping import player_of_trajectory
from agentrl_jax.algorithms.advantages.turn import MARS
from agentrl_jax.algorithms.strategies.self_play import ScriptedOpponent, SelfPlay, game_score
from agentrl_jax.clock import epoch_seconds
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.learner.sequences import collate
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent, Limits
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory
from agentrl_jax.workers.pool import InlinePool, Task

TOKENIZER = byte_tokenizer()
RENDERER = TextRenderer(TOKENIZER)
KUHN, BOARD = "agentrl/Kuhn-v0", "agentrl/TicTacToe-v0"


class KeyedEngine(ScriptedEngine):
    """Writes a text that is a function of the call's key."""

    def __init__(self, texts: tuple[str, ...], num_slots: int = 4) -> None:
        super().__init__(RENDERER, "")
        self._texts, self.num_slots = texts, num_slots
        self.keys: list[RandomKey] = []
        self.call_times: dict[RandomKey, float] = {}  # by sample, player and turn

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        self.keys.append(key)
        self.call_times[key[-3:]] = epoch_seconds()
        text = self._texts[int(np.random.default_rng(list(key)).integers(len(self._texts)))]
        self._action = RENDERER.action_ids(assistant(text))[: sampling.budget]
        return super().submit(ids, sampling, key, parent)


def agent(name: str, engine: str, **fields: Any) -> Agent:
    return Agent(
        name, RENDERER, FullHistory(), fields.pop("sampling", Sampling(budget=4)), engine, **fields
    )


def runtime_of(engines: dict[str, Any], retries: int = 0, **limits: int) -> Runtime:
    agents = {
        name: agent(name, name, trainable=name == "policy", limits=Limits(**limits))
        for name in engines
    }
    return Runtime(engines, agents, InlinePool(), retries=retries)


def collected(
    strategy: Any, tasks: list[Task], engines: dict[str, Any] | None = None, **fields: Any
) -> list[Group]:
    with runtime_of(engines or {"policy": KeyedEngine(("p", "b"))}, **fields) as runtime:
        return runtime.collect(strategy, tasks, (0, 0))


@dataclasses.dataclass
class OneOpponent:
    """Another agent in the place of all other players."""

    name: str = "opponent"

    def assign_players(
        self, policy_player: int, num_players: int
    ) -> tuple[dict[str, Any], dict[int, str]]:
        return {"seats": list(range(num_players))}, {
            seat: self.name for seat in range(num_players) if seat != policy_player
        }


def action_texts(trajectory: Trajectory) -> list[str]:
    return [turn.action.text for turn in trajectory.turns]


def test_the_policy_plays_all_players_each_with_its_own_random_numbers():
    engine = KeyedEngine(("p", "b"))
    groups = collected(SelfPlay(6), [Task(KUHN, seed) for seed in range(5)], {"policy": engine})
    for group in groups:
        assert [(t.sample, t.agent_index) for t in group.trajectories] == [
            (sample, seat) for sample in range(6) for seat in (0, 1)
        ]
        for first, second in zip(group.trajectories[::2], group.trajectories[1::2]):
            assert first.total_reward == -second.total_reward != 0 and first.seed == second.seed
            assert len({turn.info["seat"] for turn in first.turns}) == 1
            assert all(
                t.stop_reason == "terminated" and t.turns[-1].terminated for t in (first, second)
            )
    assert len(set(engine.keys)) == len(engine.keys) and {key[4] for key in engine.keys} == {0, 1}
    assert len({tuple(action_texts(t)) for group in groups for t in group.trajectories}) > 2
    assert not engine.held_calls  # all cached calls were released


def test_a_turn_has_the_time_of_the_step_of_its_own_action():
    engine = KeyedEngine(("p", "b"))
    (group,) = collected(SelfPlay(3), [Task(KUHN, 1)], {"policy": engine})
    for sample in range(3):
        turns = sorted(
            (engine.call_times[sample, t.agent_index, i], dataclasses.astuple(turn_time(turn)))
            for t in group.trajectories
            if t.sample == sample
            for i, turn in enumerate(t.turns)
        )
        assert len(turns) >= 2
        ends = [called for called, _ in turns[1:]] + [epoch_seconds()]
        for (called, (start, end)), next_call in zip(turns, ends):
            assert called <= start <= end <= next_call


def test_each_players_observations_follow_from_the_game():
    """Each player's trajectory, replayed in a fresh environment, has the same replies."""
    for group in collected(
        SelfPlay(3),
        [Task(BOARD, seed) for seed in range(3)],
        {"policy": KeyedEngine(tuple("123456789"))},
    ):
        for seats in zip(group.trajectories[::2], group.trajectories[1::2]):
            env, at = make(BOARD), [0, 0]
            messages, info = env.reset(seed=seats[0].seed, options={"seats": [0, 1]})
            assert messages == seats[0].opening
            while not env._is_over:
                seat = info["seat"]
                text = (
                    action_texts(seats[seat])[at[seat]] if at[seat] < len(seats[seat].turns) else ""
                )
                at[seat] += 1
                messages, reward, over, _, info = env.step(text)
                replies = seats[info["seat"]]
                if at[info["seat"]]:
                    turn = replies.turns[at[info["seat"]] - 1]
                    assert (turn.observation, turn.reward, turn.terminated) == (
                        messages,
                        reward,
                        over,
                    )
                else:
                    assert replies.opening == messages


def test_opponents_play_the_other_players_and_are_not_in_the_group():
    engines = {"policy": KeyedEngine(("p", "b")), "opponent": KeyedEngine(("p",))}
    (group,) = collected(
        SelfPlay(6, opponents=OneOpponent(), opponent_fraction=0.5), [Task(KUHN, 3)], engines
    )
    assert [(t.sample, t.agent_index, t.agent) for t in group.trajectories] == [
        (0, 0, "policy"),
        (1, 1, "policy"),
        (2, 0, "policy"),
        *((sample, seat, "policy") for sample in (3, 4, 5) for seat in (0, 1)),
    ]
    assert {key[3] for key in engines["opponent"].keys} == {0, 1, 2}
    assert not engines["opponent"].held_calls and not engines["policy"].held_calls


def test_a_scripted_opponent_plays_inside_the_environment():
    engines = {"policy": KeyedEngine(("1", "5"))}
    (group,) = collected(
        SelfPlay(4, opponents=ScriptedOpponent("expert")), [Task(BOARD, 3)], engines
    )
    assert [(t.sample, t.agent_index) for t in group.trajectories] == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    ]
    alone = dataclasses.replace(Task(BOARD, 3), reset_options={"seats": [0], "opponent": "expert"})
    (same,) = collected(IndependentEpisodes(1), [alone], engines)[0].trajectories
    assert (
        same.turns[0].observation == group.trajectories[0].turns[0].observation
        and same.agent_index == 0
    )


def trajectory_contents(group: Group) -> list[Any]:
    """The recorded content of a group, for comparison."""
    return [
        (
            t.opening,
            t.task,
            t.group,
            t.sample,
            t.agent_index,
            t.seed,
            t.agent,
            t.success,
            t.stop_reason,
            [
                (
                    turn.action,
                    turn.observation,
                    turn.reward,
                    turn.rewards,
                    turn.terminated,
                    turn.truncated,
                    turn.info,
                    [
                        (
                            c.prompt.tolist(),
                            c.action.tolist(),
                            c.sampler_logp.tobytes(),
                            c.version.tolist(),
                            c.key,
                            c.sampling,
                        )
                        for c in turn.calls
                    ],
                )
                for turn in t.turns
            ],
        )
        for t in group.trajectories
    ]


@pytest.mark.parametrize(
    ("env_id", "limits"),
    [
        ("Arithmetic", {}),
        ("Chain", {"turns": 3}),
        ("Lookup", {"tokens": 7}),
        ("KeyDoor", {"context": 200}),
    ],
)
def test_a_game_of_one_player_is_independent_episodes_bit_for_bit(
    env_id: str, limits: dict[str, int]
):
    tasks = [Task(f"agentrl/{env_id}-v0", seed) for seed in range(2)]
    engine, other_engine = (KeyedEngine(tuple("abcd")) for _ in range(2))
    groups = [
        trajectory_contents(group)
        for group in collected(SelfPlay(2, num_players=1), tasks, {"policy": engine}, **limits)
    ]
    assert groups == [
        trajectory_contents(group)
        for group in collected(IndependentEpisodes(2), tasks, {"policy": other_engine}, **limits)
    ]
    assert sorted(engine.keys) == sorted(other_engine.keys)


@pytest.mark.slow
def test_a_game_of_one_player_is_independent_episodes_on_a_real_engine():
    policy = tiny_policy(len(TOKENIZER))
    params = policy.init(jax.random.key(0))

    def collect_calls(strategy: Any) -> list[Any]:
        engine = LocalEngine(
            policy,
            EngineConfig(
                rows=4, positions=256, prefill_chunk=16, min_decode_steps=4, batching_delay=0.0
            ),
            params,
        )
        return [
            trajectory_contents(group)
            for group in collected(
                strategy, [Task("agentrl/Chain-v0", seed) for seed in range(2)], {"policy": engine}
            )
        ]

    assert collect_calls(SelfPlay(2, num_players=1)) == collect_calls(IndependentEpisodes(2))


HOSTILE: dict[str, Callable[[], Any]] = {
    "garbage": lambda: KeyedEngine(("xyz", "{}")),
    "nothing": lambda: KeyedEngine(("",)),
    "no end": lambda: KeyedEngine(("b" * 50,)),  # truncated by its budget each time
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("env_id", [KUHN, BOARD])
def test_a_hostile_opponent_neither_stalls_a_game_nor_costs_the_policy_reward(
    kind: str, env_id: str
):
    legal = {KUHN: ("p", "b"), BOARD: tuple("123456789")}[env_id]
    engines = {"policy": KeyedEngine(legal), "opponent": HOSTILE[kind]()}
    groups = collected(
        SelfPlay(4, opponents=OneOpponent()), [Task(env_id, seed) for seed in range(4)], engines
    )
    for group in groups:
        assert len(group.trajectories) == 4 and group.num_dropped == 0
        for t in group.trajectories:
            assert t.stop_reason == "terminated" and t.turns
            assert all(
                turn.rewards.get("illegal", 0.0) == 0 or not turn.info["legal"] for turn in t.turns
            )


def test_the_game_continues_after_limits_stop_an_opponent():
    engines = {
        "policy": KeyedEngine(tuple("123456789")),
        "opponent": KeyedEngine(tuple("123456789")),
    }
    with runtime_of(engines) as runtime:
        runtime.agents["opponent"] = dataclasses.replace(
            runtime.agents["opponent"], limits=Limits(turns=1)
        )
        (group,) = runtime.collect(SelfPlay(6, opponents=OneOpponent()), [Task(BOARD, 1)], (0, 0))
        left = runtime.run(
            runtime.match(
                Task(BOARD, 1, reset_options={"seats": [0, 1]}),
                {0: "policy", 1: "opponent"},
                (0, 0, 0),
            )
        )
    assert len(group.trajectories) == 6 and all(
        t.stop_reason == "terminated" for t in group.trajectories
    )
    assert left is not None and (
        left.trajectories[1].stop_reason,
        len(left.trajectories[1].turns),
    ) == (
        "turns",
        1,
    )
    assert len(left.trajectories[0].turns) >= 3 and left.trajectories[0].turns[-1].terminated


def test_the_game_continues_after_an_opponent_has_no_room_to_act():
    engines = {
        "policy": KeyedEngine(tuple("123456789")),
        "opponent": ScriptedEngine(RENDERER, "1", max_calls=1),
    }
    (group,) = collected(SelfPlay(1, opponents=OneOpponent()), [Task(BOARD, 1)], engines)
    assert (
        group.trajectories[0].stop_reason == "terminated"
        and group.trajectories[0].turns[-1].terminated
    )


@pytest.mark.parametrize("num_slots", [1, 2, 3])
def test_concurrent_matches_share_few_slots_without_deadlock(num_slots: int):
    groups = collected(
        SelfPlay(8),
        [Task(KUHN, seed) for seed in range(4)],
        {"policy": KeyedEngine(("p", "b"), num_slots)},
    )
    assert [len(group.trajectories) for group in groups] == [16] * 4


@pytest.mark.parametrize(
    ("how", "retries", "num_played"), [("raise", 0, 0), ("raise", 1, 1), ("NaN", 0, 0)]
)
def test_a_failed_match_is_retried_or_dropped(
    how: str, retries: int, num_played: int, tmp_path: Any
):
    task = Task(
        faulty_envs.ENVIRONMENT_ID, 0, {"how": how, "path": str(tmp_path / "resets"), "times": 1}
    )
    (group,) = collected(SelfPlay(1, num_players=1), [task], retries=retries)
    assert (len(group.trajectories), group.num_dropped) == (num_played, 1 - num_played)


@pytest.mark.parametrize("seats", [(0,), (0, 1, 2)])
def test_a_wrong_number_of_players_is_an_error(
    seats: tuple[int, ...],
):
    task = Task(KUHN, 0, reset_options={"seats": [0, 1]})
    if len(seats) == 1:  # an observation is for a player without an agent
        (group,) = collected(SelfPlay(1, num_players=1), [task])
        assert group.num_dropped == 1
    else:
        with pytest.raises(UserError, match="seats of Kuhn are 0 to 1"):
            collected(SelfPlay(1, num_players=3), [task])


@pytest.mark.parametrize(
    "fields",
    [
        {"group_size": 0},
        {"num_players": 0},
        {"opponent_fraction": 1.5},
        {"num_players": 1, "opponents": ScriptedOpponent()},
    ],
)
def test_invalid_settings_are_errors(fields: dict[str, Any]):
    with pytest.raises(UserError, match="self-play needs"):
        SelfPlay(**fields)


def test_the_game_score_is_the_sign_of_the_return():
    (group,) = collected(SelfPlay(8), [Task(KUHN, 0)])
    assert {(game_score(t), float(np.sign(t.total_reward))) for t in group.trajectories} == {
        (1.0, 1.0),
        (0.0, -1.0),
    }


# MARS on a real game (arXiv 2510.15414): the checks of the method that need one.


def test_advantages_average_zero_for_each_player():
    """The first to move passes, the other bets, the first folds: player 0 loses 1 in every game,
    whatever the cards.
    """

    class Folding(KeyedEngine):
        def submit(
            self,
            ids: np.ndarray,
            sampling: Sampling,
            key: RandomKey,
            parent: Call | None = None,
            images: Any = (),
        ) -> "Future[Call]":
            self._texts = ("p",) if key[4] == 0 else ("b",)
            return super().submit(ids, sampling, key, parent)

    groups = collected(
        SelfPlay(4), [Task(KUHN, seed) for seed in range(6)], {"policy": Folding(("p",))}
    )
    assert {(t.agent_index, t.total_reward) for group in groups for t in group.trajectories} == {
        (0, -1.0),
        (1, 1.0),
    }
    credit_inputs = make_credit_inputs(groups)
    first = MARS(gamma=0.0, center_distinct=False, whiten=False)(credit_inputs)
    seat = np.array([t.agent_index for t in credit_inputs.trajectories])[
        credit_inputs.token_trajectory
    ]
    turns = credit_inputs.token_turn
    for player in (0, 1):
        of_turn = {int(r): float(a) for r, a, s in zip(turns, first, seat) if s == player}
        assert np.mean(list(of_turn.values())) == pytest.approx(0, abs=1e-12)
    second = seat == 1  # one turn per game, with the same reward each time
    assert not MARS(center_distinct=False, whiten=False)(credit_inputs)[second].any()


def test_swapping_the_winners_of_a_zero_sum_game_flips_every_sign():
    groups = collected(SelfPlay(4), [Task(KUHN, seed) for seed in range(6)])
    swapped = [
        dataclasses.replace(
            group,
            trajectories=tuple(
                t.replace(
                    turns=tuple(dataclasses.replace(turn, reward=-turn.reward) for turn in t.turns)
                )
                for t in group.trajectories
            ),
        )
        for group in groups
    ]
    advantage = MARS()(make_credit_inputs(groups))
    assert advantage.any() and MARS()(make_credit_inputs(swapped)) == pytest.approx(
        -advantage, abs=1e-6
    )


def test_players_of_two_games_are_grouped_apart():
    groups = collected(
        SelfPlay(2), [Task(KUHN, 0), Task(BOARD, 0)], {"policy": KeyedEngine(("p", "b"))}
    )
    assert player_of_trajectory(make_credit_inputs(groups)).tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert len(collate(groups).sequences) == 8
