"""`KeyDoor`: take the key, open the door, go out (sparse rewards and repeated tasks: ARPO for GUI, arXiv 2505.16282)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, flag, whole
from agentrl_jax.envs.probes.rooms import WORDS, Layout, State, after, distances, drawn, seen


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform action of those that are possible now."""
    assert isinstance(env, KeyDoor)
    possible = [word for word in env.words if word == "stop" or after(env.layout, env.state, word)]
    return possible[rng.integers(len(possible))]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """The shortest way; the first in the order of `WORDS` where there are several."""
    assert isinstance(env, KeyDoor)
    if env.distance == 0:
        return "stop"
    nearer = (word for word in WORDS if (there := after(env.layout, env.state, word)) and distances(env.layout)[there] < env.distance)
    return next(nearer)


class KeyDoor(Probe):
    """Two rooms of a grid with a wall between them: take the key, open the door in the wall, reach the exit behind it.

    The opening tells places as row and column, then where you are and what is above, right, below and left of you: "key 03 door 22
    exit 14 wall 01\\n12 #.k."; each action (up, right, down, left, take, open) is answered by the last of these lines, which ends in
    " key" once the key is taken. What is not possible now is refused, answered by the same line behind "no ", and costs a turn. The
    exit ends the episode with reward 1; all else earns 0. With `shaped` a part of that name pays the share of the shortest way that each
    turn gained or lost. With `stop` the exit ends nothing: the action "stop" does, with reward 1 at the exit.

    `walls` cells are walls beside the one between the rooms, fewer where that would close the way. With `layouts` there are so many
    layouts, always the same for a size, and the seed picks number seed mod `layouts`: seeds 0 to `layouts` - 1 are all of the tasks.

    `info` says `legal`, `anchor` (layout and state), `distance` (actions to the exit) and `stopped` (the agent went out or stopped).
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "weak": Mixed(_expert, _random, 0.4), "mixture": Mixed(_expert, _random, 0.8), "expert": _expert}
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
        self.size = whole("height", height, 2, 9), whole("width", width, 3, 9)
        self.walls, self.horizon = whole("walls", walls, 0, 81), whole("horizon", horizon, 1, 10_000)
        self.layouts = None if layouts is None else whole("layouts", layouts, 1, 10**9)
        self.shaped, self.stop = flag("shaped", shaped), flag("stop", stop)
        self.words = (*WORDS, "stop") if stop else WORDS
        if shaped:
            self.full_score, self.reward_bounds = 2.0, (-1.0, 2.0)
        self.rules = (
            f"Take the key, open the door and reach the exit{' and stop there' if stop else ''} within {horizon} turns. "
            f"Write one of: {', '.join(self.words)}.\n"
            "You are told your row and column, and what is above, right, below and left of you:\n"
            "# wall, . floor, k key, d closed door, o open door, x exit."
        )
        self.layout: Layout = Layout(self.size, (0, 0), (0, 0), (0, 1), (0, 2))
        self.state = State((0, 0))

    @property
    def distance(self) -> int:
        """Actions to the exit on the shortest way."""
        return distances(self.layout)[self.state]

    def _draw(self) -> None:
        rng = self.np_random
        if self.layouts is not None:
            number = rng.integers(self.layouts) if self._seed is None else self._seed % self.layouts
            rng = np.random.default_rng(int(number))
        self.layout = drawn(rng, self.size, self.walls)

    def _begin(self) -> None:
        self.state = State(self.layout.start)

    def _question(self) -> str:
        return f"{self.layout}\n{seen(self.layout, self.state)}"

    def _reply(self, text: str) -> Reply:
        anchor, before = f"{self.layout} at {seen(self.layout, self.state)}{' open' if self.state.open else ''}", self.distance
        there = after(self.layout, self.state, text)
        stopped = self.stop and text == "stop"
        self.state = there or self.state
        legal = there is not None or stopped
        out = self.distance == 0
        over = stopped if self.stop else out
        rewards = {"outcome": float(over and out)}
        if self.shaped:
            rewards["shaped"] = (before - self.distance) / distances(self.layout)[State(self.layout.start)]
        facts = {"legal": legal, "anchor": anchor, "distance": self.distance, "stopped": over}
        return Reply(("" if legal else "no ") + seen(self.layout, self.state), rewards, facts, out if over else None)
