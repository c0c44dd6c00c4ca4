"""ALFWorld's engine on generated problems, against the package's own loop."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.alfworld import ALFWorld
from agentrl_jax.envs.adapters.alfworld_problems import (
    FAMILIES,
    SPLITS,
    game_data,
    generated_problem,
)
from agentrl_jax.errors import UserError

# The package leaves the files of games open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def alfworld() -> Any:
    return pytest.importorskip("alfworld", reason="alfworld is not installed: make test-alfworld")


def environment(**options: Any) -> ALFWorld:
    env = make("agentrl/ALFWorld-v0", {"objects": 2, **options})
    assert isinstance(env, ALFWorld)
    return env


def check_episode(env: ALFWorld, seed: int, folder: Path) -> bool:
    """Plays an episode beside the package's loop; returns whether it succeeded."""
    textworld = pytest.importorskip("textworld")
    package = pytest.importorskip("alfworld.agents.environment.alfred_tw_env")
    (opening,), info = env.reset(seed=seed)
    path = folder / f"{seed}.tw-pddl"
    path.write_text(json.dumps(game_data(env.problem)), encoding="utf-8")
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    reference = textworld.start(str(path), infos, wrappers=[package.AlfredDemangler()])
    state, rng, turns, is_over = reference.reset(), np.random.default_rng(seed), 0, False

    def expected_text() -> str:
        return f"{state.feedback.strip()}\nCommands: {', '.join(state['admissible_commands'])}\n"

    assert opening.text == expected_text()
    while not is_over:
        policy = "expert" if seed % 2 or rng.random() < 0.6 else "random"
        command = str(env.scripted_policies[policy](env, rng))
        command = "fly" if rng.random() < 0.05 else command
        (answer,), reward, terminated, truncated, info = env.step(command)
        state, score, is_done = reference.step(command)
        turns += 1
        assert answer.text == expected_text() and reward == score
        assert (terminated, truncated) == (is_done, not is_done and turns == env.horizon)
        is_over = terminated or truncated
    assert info["success"] is bool(state["won"])
    return info["success"]


def test_messages_and_rewards_are_those_of_the_packages_loop(tmp_path: Path):
    env = environment(horizon=12)
    assert sum(check_episode(env, seed, tmp_path) for seed in range(6)) >= 3


@pytest.mark.slow
def test_a_hundred_episodes_are_those_of_the_packages_loop(tmp_path: Path):
    env = environment(horizon=12)
    assert sum(check_episode(env, seed, tmp_path) for seed in range(100)) >= 50


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_wins_also_where_it_takes_over(family: str):
    env = environment(families=(family,), horizon=40)
    for seed in range(2):
        env.reset(seed=seed)
        assert env.problem.family == family
        rng = np.random.default_rng(seed)
        for _ in range(5 * seed):
            env.step(env.scripted_policies["random"](env, rng))
        while not env._is_over:
            command = env.scripted_policies["expert"](env, rng)
            assert command in env.commands
            *_, info = env.step(command)
        assert info["success"]


def test_problems_are_not_solved_at_the_start_and_splits_differ():
    plans: dict[str, set[int]] = {}
    for split, (numbers, first) in SPLITS.items():
        for index in range(200):
            rng = np.random.default_rng(first + index)
            problem = generated_problem(rng, tuple(FAMILIES), split, 3)
            plans.setdefault(split, set()).add(problem.floor_plan)
            assert problem.floor_plan % 100 in numbers
            goals = {name for name, kind in problem.receptacles.items() if kind == problem.place}
            inside = {r for kind, r in problem.objects.values() if kind == problem.target}
            assert inside and not inside & goals
    assert not plans["unseen"] & (plans["train"] | plans["seen"])
    assert plans["train"] & plans["seen"]
    problems = [
        [generated_problem(np.random.default_rng(first + i), tuple(FAMILIES), "seen", 3)]
        for first in (SPLITS["train"][1], SPLITS["seen"][1])
        for i in range(50)
    ]
    assert len({repr(problem) for problem in problems}) == 100


def test_the_packages_planner_finds_a_plan_and_a_heated_object_is_needed():
    env = environment(families=("pick_heat_then_place_in_recep",), objects=0)
    env.reset(seed=0)
    commands = []
    while not env._is_over:
        commands.append(env.scripted_policies["expert"](env, np.random.default_rng(0)))
        heated = [c for c in commands if str(c).startswith("heat")]
        _, reward, *_ = env.step(commands[-1])
        assert heated or reward == 0
    env.reset(seed=0)
    plan = env.game._pddl_state.replan(env.game._entity_infos)
    assert plan and len(plan) <= len(commands)
    for command in plan:
        *_, terminated, _, info = env.step(command)
    assert terminated and info["success"]


def test_an_episode_is_the_same_in_another_process():
    code = (
        "from agentrl_jax.environment import make\nimport agentrl_jax.envs\n"
        "env = make('agentrl/ALFWorld-v0', {'games': 1})\nenv.reset(seed=0)\n"
        "for i in range(3): env.step(env.scripted_policies['expert'](env, None))\n"
        "print(env.render())\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    root = Path(__file__).parents[2]
    runs = [subprocess.run(command, cwd=root, capture_output=True, text=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout and "Your task is to" in runs[0].stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ("cook",)}, "families must be of pick_and_place_simple"),
        ({"split": "test"}, "split must be one of train, seen, unseen"),
        ({"objects": -1}, "objects"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        environment(**options)
