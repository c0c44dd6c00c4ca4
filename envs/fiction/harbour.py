"""`HarbourCase`: a detective story of 19 rooms, after ArCHer's Detective (arXiv 2402.19446)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.fiction import story
from agentrl_jax.envs.fiction.rules import StoryState, command_outcomes, next_step
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user


def _random_action(env: "HarbourCase", rng: np.random.Generator) -> str:
    """A uniform possible command."""
    possible = tuple(command_outcomes(env.state))
    return possible[rng.integers(len(possible))]


def _expert_action(env: "HarbourCase", rng: np.random.Generator) -> str:
    """The next command of a walkthrough for all points; it reads the hidden case."""
    return next_step(env.state)


def describe_surroundings(state: StoryState) -> str:
    """The description of the room and of the items in it."""
    lying = [
        thing
        for thing, room in state.item_rooms.items()
        if room == state.room and f"take {thing}" not in state.completed_commands
    ]
    parts = [
        f"{state.room.capitalize()}. {story.ROOMS[state.room].description}",
        *(f"There is a {thing} here." for thing in lying),
    ]
    if state.room == "yard":
        parts.append(
            "A dog gnaws at a bone."
            if "give bone to dog" in state.completed_commands
            else "A huge dog watches you from the door."
        )
    return " ".join(parts)


def describe_inventory(state: StoryState) -> str:
    """What the detective carries, and the notes taken."""
    things = [
        f"{thing}{' (lit)' if thing == 'lamp' and 'light lamp' in state.completed_commands else ''}"
        for thing in state.item_rooms
        if state.has_item(thing)
    ]
    notes = [
        note.format(culprit=state.culprit)
        for deed, note in story.NOTES.items()
        if deed in state.completed_commands
    ]
    return (
        "You carry: "
        f"{', '.join(things) or 'nothing'}.{' Notes: ' + '; '.join(notes) + '.' if notes else ''}"
    )


class HarbourCase(Forkable):
    """A text adventure: find the proofs of a murder and arrest the culprit.

    An observation describes the room, what is carried, the effect of the last command, and lists
    the possible commands; the default context shows the last one only. The reward is the change of
    the score, 280 in total: 10 to 40 for each of nine finds, and 100 for the right arrest with all
    proofs, which is success. Some moves are fatal; a wrong arrest ends the episode too. Any other
    text has no effect and costs a turn. `info` holds `legal` and `score`.

    Scripted policies: `random` (uniform over possible commands), `expert` (a walkthrough) and
    `mixture` (the expert with probability 0.8). Reset option: `case`, as the argument, for one
    episode.

    Args:
        horizon: turns before truncation.
        case: one of nine cases (three culprits, three places of the key); None samples it.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "expert": _expert_action,
        }
    )
    context: ContextManager = LastMessages(1)
    reward_bounds: tuple[float, float] = (0.0, float(max(story.COMMAND_POINTS.values())))

    def __init__(
        self, horizon: int = 50, case: int | None = None, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.case = None if case is None else checked_int("case", case, 0, story.NUM_CASES - 1)
        self.rules = (
            "A clockmaker is dead, and the town's great clock is gone. Find the proofs and "
            f"arrest who did it, within {horizon} commands.\n"
            "After each answer you are told which commands are possible. Some of them you will "
            "regret."
        )
        self.start_state = StoryState(0)
        self.state = self.start_state
        self.turns = 0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"case"}:
            raise UserError(f"HarbourCase has no reset option {sorted(unknown)}; it has: case")
        sampled = int(self.np_random.integers(story.NUM_CASES))
        case = options.get("case", sampled if self.case is None else self.case)
        self.start_state = StoryState(checked_int("case", case, 0, story.NUM_CASES - 1))
        self._rewind()
        return self._observation("You are on duty, and it is a case for you."), {}

    def _rewind(self) -> None:
        self.state, self.turns = self.start_state, 0

    def _observation(self, feedback: str) -> Messages:
        possible = [] if self.state.is_over else [*command_outcomes(self.state)]
        return (
            user(
                f"{describe_surroundings(self.state)}\n{describe_inventory(self.state)}\n{feedback}\n{possible}\n"
            ),
        )

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        before, outcome = self.state, command_outcomes(self.state).get(text.strip())
        if outcome is not None:
            self.state = outcome.state
        gained, over = float(self.state.score - before.score), self.state.is_over
        cut = not over and self.turns == self.horizon
        info: dict[str, Any] = {"legal": outcome is not None, "score": self.state.score}
        if over or cut:
            info["success"] = self.state.is_solved
        return (
            self._observation(story.NO_EFFECT_TEXT if outcome is None else outcome.text),
            gained,
            over,
            cut,
            info,
        )
