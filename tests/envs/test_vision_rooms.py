"""`RoomLayouts`: physics by hand and by a raster, the grades of the format, rewards, spans."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.vision.room_layouts import (
    RoomLayouts,
    coordinate_spans,
    layout_text,
    read_layout,
)
from agentrl_jax.envs.vision.room_physics import (
    colliding_pairs,
    collision_ratio,
    constraint_ratio,
    grants,
    looks,
    physics_factors,
)
from agentrl_jax.envs.vision.rooms import ROOM_TASKS, Furniture, Room, Wish, make_room
from agentrl_jax.envs.vision.splits import TaskKey


def room_env(seed: int = 0, **options) -> RoomLayouts:
    env = make("agentrl/RoomLayouts-v0", options)
    assert isinstance(env, RoomLayouts)
    env.reset(seed=seed)
    return env


def room_of(*sizes: tuple[float, float, float], wishes: tuple[Wish, ...] = ()) -> Room:
    things = tuple(Furniture(f"t{i}", size) for i, size in enumerate(sizes))
    return Room(4.0, 4.0, things, wishes, ())


@pytest.mark.parametrize("kind", ROOM_TASKS.phrasings)
def test_the_solution_of_every_room_is_perfect(kind: str):
    for seed in range(40):
        room = make_room(TaskKey(kind, "", seed))
        assert collision_ratio(room, room.solution) == 0
        assert constraint_ratio(room, room.solution) == 0
        assert len({item.id for item in room.furniture}) == len(room.furniture)
        assert bool(room.wishes) == (kind != "free")


CUBE = (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("positions", "pairs"),
    [
        ([(1, 1, 0), (3, 1, 0)], []),
        ([(1, 1, 0), (1.9, 1, 0)], [(0, 1)]),
        ([(1, 1, 0), (2, 1, 0)], []),
        ([(1, 1, 0), (1, 1, 1)], []),
        ([(1, 1, 0), (1, 1, 0.9)], [(0, 1)]),
        ([(1, 1, 0), (1, 1, 0), (1, 1, 0)], [(0, 1), (0, 2), (1, 2)]),
    ],
)
def test_collisions_of_cubes(positions, pairs):
    room = room_of(*[CUBE] * len(positions))
    assert colliding_pairs(room, positions) == pairs
    count = len(positions) * (len(positions) - 1) / 2
    assert collision_ratio(room, positions) == pytest.approx(len(pairs) / count)


def test_a_pair_is_spared_where_it_fits_turned_and_thin_things_collide_with_nothing():
    long = (2.0, 0.5, 1.0)
    assert colliding_pairs(room_of(long, long), [(1, 1, 0), (2, 1, 0)]) == []
    assert colliding_pairs(room_of(long, long), [(1, 1, 0), (1.3, 1, 0)]) == [(0, 1)]
    assert colliding_pairs(room_of(CUBE, (2, 2, 0.02)), [(1, 1, 0), (1, 1, 0)]) == []


cells = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
sides = st.integers(1, 3)


@settings(max_examples=80, deadline=None)
@given(cells, cells, sides, sides, sides, sides)
def test_collisions_agree_with_a_raster(a, b, base_a, height_a, base_b, height_b):
    """Boxes with square bases, so that a turn changes nothing, in cells of a grid."""
    grids = []
    for (x, y, z), base, height in ((a, base_a, height_a), (b, base_b, height_b)):
        grid = np.zeros((10, 10, 10), bool)
        grid[x : x + base, y : y + base, z : z + height] = True
        grids.append(grid)
    room = room_of((base_a, base_a, height_a), (base_b, base_b, height_b))
    layout = [
        (a[0] + base_a / 2, a[1] + base_a / 2, float(a[2])),
        (b[0] + base_b / 2, b[1] + base_b / 2, float(b[2])),
    ]
    assert bool(colliding_pairs(room, layout)) == bool((grids[0] & grids[1]).any())


TABLE, LAMP, RUG = (1.2, 0.8, 0.75), (0.3, 0.3, 0.4), (2.0, 1.4, 0.02)


@pytest.mark.parametrize(
    ("relation", "size", "position", "granted"),
    [
        ("left", CUBE, (1, 2, 0), True),
        ("left", CUBE, (3, 2, 0), False),
        ("right", CUBE, (3, 2, 0), True),
        ("front", CUBE, (2, 1, 0), True),
        ("behind", CUBE, (2, 3, 0), True),
        ("behind", CUBE, (2, 1, 0), False),
        ("on", LAMP, (2, 2, 0.75), True),
        ("on", LAMP, (2, 2, 0.9), False),
        ("on", LAMP, (3, 2, 0.75), False),
        ("above", LAMP, (2, 2, 2.0), True),
        ("above", LAMP, (2, 2, 0.0), False),
        ("under", RUG, (2, 2, 0.0), True),
        ("under", RUG, (2, 2, 1.0), False),
        ("corner", CUBE, (0.5, 0.5, 0), True),
        ("corner", CUBE, (3.4, 0.7, 0), True),
        ("corner", CUBE, (2, 0.5, 0), False),
    ],
)
def test_wishes_of_a_table(relation, size, position, granted):
    """The other thing is a table in the middle of a room of 4 m by 4 m."""
    wish = Wish(relation, "t0", "" if relation == "corner" else "t1")
    assert grants(room_of(size, TABLE), [position, (2.0, 2.0, 0.0)], wish) is granted


def test_bounds_and_things_in_the_air_are_violations():
    room = room_of(CUBE, CUBE)
    assert constraint_ratio(room, [(0.5, 0.5, 0), (3.5, 3.5, 0)]) == 0
    assert constraint_ratio(room, [(0.4, 0.5, 0), (3.5, 3.5, 0)]) == 0.5
    assert constraint_ratio(room, [(0.5, 0.5, 0.3), (3.5, 3.6, 0)]) == 1
    assert constraint_ratio(room, [(0.5, 0.5, -0.1), (3.5, 3.5, 0)]) == 0.5


def test_factors_lower_what_is_wrong():
    """Of three cubes the first two collide; the third is half outside: 1 - .5 / 2, 1 - 1 / 2."""
    room = room_of(CUBE, CUBE, CUBE)
    factors = physics_factors(room, [(1, 1, 0), (1.5, 1, 0), (4, 3, 0)])
    assert factors == [0.75, 0.75, 0.5]


def test_looks_of_a_bare_and_a_blocked_room():
    corner = looks(room_of(CUBE), [(0.5, 3.5, 0)])
    assert corner["alignment"] == corner["wall"] == 1 and corner["walkway"] > 0.95
    middle = looks(room_of(CUBE), [(2.21, 2.13, 0)])
    assert middle["alignment"] == middle["wall"] == 0 and middle["walkway"] > 0.95
    blocked = looks(room_of((4.0, 1.0, 1.0)), [(2.0, 2.0, 0)])
    assert 0.4 < blocked["walkway"] < 0.6


def test_a_heap_in_a_corner_looks_bad():
    heap = [(0.5, 0.5, 0.0)] * 3
    assert set(looks(room_of(CUBE, CUBE, CUBE), heap).values()) == {0}
    in_the_air = [(0.5, 0.5, 1.0), (3.5, 0.5, 0.0)]
    assert looks(room_of(CUBE, CUBE), in_the_air)["wall"] == 0.5


_ONE = '<think>a</think><answer>[{"new_object_id": "t0", "x": %s, "y": 2, "z": 0}]</answer>'


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("", 0.0),
        ("<answer>[]</answer>", 0.0),
        ("<think>a</think><answer>[]</answer><answer>[]</answer>", 0.0),
        ("<think>a</think><answer>no</answer>", 0.1),
        ('<think>a</think><answer>{"t0": 1}</answer>', 0.1),
        ('<think>a</think><answer>[{"new_object_id": "t0", "x": 1, "y": 2}]</answer>', 0.1),
        (_ONE % 'NaN', 0.1),
        (_ONE % '1e9', 0.1),
        (_ONE % '"1"', 0.1),
        (_ONE % 'true', 0.1),
        ("<think>a</think><answer>" + "[" * 5000 + "</answer>", 0.1),
        ('<think>a</think><answer>[{"new_object_id": "t9", "x": 1, "y": 2, "z": 0}]</answer>', 0.5),
        ("<think>a</think><answer>[]</answer>", 0.5),
        (_ONE % "1", 1.0),
    ],
)  # fmt: skip
def test_the_grades_of_the_format(text: str, grade: float):
    read, layout, fault = read_layout(text, ["t0"])
    assert read == grade and (layout is None) == (grade < 1) and bool(fault) == (grade < 1)


def test_each_turn_is_rewarded_and_drawn():
    env = room_env(turns=2, kinds=["free"])
    perfect = layout_text("a", env.room, env.room.solution)
    (reply,), reward, terminated, _, info = env.step(perfect)
    assert len(reply.images) == 1 and not terminated
    mean = np.mean([info["walkway"], info["alignment"], info["wall"]])
    assert reward == pytest.approx(0.5 + mean) and info["collision"] == info["constraint"] == 0
    same = layout_text("a", env.room, [env.room.solution[0]] * len(env.room.solution))
    _, reward, terminated, truncated, info = env.step(same)
    assert info["collision"] > 0 and info["rewards"]["collision"] == -0.2 * info["collision"]
    assert (terminated, truncated, info["success"]) == (True, False, False)


def test_a_bad_format_has_half_of_its_grade():
    env = room_env(turns=2)
    (reply,), reward, *_ = env.step("<think>a</think><answer>no</answer>")
    assert reward == 0.05 and "no JSON list" in reply.text
    assert env.step("nothing")[1] == 0


def test_the_refining_policy_mends_its_first_layout():
    for seed in range(20):
        first, *_, last = play_scripted_episode(room_env(), "refining", seed).turns
        assert first.info["collision"] > 0 and last.info["collision"] == 0
        assert last.info["success"] and last.reward > first.reward


def test_spans_are_the_coordinates_in_the_text():
    env = room_env()
    text = layout_text("I put {it} here.", env.room, env.room.solution)
    spans = coordinate_spans(text)
    assert [name for name, _, _ in spans] == [item.id for item in env.room.furniture]
    for (_, start, end), (x, y, z) in zip(spans, env.room.solution):
        assert text[start:end] == f'{round(x, 2)}, "y": {round(y, 2)}, "z": {round(z, 2)}'
    *_, info = env.step(text)
    assert [[s, e] for s, e, _ in info["span_factors"]] == [[s, e] for _, s, e in spans]
    assert json.loads(json.dumps(info)) == info
