"""PettingZoo's games as texts against the package's own loop."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces
from pettingzoo.utils.conversions import parallel_to_aec

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.pettingzoo_games import PettingZoo
from agentrl_jax.envs.adapters.spaces_as_text import value_text
from agentrl_jax.errors import UserError


class Auction(pettingzoo.AECEnv):
    """Three players write bids in turn; a bid of 0 leaves the auction at a cost of 1, another costs
    every other one of those left 1; the last one has won 5. Six bids truncate it.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "auction", "render_modes": []}

    def __init__(self):
        super().__init__()
        self.possible_agents = ["a", "b", "c"]

    def observation_space(self, agent):
        return spaces.Text(20)

    def action_space(self, agent):
        return spaces.MultiDiscrete([4])

    def reset(self, seed=None, options=None):
        self.agents, self.bids = list(self.possible_agents), 0
        self.first = int(np.random.default_rng(seed).integers(3))
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[self.first]

    def observe(self, agent):
        return f"{agent}: {self.bids} bids"

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            return self._was_dead_step(action)
        self._cumulative_rewards[agent] = 0
        self.bids += 1
        left = [x for x in self.agents if not self.terminations[x]]
        bid = int(action[0])
        self.rewards = {x: 0 if x == agent else -bid for x in self.agents}
        after = left[(left.index(agent) + 1) % len(left)]
        if bid == 0:
            self.rewards[agent], self.terminations[agent] = -1, True
            left.remove(agent)
            if len(left) == 1:
                self.rewards[left[0]], self.terminations[left[0]] = 5, True
        elif self.bids >= 6:
            self.truncations = dict.fromkeys(self.agents, True)
        self.agent_selection = after
        self._accumulate_rewards()
        self._deads_step_first()
        return None


class Matching(pettingzoo.ParallelEnv):
    """Both choose a side; three rounds of a coin that both see."""

    metadata: ClassVar[dict[str, Any]] = {"name": "matching", "render_modes": []}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["row", "column"]

    def observation_space(self, agent):
        return spaces.MultiDiscrete([2, 2])

    def action_space(self, agent):
        return spaces.Discrete(2)

    def _observations(self):
        self.coin = int(self.generator.integers(2))
        return {agent: np.array([self.coin, self.rounds % 2]) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.rounds = list(self.possible_agents), 0
        self.generator = np.random.default_rng(seed)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.rounds += 1
        won = float(actions["row"] == actions["column"] == self.coin)
        agents, is_over = list(self.agents), self.rounds == 3
        observations = self._observations()
        self.agents = [] if is_over else agents
        rewards = {"row": won, "column": -won}
        flags = dict.fromkeys(agents, False), dict.fromkeys(agents, is_over)
        return observations, rewards, *flags, {agent: {} for agent in agents}


pettingzoo.register("aec", "tests/auction-v0", entry_point=lambda **_: Auction())
pettingzoo.register("parallel", "tests/matching-v0", entry_point=lambda **_: Matching())

# id, API, options, whether it needs pygame
GAMES = {
    "tictactoe": ("classic/tictactoe-v3", "aec", {}),
    "connect_four": ("classic/connect_four-v3", "aec", {}),
    "rps": ("classic/rps-v2", "aec", {"env_options": {"max_cycles": 4}}),
    "rps in parallel": ("classic/rps-v2", "parallel", {"env_options": {"max_cycles": 4}}),
    "auction": ("tests/auction-v0", "aec", {}),
    "matching": ("tests/matching-v0", "parallel", {}),
}


def game(key: str, **options: Any) -> PettingZoo:
    name, api, others = GAMES[key]
    if name.startswith("classic/"):
        pytest.importorskip("pygame", reason="pygame is not installed: make test-extras does it")
    env = make("agentrl/PettingZoo-v0", {"name": name, "api": api, **others, **options})
    assert isinstance(env, PettingZoo)
    return env


def reference_of(key: str) -> Any:
    name, api, options = GAMES[key]
    if api == "aec":
        return pettingzoo.make("aec", name, **options.get("env_options", {}))
    return parallel_to_aec(pettingzoo.make("parallel", name, **options.get("env_options", {})))


@pytest.mark.parametrize("key", GAMES)
def test_messages_and_rewards_are_those_of_the_packages_loop(key: str):
    env, reference, kinds = game(key), reference_of(key), set()
    for seed in range(100):
        rng = np.random.default_rng([seed, 1])
        messages, info = env.reset(seed=seed, options={"seats": list(range(env.num_players))})
        reference.reset(seed=int(np.random.default_rng(seed).integers(2**31)))
        names, earned = reference.possible_agents, dict.fromkeys(reference.possible_agents, 0.0)
        returns = dict(earned)
        moved: set[str] = set()
        last_flags: dict[str, tuple[bool, bool]] = {}
        for agent in reference.agent_iter():
            observation, reward, terminated, truncated, reference_info = reference.last()
            returns[agent] += reward
            if terminated or truncated:
                last_flags[agent] = terminated, truncated
                reference.step(None)
                continue
            assert info["seat"] == names.index(agent)
            mask = reference_info.get("action_mask")
            if isinstance(observation, dict):
                observation, mask = observation["observation"], observation["action_mask"]
            text, _, moves = messages[0].text.rpartition("Moves: ")
            assert text.strip("\n") == value_text(observation)
            space = reference.action_space(agent)
            space.seed(int(rng.integers(2**31)))
            action = space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))
            if isinstance(space, spaces.Discrete):
                legal = [str(a) for a in range(int(space.n)) if mask is None or mask[a]]
                assert moves == ", ".join(legal) + "\n" and env._legal_moves() == legal
            moved.add(agent)
            last_flags.clear()
            messages, gain, *ends, info = env.step(value_text(action))
            earned[names[info["seat"]]] += gain
            reference.step(action)
            assert info["legal"] if names[info["seat"]] in moved else "legal" not in info
        while not env._is_over:
            _, gain, *ends, info = env.step("")
            earned[names[info["seat"]]] += gain
        assert [earned[x] for x in names if x in moved] == [returns[x] for x in names if x in moved]
        kinds.add(tuple(ends))
        assert ends[0] == any(flags[0] for flags in last_flags.values()) != ends[1]
    assert kinds <= {(True, False), (False, True)} and (len(kinds) == 2) == (key == "auction")


def test_an_illegal_text_makes_the_first_legal_move():
    env = game("auction", seat=0, penalty=0.25)
    for seed in range(5):
        env.reset(seed=seed)
        first = env._legal_moves()
        *_, info = env.step("[7]")
        assert info["legal"] is False and len(first) == 1 and info["rewards"]["illegal"] == -0.25
        env.reset(seed=seed)
        assert env.step("[2]")[4]["legal"] is True


def test_actions_and_parts_have_names():
    env = game("matching", actions=["left", "right"], parts=["coin", "round"], seat=0)
    (opening,), _ = env.reset(seed=0)
    assert opening.text in {f"coin: {x}\nround: 0\nMoves: left, right\n" for x in (0, 1)}
    assert env.step("right")[4]["legal"] is True
    short = game("matching", max_listed=0)
    assert "Moves" not in short.reset(seed=0)[0][0].text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "classic/nothing-v0"}, "does not make 'classic/nothing-v0'"),
        ({"name": "tests/matching-v0"}, "does not make"),  # it is in the other registry
        ({"name": "tests/auction-v0", "api": "turns"}, "api must be one of"),
        ({"name": "tests/auction-v0", "module": "no_such_module"}, "no_such_module"),
        ({"name": "classic/rps-v2", "env_options": {"colour": 1}}, "PettingZoo does not make"),
        ({"name": "tests/auction-v0", "actions": ["a"]}, "which have no texts"),
        ({"name": "tests/auction-v0", "max_listed": -1}, "max_listed"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make("agentrl/PettingZoo-v0", options)


def test_our_games_are_pettingzoos_and_play_there():
    """The other way: a game of this package in PettingZoo's AEC API plays as it does here."""
    from agentrl_jax.envs.games.aec import AEC
    from agentrl_jax.multi_agent import MultiAgentEnvironment

    env = gymnasium.make("agentrl_jax.envs:agentrl/Kuhn-v0").unwrapped
    assert isinstance(env, MultiAgentEnvironment)
    exported = AEC(env)
    for seed in range(100):
        exported.reset(seed=seed)
        earned = dict.fromkeys(exported.possible_agents, 0.0)
        for agent in exported.agent_iter():
            _, reward, terminated, truncated, _ = exported.last()
            earned[agent] += reward
            exported.step(None if terminated or truncated else "b")
        assert list(earned.values()) == env.returns and sum(env.returns) == 0
