"""The engine of the package alfworld, whose parsers and translator remember what they have read."""

import functools
from typing import Any

from agentrl_jax.envs.adapters.packages import import_package

_TEXTS = 8192  # the grammar's sentences and conditions: a few hundred, and one for each command
_PROBLEMS = 16  # of about four megabytes each; the episodes of a group play the same


class _RememberingParser:
    """Parses a text once; from a parse, the engine builds anew each time."""

    def __init__(self, parser: Any, texts: int) -> None:
        self.parse = functools.lru_cache(texts)(parser.parse)


class Engine:
    """Games of the package's engine, which are used again: each one loads a copy of the planner's
    library of two megabytes, and the package cannot unload it.

    In each step the engine parses the sentences and conditions of its grammar again, and in each
    reset the grammar, and it translates the problem four times: most of its time. All of that are
    functions of texts, which remember here.

    Raises:
        UserError: the package is missing.
    """

    def __init__(self) -> None:
        planner: Any = import_package("fast_downward", "alfworld")
        planner.pddl2sas = functools.lru_cache(2 * _PROBLEMS)(planner.pddl2sas)  # in two forms
        self._module = import_package("textworld.envs", "alfworld")
        self._infos = import_package("textworld", "alfworld").EnvInfos
        for name, texts in (
            ("textworld.envs.pddl.textgen", _TEXTS),
            ("textworld.logic", _TEXTS),
            ("textworld.envs.pddl.logic", _PROBLEMS),
        ):
            language: Any = import_package(name, "alfworld")
            language._PARSER = _RememberingParser(language._PARSER, texts)
        self.idle_games: list[Any] = []

    def game(self) -> Any:
        """One of the idle games, or a new one."""
        try:
            return self.idle_games.pop()
        except IndexError:
            return self._module.PddlEnv(self._infos())


@functools.cache
def engine() -> Engine:
    """The engine of this process."""
    return Engine()
