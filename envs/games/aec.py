"""`AEC`: any game of this library as an environment of PettingZoo's AEC API (extra `selfplay`)."""

from typing import Any

from agentrl_jax.environment import MessageSpace
from agentrl_jax.errors import UserError
from agentrl_jax.games import Game
from agentrl_jax.messages import Message

try:
    from pettingzoo import AECEnv
except ModuleNotFoundError as error:
    raise UserError("PettingZoo is not installed: pip install 'agentrl_jax[selfplay]' does it") from error


class AEC(AECEnv):
    """Every seat of the game is an agent, "seat_0" and on; actions are chat messages or texts, observations what a seat has not seen.

    What a seat earns comes when it is selected: `last()` says all since its last action, as PettingZoo has it. `observe` shows the
    selected agent what is new to it, and the others what they were shown when they were last selected.
    """

    def __init__(self, game: Game) -> None:
        super().__init__()
        self.game, self.render_mode = game, game.render_mode
        self.metadata = {"name": type(game).__name__, "render_modes": ["ansi"], "is_parallelizable": False}
        self.possible_agents = [f"seat_{i}" for i in range(game.seats)]
        self.observation_spaces: dict[str, Any] = {name: MessageSpace(many=True) for name in self.possible_agents}
        self.action_spaces: dict[str, Any] = {name: MessageSpace() for name in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Options are not looked at: a game has none where all seats are played from outside."""
        self.agents = list(self.possible_agents)
        opening, info = self.game.reset(seed=seed, options={"seats": list(range(self.game.seats))})
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {name: {} for name in self.agents}
        self._shown: dict[str, tuple[Message, ...]] = dict.fromkeys(self.agents, ())
        self._select(opening, 0.0, False, False, info)

    def observe(self, agent: str) -> tuple[Message, ...]:
        return self._shown[agent]

    def step(self, action: Message | str | None) -> None:
        """Raises ValueError where an agent whose game is over acts, as PettingZoo has it: it steps with None."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if action is not None:
                raise ValueError("when an agent is dead, the only valid action is None")
            self.agents.remove(agent)
            for of_agents in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations, self.infos):
                del of_agents[agent]
            if not self.agents:
                return
        self._select(*self.game.step("" if action is None else action))

    def render(self) -> str:
        return self.game.render()

    def _select(self, messages: tuple[Message, ...], reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
        """The game speaks to a seat: it is the one to act, or to leave."""
        agent = self.possible_agents[info["seat"]]
        self.agent_selection, self._shown[agent] = agent, messages
        self.rewards = {name: reward if name == agent else 0.0 for name in self.agents}
        self._cumulative_rewards = dict(self.rewards)  # the others' is still the game's to say
        self.terminations[agent], self.truncations[agent], self.infos[agent] = terminated, truncated, info
