"""`KeyDoor`: a sparse reward and repeated tasks in a small grid (ARPO, arXiv 2505.16282)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.diagnostic.rooms import (
    ACTIONS,
    GridState,
    RoomLayout,
    exit_distances,
    next_state,
    observation_text,
    sample_layout,
)
from agentrl_jax.envs.options import checked_bool, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy

TOOLS = ("take", "open")  # the actions that change something other than the agent's place


def _random_action(env: "KeyDoor", rng: np.random.Generator) -> str:
    """A uniform legal action."""
    possible = [
        word
        for word in env.action_names
        if word == "stop" or next_state(env.layout, env.state, word)
    ]
    return possible[rng.integers(len(possible))]


def _expert_action(env: "KeyDoor", rng: np.random.Generator) -> str:
    """An action of a shortest path, the first in the order of `ACTIONS`."""
    if env.distance == 0:
        return "stop"
    nearer = (
        word
        for word in ACTIONS
        if (following := next_state(env.layout, env.state, word))
        and exit_distances(env.layout)[following] < env.distance
    )
    return next(nearer)


class KeyDoor(SampledTaskEnvironment):
    """Two rooms of a grid: take the key, open the door in the wall between them, reach the exit.

    The opening lists positions as row and column, then the agent's own and what is above, right,
    below and left of it: "key 03 door 22 exit 14 wall 01\\n12 #.k.". Each action (up, right, down,
    left, take, open) is answered by the last of these lines, which ends in " key" once the key is
    taken. An illegal action is answered by the same line after "no ", and costs a turn. The exit
    ends the episode with reward 1; all other turns earn 0. `info` holds `legal`, `void` (none of
    these actions), `called_tools` (`take` and `open`, where legal), `anchor` (layout and state),
    `distance` (actions to the exit) and `stopped` (the agent reached the exit, or wrote "stop").

    Scripted policies: `random` (uniform over legal actions), `expert` (a shortest path), `weak` and
    `mixture` (the expert with probability 0.4 and 0.8).

    Args:
        width: columns of the grid.
        height: rows of the grid.
        walls: walls in the rooms; fewer where they would make the exit unreachable.
        horizon: turns before truncation.
        layouts: number of layouts, fixed for a size; the seed picks layout number (seed mod
            `layouts`), so seeds 0 to `layouts` - 1 cover all tasks. None samples a layout per
            episode.
        shaped: adds a reward component of that name, the fraction of the shortest path gained or
            lost.
        stop: the exit does not end the episode; the action "stop" does, with reward 1 at the exit.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "weak": MixturePolicy(_expert_action, _random_action, 0.4),
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        width: int = 5,
        height: int = 3,
        walls: int = 1,
        horizon: int = 20,
        layouts: int | None = None,
        shaped: bool = False,
        stop: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.size = checked_int("height", height, 2, 9), checked_int("width", width, 3, 9)
        self.walls, self.horizon = (
            checked_int("walls", walls, 0, 81),
            checked_int("horizon", horizon, 1, 10_000),
        )
        self.layouts = None if layouts is None else checked_int("layouts", layouts, 1, 10**9)
        self.shaped, self.stop = checked_bool("shaped", shaped), checked_bool("stop", stop)
        self.action_names = (*ACTIONS, "stop") if stop else ACTIONS
        if shaped:
            self.full_score, self.reward_bounds = 2.0, (-1.0, 2.0)
        self.rules = (
            f"Take the key, open the door and reach the exit{' and stop there' if stop else ''} "
            f"within {horizon} turns. "
            f"Write one of: {', '.join(self.action_names)}.\n"
            "You are told your row and column, and what is above, right, below and left of you:\n"
            "# wall, . floor, k key, d closed door, o open door, x exit."
        )
        self.layout: RoomLayout = RoomLayout(self.size, (0, 0), (0, 0), (0, 1), (0, 2))
        self.state = GridState((0, 0))

    @property
    def distance(self) -> int:
        """Number of actions to the exit on a shortest path."""
        return exit_distances(self.layout)[self.state]

    def _sample_task(self) -> None:
        rng = self.np_random
        if self.layouts is not None:
            number = rng.integers(self.layouts) if self._seed is None else self._seed % self.layouts
            rng = np.random.default_rng(int(number))
        self.layout = sample_layout(rng, self.size, self.walls)

    def _reset_state(self) -> None:
        self.state = GridState(self.layout.start)

    def _opening_text(self) -> str:
        return f"{self.layout}\n{observation_text(self.layout, self.state)}"

    def _respond(self, text: str) -> StepResult:
        anchor, before = (
            f"{self.layout} at "
            f"{observation_text(self.layout, self.state)}{' open' if self.state.door_open else ''}",
            self.distance,
        )
        following = next_state(self.layout, self.state, text)
        stopped = self.stop and text == "stop"
        self.state = following or self.state
        legal = following is not None or stopped
        at_exit = self.distance == 0
        ended = stopped if self.stop else at_exit
        rewards = {"outcome": float(ended and at_exit)}
        if self.shaped:
            rewards["shaped"] = (before - self.distance) / exit_distances(self.layout)[
                GridState(self.layout.start)
            ]
        info = {
            "legal": legal,
            "void": text not in self.action_names,
            "called_tools": [text] if following and text in TOOLS else [],
            "anchor": anchor,
            "distance": self.distance,
            "stopped": ended,
        }
        return StepResult(
            ("" if legal else "no ") + observation_text(self.layout, self.state),
            rewards,
            info,
            at_exit if ended else None,
        )
