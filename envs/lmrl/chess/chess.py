"""`Chess`: beat an opponent with White (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import LastMessages
from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.lmrl.chess import opponents, rules
from agentrl_jax.envs.lmrl.chess.opponents import (
    Opponent,
    SearchOpponent,
    StockfishOpponent,
    UniformOpponent,
    make_stockfish,
)
from agentrl_jax.envs.lmrl.chess.rules import WHITE, Position
from agentrl_jax.envs.lmrl.phrases import spell_out
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

MAX_MOVES = 400  # of the agent; the next one is the last
ILLEGAL_REWARD = -1.0
TEACHERS = ("search", "stockfish")
TEACHING_NODES = 150_000  # with fewer, Stockfish does not mate with a rook
ELO_RANGE = (1350, 2850)  # of the mixture with the Stockfish teacher
ANCHORS = (-401.0, 0.21, 1.0)


def _move_text(env: "Chess", move: int) -> str:
    return spell_out(env.state.action_to_string(move))


def _random_action(env: "Chess", rng: np.random.Generator) -> str:
    """A uniform legal move."""
    return _move_text(env, UniformOpponent().move(env.state, rng))


def _expert_action(env: "Chess", rng: np.random.Generator) -> str:
    """The teacher at full strength."""
    return _move_text(env, env.teacher.move(env.state, rng))


def _mixture_action(env: "Chess", rng: np.random.Generator) -> str:
    """The teacher at a strength sampled per game; LMRL-Gym's data policy is not known in detail.

    With the defaults its mean return is about the middle anchor.
    """
    weakness = env.episode_seed % 1024 / 1024
    if isinstance(env.teacher, StockfishOpponent):
        elo = int(ELO_RANGE[1] - weakness * (ELO_RANGE[1] - ELO_RANGE[0]))
        teacher = replace(env.teacher, elo=elo)
    else:
        teacher = replace(env.teacher, blunder=weakness * env.max_blunder_rate)
    return _move_text(env, teacher.move(env.state, rng))


class Chess(Forkable):
    """A game with White against an opponent, in algebraic notation with spaces: "e 4", "N x e 5 +".

    An observation is the position's FEN with a space between all characters and no final line feed.
    Spaces in an action, white space at its ends and marks of check and mate are optional. Mating
    earns 1, being mated -1, any other legal move 0; an illegal text earns -1, changes nothing, and
    the game continues. After `moves` moves, illegal ones included, the next one is the last, and
    the episode is truncated. `info["legal"]` is whether the text was a legal move.

    Scripted policies: `random` (uniform legal moves), `expert` (the teacher) and `mixture` (the
    teacher, weakened per game). Reset option: `fen`, the start.

    Args:
        opponent: "search" (options `depth`, `blunder`, `noise`), "random", or "stockfish" (`elo`,
            `skill`, `movetime`, `nodes`, `program`).
        teacher: "search" or "stockfish".
        moves: the limit of moves.
        bc_state_newline: whether observations end in a line feed, as in LMRL-Gym's BC data but not
            in its environment.
        strength: options of the opponent.

    Raises:
        UserError: an option is wrong, or a program or package is missing.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "mixture": _mixture_action, "expert": _expert_action}
    )
    context = LastMessages(1)
    reward_bounds = (-1.0, 1.0)
    reset_options: ClassVar[tuple[str, ...]] = ("fen",)
    program_options: ClassVar[tuple[str, ...]] = ("program",)
    max_blunder_rate: ClassVar[float] = 0.3  # the mixture's largest fraction of uniform moves

    def __init__(
        self,
        opponent: str = "search",
        teacher: str = "search",
        moves: int = MAX_MOVES,
        bc_state_newline: bool = False,
        render_mode: str | None = None,
        **strength: Any,
    ) -> None:
        super().__init__(render_mode)
        if type(moves) is not int or moves < 1:
            raise UserError(f"moves is a whole number from 1, not {moves!r}")
        if teacher not in TEACHERS:
            raise UserError(f"the teacher is one of {', '.join(TEACHERS)}, not {teacher!r}")
        rules.chess_game()  # raises where OpenSpiel is missing
        self.opponent: Opponent = opponents.make_opponent(opponent, strength)
        program = strength.get("program", "stockfish")
        self.teacher = (
            SearchOpponent(blunder=0.0)
            if teacher == "search"
            else make_stockfish(program, elo=None, nodes=TEACHING_NODES)
        )
        self.moves, self._observation_suffix = moves, "\n" if bc_state_newline else ""
        self.score_anchors = ANCHORS if moves == MAX_MOVES else None
        self.rules = (
            f"You have White: mate Black within {moves} moves. Each time you are told the "
            "position in Forsyth-Edwards notation, with a\n"
            "space between all characters: ranks from the eighth to the first, White's pieces in "
            "capitals, numbers for empty squares.\n"
            "Write a move in standard algebraic notation, with or without spaces: e 4, N x e 5, O "
            "- O, e 8 = Q.\n"
            "Anything else costs a point and a move, and the position stays as it is."
        )
        self._start_fen = rules.START_FEN
        self.episode_seed = 0  # of the opponent's randomness and the mixture's strength
        # More than `_opponent_move_count` only while a fork replays them.
        self._opponent_moves: tuple[int, ...] = ()
        self._rewind()

    def actions(self) -> tuple[str, ...]:
        return tuple(map(spell_out, rules.legal_moves(self.state)))

    def _choose_start_fen(self, options: dict[str, Any]) -> str:
        """The FEN where the episode starts."""
        return rules.validate_fen(options["fen"]) if "fen" in options else rules.START_FEN

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - set(self.reset_options):
            raise UserError(
                f"{type(self).__name__} has no reset option {sorted(unknown)}; it has: "
                f"{', '.join(self.reset_options)}"
            )
        self._start_fen = self._choose_start_fen(options)
        self.episode_seed = int(self.np_random.integers(2**62))
        self._opponent_moves = ()
        self._rewind()
        return self._observation(), {}

    def _rewind(self) -> None:
        self.state: Position = rules.position_from_fen(self._start_fen)
        self.turns = self._opponent_move_count = 0

    def fork(self, turn: int | None = None) -> "Chess":
        """As `Forkable.fork`; the opponent's replies so far are reused, not requested again."""
        twin = super().fork(turn)
        assert isinstance(twin, Chess)
        twin._opponent_moves = twin._opponent_moves[: twin._opponent_move_count]
        return twin

    def close(self) -> None:
        self.opponent.close()
        self.teacher.close()
        super().close()

    def _observation(self) -> Messages:
        return (user(spell_out(rules.position_fen(self.state)) + self._observation_suffix),)

    def _play_opponent_move(self) -> None:
        """The opponent moves."""
        if self._opponent_move_count == len(self._opponent_moves):
            move = self.opponent.move(
                self.state, np.random.default_rng([self.episode_seed, self._opponent_move_count])
            )
            self._opponent_moves = (*self._opponent_moves, move)
        self.state = self.state.child(self._opponent_moves[self._opponent_move_count])
        self._opponent_move_count += 1

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        san = rules.strip_check_mark(text.strip().replace(" ", ""))
        move = next(
            (
                move
                for legal, move in rules.legal_moves(self.state).items()
                if rules.strip_check_mark(legal) == san
            ),
            None,
        )
        reward = ILLEGAL_REWARD if move is None else 0.0
        self.turns += 1
        if move is not None:
            self.state = self.state.child(move)
            if not self.state.is_terminal():
                self._play_opponent_move()
        over = self.state.is_terminal()
        if over:
            reward = self.state.returns()[WHITE]
        late = not over and self.turns > self.moves
        info: dict[str, Any] = {"legal": move is not None}
        if over or late:
            info["success"] = over and reward > 0
        return self._observation(), reward, over, late, info
