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


# The package's own loop, in a process without this library: what it shows at each command.
PACKAGE_LOOP = """
import json, sys, textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
infos = textworld.EnvInfos(won=True, admissible_commands=True)
observed = []
for path, commands in json.load(sys.stdin):
    game = textworld.start(path, infos, wrappers=[AlfredDemangler()])
    steps = [(game.reset(), 0, False)] + [game.step(command) for command in commands]
    observed.append([
        [state.feedback.strip(), state["admissible_commands"], score, done, state["won"]]
        for state, score, done in steps
    ])
    game.close()
json.dump(observed, sys.stdout)
"""


def played_episode(env: ALFWorld, seed: int, path: Path) -> tuple[list[str], list[list[Any]]]:
    """The commands of an episode, and what `PACKAGE_LOOP` has to show at each."""
    (opening,), info = env.reset(seed=seed)
    path.write_text(json.dumps(game_data(env.problem)), encoding="utf-8")
    rng, commands, observed = np.random.default_rng(seed), [], [[opening.text, 0, False]]
    while not env._is_over:
        policy = "expert" if seed % 2 or rng.random() < 0.6 else "random"
        command = str(env.scripted_policies[policy](env, rng))
        commands.append("fly" if rng.random() < 0.05 else command)
        (answer,), reward, terminated, truncated, info = env.step(commands[-1])
        observed.append([answer.text, reward, terminated])
        assert truncated == (not terminated and len(commands) == env.horizon)
    assert info["success"] is observed[-1][2]
    return commands, observed


def check_episodes(seeds: range, folder: Path) -> int:
    """Episodes are those of the package; how many succeeded."""
    env = environment(horizon=12)
    paths = [folder / f"{seed}.tw-pddl" for seed in seeds]
    episodes = [played_episode(env, seed, path) for seed, path in zip(seeds, paths, strict=True)]
    games = [[str(path), commands] for path, (commands, _) in zip(paths, episodes, strict=True)]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PACKAGE_LOOP],
        input=json.dumps(games),
        capture_output=True,
        text=True,
        check=True,
    )
    for (_, observed), expected in zip(episodes, json.loads(run.stdout), strict=True):
        assert observed == [
            [f"{text}\nCommands: {', '.join(commands)}\n", score, won]
            for text, commands, score, _, won in expected
        ]
        assert [row[3] for row in expected] == [row[4] for row in expected]
    return sum(observed[-1][2] for _, observed in episodes)


def test_messages_and_rewards_are_those_of_the_packages_loop(tmp_path: Path):
    assert check_episodes(range(6), tmp_path) >= 3


@pytest.mark.slow
def test_a_hundred_episodes_are_those_of_the_packages_loop(tmp_path: Path):
    assert check_episodes(range(100), tmp_path) >= 50


def test_problems_are_translated_and_texts_parsed_once():
    env = environment()
    env.reset(seed=0)
    planner = pytest.importorskip("fast_downward")
    parser = pytest.importorskip("textworld.envs.pddl.textgen")._PARSER
    translated = planner.pddl2sas.cache_info().misses
    parsed = parser.parse.cache_info().misses
    env.reset(seed=0)
    for command in ("look", "inventory", "look"):
        env.step(command)
    assert planner.pddl2sas.cache_info().misses == translated
    assert parser.parse.cache_info().misses <= parsed + 2


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


def test_rooms_are_chosen_and_those_without_a_task_are_an_error():
    env = environment(rooms=("bathroom", "bedroom"), families=("pick_and_place_simple",))
    plans = [env.reset(seed=seed)[1]["floor_plan"] for seed in range(8)]
    assert {plan // 100 for plan in plans} == {3, 4}
    env = environment(rooms=("bathroom",), families=("pick_heat_then_place_in_recep",))
    with pytest.raises(UserError, match=r"no task pick_heat.* in the rooms bathroom"):
        env.reset(seed=0)


def test_the_task_is_repeated_where_that_is_wanted():
    env = environment(list_commands=False, repeat_task=True)
    (opening,), _ = env.reset(seed=0)
    (answer,), *_ = env.step("inventory")
    task = f"\nYour task: {env.problem.description}.\n"
    assert opening.text.endswith(task)
    assert answer.text == f"You are not carrying anything.{task}"


def test_a_searching_policy_looks_before_it_takes():
    env = environment(families=("pick_two_obj_and_place",), horizon=100)
    for seed in range(4):
        env.reset(seed=seed)
        rng, texts = np.random.default_rng(seed), ""
        while not env._is_over:
            command = str(env.scripted_policies["searching"](env, rng))
            verb, _, rest = command.partition(" ")
            if verb == "take":
                assert rest.split(" from ")[0] in texts
            (answer,), *_, info = env.step(command)
            texts += answer.text.partition("\nCommands")[0]
        assert info["success"]


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
        ({"families": ("cook",)}, "families must be one of pick_and_place_simple"),
        ({"split": "test"}, "split must be one of train, seen, unseen"),
        ({"objects": -1}, "objects"),
        ({"rooms": ("garage",)}, "rooms must be one of kitchen, living_room"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        environment(**options)
