"""`BabyAI`: instructions in a grid world (arXiv 1810.08272) of the package minigrid."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.babyai_text import ACTIONS, description, make_level, quiet
from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.options import check_no_options, checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.messages import user


def _random_action(env: "BabyAI", rng: np.random.Generator) -> str:
    return ACTIONS[int(rng.integers(len(ACTIONS)))]


def _expert_action(env: "BabyAI", rng: np.random.Generator) -> str:
    """What the package's bot does; where it gives up, a random action."""
    suggestion = env.bot.suggestion(env.taken)
    return _random_action(env, rng) if suggestion is None else ACTIONS[suggestion]


class _Bot:
    """The package's bot beside an environment of its own, which follows the actions taken: it plans
    from the start of an episode, and only where it is asked.
    """

    def __init__(self, level: str, seed: int) -> None:
        self._level, self._seed = level, seed
        self._env: Any = None
        self._num_taken = 0
        self._is_lost = False

    def suggestion(self, taken: Sequence[int]) -> int | None:
        """The number of the next action after those taken; None: the bot has given up."""
        if self._env is None:
            self._env = make_level(self._level)
            with quiet():
                self._env.reset(seed=self._seed)
            bots = import_package("minigrid.utils.baby_ai_bot", "minigrid")
            self._bot = bots.BabyAIBot(self._env.unwrapped)
            self._next = self._replanned(None)
        for action in taken[self._num_taken :]:
            self._env.step(action)
            self._next = self._replanned(action)
        self._num_taken = len(taken)
        return self._next

    def _replanned(self, action: int | None) -> int | None:
        if self._is_lost:
            return None
        try:
            return int(self._bot.replan(action))
        except Exception:  # of any kind: after actions that it has not foreseen
            self._is_lost = True
            return None


class BabyAI(Replayed):
    """The opening is the mission and what the agent sees; actions are the package's, in words. The
    observation is in AgentGym's sentences, where a cell is a step.

    The reward is the package's: 1 - .9 n / N at the step n of at most N that accomplishes the
    mission, else 0. Another text makes no step and counts as a turn. An episode is one of `tasks`,
    counted from `first`: the seed modulo `tasks`. Two splits are two ranges.

    Scripted policies: `random`, `expert` (the package's bot) and `mixture` (the expert with
    probability 0.8).

    Args:
        level: of the package, such as GoToLocal, PickupLoc, PutNextLocal, GoToSeq, BossLevel.
        tasks: how many different episodes there are.
        first: the index of the first one.
        horizon: turns before truncation, if the package does not truncate earlier.

    Raises:
        UserError: the package or the level is missing, or an option is wrong.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "expert": _expert_action,
        }
    )
    reward_bounds = (0.0, 1.0)
    rules = (
        "Do what the mission says. One action a turn: turn left, turn right, move forward, pick up "
        "and toggle (open, unlock) what is right in front of you, drop, done."
    )

    def __init__(
        self,
        level: str = "GoToLocal",
        tasks: int = 10**6,
        first: int = 0,
        horizon: int = 64,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.level = level
        self.env = make_level(level)
        self.tasks = checked_int("tasks", tasks, 1, 10**9)
        self.first = checked_int("first", first, 0, 10**9)
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        self.taken: list[int] = []

    def actions(self) -> Sequence[str] | None:
        return ACTIONS

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("BabyAI", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        index = self.first + seed % self.tasks
        with quiet():
            observation, _ = self.env.reset(seed=index)
        self.bot, self.taken, self._num_turns = _Bot(self.level, index), [], 0
        return (user(f"Your goal: {observation['mission']}\n{self._view(observation)}"),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        action = " ".join(text.lower().split())
        is_legal = action in ACTIONS
        reward, is_over, is_cut = 0.0, False, False
        answer = f"The action is not recognized. Actions: {', '.join(ACTIONS)}\n"
        if is_legal:
            self.taken.append(ACTIONS.index(action))
            observation, reward, is_over, is_cut, _ = self.env.step(self.taken[-1])
            answer = self._view(observation)
        is_cut = not is_over and bool(is_cut or self._num_turns >= self.horizon)
        info: dict[str, Any] = {"legal": is_legal}
        if is_over or is_cut:
            info["success"] = bool(is_over and reward > 0)
        return (user(answer),), float(reward), bool(is_over), is_cut, info

    def _view(self, observation: Mapping[str, Any]) -> str:
        return description(self.env.unwrapped, observation["image"]) + "\n"

    def close(self) -> None:
        self.env.close()
