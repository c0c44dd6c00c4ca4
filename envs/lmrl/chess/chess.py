"""`Chess`: beat an opponent with White (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import LastMessages
from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.lmrl.chess import opponents, rules
from agentrl_jax.envs.lmrl.chess.opponents import Opponent, Search, Stockfish, Uniform, stockfish
from agentrl_jax.envs.lmrl.chess.rules import WHITE, State
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

MOVES = 400  # of the agent that may pass; the next one is the last
ILLEGAL_REWARD = -1.0
TEACHERS = ("search", "stockfish")
TEACHING_NODES = 150_000  # with fewer Stockfish finds no way to mate with a rook
ELO = (1350, 2850)  # of a mixture that Stockfish teaches
ANCHORS = (-401.0, 0.21, 1.0)


def spelled(text: str) -> str:
    """A space between all characters: "Qh5+" -> "Q h 5 +", and "w KQkq" -> "w   K Q k q"."""
    return " ".join(text)


def _said(env: Environment, move: int) -> str:
    assert isinstance(env, Chess)
    return spelled(env.state.action_to_string(move))


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform legal move."""
    assert isinstance(env, Chess)
    return _said(env, Uniform().move(env.state, rng))


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """The teacher at its best."""
    assert isinstance(env, Chess)
    return _said(env, env.teacher.move(env.state, rng))


def _mixture(env: Environment, rng: np.random.Generator) -> str:
    """The teacher at a strength that is drawn for the game: a data policy, as no more is known of LMRL-Gym's own.

    With the defaults its mean return is about the middle anchor.
    """
    assert isinstance(env, Chess)
    share = env.dice % 1024 / 1024
    if isinstance(env.teacher, Stockfish):
        return _said(env, replace(env.teacher, elo=int(ELO[1] - share * (ELO[1] - ELO[0]))).move(env.state, rng))
    return _said(env, replace(env.teacher, blunder=share * env.weakest).move(env.state, rng))


class Chess(Rewindable):
    """A game with White against an opponent, by moves in standard algebraic notation with spaces: "e 4", "N x e 5 +", "O - O".

    An observation is the position's FEN with a space between all characters and no line feed at its end. An action's spaces are
    removed, like white space at its ends, and marks of check and mate may be left out. The reward is 1 for mating and -1 for being
    mated, else 0; text that is no legal move earns -1, changes nothing and the game goes on. After `moves` (400) moves, illegal ones
    too, the next one is the last, and the episode is truncated.

    `opponent` is "search" (options `depth`, `blunder`, `noise`), "random", or "stockfish" (`elo`, `skill`, `movetime`, `nodes`,
    `program`). `teacher` plays the expert and, weakened, the mixture: "search" or "stockfish". `bc_state_newline` ends observations
    with a line feed, as LMRL-Gym's BC data have it and its environment has not. `info["legal"]` says whether the text was a legal
    move, and reset option `fen` where to start. Raises UserError where an option is wrong or something that it needs is missing.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": _random, "mixture": _mixture, "expert": _expert})
    context = LastMessages(1)
    reward_bounds = (-1.0, 1.0)
    reset_options: ClassVar[tuple[str, ...]] = ("fen",)
    weakest: ClassVar[float] = 0.3  # the greatest share of uniform moves that the mixture makes

    def __init__(
        self,
        opponent: str = "search",
        teacher: str = "search",
        moves: int = MOVES,
        bc_state_newline: bool = False,
        render_mode: str | None = None,
        **strength: Any,
    ) -> None:
        super().__init__(render_mode)
        if type(moves) is not int or moves < 1:
            raise UserError(f"moves is a whole number from 1, not {moves!r}")
        if teacher not in TEACHERS:
            raise UserError(f"the teacher is one of {', '.join(TEACHERS)}, not {teacher!r}")
        rules.game()  # says what to install where it is missing
        self.opponent: Opponent = opponents.named(opponent, strength)
        program = strength.get("program", "stockfish")
        self.teacher = Search(blunder=0.0) if teacher == "search" else stockfish(program, elo=None, nodes=TEACHING_NODES)
        self.moves, self._end = moves, "\n" if bc_state_newline else ""
        self.score_anchors = ANCHORS if moves == MOVES else None
        self.rules = (
            f"You have White: mate Black within {moves} moves. Each time you are told the position in Forsyth-Edwards notation, with a\n"
            "space between all characters: ranks from the eighth to the first, White's pieces in capitals, numbers for empty squares.\n"
            "Write a move in standard algebraic notation, with or without spaces: e 4, N x e 5, O - O, e 8 = Q.\n"
            "Anything else costs a point and a move, and the position stays as it is."
        )
        self._start = rules.START
        self.dice = 0  # of this episode: what the opponent draws from, and which strength the mixture has
        self._replies: tuple[int, ...] = ()  # more than `_answered` only while a fork repeats them
        self._rewind()

    def actions(self) -> tuple[str, ...]:
        return tuple(map(spelled, rules.moves(self.state)))

    def _drawn(self, options: dict[str, Any]) -> str:
        """The FEN where the episode starts."""
        return rules.check(options["fen"]) if "fen" in options else rules.START

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - set(self.reset_options):
            raise UserError(f"{type(self).__name__} has no reset option {sorted(unknown)}; it has: {', '.join(self.reset_options)}")
        self._start = self._drawn(options)
        self.dice = int(self.np_random.integers(2**62))
        self._replies = ()
        self._rewind()
        return self._observation(), {}

    def _rewind(self) -> None:
        self.state: State = rules.position(self._start)
        self.turns = self._answered = 0

    def fork(self, turn: int | None = None) -> "Chess":
        """As `Rewindable.fork`; what the opponent replied so far is remembered, not asked again."""
        twin = super().fork(turn)
        assert isinstance(twin, Chess)
        twin._replies = twin._replies[: twin._answered]
        return twin

    def close(self) -> None:
        self.opponent.close()
        self.teacher.close()
        super().close()

    def _observation(self) -> Messages:
        return (user(spelled(rules.fen(self.state)) + self._end),)

    def _reply(self) -> None:
        """The opponent moves."""
        if self._answered == len(self._replies):
            move = self.opponent.move(self.state, np.random.default_rng([self.dice, self._answered]))
            self._replies = (*self._replies, move)
        self.state = self.state.child(self._replies[self._answered])
        self._answered += 1

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        san = rules.unmarked(text.strip().replace(" ", ""))
        move = next((move for legal, move in rules.moves(self.state).items() if rules.unmarked(legal) == san), None)
        reward = ILLEGAL_REWARD if move is None else 0.0
        self.turns += 1
        if move is not None:
            self.state = self.state.child(move)
            if not self.state.is_terminal():
                self._reply()
        over = self.state.is_terminal()
        if over:
            reward = self.state.returns()[WHITE]
        late = not over and self.turns > self.moves
        info: dict[str, Any] = {"legal": move is not None}
        if over or late:
            info["success"] = over and reward > 0
        return self._observation(), reward, over, late, info
