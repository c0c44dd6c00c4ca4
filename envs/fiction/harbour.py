"""`HarbourCase`: a detective story of nineteen rooms, played as ArCHer (arXiv 2402.19446) plays the Detective game."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.fiction import story
from agentrl_jax.envs.fiction.rules import State, next_step, outcomes
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import whole
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform possible command."""
    assert isinstance(env, HarbourCase)
    possible = tuple(outcomes(env.state))
    return possible[rng.integers(len(possible))]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """The next command of a walkthrough that earns all points; it knows who did it and where the key is."""
    assert isinstance(env, HarbourCase)
    return next_step(env.state)


def surroundings(state: State) -> str:
    """What is seen: the room, and what lies there to be taken."""
    lying = [thing for thing, room in state.things.items() if room == state.room and f"take {thing}" not in state.done]
    parts = [f"{state.room.capitalize()}. {story.ROOMS[state.room].text}", *(f"There is a {thing} here." for thing in lying)]
    if state.room == "yard":
        parts.append("A dog gnaws at a bone." if "give bone to dog" in state.done else "A huge dog watches you from the door.")
    return " ".join(parts)


def inventory(state: State) -> str:
    """What is carried, and what the notebook says."""
    things = [f"{thing}{' (lit)' if thing == 'lamp' and 'light lamp' in state.done else ''}" for thing in state.things if state.has(thing)]
    notes = [note.format(culprit=state.culprit) for deed, note in story.NOTES.items() if deed in state.done]
    return f"You carry: {', '.join(things) or 'nothing'}.{' Notes: ' + '; '.join(notes) + '.' if notes else ''}"


class HarbourCase(Rewindable):
    """A clockmaker is dead and the town's clock gone: find the proofs and arrest who did it, within `horizon` commands.

    An observation is what the room looks like, what is carried, what came of the last command, and the list of the possible commands, and
    a policy sees the last one only. The reward is the change of the game's score, 280 in all: 10 to 40 for each of nine finds and
    100 for the right arrest with all proofs, which is success. Some steps are fatal, and so ends a wrong arrest. Any other text than
    a possible command comes to nothing and costs a turn; the last of `horizon` turns truncates the episode.

    There are nine cases: three culprits, and three places for the key. The seed draws one, unless `case` names it for good or the
    reset option `case` does for one episode. `info` says `legal` and `score`.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": Mixed(_expert, _random, 0.8), "expert": _expert}
    )
    context: ContextManager = LastMessages(1)
    reward_bounds: tuple[float, float] = (0.0, float(max(story.POINTS.values())))

    def __init__(self, horizon: int = 50, case: int | None = None, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.horizon = whole("horizon", horizon, 1, 1000)
        self.case = None if case is None else whole("case", case, 0, story.CASES - 1)
        self.rules = (
            f"A clockmaker is dead, and the town's great clock is gone. Find the proofs and arrest who did it, within {horizon} commands.\n"
            "After each answer you are told which commands are possible. Some of them you will regret."
        )
        self.start = State(0)
        self.state = self.start
        self.turns = 0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"case"}:
            raise UserError(f"HarbourCase has no reset option {sorted(unknown)}; it has: case")
        drawn = int(self.np_random.integers(story.CASES))
        named = options.get("case", drawn if self.case is None else self.case)
        self.start = State(whole("case", named, 0, story.CASES - 1))
        self._rewind()
        return self._said("You are on duty, and it is a case for you."), {}

    def _rewind(self) -> None:
        self.state, self.turns = self.start, 0

    def _said(self, feedback: str) -> Messages:
        possible = [] if self.state.over else [*outcomes(self.state)]
        return (user(f"{surroundings(self.state)}\n{inventory(self.state)}\n{feedback}\n{possible}\n"),)

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        before, outcome = self.state, outcomes(self.state).get(text.strip())
        if outcome is not None:
            self.state = outcome.state
        gained, over = float(self.state.score - before.score), self.state.over
        cut = not over and self.turns == self.horizon
        info: dict[str, Any] = {"legal": outcome is not None, "score": self.state.score}
        if over or cut:
            info["success"] = self.state.solved
        return self._said(story.NOTHING if outcome is None else outcome.text), gained, over, cut, info
