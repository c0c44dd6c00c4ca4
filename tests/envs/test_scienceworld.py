"""ScienceWorld against the package's own loop, its gold paths and splits."""

import contextlib
import functools
import shutil
from typing import Any

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters import scienceworld_simulator
from agentrl_jax.envs.adapters.scienceworld import ScienceWorld
from agentrl_jax.envs.adapters.scienceworld_simulator import SPLITS, gold_path, variations
from agentrl_jax.errors import EnvironmentFailure, UserError

CHEAP_TASKS = ("lifespan-shortest-lived", "find-plant", "power-component", "find-non-living-thing")


@pytest.fixture(scope="module", autouse=True)
def package() -> Any:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    reason = "scienceworld is not installed: make test-scienceworld"
    return pytest.importorskip("scienceworld.scienceworld", reason=reason)


@pytest.fixture(scope="module")
def reference(package: Any) -> Any:
    """The package's environment with this package's options of Java, without its lists of valid
    actions, which take most of its time.
    """
    options = list(scienceworld_simulator._JAVA_OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        launch = functools.partial(package.launch_gateway, javaopts=options)
        patch.setattr(package, "launch_gateway", launch)
        env = package.ScienceWorldEnv()
    env.get_valid_action_object_combinations = list
    yield env
    env._obj_tree_tempdir.cleanup()
    env.close()


def environment(**options: Any) -> ScienceWorld:
    env = make("agentrl/ScienceWorld-v0", options)
    assert isinstance(env, ScienceWorld)
    return env


def wild_action(env: ScienceWorld, rng: np.random.Generator) -> str:
    """The gold path for the most part, else a guess."""
    guesses = ("look around", "inventory", "wait", "focus on picture", "teleport to kitchen", "fly")
    if rng.random() < 0.75:
        return str(env.scripted_policies["expert"](env, rng))
    return str(rng.choice(guesses))


def test_messages_and_rewards_are_those_of_the_packages_loop(reference: Any):
    assert compared_ends(reference, range(12)) >= {(True, True)}


@pytest.mark.slow
def test_a_hundred_episodes_are_those_of_the_packages_loop(reference: Any):
    assert compared_ends(reference, range(100)) >= {(True, True), (True, False)}


def compared_ends(reference: Any, seeds: range) -> set[tuple[bool, bool]]:
    """How episodes end, each compared with the package's loop: (terminated, success)."""
    env = environment(tasks=CHEAP_TASKS, failure_reward=None, horizon=25)
    ends = set()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        (opening,), info = env.reset(seed=seed)
        reference.load(info["task"], info["variation"], "easy")
        look, details = reference.reset()
        assert opening.text == f"{details['taskDesc'].strip()}\n{look}\n"
        turns, is_over = 0, False
        while not is_over:
            action = wild_action(env, rng)
            (answer,), reward, terminated, truncated, info = env.step(action)
            expected, points, is_done, details = reference.step(action)
            turns += 1
            assert answer.text == expected + "\n" and reward == points / 100
            assert (terminated, truncated) == (is_done, not is_done and turns == 25)
            is_over = terminated or truncated
        assert info["success"] is (details["score"] == 100)
        ends.add((terminated, info["success"]))
    return ends


def test_two_environments_of_a_process_are_independent():
    def episode(other: ScienceWorld | None) -> list[str]:
        env = environment()
        texts = [env.reset(seed=3)[0][0].text]
        for action in ("look in hallway", "wait", "teleport to outside", "look around"):
            texts.append(env.step(action)[0][0].text)
            if other is not None:
                other.step("teleport to kitchen")
        return texts

    other = environment(tasks=("melt",))
    other.reset(seed=0)
    assert episode(other) == episode(None)


def test_gold_paths_accomplish_tasks_of_every_split():
    for split in SPLITS:
        env = environment(tasks=CHEAP_TASKS, split=split)
        for seed in range(len(CHEAP_TASKS)):
            _, info = env.reset(seed=seed)
            assert info["variation"] in variations(info["task"], split)
            total, is_over = 0.0, False
            while not is_over:
                action = env.scripted_policies["expert"](env, np.random.default_rng(0))
                _, reward, is_over, truncated, step = env.step(action)
                total += reward
                assert not truncated
            assert step["success"] and 0.8 < total <= 1  # looking around may have scored


def test_splits_share_no_variation_and_cover_all_of_them(reference: Any):
    for task in CHEAP_TASKS:
        parts = [variations(task, split) for split in SPLITS]
        assert sorted(sum(parts, ())) == list(range(reference.get_max_variations(task)))


def test_a_failure_ends_the_episode_at_its_own_price():
    lost = {}
    for failure_reward in (0.0, -0.5, None):
        env = environment(tasks=("find-animal",), failure_reward=failure_reward)
        env.reset(seed=0)
        env.step("teleport to kitchen")
        _, reward, terminated, _, info = env.step("focus on counter")
        assert terminated and info["success"] is False
        lost[failure_reward] = reward
    assert (lost[0.0], lost[-0.5]) == (0, -0.5) and lost[None] <= -1


def test_texts_that_are_no_actions_are_answered():
    env = environment(horizon=4)
    env.reset(seed=0)
    for text in ("fly", "", "x" * 10**5, "\ud800\n\x00"):
        (answer,), reward, terminated, truncated, info = env.step(text)
        assert answer.text == "No known action matches that input.\n" and not info["understood"]
        assert reward == 0 and not terminated
    assert truncated and info["success"] is False


def test_a_java_process_that_ends_is_a_failure_and_the_next_episode_starts_another():
    env = environment()
    opening, _ = env.reset(seed=0)
    process = scienceworld_simulator._gateway(scienceworld_simulator.os.getpid()).java_process
    process.kill()
    process.wait()
    with contextlib.suppress(OSError):
        process.stdin.close()
    with pytest.raises(EnvironmentFailure, match="simulator"):
        env.step("look around")
    for _ in range(2):  # the first one may still find the connection to the old process
        try:
            assert environment().reset(seed=0)[0] == opening
            return
        except EnvironmentFailure:
            continue
    raise AssertionError("no new Java process was started")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ("fly",)}, "names of boil, "),
        ({"split": "valid"}, "split must be one of train, dev, test"),
        ({"simplifications": ("hard",)}, "simplifications must be of easy"),
        ({"failure_reward": 1}, "failure_reward"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        environment(**options)


def test_without_java_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="needs the program java"):
        environment()


def test_a_gold_path_is_the_packages(reference: Any):
    reference.load("power-component", 1, "easy", True)
    expected = reference.get_gold_action_sequence()
    assert list(gold_path("power-component", 1, "easy")) == expected
