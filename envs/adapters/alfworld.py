"""`ALFWorld`: household tasks (arXiv 2010.03768) in the engine of the package alfworld."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.adapters.alfworld_engine import engine
from agentrl_jax.envs.adapters.alfworld_planner import (
    facts_seen,
    next_command,
    unseen_receptacles,
)
from agentrl_jax.envs.adapters.alfworld_problems import (
    FAMILIES,
    ROOMS,
    SPLITS,
    game_data,
    generated_problem,
)
from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.options import (
    check_no_options,
    checked_bool,
    checked_choice,
    checked_choices,
    checked_int,
)
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.messages import user


def _random_action(env: "ALFWorld", rng: np.random.Generator) -> str:
    """A possible command, but for `help`, which lists the forms of commands."""
    commands = [command for command in env.commands if command != "help"]
    return commands[int(rng.integers(len(commands)))]


def _expert_action(env: "ALFWorld", rng: np.random.Generator) -> str:
    """The next command of a plan that knows where everything is."""
    command = next_command(env.problem, env.facts(), env.names)
    assert command is not None
    return command


def _searching_action(env: "ALFWorld", rng: np.random.Generator) -> str:
    """The expert's next command where what was seen is enough for it, else one that shows a
    receptacle for the first time, at random.
    """
    issued = {action.text for action, _ in env._step_history}
    planned = next_command(env.problem, facts_seen(env.facts(), env.names, issued), env.names)
    unseen = unseen_receptacles(env.commands, issued)
    if planned or not unseen:
        return planned or _random_action(env, rng)
    return unseen[int(rng.integers(len(unseen)))]


class ALFWorld(Replayed):
    """An episode is one of `games` generated problems of a split: the seed modulo `games`. Rules
    and sentences are the package's, in its engine; the published games, which are a download, are
    not here. Floor plans of `unseen` do not occur in `train` and `seen`, as published.

    The reward is 1 for the goal. A text that is no possible command is answered by "Nothing
    happens." and counts as a turn.

    Scripted policies: `random` (a possible command), `expert` (a plan from the hidden state),
    `searching` (looks into one receptacle after another, then does as the expert) and `weak`
    (`searching` in seven turns of ten, else `random`).

    Args:
        families: the kinds of tasks.
        split: `train`, `seen` or `unseen`.
        games: how many different problems there are.
        objects: in a room, beside those that the task is about.
        rooms: the kinds of rooms: `kitchen`, `living_room`, `bedroom`, `bathroom`.
        horizon: turns before truncation.
        list_commands: whether an observation lists the possible commands.
        repeat_task: whether each observation ends with the task.

    Raises:
        UserError: the package is missing, or an option is wrong; from `reset`: a family has no task
            in these rooms.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "searching": _searching_action,
            "weak": MixturePolicy(_searching_action, _random_action, 0.7),
        }
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
        rooms: Sequence[str] = tuple(ROOMS),
        horizon: int = 30,
        list_commands: bool = True,
        repeat_task: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.families = checked_choices("families", families, tuple(FAMILIES))
        self.rooms = checked_choices("rooms", rooms, tuple(ROOMS))
        self.split = checked_choice("split", split, SPLITS)
        self.games = checked_int("games", games, 1, 10**9)
        self.objects = checked_int("objects", objects, 0, 100)
        self.horizon = checked_int("horizon", horizon, 1, 10**6)
        self.list_commands = checked_bool("list_commands", list_commands)
        self.repeat_task = checked_bool("repeat_task", repeat_task)
        engine()
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
        self.problem = generated_problem(rng, self.families, self.split, self.objects, self.rooms)
        if self.game is None:
            self.game = engine().game()
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
        task = f"\nYour task: {self.problem.description}." if self.repeat_task else ""
        return (user(f"{self.state.feedback.strip()}{listed}{task}\n"),)

    def close(self) -> None:
        if self.game is not None:
            engine().idle_games.append(self.game)
            self.game = None
