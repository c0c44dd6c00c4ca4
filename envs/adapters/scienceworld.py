"""`ScienceWorld`: experiments of elementary science (arXiv 2203.07540), simulated in Java."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.packages import shortened
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.adapters.scienceworld_simulator import (
    SPLITS,
    gold_path,
    java_errors,
    new_simulator,
    task_names,
    variations,
)
from agentrl_jax.envs.options import check_no_options, checked_choice, checked_int, checked_number
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import user

SIMPLIFICATIONS = (
    "easy", "teleportAction", "selfWateringFlowerPots", "openContainers", "openDoors",
    "noElectricalAction",
)  # fmt: skip
SHORT_TASKS = ("find-living-thing", "find-non-living-thing", "find-plant", "find-animal")
_NO_ACTION = "No known action matches that input."


def _random_action(env: "ScienceWorld", rng: np.random.Generator) -> str:
    """One of the simulator's valid actions, about a thousand; a few it then does not understand."""
    valid = env.valid_actions()
    return valid[int(rng.integers(len(valid)))]


def _expert_action(env: "ScienceWorld", rng: np.random.Generator) -> str:
    """The first action of the package's gold path that was not made; "look around" after it."""
    path = list(gold_path(env.task, env.variation, env.simplifications))
    for action in env.actions_made:
        if path and action == path[0]:
            del path[0]
    return path[0] if path else "look around"


class ScienceWorld(Replayed):
    """The opening is the task and what "look around" shows, which the package counts as a step.

    The reward is the gain in score, in units of the 100 points. Where a score is negative the task
    has failed and the episode ends: the package takes 100 points and what was gained before;
    `failure_reward` replaces that. Success is a score of 100. The seed chooses the task and the
    variation of a split: the task changes with each seed, the variation where all tasks had a turn.
    `info["understood"]` says whether a text was an action.

    Scripted policies: `random` (a valid action) and `expert` (the package's gold path, whose
    actions are made one after the other whatever was done between).

    Args:
        tasks: names of the package's tasks; empty: all 30.
        split: `train`, `dev` or `test`: the package's variations.
        simplifications: of `SIMPLIFICATIONS`; `easy` is all of them.
        horizon: turns before truncation.
        failure_reward: see above; None: as the package does.

    Raises:
        UserError: the package or Java is missing, or an option is wrong.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "expert": _expert_action}
    )

    def __init__(
        self,
        tasks: Sequence[str] = SHORT_TASKS,
        split: str = "train",
        simplifications: Sequence[str] = ("easy",),
        horizon: int = 30,
        failure_reward: float | None = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        known = task_names()
        self.tasks = tuple(tasks) or known
        if isinstance(tasks, str) or not set(self.tasks) <= set(known):
            raise UserError(f"tasks must be names of {shortened(list(known), 30)}, not {tasks!r}")
        if isinstance(simplifications, str) or not set(simplifications) <= set(SIMPLIFICATIONS):
            listed = ", ".join(SIMPLIFICATIONS)
            raise UserError(f"simplifications must be of {listed}, not {simplifications!r}")
        self.simplifications = ",".join(simplifications)
        self.split = checked_choice("split", split, SPLITS)
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        self.failure_reward = failure_reward
        if failure_reward is not None:
            self.failure_reward = checked_number("failure_reward", failure_reward, -(10**3), 0)
        self.reward_bounds = -2.0 if failure_reward is None else float(failure_reward), 1.0
        self.rules = (
            "Do the task of elementary science that the first message sets. One action a turn, "
            "such as look around, open door to kitchen, teleport to kitchen, pick up thermometer, "
            "focus on dove, move dove to orange box, activate stove, wait."
        )
        self.simulator: Any = None
        self.task, self.variation, self._points = "", 0, 0
        self.actions_made: list[str] = []

    def valid_actions(self) -> list[str]:
        """What the simulator would carry out now; finding it takes longer than a step."""
        return sorted(self._call("getValidActionObjectCombinations"))

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("ScienceWorld", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        self.task = self.tasks[seed % len(self.tasks)]
        listed = variations(self.task, self.split)
        self.variation = listed[seed // len(self.tasks) % len(listed)]
        if self.simulator is None:
            self.simulator = new_simulator()
        self._call("load", self.task, self.variation, self.simplifications, False)
        self.actions_made, self._num_turns = [], 0
        look = self._call("step", "look around")
        self._points = self._score()
        description = str(self._call("freeActionTaskDesc")).strip()
        info = {"task": self.task, "variation": int(self.variation)}
        return (user(f"{description}\n{look}\n"),), info

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        action = " ".join(text.encode("ascii", "replace").decode().split())[:1000]
        answer = str(self._call("step", action))
        self.actions_made.append(action)
        points, before = self._score(), self._points
        self._points = points
        has_failed = points < 0
        reward = (points - before) / 100
        if has_failed and self.failure_reward is not None:
            reward = self.failure_reward
        is_over = has_failed or bool(self._call("getCompleted"))
        is_cut = not is_over and self._num_turns >= self.horizon
        info: dict[str, Any] = {"understood": answer != _NO_ACTION}
        if is_over or is_cut:
            info["success"] = points >= 100
        return (user(answer + "\n"),), float(reward), is_over, is_cut, info

    def _score(self) -> int:
        """In points, rounded as the package does."""
        return round(100 * float(self._call("getScore")))

    def _call(self, method: str, *arguments: Any) -> Any:
        """What a method of the simulator returns."""
        try:
            return getattr(self.simulator, method)(*arguments)
        except (OSError, java_errors()) as error:
            self.simulator = None
            raise EnvironmentFailure(f"ScienceWorld's simulator failed: {error}") from error
