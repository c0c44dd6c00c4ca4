"""`TextArena`: the games of the package textarena (arXiv 2504.11442)."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, FullHistory, LastMessages
from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.adapters.global_random import GlobalRandom
from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.envs.adapters.redrawn import Redrawn
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.adapters.spaces_as_text import without_escapes
from agentrl_jax.envs.adapters.textarena_games import NUM_PLAYERS
from agentrl_jax.errors import UserError
from agentrl_jax.multi_agent import MoveResult

_MOVE = re.compile(r"\[[^\[\]\n]{1,20}\]")


def _random_action(env: "TextArena", rng: np.random.Generator) -> str:
    """One of the texts in square brackets that the player to move reads; often no legal move."""
    texts = sorted(set(_MOVE.findall(env.observation))) or ["[1]"]
    return texts[int(rng.integers(len(texts)))]


class TextArena(Replayed, Redrawn):
    """A game of TextArena. The package decides on texts that are no move: most games ask once more
    and then the player has lost.

    An observation is what the package's wrappers make of it. By default that is the whole history
    of the player's messages, so the prompt is the last observation; with an id that ends in `-raw`
    it is what is new, and the prompt is all of them. Rewards come at the end. The games draw from
    the global generators, whose state is swapped in for each call. `random` and `expert` are the
    same policy: one of the texts in brackets that the player reads.

    Args:
        name: TextArena's id, of a family of `textarena_games.NUM_PLAYERS`.
        opponent: as in `MultiAgentEnvironment`, like `seat`; there is no penalty.

    Raises:
        UserError: the package is missing or the id unknown.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "expert": _random_action}
    )
    payoff_bounds = (-np.inf, np.inf)

    def __init__(
        self,
        name: str = "TicTacToe-v0",
        opponent: str = "random",
        seat: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        family = name.partition("-v")[0]
        if family not in NUM_PLAYERS:
            raise UserError(f"no game of TextArena that runs here is {name!r}: {[*NUM_PLAYERS]}")
        self.library, self.name = import_package("textarena", "textarena"), name
        self.num_players = NUM_PLAYERS[family]
        super().__init__(opponent, seat, 0.0, render_mode)
        is_raw = name.endswith("-raw")
        self.context: ContextManager = FullHistory() if is_raw else LastMessages(1)
        self.rules = (
            f"{name}, a game of TextArena with {self.num_players} players. Its first message tells "
            "the rules."
        )
        self.env: Any = None
        self.observation, self._text = "", ""

    def _start_game(self) -> Sequence[str]:
        seed = int(self.np_random.integers(2**31))
        self._random = GlobalRandom(seed)
        with self._random.swapped_in():
            try:
                self.env = self.library.make(self.name)
            except ValueError as error:
                raise UserError(f"TextArena has no game {self.name!r}") from error
            self.env.reset(num_players=self.num_players, seed=seed)
        return self._next_observations()

    def _make_move(self, text: str) -> None:
        self._text, player = text, self.current_player
        super()._make_move(text)
        self._move_info[player] = {}  # whether it was legal the package alone knows

    def _legal_moves(self) -> Sequence[str]:
        return [self._text]  # the package judges it

    def _apply_move(self, move: str) -> MoveResult:
        with self._random.swapped_in():
            is_over, _ = self.env.step(move)
            if not is_over:
                return MoveResult(self._next_observations(), self.current_player, {})
            by_player, _ = self.env.close()
        rewards = [float((by_player or {}).get(i, 0.0)) for i in range(self.num_players)]
        lines = [f"The game is over: {reward:+g}" for reward in rewards]
        return MoveResult(lines, None, {"outcome": rewards})

    def _has_won(self, player: int) -> bool:
        return self.returns[player] >= 1 if self.num_players == 1 else self.returns[player] > 0

    def _next_observations(self) -> list[str]:
        """Sets the player to move; what each player reads next."""
        with self._random.swapped_in():
            self.current_player, observation = self.env.get_observation()
        if not isinstance(observation, str):
            roles = self.env.state.role_mapping
            lines = [f"[{roles.get(sender, sender)}] {text}" for sender, text, _ in observation]
            observation = "\n".join(lines)
        self.observation = without_escapes(observation).strip("\n") or "It is your turn."
        return [self.observation * (i == self.current_player) for i in range(self.num_players)]
