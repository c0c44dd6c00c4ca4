"""`GymnasiumText`: environments of Gymnasium's API (arXiv 2407.17032) with texts as actions."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.gymnasium_labels import LABELS, Labels, make_gymnasium
from agentrl_jax.envs.adapters.packages import shortened
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.adapters.spaces_as_text import (
    action_text,
    is_supported,
    listed_actions,
    parsed_action,
    value_text,
    without_escapes,
)
from agentrl_jax.envs.adapters.tabular import tabular_policy
from agentrl_jax.envs.options import check_no_options, checked_int, checked_number
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user


def _random_action(env: "GymnasiumText", rng: np.random.Generator) -> str:
    space = env.env.action_space
    space.seed(int(rng.integers(2**31)))
    return action_text(space, env.labels.actions, space.sample())


def _expert_action(env: "GymnasiumText", rng: np.random.Generator) -> str:
    """The action of value iteration where the environment has a table of transitions (the toy texts
    have), else a random one.
    """
    policy = tabular_policy(env.env.unwrapped)
    if policy is None:
        return _random_action(env, rng)
    return action_text(env.env.action_space, env.labels.actions, policy[env.observation])


class GymnasiumText(Replayed):
    """An observation is the environment's "ansi" rendering where it has one, with colors as words,
    else its value as a text. An illegal text makes no step, costs `penalty` and is answered with
    what is legal. `terminated` and `truncated` are the environment's.

    Scripted policies: `random` and `expert` (value iteration, where there is a table).

    Args:
        name: Gymnasium's id.
        module: the module that registers it; empty: Gymnasium's own.
        env_options: of its constructor.
        actions: names of a `Discrete` space's actions; empty: `LABELS`, else numbers.
        parts: names of an observation's parts, likewise.
        success_reward: see `Labels`, likewise.
        horizon: turns, illegal ones included, before truncation.
        penalty: of an illegal text.

    Raises:
        UserError: the id or an option is unknown, or the actions are no texts.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "expert": _expert_action}
    )
    program_options: ClassVar[tuple[str, ...]] = ("module",)

    def __init__(
        self,
        name: str = "FrozenLake-v1",
        module: str = "",
        env_options: Mapping[str, Any] | None = None,
        actions: Sequence[str] = (),
        parts: Sequence[str] = (),
        success_reward: float | None = None,
        horizon: int = 200,
        penalty: float = 0.05,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.env = make_gymnasium(name, module, dict(env_options or {}))
        known = LABELS.get(name, Labels())
        success = known.success_reward if success_reward is None else success_reward
        names = tuple(actions) or known.actions, tuple(parts) or known.parts
        self.labels = Labels(*names, success, known.rewards)
        self.penalty = checked_number("penalty", penalty, 0, 10**6)
        self.horizon = checked_int("horizon", horizon, 1, 10**9)
        self.reward_bounds = min(known.rewards[0], -self.penalty), max(known.rewards[1], 0.0)
        space, size = self.env.action_space, len(self.labels.actions)
        if not is_supported(space) or size not in (0, getattr(space, "n", 0)):
            raise UserError(f"{name} has the actions {space}, which have no texts {list(actions)}")
        listed = listed_actions(space, self.labels.actions)
        self.legal = shortened(listed, 64) if listed else f"values of {space}"
        self.rules = f"{name}, an environment of Gymnasium's API. Actions: {self.legal}."
        self.observation: Any = None

    def actions(self) -> Sequence[str] | None:
        return listed_actions(self.env.action_space, self.labels.actions)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("GymnasiumText", options)
        self._num_turns = 0
        self.observation, _ = self.env.reset(seed=int(self.np_random.integers(2**31)))
        return (user(f"{self._view()}Actions: {self.legal}\n"),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        reward, terminated, truncated = 0.0, False, False
        action = parsed_action(self.env.action_space, self.labels.actions, text.strip())
        is_legal = action is not None
        if is_legal:
            self.observation, gain, terminated, truncated, _ = self.env.step(action)
            reward = float(gain)
        is_cut = not terminated and bool(truncated or self._num_turns >= self.horizon)
        parts = {"task": reward} if is_legal else {"illegal": -self.penalty}
        info: dict[str, Any] = {"rewards": parts, "legal": is_legal}
        if terminated or is_cut:
            least = self.labels.success_reward
            is_success = reward > 0 if least is None else reward >= least
            info["success"] = bool(terminated and is_success)
        answer = self._view() if is_legal else f"Illegal. Actions: {self.legal}\n"
        return (user(answer),), sum(parts.values()), bool(terminated), is_cut, info

    def _view(self) -> str:
        rendered = self.env.render() if self.env.render_mode == "ansi" else None
        is_text = isinstance(rendered, str)
        text = rendered if is_text else value_text(self.observation, self.labels.parts)
        return without_escapes(str(text)).strip("\n") + "\n"

    def close(self) -> None:
        self.env.close()
