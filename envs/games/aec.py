"""`AEC`: any multi-agent environment through PettingZoo's AEC API (extra `selfplay`)."""

from typing import Any

from agentrl_jax.environment import MessageSpace
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message
from agentrl_jax.multi_agent import MultiAgentEnvironment

try:
    from pettingzoo import AECEnv
except ModuleNotFoundError as error:
    raise UserError(
        "PettingZoo is not installed: pip install 'agentrl_jax[selfplay]' does it"
    ) from error


class AEC(AECEnv):
    """Each player of the game is an agent, "seat_0" and on; actions are messages or texts.

    A reward is reported when its agent is selected: `last()` returns the sum since the agent's last
    action, as PettingZoo defines it. `observe` returns what is new to the selected agent, and to
    the others what they observed when they were last selected.
    """

    def __init__(self, game: MultiAgentEnvironment) -> None:
        super().__init__()
        self.game, self.render_mode = game, game.render_mode
        self.metadata = {
            "name": type(game).__name__,
            "render_modes": ["ansi"],
            "is_parallelizable": False,
        }
        self.possible_agents = [f"seat_{i}" for i in range(game.num_players)]
        self.observation_spaces: dict[str, Any] = {
            name: MessageSpace(many=True) for name in self.possible_agents
        }
        self.action_spaces: dict[str, Any] = {name: MessageSpace() for name in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode in which all players are external; `options` is ignored."""
        self.agents = list(self.possible_agents)
        opening, info = self.game.reset(
            seed=seed, options={"seats": list(range(self.game.num_players))}
        )
        self.rewards, self._cumulative_rewards = (
            dict.fromkeys(self.agents, 0.0),
            dict.fromkeys(self.agents, 0.0),
        )
        self.terminations, self.truncations = (
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, False),
        )
        self.infos: dict[str, Any] = {name: {} for name in self.agents}
        self._last_observations: dict[str, tuple[Message, ...]] = dict.fromkeys(self.agents, ())
        self._select(opening, 0.0, False, False, info)

    def observe(self, agent: str) -> tuple[Message, ...]:
        return self._last_observations[agent]

    def step(self, action: Message | str | None) -> None:
        """Take the selected agent's action.

        Raises:
            ValueError: the agent's game is over and the action is not None, as PettingZoo defines
                it.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if action is not None:
                raise ValueError("when an agent is dead, the only valid action is None")
            self.agents.remove(agent)
            for by_agent in (
                self.rewards,
                self._cumulative_rewards,
                self.terminations,
                self.truncations,
                self.infos,
            ):
                del by_agent[agent]
            if not self.agents:
                return
        self._select(*self.game.step("" if action is None else action))

    def render(self) -> str:
        return self.game.render()

    def _select(
        self,
        messages: tuple[Message, ...],
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        """Select the agent that a reply is for: it acts next, or leaves."""
        agent = self.possible_agents[info["seat"]]
        self.agent_selection, self._last_observations[agent] = agent, messages
        self.rewards = {name: reward if name == agent else 0.0 for name in self.agents}
        self._cumulative_rewards = dict(self.rewards)  # the game still holds the others'
        self.terminations[agent], self.truncations[agent], self.infos[agent] = (
            terminated,
            truncated,
            info,
        )
