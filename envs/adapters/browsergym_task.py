"""`BrowserGym`: tasks in a web browser, of BrowserGym's benchmarks (arXiv 2412.05467)."""

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.browsergym_browser import EXTRA, task_options, use_browser
from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.options import (
    check_no_options,
    checked_bool,
    checked_int,
    checked_number,
)
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.images.loading import image_part
from agentrl_jax.messages import Message, TextPart, user

ACTIONS = ("bid", "chat", "coord", "infeas", "nav", "tab")


def _random_action(env: "BrowserGym", rng: np.random.Generator) -> str:
    """A click on an element of the page."""
    return f"click('{env.elements[rng.integers(len(env.elements))]}')" if env.elements else "noop()"


class BrowserGym(Replayed):
    """The opening is the task's goal and the page as a tree of its accessible elements, each with
    the id that actions name, as "[13] button 'ONE'"; an answer is the page after the action, and
    the package's message where the action failed. The reward is the task's; success is a reward of
    at least `success_reward` at its end.

    An action is calls such as click('13'). BrowserGym parses them and runs those of `actions`, no
    other code; "nav" and "tab" open any address that the machine reaches. The pages' own clocks and
    timers run in real time, so an episode may depend on how fast the machine is.

    Scripted policy: `random` (clicks on an element).

    Args:
        name: of the task, as "miniwob.click-test-2".
        module: the module that registers it.
        options: of the task's constructor; MiniWoB++'s pages are those of its package.
        actions: of `ACTIONS`, the package's sets of actions.
        screenshots: an observation has a picture of the page too.
        horizon: turns before truncation.
        max_characters: of the page's text, the rest of which is left out.
        delay: seconds between an action and the observation, for the page's scripts.
        success_reward: see above.
        browser: a path of Chromium; empty: Playwright's own, which `playwright install` downloads.

    Raises:
        UserError: the package or the browser is missing, or an option is wrong.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action}
    )
    program_options: ClassVar[tuple[str, ...]] = ("module", "browser")

    def __init__(
        self,
        name: str = "miniwob.click-test-2",
        module: str = "browsergym.miniwob",
        options: Mapping[str, Any] | None = None,
        actions: Sequence[str] = ("bid",),
        screenshots: bool = False,
        horizon: int = 10,
        max_characters: int = 8000,
        delay: float = 0.1,
        success_reward: float = 0.5,
        browser: str = "",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        package = import_package("browsergym.core.action.highlevel", EXTRA)
        if isinstance(actions, str) or not actions or not set(actions) <= set(ACTIONS):
            raise UserError(f"actions must be some of {', '.join(ACTIONS)}, not {actions!r}")
        self.screenshots = checked_bool("screenshots", screenshots)
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        self.max_characters = checked_int("max_characters", max_characters, 100, 10**7)
        self.success_reward = checked_number("success_reward", success_reward, -(10**6), 10**6)
        use_browser(browser)
        known = package.HighLevelActionSet(subsets=list(actions), multiaction=False)
        self.env = _make(
            name,
            module,
            task_kwargs=task_options(name, dict(options or {})),
            action_mapping=known.to_python_code,
            pre_observation_delay=checked_number("delay", delay, 0, 60),
        )
        described = known.describe(with_long_description=False, with_examples=False)
        self.rules = f"Do the task in the web browser, one action a turn.\n{described.strip()}"
        self.elements: list[str] = []

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("BrowserGym", options)
        self._num_turns = 0
        seed = int(self.np_random.integers(2**31))
        observation, _ = self._run(self.env.reset, seed=seed)
        return (self._message(f"Goal: {observation['goal']}\n", observation),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        observation, reward, is_over, *_ = self._run(self.env.step, text)
        is_cut = not is_over and self._num_turns >= self.horizon
        error = observation["last_action_error"]
        info: dict[str, Any] = {"legal": not error}
        if is_over or is_cut:
            info["success"] = bool(is_over and reward >= self.success_reward)
        before = f"The action failed: {error.splitlines()[0][:300]}\n" if error else ""
        return (self._message(before, observation),), float(reward), bool(is_over), is_cut, info

    def _message(self, before: str, observation: Mapping[str, Any]) -> Message:
        """A text and the page."""
        flatten = import_package("browsergym.utils.obs", EXTRA).flatten_axtree_to_str
        tree, properties = observation["axtree_object"], observation["extra_element_properties"]
        self.elements = [str(x) for x, known in properties.items() if known["clickable"]]
        page = flatten(tree, properties, skip_generic=True)
        left_out = len(page) - self.max_characters
        if left_out > 0:
            page = f"{page[: self.max_characters]}\n... {left_out} characters more"
        text = f"{before}{page}\n"
        if not self.screenshots:
            return user(text)
        return Message("user", (TextPart(text), image_part(observation["screenshot"])))

    def _run(self, call: Any, *arguments: Any, **named: Any) -> Any:
        """What a call of the package returns.

        Raises:
            EnvironmentFailure: the browser failed.
        """
        errors = import_package("playwright.sync_api", EXTRA).Error
        try:
            return call(*arguments, **named)
        except errors as error:
            raise EnvironmentFailure(f"BrowserGym's browser failed: {error}") from error

    def close(self) -> None:
        self.env.close()


def _make(name: str, module: str, **options: Any) -> Any:
    """The package's environment.

    Raises:
        UserError: the module or the task is unknown.
    """
    try:
        importlib.import_module(module)
        return gymnasium.make(f"browsergym/{name}", **options).unwrapped
    except (ImportError, gymnasium.error.Error) as error:
        raise UserError(f"BrowserGym has no task {name!r} in {module}: {error}") from error
