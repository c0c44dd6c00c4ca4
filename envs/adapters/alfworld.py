"""`ALFWorld`: household tasks (arXiv 2010.03768) in the engine of the package alfworld."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.alfworld_planner import next_command
from agentrl_jax.envs.adapters.alfworld_problems import (
    FAMILIES,
    SPLITS,
    game_data,
    generated_problem,
)
from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.options import check_no_options, checked_bool, checked_choice, checked_int
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user


def _random_action(env: "ALFWorld", rng: np.random.Generator) -> str:
    return env.commands[int(rng.integers(len(env.commands)))]


def _expert_action(env: "ALFWorld", rng: np.random.Generator) -> str:
    """The next command of a plan that knows where everything is."""
    return next_command(env.problem, env.facts(), env.names)


class ALFWorld(Replayed):
    """An episode is one of `games` generated problems of a split: the seed modulo `games`. Rules
    and sentences are the package's, in its engine; the published games, which are a download, are
    not here. Floor plans of `unseen` do not occur in `train` and `seen`, as published.

    The reward is 1 for the goal. A text that is no possible command is answered by "Nothing
    happens." and counts as a turn.

    Scripted policies: `random` (a possible command) and `expert` (a plan from the hidden state).

    Args:
        families: the kinds of tasks.
        split: `train`, `seen` or `unseen`.
        games: how many different problems there are.
        objects: in a room, beside those that the task is about.
        horizon: turns before truncation.
        list_commands: whether an observation lists the possible commands.

    Raises:
        UserError: the package is missing, or an option is wrong.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "expert": _expert_action}
    )
    reward_bounds = (0.0, 1.0)
    rules = (
        "Do the household task. One command a turn: go to, open or close a receptacle; take an "
        "object from it or move one to it; clean, heat or cool an object with one; use a lamp; "
        "examine, look, inventory."
    )

    def __init__(
        self,
        families: Sequence[str] = tuple(FAMILIES),
        split: str = "train",
        games: int = 10**6,
        objects: int = 6,
        horizon: int = 30,
        list_commands: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        if isinstance(families, str) or not families or not set(families) <= FAMILIES.keys():
            raise UserError(f"families must be of {', '.join(FAMILIES)}, not {families!r}")
        self.families = tuple(families)
        self.split = checked_choice("split", split, SPLITS)
        self.games = checked_int("games", games, 1, 10**9)
        self.objects = checked_int("objects", objects, 0, 100)
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        self.list_commands = checked_bool("list_commands", list_commands)
        import_package("fast_downward", "alfworld")
        self._engine = import_package("textworld.envs", "alfworld")
        self._names = import_package("alfworld.agents.utils.misc", "alfworld").Demangler
        self.game: Any = None
        self.state: Any = None
        self.names: dict[str, str] = {}
        self.commands: list[str] = []

    def actions(self) -> Sequence[str] | None:
        return self.commands

    def facts(self) -> frozenset[tuple[str, ...]]:
        """The hidden state: ("inreceptacle", "mug_bar_0", "desk_bar_2"), ..."""
        return frozenset(
            (fact.name.lower(), *(argument.name.lower() for argument in fact.arguments))
            for fact in self.state["_facts"]
        )

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("ALFWorld", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        index = SPLITS[self.split][1] + seed % self.games
        rng = np.random.default_rng(index)
        self.problem = generated_problem(rng, self.families, self.split, self.objects)
        self.game = self._engine.PddlEnv(import_package("textworld", "alfworld").EnvInfos())
        self.game.load(game_data(self.problem))
        things = self.game._entity_infos
        named = self._names(game_infos=things)
        for thing in things.values():
            thing.name = named.demangle_alfred_name(thing.id)
        self.names = {thing.id.lower(): thing.name for thing in things.values()}
        self.state, self._num_turns = self.game.reset(), 0
        info = {"family": self.problem.family, "floor_plan": self.problem.floor_plan}
        return self._observation(), info

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self._num_turns += 1
        command = " ".join(text.lower().split())
        is_legal = command in self.commands
        self.state, _, _ = self.game.step(command)
        is_over = bool(self.state["won"])
        is_cut = not is_over and self._num_turns >= self.horizon
        info: dict[str, Any] = {"legal": is_legal}
        if is_over or is_cut:
            info["success"] = is_over
        return self._observation(), float(is_over), is_over, is_cut, info

    def _observation(self) -> Messages:
        self.commands = list(self.state["admissible_commands"])
        listed = f"\nCommands: {', '.join(self.commands)}" if self.list_commands else ""
        return (user(f"{self.state.feedback.strip()}{listed}\n"),)
