"""Self-play: whose trajectories are in a group, what each seat is told and earns, and that no opponent stalls a game."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import naughty
import numpy as np
import pytest
from hand_made import ScriptedEngine, evidence_of, minute_policy

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.keying import player_of_trajectory
from agentrl_jax.algorithms.strategies.self_play import ScriptedOpponent, SelfPlay, outcome
from agentrl_jax.algorithms.turn_credit import MARS
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.rows import collate
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent, Limits
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Call, Group, Key, Sampling, Trajectory
from agentrl_jax.workers import InProcess, Task

TOKENIZER = byte_tokenizer()
RENDERER = TextRenderer(TOKENIZER)
KUHN, BOARD = "agentrl/Kuhn-v0", "agentrl/TicTacToe-v0"


class Chance(ScriptedEngine):
    """Writes a text that follows from the call's key."""

    def __init__(self, texts: tuple[str, ...], places: int = 4) -> None:
        super().__init__(RENDERER, "")
        self._texts, self.places = texts, places
        self.keys: list[Key] = []

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
        self.keys.append(key)
        text = self._texts[int(np.random.default_rng(list(key)).integers(len(self._texts)))]
        self._action = RENDERER.action_ids(assistant(text))[: sampling.budget]
        return super().submit(ids, sampling, key, parent)


def agent(name: str, engine: str, **fields: Any) -> Agent:
    return Agent(name, RENDERER, FullHistory(), fields.pop("sampling", Sampling(budget=4)), engine, **fields)


def runtime_of(engines: dict[str, Any], retries: int = 0, **limits: int) -> Runtime:
    agents = {name: agent(name, name, trainable=name == "policy", limits=Limits(**limits)) for name in engines}
    return Runtime(engines, agents, InProcess(), retries=retries)


def collected(strategy: Any, tasks: list[Task], engines: dict[str, Any] | None = None, **fields: Any) -> list[Group]:
    with runtime_of(engines or {"policy": Chance(("p", "b"))}, **fields) as runtime:
        return runtime.collect(strategy, tasks, (0, 0))


@dataclasses.dataclass
class Beside:
    """Another agent in all other seats."""

    name: str = "opponent"

    def seated(self, own: int, seats: int) -> tuple[dict[str, Any], dict[int, str]]:
        return {"seats": list(range(seats))}, {seat: self.name for seat in range(seats) if seat != own}


def said(trajectory: Trajectory) -> list[str]:
    return [turn.action.text for turn in trajectory.turns]


def test_the_policy_plays_all_seats_and_every_seat_has_its_own_random_numbers():
    engine = Chance(("p", "b"))
    groups = collected(SelfPlay(6), [Task(KUHN, seed) for seed in range(5)], {"policy": engine})
    for group in groups:
        assert [(t.sample, t.seat) for t in group.trajectories] == [(sample, seat) for sample in range(6) for seat in (0, 1)]
        for first, second in zip(group.trajectories[::2], group.trajectories[1::2]):
            assert first.total_reward == -second.total_reward != 0 and first.seed == second.seed
            assert len({turn.info["seat"] for turn in first.turns}) == 1
            assert all(t.stop_reason == "terminated" and t.turns[-1].terminated for t in (first, second))
    assert len(set(engine.keys)) == len(engine.keys) and {key[4] for key in engine.keys} == {0, 1}
    assert len({tuple(said(t)) for group in groups for t in group.trajectories}) > 2
    assert not engine.held  # what was cached was given back


def test_a_game_is_what_its_seats_saw_whoever_is_asked():
    """Each seat's record, played over again by hand, gives the same replies."""
    for group in collected(SelfPlay(3), [Task(BOARD, seed) for seed in range(3)], {"policy": Chance(tuple("123456789"))}):
        for seats in zip(group.trajectories[::2], group.trajectories[1::2]):
            env, at = make(BOARD), [0, 0]
            messages, info = env.reset(seed=seats[0].seed, options={"seats": [0, 1]})
            assert messages == seats[0].opening
            while not env._done:
                seat = info["seat"]
                text = said(seats[seat])[at[seat]] if at[seat] < len(seats[seat].turns) else ""
                at[seat] += 1
                messages, reward, over, _, info = env.step(text)
                heard = seats[info["seat"]]
                if at[info["seat"]]:
                    turn = heard.turns[at[info["seat"]] - 1]
                    assert (turn.observation, turn.reward, turn.terminated) == (messages, reward, over)
                else:
                    assert heard.opening == messages


def test_opponents_sit_in_the_other_seats_and_only_what_is_trained_is_in_the_group():
    engines = {"policy": Chance(("p", "b")), "opponent": Chance(("p",))}
    (group,) = collected(SelfPlay(6, opponents=Beside(), share=0.5), [Task(KUHN, 3)], engines)
    assert [(t.sample, t.seat, t.agent) for t in group.trajectories] == [
        (0, 0, "policy"), (1, 1, "policy"), (2, 0, "policy"), *((sample, seat, "policy") for sample in (3, 4, 5) for seat in (0, 1)),
    ]  # fmt: skip
    assert {key[3] for key in engines["opponent"].keys} == {0, 1, 2}
    assert not engines["opponent"].held and not engines["policy"].held


def test_a_scripted_opponent_plays_within_the_game():
    engines = {"policy": Chance(("1", "5"))}
    (group,) = collected(SelfPlay(4, opponents=ScriptedOpponent("expert")), [Task(BOARD, 3)], engines)
    assert [(t.sample, t.seat) for t in group.trajectories] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    alone = dataclasses.replace(Task(BOARD, 3), reset_options={"seats": [0], "opponent": "expert"})
    (same,) = collected(Independent(1), [alone], engines)[0].trajectories
    assert same.turns[0].observation == group.trajectories[0].turns[0].observation and same.seat == 0


def facts(group: Group) -> list[Any]:
    """All of a group but the identity of its arrays."""
    return [
        (t.opening, t.task, t.group, t.sample, t.seat, t.seed, t.agent, t.success, t.stop_reason, [
            (turn.action, turn.observation, turn.reward, turn.rewards, turn.terminated, turn.truncated, turn.info, [
                (c.prompt.tolist(), c.action.tolist(), c.sampler_logp.tobytes(), c.version.tolist(), c.key, c.sampling) for c in turn.calls
            ]) for turn in t.turns
        ]) for t in group.trajectories
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("world", "limits"), [("Arithmetic", {}), ("Chain", {"turns": 3}), ("Lookup", {"tokens": 7}), ("KeyDoor", {"context": 200})]
)
def test_a_world_of_one_seat_is_played_as_by_independent_bit_for_bit(world: str, limits: dict[str, int]):
    tasks = [Task(f"agentrl/{world}-v0", seed) for seed in range(2)]
    one, other = (Chance(tuple("abcd")) for _ in range(2))
    played = [facts(group) for group in collected(SelfPlay(2, seats=1), tasks, {"policy": one}, **limits)]
    assert played == [facts(group) for group in collected(Independent(2), tasks, {"policy": other}, **limits)]
    assert sorted(one.keys) == sorted(other.keys)


@pytest.mark.slow
def test_and_so_are_the_samples_of_a_real_engine():
    policy = minute_policy(len(TOKENIZER))
    params = policy.init(jax.random.key(0))

    def played(strategy: Any) -> list[Any]:
        engine = LocalEngine(policy, EngineConfig(rows=4, positions=256, chunk=16, burst=4, patience=0.0), params)
        return [facts(group) for group in collected(strategy, [Task("agentrl/Chain-v0", seed) for seed in range(2)], {"policy": engine})]

    assert played(SelfPlay(2, seats=1)) == played(Independent(2))


HOSTILE: dict[str, Callable[[], Any]] = {
    "garbage": lambda: Chance(("xyz", "{}")),
    "nothing": lambda: Chance(("",)),
    "no end": lambda: Chance(("b" * 50,)),  # cut by its budget each time
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("world", [KUHN, BOARD])
def test_a_hostile_opponent_stalls_nothing_and_costs_the_policy_nothing(kind: str, world: str):
    legal = {KUHN: ("p", "b"), BOARD: tuple("123456789")}[world]
    engines = {"policy": Chance(legal), "opponent": HOSTILE[kind]()}
    groups = collected(SelfPlay(4, opponents=Beside()), [Task(world, seed) for seed in range(4)], engines)
    for group in groups:
        assert len(group.trajectories) == 4 and group.dropped == 0
        for t in group.trajectories:
            assert t.stop_reason == "terminated" and t.turns
            assert all(turn.rewards.get("illegal", 0.0) == 0 or not turn.info["legal"] for turn in t.turns)


def test_an_opponent_whose_limits_stop_it_leaves_and_the_game_goes_on():
    engines = {"policy": Chance(tuple("123456789")), "opponent": Chance(tuple("123456789"))}
    with runtime_of(engines) as runtime:
        runtime.agents["opponent"] = dataclasses.replace(runtime.agents["opponent"], limits=Limits(turns=1))
        (group,) = runtime.collect(SelfPlay(6, opponents=Beside()), [Task(BOARD, 1)], (0, 0))
        left = runtime.run(runtime.match(Task(BOARD, 1, reset_options={"seats": [0, 1]}), {0: "policy", 1: "opponent"}, (0, 0, 0)))
    assert len(group.trajectories) == 6 and all(t.stop_reason == "terminated" for t in group.trajectories)
    assert left is not None and (left.seats[1].stop_reason, len(left.seats[1].turns)) == ("turns", 1)
    assert len(left.seats[0].turns) >= 3 and left.seats[0].turns[-1].terminated


def test_an_opponent_without_room_for_a_word_leaves_and_the_game_goes_on():
    engines = {"policy": Chance(tuple("123456789")), "opponent": ScriptedEngine(RENDERER, "1", last=1)}
    (group,) = collected(SelfPlay(1, opponents=Beside()), [Task(BOARD, 1)], engines)
    assert group.trajectories[0].stop_reason == "terminated" and group.trajectories[0].turns[-1].terminated


@pytest.mark.parametrize("places", [1, 2, 3])
def test_few_places_are_shared_and_nobody_waits_for_ever(places: int):
    groups = collected(SelfPlay(8), [Task(KUHN, seed) for seed in range(4)], {"policy": Chance(("p", "b"), places)})
    assert [len(group.trajectories) for group in groups] == [16] * 4


@pytest.mark.parametrize(("how", "retries", "played"), [("raise", 0, 0), ("raise", 1, 1), ("NaN", 0, 0)])
def test_a_world_that_fails_is_played_again_or_dropped_and_counted(how: str, retries: int, played: int, tmp_path: Any):
    task = Task(naughty.NAME, 0, {"how": how, "path": str(tmp_path / "resets"), "times": 1})
    (group,) = collected(SelfPlay(1, seats=1), [task], retries=retries)
    assert (len(group.trajectories), group.dropped) == (played, 1 - played)


@pytest.mark.parametrize("seats", [(0,), (0, 1, 2)])
def test_a_game_with_another_number_of_seats_is_an_error_or_a_failure_that_says_so(seats: tuple[int, ...]):
    task = Task(KUHN, 0, reset_options={"seats": [0, 1]})
    if len(seats) == 1:  # the world speaks to somebody who is not here
        (group,) = collected(SelfPlay(1, seats=1), [task])
        assert group.dropped == 1
    else:
        with pytest.raises(UserError, match="seats of Kuhn are 0 to 1"):
            collected(SelfPlay(1, seats=3), [task])


@pytest.mark.parametrize("fields", [{"group_size": 0}, {"seats": 0}, {"share": 1.5}, {"seats": 1, "opponents": ScriptedOpponent()}])
def test_settings_that_make_no_sense_are_errors(fields: dict[str, Any]):
    with pytest.raises(UserError, match="self-play needs"):
        SelfPlay(**fields)


def test_the_outcome_is_the_sign_of_what_was_earned():
    (group,) = collected(SelfPlay(8), [Task(KUHN, 0)])
    assert {(outcome(t), float(np.sign(t.total_reward))) for t in group.trajectories} == {(1.0, 1.0), (0.0, -1.0)}


# MARS on a real game (arXiv 2510.15414, the checks of the method that need one).


def test_what_the_first_seat_always_wins_gives_no_credit_and_every_players_turns_average_zero():
    """The first to move passes, the other bets, the first folds: seat 0 loses 1 in every game, whatever the cards."""

    class Folding(Chance):
        def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
            self._texts = ("p",) if key[4] == 0 else ("b",)
            return super().submit(ids, sampling, key, parent)

    groups = collected(SelfPlay(4), [Task(KUHN, seed) for seed in range(6)], {"policy": Folding(("p",))})
    assert {(t.seat, t.total_reward) for group in groups for t in group.trajectories} == {(0, -1.0), (1, 1.0)}
    evidence = evidence_of(groups)
    first = MARS(gamma=0.0, unique=False, whiten=False)(evidence)
    seat = np.array([t.seat for t in evidence.trajectories])[evidence.token_trajectory]
    turns = evidence.token_turn
    for player in (0, 1):
        of_turn = {int(r): float(a) for r, a, s in zip(turns, first, seat) if s == player}
        assert np.mean(list(of_turn.values())) == pytest.approx(0, abs=1e-12)
    second = seat == 1  # one turn a game, always worth the same
    assert not MARS(unique=False, whiten=False)(evidence)[second].any()


def test_swapping_the_winners_of_a_zero_sum_game_flips_every_sign():
    groups = collected(SelfPlay(4), [Task(KUHN, seed) for seed in range(6)])
    swapped = [
        dataclasses.replace(group, trajectories=tuple(
            t.replace(turns=tuple(dataclasses.replace(turn, reward=-turn.reward) for turn in t.turns)) for t in group.trajectories
        )) for group in groups
    ]  # fmt: skip
    advantage = MARS()(evidence_of(groups))
    assert advantage.any() and MARS()(evidence_of(swapped)) == pytest.approx(-advantage, abs=1e-6)


def test_seats_of_two_games_are_different_players():
    groups = collected(SelfPlay(2), [Task(KUHN, 0), Task(BOARD, 0)], {"policy": Chance(("p", "b"))})
    assert player_of_trajectory(evidence_of(groups)).tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert len(collate(groups).rows) == 8
