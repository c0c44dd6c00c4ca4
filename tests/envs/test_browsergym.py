"""BrowserGym's tasks of MiniWoB++ against the package's own loop, in Chromium."""

import importlib
import pickle
import shutil
from typing import Any

import gymnasium
import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.browsergym_browser import task_options
from agentrl_jax.envs.adapters.browsergym_task import BrowserGym
from agentrl_jax.errors import UserError
from agentrl_jax.messages import ImagePart

pytest.importorskip(
    "browsergym.miniwob", reason="browsergym is not installed: make test-browsergym"
)
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)
TASKS = ("miniwob.click-test-2", "miniwob.click-link", "miniwob.enter-text")
MORE_TASKS = (
    "choose-list", "click-button", "click-button-sequence", "click-checkboxes",
    "click-checkboxes-large", "click-collapsible", "click-dialog", "click-dialog-2", "click-option",
    "click-tab", "click-tab-2", "click-widget", "enter-password", "focus-text", "focus-text-2",
    "login-user", "navigate-tree", "read-table", "search-engine", "email-inbox",
)  # fmt: skip


def browser_env(**options: Any) -> BrowserGym:
    env = make("agentrl/BrowserGym-v0", {"browser": CHROMIUM, "delay": 0.05, **options})
    assert isinstance(env, BrowserGym)
    return env


def package_env(name: str) -> Any:
    importlib.import_module("browsergym.miniwob")
    highlevel = importlib.import_module("browsergym.core.action.highlevel")
    return gymnasium.make(
        f"browsergym/{name}",
        task_kwargs=task_options(name, {}),
        action_mapping=highlevel.HighLevelActionSet(subsets=["bid"]).to_python_code,
        pre_observation_delay=0.05,
    ).unwrapped


def page(observation: dict[str, Any]) -> str:
    flatten = importlib.import_module("browsergym.utils.obs").flatten_axtree_to_str
    properties = observation["extra_element_properties"]
    return flatten(observation["axtree_object"], properties, skip_generic=True)


def check_episodes(name: str, seeds: range) -> list[float]:
    """Compare episodes of random actions with those of the package's loop; their last rewards."""
    env, reference = browser_env(name=name, horizon=3), package_env(name)
    rewards = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        ((opening,), _), turns = env.reset(seed=seed), 0
        # The task's seed is the first draw of the episode's generator.
        observation, _ = reference.reset(seed=int(np.random.default_rng(seed).integers(2**31)))
        assert opening.text == f"Goal: {observation['goal']}\n{page(observation)}\n"
        is_over, reward = False, 0.0
        while not is_over and turns < 3:
            action = env.scripted_policies["random"](env, rng)
            (answer,), reward, is_over, is_cut, info = env.step(action)
            observation, reference_reward, reference_over, *_ = reference.step(str(action))
            turns += 1
            assert answer.text.endswith(f"{page(observation)}\n")
            assert info["legal"] == (not observation["last_action_error"])
            assert (reward, is_over) == (reference_reward, reference_over)
            assert is_cut == (turns == 3 and not is_over)
        rewards.append(reward)
    env.close()
    reference.close()
    return rewards


@pytest.mark.parametrize("name", TASKS)
def test_messages_and_rewards_are_those_of_the_packages_loop(name: str):
    rewards = check_episodes(name, range(6))
    assert name == "miniwob.enter-text" or 1.0 in rewards  # a random click is right now and then


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_TASKS)
def test_a_hundred_episodes_are_those_of_the_packages_loop(name: str):
    assert len(check_episodes(f"miniwob.{name}", range(100, 105))) * len(MORE_TASKS) == 100


def test_failed_and_foreign_code_is_answered_and_not_run(tmp_path):
    env = browser_env(horizon=4)
    env.reset(seed=0)
    file = tmp_path / "written"
    for action in (f"open('{file}', 'w')", "click('999')", "page.goto('http://a')", ""):
        (answer,), reward, is_over, is_cut, info = env.step(action)
        assert answer.text.startswith("The action failed: ") and "button" in answer.text
        assert not info["legal"] and reward == 0 and not is_over
    assert is_cut and info["success"] is False and not file.exists()
    env.close()


def test_a_right_click_succeeds_and_an_episode_forks_by_replay():
    env = browser_env(name="miniwob.enter-text", screenshots=True, max_characters=100)
    (opening,), _ = env.reset(seed=1)
    (image,) = (part for part in opening.content if isinstance(part, ImagePart))
    assert image.url.startswith("data:image/png") and "characters more" in opening.text
    word = opening.text.split('"')[1]
    field, button = env.elements[-2:]
    env.step(f"fill('{field}', '{word}')")
    fork = pickle.loads(pickle.dumps(env))
    for copy in (env, fork):
        *_, reward, is_over, is_cut, info = copy.step(f"click('{button}')")
        assert (reward, is_over, is_cut, info["success"]) == (1.0, True, False, True)
        copy.close()


def test_bad_options_have_clear_errors():
    for options, message in (
        ({"name": "miniwob.no-such-task"}, "BrowserGym has no task 'miniwob.no-such-task'"),
        ({"module": "no_such_module"}, "in no_such_module: No module named"),
        ({"actions": "bid"}, "actions must be some of bid, chat"),
        ({"actions": ("python",)}, "actions must be some of"),
        ({"browser": "/no/such/program"}, "is no program: apt-get install chromium"),
        ({"horizon": 0}, "horizon must be"),
    ):
        with pytest.raises(UserError, match=message):
            browser_env(**options)
