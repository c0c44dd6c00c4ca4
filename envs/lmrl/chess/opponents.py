"""Opponents and teachers: uniform moves, the built-in search, and a UCI engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.envs.lmrl.chess import rules
from agentrl_jax.envs.lmrl.chess.rules import Position
from agentrl_jax.envs.lmrl.chess.search import best_move
from agentrl_jax.envs.lmrl.chess.uci import UCIEngine, find_program
from agentrl_jax.errors import EnvironmentFailure, UserError


@runtime_checkable
class Opponent(Protocol):
    """Chooses a legal move in an unfinished position, at random only through the generator."""

    def move(self, state: Position, rng: np.random.Generator) -> int: ...

    def close(self) -> None:
        """Stop all processes; a later `move` restarts them."""
        ...


@dataclass(frozen=True)
class UniformOpponent:
    """A uniform legal move."""

    def move(self, state: Position, rng: np.random.Generator) -> int:
        return int(rng.choice(state.legal_actions()))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class SearchOpponent:
    """The built-in engine.

    Args:
        depth: plies of the search, 1 to 4; one more with at most five pieces on the board.
        blunder: the probability of a uniform move.
        noise: largest uniform perturbation of a move's value, in centipawns.
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

    def move(self, state: Position, rng: np.random.Generator) -> int:
        if rng.random() < self.blunder:
            return UniformOpponent().move(state, rng)
        ending = sum(mark.isalpha() for mark in str(state).split(" ", 1)[0]) <= 5
        return best_move(state, self.depth + ending, rng, self.noise)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class StockfishOpponent:
    """A UCI engine; by default Debian's Stockfish at its lowest Elo, with 100 ms per move.

    LMRL-Gym has 100 ms too and sets Elo 1200, below the 1350 that Stockfish 15.1 supports, so that
    1350 is what plays. With `nodes` and neither `elo` nor `skill`, a move is a function of the game
    so far; otherwise moves are not reproducible, even for a seed.

    Args:
        engine: the process.
        elo: playing strength; None is full strength.
        skill: Stockfish's own scale from 0 to 20.
        movetime: milliseconds per move.
        nodes: search nodes per move instead of a time.
    """

    engine: UCIEngine
    elo: int | None = 1350
    skill: int | None = None
    movetime: int = 100
    nodes: int | None = None

    def __post_init__(self) -> None:
        for name in ("elo", "skill", "movetime", "nodes"):
            number, optional = getattr(self, name), name != "movetime"
            if not (
                (optional and number is None)
                or (type(number) is int and number >= (name != "skill"))
            ):
                raise UserError(
                    f"{name} is a whole number{' or None' if optional else ''}, not {number!r}"
                )
        if self.skill is not None and self.elo is not None:
            raise UserError(
                "elo and skill are two scales, and Stockfish goes by elo: with a skill say elo=None"
            )
        self.engine.configure(self.settings)  # raises now where a value is out of range

    @property
    def settings(self) -> Mapping[str, Any]:
        """All UCI options, so that engines of several strengths can share a process."""
        settings: dict[str, Any] = {"Threads": 1, "UCI_LimitStrength": self.elo is not None}
        if self.elo is not None:
            settings["UCI_Elo"] = self.elo
        return {**settings, "Skill Level": 20 if self.skill is None else self.skill}

    def move(self, state: Position, rng: np.random.Generator) -> int:
        limit, seconds = (
            (f"nodes {self.nodes}", 0.0)
            if self.nodes
            else (f"movetime {self.movetime}", self.movetime / 1000)
        )
        text = self.engine.best_move(rules.uci_position(state), self.settings, limit, seconds)
        for action in state.legal_actions():
            if rules.move_to_lan(state, action) == text:
                return action
        self.close()
        raise EnvironmentFailure(
            f"{self.engine.program} answered {rules.position_fen(state)} with {text!r}, which is "
            "no legal move",
            "nonsense",
        )

    def close(self) -> None:
        self.engine.close()


def make_stockfish(program: str = "stockfish", **options: Any) -> StockfishOpponent:
    """`StockfishOpponent` with its own engine process.

    Raises:
        UserError: the program is not installed.
    """
    return StockfishOpponent(UCIEngine(find_program(program)), **options)


OPPONENTS: Mapping[str, Callable[..., Opponent]] = MappingProxyType(
    {"search": SearchOpponent, "random": UniformOpponent, "stockfish": make_stockfish}
)


def make_opponent(name: str, options: Mapping[str, Any]) -> Opponent:
    """The opponent of this name.

    Raises:
        UserError: the name or an option is wrong.
    """
    if name not in OPPONENTS:
        raise UserError(f"the opponent is one of {', '.join(OPPONENTS)}, not {name!r}")
    try:
        return OPPONENTS[name](**options)
    except TypeError as error:
        raise UserError(
            f"the opponent {name!r} does not take the options {dict(options)}: {error}"
        ) from error
