"""`KeyDoor`: texts and rewards by hand, distances by search over forks, repeated layouts."""

import numpy as np
import pytest
from support.env_episodes import (
    group_of,
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.algorithms.experience.rewards import DistanceReward
from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.keydoor import KeyDoor
from agentrl_jax.envs.diagnostic.rooms import GridState, RoomLayout, sample_layout
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

# S k # x      S start, k key, d door, x exit; the wall at row 1, column 0 is one of the layout's
# own
# # . d .
ROOMS = RoomLayout((2, 4), start=(0, 0), key=(0, 1), door=(1, 2), exit=(0, 3), walls=((1, 0),))
WAY = ["right", "take", "down", "open", "right", "right", "up"]


def make_keydoor(layout: RoomLayout = ROOMS, **options) -> KeyDoor:
    env = make_env(KeyDoor, height=layout.size[0], width=layout.size[1], **options)
    env.layout, env.state = layout, GridState(layout.start)
    return env


def test_the_shortest_solution_turn_by_turn():
    env = make_keydoor()
    assert env._opening_text() == "key 01 door 12 exit 03 wall 10\n00 #k##" and env.distance == 7
    t = play_actions(env, *WAY)
    assert observation_texts(t) == [
        "01 ##..\n",
        "01 ##.. key\n",
        "11 .d## key\n",
        "11 .o## key\n",
        "12 #.#. key\n",
        "13 x##o key\n",
        "03 ##.# key\n",
    ]
    assert rewards(t) == [0.0] * 6 + [1.0] and info_values(t, "distance") == [6, 5, 4, 3, 2, 1, 0]
    assert (
        info_values(t, "stopped") == [False] * 6 + [True]
        and t.success is True
        and t.turns[-1].terminated
    )


def test_taking_and_opening_are_tools_where_they_are_legal():
    t = play_actions(make_keydoor(), "take", *WAY[:2], "take", "open", *WAY[2:4], "hm")
    assert info_values(t, "called_tools") == [[], [], ["take"], [], [], [], ["open"], []]
    assert info_values(t, "void") == [False] * 7 + [True]


def test_the_anchor_is_the_state_before_the_action_with_door_and_layout():
    t = play_actions(make_keydoor(), *WAY[:5], "right")
    places = "key 01 door 12 exit 03 wall 10"
    assert info_values(t, "anchor") == [
        f"{places} at 00 #k##",
        f"{places} at 01 ##..",
        f"{places} at 01 ##.. key",
        f"{places} at 11 .d## key",
        f"{places} at 11 .o## key open",
        f"{places} at 12 #.#. key open",
    ]


@pytest.mark.parametrize(
    "text", ["up", "left", "down", "take", "open", "stop", "", "Right", "right right", "go right"]
)
def test_an_illegal_action_is_refused_and_costs_a_turn(text):
    env = make_keydoor()
    t = play_actions(env, text, "right")
    assert (
        observation_texts(t) == ["no 00 #k##\n", "01 ##..\n"]
        and info_values(t, "legal") == [False, True]
        and rewards(t) == [0.0, 0.0]
    )
    assert info_values(t, "distance") == [7, 6] and env.turns == 2


def test_a_door_stays_closed_without_the_key_and_a_key_is_taken_once():
    t = play_actions(make_keydoor(), "right", "down", "open", "right", "up", "take", "take")
    assert info_values(t, "legal") == [True, True, False, False, True, True, False]
    assert observation_texts(t)[2:4] == ["no 11 kd##\n"] * 2


def test_the_horizon_truncates():
    t = play_actions(make_keydoor(horizon=3), "right", "left", "right")
    assert t.turns[-1].truncated and not t.turns[-1].terminated and t.success is False
    assert play_actions(make_keydoor(horizon=7), *WAY).success is True


def test_shaping_rewards_the_fraction_of_the_path():
    env = make_keydoor(shaped=True)
    t = play_actions(env, "right", "left", *WAY)
    seventh = [1, -1, 1, 1, 1, 1, 1, 1, 1]
    assert [turn.rewards["shaped"] for turn in t.turns] == pytest.approx([n / 7 for n in seventh])
    assert (
        t.total_reward == pytest.approx(2.0)
        and t.turns[0].info["full_score"] == 2.0
        and env.reward_bounds == (-1.0, 2.0)
    )


def test_with_stop_the_agent_ends_the_episode():
    t = play_actions(make_keydoor(stop=True), *WAY, "stop")
    assert (
        rewards(t) == [0.0] * 7 + [1.0]
        and t.success is True
        and info_values(t, "stopped") == [False] * 7 + [True]
    )
    early = play_actions(make_keydoor(stop=True), "right", "stop")
    assert rewards(early) == [0.0, 0.0] and early.success is False and early.turns[-1].terminated
    assert info_values(early, "distance") == [6, 6] and info_values(early, "stopped") == [
        False,
        True,
    ]


def test_activevln_rewards_stopping_near_the_exit():
    """scale (1 - d / radius): 10 at distance 1 of 3, 15 at the exit, 0 at the horizon."""
    near, there = (
        play_actions(make_keydoor(stop=True), *WAY[:6], "stop"),
        play_actions(make_keydoor(stop=True), *WAY, "stop"),
    )
    cut = play_actions(make_keydoor(stop=True, horizon=7), *WAY)
    paid = DistanceReward()(group_of(near, there, cut), 0)
    assert [t.total_reward for t in paid.trajectories] == pytest.approx([10.0, 15.0, 0.0])


def steps_to_the_exit(env: KeyDoor) -> int:
    """By breadth-first search over forks of the environment."""
    frontier, known, steps = [env], {env.state}, 0
    while frontier:
        steps, further = steps + 1, []
        for env_here in frontier:
            for word in env.action_names:
                twin = env_here.fork()
                assert isinstance(twin, KeyDoor)
                if twin.step(word)[2]:
                    return steps
                if twin.state not in known:
                    known.add(twin.state)
                    further.append(twin)
        frontier = further
    raise AssertionError("the exit cannot be reached")


@pytest.mark.parametrize("seed", range(6))
def test_distances_match_a_search_over_forks(seed):
    env = make("agentrl/KeyDoor-v0", {"walls": 3, "horizon": 100})
    assert isinstance(env, KeyDoor)
    env.reset(seed=seed)
    assert env.distance == steps_to_the_exit(env)
    play_actions(env, "right", "down", "left", "up", "take", "down")
    assert env.distance == steps_to_the_exit(env)


@pytest.mark.parametrize(
    ("width", "height", "walls"),
    [(3, 2, 0), (3, 2, 9), (5, 3, 1), (9, 9, 0), (9, 9, 40), (3, 9, 5)],
)
def test_every_layout_can_be_solved(width, height, walls):
    env = make(
        "agentrl/KeyDoor-v0", {"width": width, "height": height, "walls": walls, "horizon": 200}
    )
    assert isinstance(env, KeyDoor)
    for seed in range(10):
        t = play_scripted_episode(env, "expert", seed)
        layout = env.layout
        assert t.success is True and len(t.turns) == info_values(t, "distance")[0] + 1
        assert all(info_values(t, "legal")) and len(layout.walls) <= walls
        sides = [cell[1] < layout.door[1] for cell in (layout.start, layout.key, layout.exit)]
        assert sides[0] == sides[1] != sides[2]


def test_the_seed_selects_one_of_the_layouts():
    env = make("agentrl/KeyDoor-v0", {"layouts": 4})
    openings = [texts(env.reset(seed=seed)[0])[0] for seed in range(12)]
    assert openings[:4] * 3 == openings and len(set(openings)) == 4
    more = make("agentrl/KeyDoor-v0", {"layouts": 8})
    assert [texts(more.reset(seed=seed)[0])[0] for seed in range(4)] == openings[:4]
    assert {texts(env.reset()[0])[0] for _ in range(60)} == set(openings)
    assert (
        len({texts(make("agentrl/KeyDoor-v0").reset(seed=seed)[0])[0] for seed in range(50)}) > 45
    )


@pytest.mark.slow
def test_a_large_grid_is_rarely_solved_by_weak_policies():
    env = make("agentrl/KeyDoor-v0", {"width": 7, "height": 5, "walls": 4})
    won = {
        player: sum(bool(play_scripted_episode(env, player, seed).success) for seed in range(100))
        for player in ("random", "weak")
    }
    assert won["random"] < 8 and 5 < won["weak"] < 35


@pytest.mark.parametrize(
    "option", [{"width": 2}, {"height": 10}, {"walls": -1}, {"horizon": 0}, {"layouts": 0}]
)
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        make("agentrl/KeyDoor-v0", option)


def test_walls_never_block_the_exit():
    layouts = [sample_layout(np.random.default_rng(seed), (3, 5), 81) for seed in range(20)]
    assert min(len(layout.walls) for layout in layouts) >= 1
