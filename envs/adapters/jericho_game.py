"""`Jericho`: a game of interactive fiction (arXiv 1909.05398) whose story file the user has."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.options import check_no_options, checked_int
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

_COMMON = (
    "look", "inventory", "wait", "take all", "north", "south", "east", "west", "up", "down", "in",
    "out",
)  # fmt: skip
# They would write files, end the interpreter or ask back.
_REFUSED = {
    "save", "restore", "restart", "quit", "q", "script", "unscript", "noscript", "transcript",
    "record", "recording", "replay", "verify", "undo", "commands",
}  # fmt: skip
# Version of the Z-machine -> the unit of a story's length in its header, in bytes.
_LENGTH_UNITS = {3: 2, 4: 4, 5: 4, 6: 8, 8: 8}
_ENDING = re.compile(r"\*\*\*\s*(.+?)\s*\*\*\*", re.DOTALL)
_LONGEST = 190  # bytes of a command; the package cuts longer ones


def _random_action(env: "Jericho", rng: np.random.Generator) -> str:
    return _COMMON[int(rng.integers(len(_COMMON)))]


def _expert_action(env: "Jericho", rng: np.random.Generator) -> str:
    """The next command of the walkthrough; where there is none, or no more, a random one."""
    turn = len(env._step_history)
    return env.walkthrough[turn] if turn < len(env.walkthrough) else _random_action(env, rng)


class Jericho(Replayed):
    """The opening is the story's; commands reach its interpreter, except for those that save, quit
    and the like, which are refused and count as a turn.

    The reward is the gain in points, as a fraction of the highest score, where the package knows
    the game. Elsewhere it is 1 for the ending that `winning_text` matches: an ending is what
    Inform prints between "***". The seed of an episode is that of the story's random numbers.

    Scripted policies: `random` (a common command) and `expert` (the walkthrough).

    Args:
        story: the path of the story file (.z3, .z5, .z6, .z8).
        walkthrough: commands; empty: the package's, where it has one.
        winning_text: a pattern that the ending of a success matches, where the package does not
            know the game.
        horizon: turns before truncation.

    Raises:
        UserError: the package or the story is missing, or an option is wrong.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "expert": _expert_action}
    )
    program_options: ClassVar[tuple[str, ...]] = ("story",)
    rules = "A game of interactive fiction. One command a turn, such as open mailbox, go north."

    def __init__(
        self,
        story: str = "",
        walkthrough: Sequence[str] = (),
        winning_text: str = "(?i)you have won|the end",
        horizon: int = 100,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.story = story
        if not _is_story(story):
            raise UserError(
                "story must be the path of a story file that you have (.z3, .z4, .z5, .z6 or .z8), "
                f"not {story!r}"
            )
        jericho = import_package("jericho", "jericho")
        try:
            self.winning_text = re.compile(winning_text)
        except re.error as error:
            raise UserError(f"winning_text {winning_text!r} is no pattern: {error}") from error
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does not know the game
            self.game = jericho.FrotzEnv(story, seed=1)
        self.is_known = bool(self.game.is_fully_supported)
        self.max_score = max(int(self.game.get_max_score()), 1) if self.is_known else 1
        known = self.game.get_walkthrough() if self.is_known and not walkthrough else walkthrough
        self.walkthrough = tuple(known)
        if not self.is_known:
            self.reward_bounds = 0.0, 1.0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("Jericho", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        self.game.seed(1 + seed % (2**31 - 2))  # 0 means another seed each time
        opening, _ = self.game.reset()
        self._num_turns = 0
        return (user(_trimmed(opening)),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        command = " ".join(text.encode("ascii", "ignore").decode().split())[:_LONGEST]
        words = re.findall(r"[a-z]+", command.lower())
        is_legal = bool(words) and not _REFUSED.intersection(words)
        answer, reward, is_over, has_won = "That is not possible here.\n", 0.0, False, False
        if is_legal:
            printed, points, is_over, _ = self.game.step(command)
            answer = _trimmed(printed)
            ending = None if self.is_known else _ENDING.search(printed)
            if ending is not None:
                is_over, has_won = True, self.winning_text.search(ending[1]) is not None
            if self.is_known:
                has_won = is_over and bool(self.game.victory())
            reward = points / self.max_score if self.is_known else float(has_won)
        is_cut = not is_over and self._num_turns >= self.horizon
        info: dict[str, Any] = {"legal": is_legal}
        if is_over or is_cut:
            info["success"] = has_won
        return (user(answer),), float(reward), bool(is_over), is_cut, info


def _is_story(path: str) -> bool:
    """Whether a file has the header of a story; the interpreter ends the process elsewhere."""
    if not path or not Path(path).is_file():
        return False
    data = Path(path).read_bytes()
    if len(data) < 64 or data[0] not in _LENGTH_UNITS:
        return False
    length = int.from_bytes(data[26:28], "big") * _LENGTH_UNITS[data[0]]
    return 64 <= length <= len(data)


def _trimmed(printed: str) -> str:
    """What a story prints, without its prompt and blank lines at the ends."""
    return printed.strip().removesuffix(">").strip() + "\n"
