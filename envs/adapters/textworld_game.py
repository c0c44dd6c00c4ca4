"""`TextWorld`: games that the package textworld (arXiv 1806.11532) generates and compiles."""

import json
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.adapters.textworld_generator import checked_settings, compiled_game
from agentrl_jax.envs.options import check_no_options, checked_bool, checked_int, checked_number
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.textworld_compiler import import_textworld
from agentrl_jax.messages import user

FIELDS = (
    "admissible_commands",
    "policy_commands",
    "intermediate_reward",
    "objective",
    "description",
    "score",
    "max_score",
    "won",
    "lost",
)


def _random_action(env: "TextWorld", rng: np.random.Generator) -> str:
    return env.commands[int(rng.integers(len(env.commands)))]


def _expert_action(env: "TextWorld", rng: np.random.Generator) -> str:
    """The next command of the package's own solution."""
    plan = env.state.policy_commands
    return plan[0] if plan else _random_action(env, rng)


class TextWorld(Replayed, Environment):
    """An episode is one of `games` generated games; its index is `first` + seed modulo `games`, so
    two splits are two ranges. The opening is the objective and the first room.

    The reward is the gain in score, as a fraction of the highest one, and `progress` times +1 or -1
    for a command that leads nearer to the end or away from it (part "progress"). Only commands that
    are possible reach the game; another text is refused and counts as a turn. Success is a game
    that was won. `info["full_score"]` is the return of the package's solution.

    Scripted policies: `random` (a possible command), `expert` (the package's solution) and `weak`
    (the expert in three turns of five, else `random`).

    Args:
        kind: `quest`, `coin_collector`, `treasure_hunter` or `cooking`.
        settings: of the kind (`textworld_generator.KINDS`).
        games: how many different games there are.
        first: the index of the first one.
        horizon: turns before truncation.
        progress: see above.
        list_commands: whether an observation lists the possible commands.

    Raises:
        UserError: an option is wrong; from `reset`: the package is missing or makes no such game.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "weak": MixturePolicy(_expert_action, _random_action, 0.6),
        }
    )

    def __init__(
        self,
        kind: str = "quest",
        settings: Mapping[str, Any] | None = None,
        games: int = 100,
        first: int = 0,
        horizon: int = 30,
        progress: float = 0.0,
        list_commands: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.kind = kind
        self.settings = json.dumps(checked_settings(kind, settings or {}), sort_keys=True)
        self.games = checked_int("games", games, 1, 10**6)
        self.first = checked_int("first", first, 0, 10**9)
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        self.progress = checked_number("progress", progress, 0, 10**3)
        self.list_commands = checked_bool("list_commands", list_commands)
        self.reward_bounds = -self.progress, 1.0 + self.progress  # scores do not fall
        self.rules = (
            f"A game of TextWorld ({kind}): write one command a turn, such as go north, take coin, "
            "open fridge. The first message tells what to do."
        )
        self.textworld = import_textworld()
        self.game: Any = None
        self.state: Any = None
        self.commands: list[str] = []
        self._full_score = 1.0

    def actions(self) -> Sequence[str] | None:
        return self.commands

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("TextWorld", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        index = self.first + seed % self.games
        path = compiled_game(self.kind, self.settings, index)
        self.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its interpreter does not know the game
            infos = self.textworld.EnvInfos(**dict.fromkeys(FIELDS, True))
            self.game = self.textworld.start(path, infos)
            self.game.seed(index)
            self.state = self.game.reset()
        self._num_turns = 0
        self._full_score = 1.0 + self.progress * len(self.state.policy_commands or ())
        text = f"{self.state.objective.strip()}\n\n{feedback_text(self.state.description)}"
        return self._observation(text), {"game": index}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        possible = {command.lower(): command for command in self.commands}
        command, is_over = possible.get(" ".join(text.lower().split())), False
        is_legal, before = command is not None, self.state.score
        rewards, answer = {"task": 0.0}, "That is not possible here."
        if is_legal:
            self.state, _, is_over = self.game.step(command)
            answer = feedback_text(self.state.feedback)
            rewards["task"] = (self.state.score - before) / max(self.state.max_score, 1)
            if self.progress:
                rewards["progress"] = self.progress * self.state.intermediate_reward
        is_cut = not is_over and self._num_turns >= self.horizon
        info: dict[str, Any] = {
            "legal": is_legal,
            "rewards": rewards,
            "full_score": self._full_score,
        }
        if is_over or is_cut:
            info["success"] = bool(self.state.won)
        reward = float(sum(rewards.values()))
        return self._observation(answer), reward, bool(is_over), is_cut, info

    def _observation(self, text: str) -> Messages:
        self.commands = sorted(self.state.admissible_commands)
        listed = f"\nCommands: {', '.join(self.commands)}" if self.list_commands else ""
        return (user(f"{text}{listed}\n"),)

    def close(self) -> None:
        if self.game is not None:
            self.game.close()
            self.game = None


def feedback_text(feedback: str) -> str:
    """What a game answers, without its prompt and repeated blank lines."""
    paragraphs = feedback.split("\n>")[0].strip().split("\n\n")
    return "\n\n".join(part.strip() for part in paragraphs if part.strip())
