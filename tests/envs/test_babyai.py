"""BabyAI's levels against the package's own loop, and its bot as the expert."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.babyai import BabyAI
from agentrl_jax.envs.adapters.babyai_text import ACTIONS
from agentrl_jax.errors import UserError

LEVELS = ("GoToLocal", "PickupLoc", "OpenDoor", "PutNextLocalS5N3", "UnlockPickup")


@pytest.fixture(scope="module", autouse=True)
def minigrid() -> Any:
    return pytest.importorskip("minigrid", reason="minigrid is not installed: make test-extras")


def level(name: str, **options: Any) -> BabyAI:
    env = make("agentrl/BabyAI-v0", {"level": name, **options})
    assert isinstance(env, BabyAI)
    return env


def seen_objects(reference: Any) -> list[str]:
    """The sentences about objects, from the positions in the grid, by AgentGym's formulas."""
    env = reference.unwrapped
    _, is_visible = env.gen_obs_grid()
    listed = []
    for x in range(env.grid.width):
        for y in range(env.grid.height):
            delta = np.array([x, y]) - env.agent_pos
            ahead, right = int(env.dir_vec @ delta), int(env.right_vec @ delta)
            column, row = right + env.agent_view_size // 2, env.agent_view_size - 1 - ahead
            inside = 0 <= column < env.agent_view_size and 0 <= row < env.agent_view_size
            thing = env.grid.get(x, y)
            if thing is None or not delta.any() or not inside or not is_visible[column, row]:
                continue
            if thing.type not in ("door", "key", "ball", "box"):
                continue
            state = ""
            if thing.type == "door":
                state = "open " if thing.is_open else "locked " if thing.is_locked else "closed "
            key = abs(ahead) + abs(right), row, column
            listed.append((key, f"{thing.color} {state}{thing.type}", ahead, right))
    texts, numbers = [], dict[str, int]()
    for _, name, ahead, right in sorted(listed):
        numbers[name] = numbers.get(name, 0) + 1
        where = f"right in front of you {ahead} steps away"
        if right:
            side = f"{abs(right)} steps to your {'right' if right > 0 else 'left'}"
            where = f"{ahead} steps in front of you and {side}"
        texts.append(f"There is a {name} {numbers[name]} {where}.")
    return texts


def is_described(reference: Any, text: str) -> bool:
    carried = reference.unwrapped.carrying
    load = f"carrying a {carried.color} {carried.type}" if carried else "not carrying anything"
    sentences = ["There is a" + part for part in text.split(" There is a")[1:]]
    sentences = [sentence.split(" The room has")[0] for sentence in sentences]
    return sentences == seen_objects(reference) and text.endswith(f" You are {load}.\n")


@pytest.mark.parametrize("name", LEVELS)
def test_messages_and_rewards_are_those_of_the_packages_loop(name: str):
    env = level(name, horizon=70)
    reference = gymnasium.make(f"BabyAI-{name}-v0")
    successes = 0
    for seed in range(20):
        rng, policy = np.random.default_rng(seed), ("random", "mixture", "expert")[seed % 3]
        (opening,), _ = env.reset(seed=seed)
        observation, _ = reference.reset(seed=seed)
        goal, _, text = opening.text.partition("\n")
        assert goal == f"Your goal: {observation['mission']}" and is_described(reference, text)
        turns, is_over = 0, False
        while not is_over:
            action = env.scripted_policies[policy](env, rng)
            (answer,), reward, *ends, info = env.step(action)
            _, expected, is_done, is_cut, _ = reference.step(ACTIONS.index(str(action)))
            turns += 1
            assert reward == expected and info["legal"]
            assert ends == [is_done, not is_done and (is_cut or turns == 70)]
            assert is_described(reference, answer.text)
            is_over = any(ends)
        assert info["success"] is (reward > 0)
        successes += info["success"]
    assert successes >= 12


def test_the_wall_or_box_ahead_is_named_with_its_distance():
    env = level("GoToLocal")
    facing = set()
    for seed in range(30):
        env.reset(seed=seed)
        for _ in range(7):
            if not env._is_over:
                (answer,), *_ = env.step("move forward")
        package = env.env.unwrapped
        ahead = package.grid.get(*package.front_pos)
        kind = ahead.type if ahead else None
        if not env._is_over:
            is_named = f"You are facing a {kind} 1 steps away." in answer.text
            assert is_named is (kind in ("wall", "box"))
            facing.add(kind)
    assert {"wall", "box", "ball"} <= facing


def test_the_expert_that_takes_over_accomplishes_the_mission():
    env = level("UnlockPickup", horizon=300)
    successes = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        for _ in range(20):
            env.step(env.scripted_policies["random"](env, rng))
        while not env._is_over:
            *_, info = env.step(env.scripted_policies["expert"](env, rng))
        successes += info["success"]
    assert successes >= 9


def test_another_text_makes_no_step_and_counts_as_a_turn():
    env = level("GoToLocal", horizon=3)
    env.reset(seed=0)
    before = env.env.unwrapped.step_count
    for text in ("fly", "turn  LEFT", "pick up the ball"):
        (answer,), reward, terminated, truncated, info = env.step(text)
        assert answer.text.startswith("The action is not") is not info["legal"]
        assert reward == 0 and not terminated
    assert env.env.unwrapped.step_count == before + 1
    assert truncated and info["success"] is False


def test_splits_are_ranges_of_tasks():
    def opening(seed: int, **options: Any) -> str:
        return level("GoToLocal", **options).reset(seed=seed)[0][0].text

    assert opening(7, tasks=5) == opening(2) and opening(1, tasks=5, first=100) == opening(101)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"level": "Nowhere"}, "no level 'Nowhere', only GoToRedBall"), ({"horizon": 0}, "horizon")],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make("agentrl/BabyAI-v0", options)
