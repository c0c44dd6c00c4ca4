"""Who may answer the agent's moves, or teach it: uniform moves, the built-in search, and a UCI engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.envs.lmrl.chess import rules
from agentrl_jax.envs.lmrl.chess.rules import State
from agentrl_jax.envs.lmrl.chess.search import best_move
from agentrl_jax.envs.lmrl.chess.uci import Engine, find
from agentrl_jax.errors import EnvironmentFailure, UserError


@runtime_checkable
class Opponent(Protocol):
    """Chooses a legal move of a position that is not over, with no other randomness than the given."""

    def move(self, state: State, rng: np.random.Generator) -> int: ...

    def close(self) -> None:
        """Leave nothing running; it may be asked again."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Any legal move."""

    def move(self, state: State, rng: np.random.Generator) -> int:
        return int(rng.choice(state.legal_actions()))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Search:
    """The built-in player looks `depth` plies ahead, and one more where at most five pieces are left.

    Its judgement is off by up to `noise` centipawns, and a share `blunder` of its moves is uniform.
    """

    depth: int = 2
    blunder: float = 0.2
    noise: float = 10.0

    def __post_init__(self) -> None:
        if self.depth not in (1, 2, 3, 4):
            raise UserError(f"depth is 1, 2, 3 or 4, not {self.depth!r}")
        for name, most in (("blunder", 1), ("noise", 500)):
            number = getattr(self, name)
            if not (isinstance(number, int | float) and 0 <= number <= most):
                raise UserError(f"{name} is a number from 0 to {most}, not {number!r}")

    def move(self, state: State, rng: np.random.Generator) -> int:
        if rng.random() < self.blunder:
            return Uniform().move(state, rng)
        ending = sum(mark.isalpha() for mark in str(state).split(" ", 1)[0]) <= 5
        return best_move(state, self.depth + ending, rng, self.noise)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Stockfish:
    """A UCI engine, by default Debian's Stockfish with LMRL-Gym's 100 ms a move at the least Elo that Stockfish 15.1 has.

    LMRL-Gym asks for 1200, which that program ignores: 1350 is what plays. `elo` None is full strength, `skill` Stockfish's own scale
    from 0 to 20. With `nodes` (instead of `movetime`, in ms) and neither `elo` nor `skill` a move follows from the game so far;
    else it does not even follow from the seed.
    """

    engine: Engine
    elo: int | None = 1350
    skill: int | None = None
    movetime: int = 100
    nodes: int | None = None

    def __post_init__(self) -> None:
        for name in ("elo", "skill", "movetime", "nodes"):
            number, optional = getattr(self, name), name != "movetime"
            if not ((optional and number is None) or (type(number) is int and number >= (name != "skill"))):
                raise UserError(f"{name} is a whole number{' or None' if optional else ''}, not {number!r}")
        if self.skill is not None and self.elo is not None:
            raise UserError("elo and skill are two scales, and Stockfish goes by elo: with a skill say elo=None")
        self.engine.configure(self.settings)  # so that what is out of its range is said now

    @property
    def settings(self) -> Mapping[str, Any]:
        """What is asked of the engine; every setting is named, so that engines of several strengths can be one process."""
        settings: dict[str, Any] = {"Threads": 1, "UCI_LimitStrength": self.elo is not None}
        if self.elo is not None:
            settings["UCI_Elo"] = self.elo
        return {**settings, "Skill Level": 20 if self.skill is None else self.skill}

    def move(self, state: State, rng: np.random.Generator) -> int:
        limit, seconds = (f"nodes {self.nodes}", 0.0) if self.nodes else (f"movetime {self.movetime}", self.movetime / 1000)
        text = self.engine.best_move(rules.record(state), self.settings, limit, seconds)
        for action in state.legal_actions():
            if rules.lan(state, action) == text:
                return action
        self.close()
        raise EnvironmentFailure(f"{self.engine.program} answered {rules.fen(state)} with {text!r}, which is no legal move", "nonsense")

    def close(self) -> None:
        self.engine.close()


def stockfish(program: str = "stockfish", **options: Any) -> Stockfish:
    """`Stockfish` with an engine of its own. Raises UserError where there is no such program."""
    return Stockfish(Engine(find(program)), **options)


OPPONENTS: Mapping[str, Callable[..., Opponent]] = MappingProxyType({"search": Search, "random": Uniform, "stockfish": stockfish})


def named(name: str, options: Mapping[str, Any]) -> Opponent:
    """The opponent of this name. Raises UserError where the name or an option is wrong."""
    if name not in OPPONENTS:
        raise UserError(f"the opponent is one of {', '.join(OPPONENTS)}, not {name!r}")
    try:
        return OPPONENTS[name](**options)
    except TypeError as error:
        raise UserError(f"the opponent {name!r} does not take the options {dict(options)}: {error}") from error
