"""`TextNav`: put the stale food into the fridge (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.lmrl.house import ROOMS, HouseState, command_results, next_step
from agentrl_jax.envs.lmrl.house_text import (
    REFUSAL_TEXT,
    Narrator,
    canonical_command,
    inventory_text,
    make_narrator,
)
from agentrl_jax.envs.options import checked_choice, checked_int
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

VIEWS = ("full", "partial")
HORIZON = 15
# Possible commands that contain one of these words are not listed.
UNLISTED_WORDS = ("examine", "look", "inventory")
FAR_ROOMS = frozenset({"office", "bathroom", "garden", "backyard"})


class HouseEnvironment(Environment):
    """Text-Nav without its sentences: the view, the start, and the commands that are listed."""

    reward_bounds: tuple[float, float] = (0.0, 1.0)
    score_anchors: tuple[float, float, float] | None = (0.0, 0.258, 1.0)
    rules = (
        "Put the stale food, which is on a table in the living room, into the fridge in the "
        "kitchen, and close the fridge;\n"
        f"you may give {HORIZON} commands, such as: go east, take bowl from table, open fridge, "
        "insert bowl into fridge, close fridge."
    )

    def __init__(self, view: str, render_mode: str | None) -> None:
        super().__init__(render_mode)
        self.view = checked_choice("view", view, VIEWS)
        self.state = HouseState(ROOMS[0])
        self.turns = 0

    def admissible_commands(self) -> Iterable[str]:
        """Every possible command, in alphabetical order."""
        return command_results(self.state)

    def actions(self) -> tuple[str, ...]:
        """The listed commands: not those to examine, to look and to take inventory."""
        return tuple(
            command
            for command in self.admissible_commands()
            if not any(word in command for word in UNLISTED_WORDS)
        )

    def _choose_start_room(self, options: Mapping[str, Any]) -> str:
        """The start room: the reset option, or sampled."""
        if unknown := options.keys() - {"room"}:
            raise UserError(
                f"{type(self).__name__} has no reset option {sorted(unknown)}; it has: room"
            )
        room = options.get("room", ROOMS[self.np_random.integers(len(ROOMS))])
        return checked_choice("room", room, ROOMS)

    def _observation(self, text: str, show_inventory: bool = True) -> Messages:
        """A message with the answer, the inventory (in the full view) and the list of commands."""
        parts = [
            text,
            *([inventory_text(self.state)] if show_inventory and self.view == "full" else []),
            f"Admissible commands: {', '.join(self.actions())}",
        ]
        return (user("\n\n".join(parts) + "\n"),)


def _random_action(env: "HouseEnvironment", rng: np.random.Generator) -> str:
    """A uniform listed command."""
    choices = env.actions()
    return choices[rng.integers(len(choices))]


def _expert_action(env: "HouseEnvironment", rng: np.random.Generator) -> str:
    """The first command of a shortest solution; it reads the hidden state."""
    return next_step(env.state)


SCRIPTED_POLICIES: Mapping[str, ScriptedPolicy] = MappingProxyType(
    {"random": _random_action, "expert": _expert_action}
)


@dataclass(frozen=True)
class DataPolicy:
    """LMRL-Gym's data policy: the expert in half of the rooms, uniform commands in the others.

    In an episode it knows either the four far rooms (office, bathroom, garden, backyard) or the
    other four. With expert probability 1, its mean return and length are those of the published
    dataset, 0.258 and 12.2; with 0.1, as in the released script, it wins less than one episode in a
    hundred.

    Args:
        far_probability: the probability that an episode's known rooms are the far ones.
        expert_probability: the probability of the expert's action in a known room.
    """

    far_probability: float = 0.75
    expert_probability: float = 1.0

    def __call__(self, env: Environment, rng: np.random.Generator) -> str:
        assert isinstance(env, TextNav)
        known = (env.state.room in FAR_ROOMS) == (env.episode_uniform < self.far_probability)
        return (
            _expert_action if known and rng.random() < self.expert_probability else _random_action
        )(env, rng)


class TextNav(HouseEnvironment, Forkable):
    """A house of eight rooms: put the stale food into the kitchen's fridge and close it.

    The food is on the living room's table. Actions are commands: "go east", "open fridge", "take
    stale food from table", "insert stale food into fridge", "put bowl on table", "drop bowl", "eat
    fruit", "close fridge", "examine bowl", "look", "inventory". Case, white space and "the" are
    ignored, and common abbreviations are understood. Any other text is refused, changes nothing and
    costs a turn.

    An answer tells what happened, or describes the room, and lists the possible commands (except
    those to examine, look and take inventory). The closed fridge with the food in it earns 1 and
    ends the episode; eating the food ends it with 0; all other turns earn 0. After 15 commands the
    episode is truncated. `info["legal"]` is whether the command was possible.

    Scripted policies: `random`, `expert` (a shortest solution), `mixture` (`DataPolicy`) and
    `released` (`DataPolicy` as in LMRL-Gym's script). Reset option: `room`, the start room;
    default: sampled.

    Args:
        view: "full" names the room and states the inventory in every answer, "partial" neither.
        sentences: the seed that selects the wordings.

    Raises:
        UserError: an option is unknown or out of range.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            **SCRIPTED_POLICIES,
            "released": DataPolicy(expert_probability=0.1),
            "mixture": DataPolicy(),
        }
    )

    def __init__(
        self, view: str = "full", sentences: int = 1234, render_mode: str | None = None
    ) -> None:
        super().__init__(view, render_mode)
        self.sentences = checked_int("sentences", sentences, 0, 2**31)
        self.start_room = ROOMS[0]
        self.episode_uniform = 0.0  # sampled per episode, for stateless scripted policies

    @property
    def narrator(self) -> Narrator:
        return make_narrator(self.sentences)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.start_room, self.episode_uniform = (
            self._choose_start_room(options),
            float(self.np_random.random()),
        )
        self._rewind()
        return self._observation(
            self.narrator.describe_room(self.state, self.view == "full"), show_inventory=False
        ), {}

    def _rewind(self) -> None:
        self.state, self.turns = HouseState(self.start_room), 0

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        command = canonical_command(text, self.state)
        info: dict[str, Any] = {"legal": command is not None}
        if command is None:
            answer = REFUSAL_TEXT
        else:
            self.state = command_results(self.state)[command]
            answer = self.narrator.describe_result(command, self.state, self.view == "full")
        won, over = self.state.is_won, self.state.is_won or self.state.is_lost
        cut = not over and self.turns == HORIZON
        if over or cut:
            info["success"] = won
        return self._observation(answer), float(won), over, cut, info
