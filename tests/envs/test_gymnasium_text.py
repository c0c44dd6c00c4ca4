"""Gymnasium's environments as texts against the package's own loop."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.gymnasium_labels import LABELS
from agentrl_jax.envs.adapters.gymnasium_text import GymnasiumText
from agentrl_jax.envs.adapters.spaces_as_text import parsed_action, value_text, without_escapes
from agentrl_jax.errors import UserError


class Echo(gymnasium.Env):
    """The action that is the word of the observation earns 1; three turns, then truncation."""

    observation_space = spaces.Dict({"word": spaces.Text(5), "turn": spaces.Discrete(4)})
    action_space = spaces.Text(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        self.word = "abcde"[: int(self.np_random.integers(1, 6))]
        return {"word": self.word, "turn": 0}, {"hidden": object()}

    def step(self, action):
        self.turn += 1
        won = action == self.word
        return {"word": self.word, "turn": self.turn}, float(won), won, self.turn == 3, {}


class Arrays(gymnasium.Env):
    """An array in, an array out; both ends of the episode come at once."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (2,), np.float64)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([0.12345, 0.0], np.float32), {}

    def step(self, action):
        return np.asarray(action, np.float32), float(action.sum()), True, True, {}


for name, entry in (("Echo-v0", Echo), ("Arrays-v0", Arrays)):
    if f"tests/{name}" not in gymnasium.registry:
        gymnasium.register(f"tests/{name}", entry_point=f"{__name__}:{entry.__name__}")


def text_env(name: str, **options: Any) -> GymnasiumText:
    env = make("agentrl/GymnasiumText-v0", {"name": name, **options})
    assert isinstance(env, GymnasiumText)
    return env


@pytest.mark.parametrize("name", LABELS)
def test_messages_and_rewards_are_those_of_the_packages_loop(name: str):
    env = text_env(name, horizon=10**6 if name != "CliffWalking-v1" else 60)
    reference = gymnasium.make(name, render_mode=None if name == "Blackjack-v1" else "ansi")
    for seed in range(100 if name in ("FrozenLake-v1", "Blackjack-v1") else 20):
        rng = np.random.default_rng([seed, 1])
        ((opening,), _), turns = env.reset(seed=seed), 0
        # The environment's seed is the first draw of the episode's generator.
        observation, _ = reference.reset(seed=int(np.random.default_rng(seed).integers(2**31)))
        answer, is_over = opening, False
        while not is_over:
            if reference.render_mode:
                text = without_escapes(str(reference.render())).strip("\n") + "\n"
            else:
                text = "your sum: {}, dealer's card: {}, usable ace: {}\n".format(*observation)
                text = text.replace(", ", "\n")
            assert answer.text.startswith(text) and "\x1b" not in answer.text
            action = int(rng.integers(len(LABELS[name].actions)))
            (answer,), reward, *ends, info = env.step(LABELS[name].actions[action])
            observation, reference_reward, *reference_ends, _ = reference.step(action)
            turns += 1
            is_cut = name == "CliffWalking-v1" and turns == 60 and not reference_ends[0]
            assert (reward, *ends) == (
                reference_reward,
                reference_ends[0],
                reference_ends[1] or is_cut,
            )
            assert info["legal"] and env.reward_bounds[0] <= reward <= env.reward_bounds[1]
            is_over = ends[0] or ends[1]
        assert info["success"] == (ends[0] and (reward > 0 or name == "CliffWalking-v1"))


def test_texts_are_actions_as_they_are():
    env = text_env("tests/Echo-v0", module=__name__)
    for seed in range(5):
        (opening,), info = env.reset(seed=seed)
        word = opening.text.split("\n")[0].removeprefix("word: ")
        assert 1 <= len(word) <= 5 and opening.text.startswith(f"word: {word}\nturn: 0\n")
        assert info == {} and env.actions() is None
        *_, reward, terminated, truncated, info = env.step("wrong" if word != "wrong" else "x")
        assert (reward, terminated, truncated, info["legal"]) == (0.0, False, False, True)
        (answer,), reward, terminated, truncated, info = env.step("far too long a text")
        assert answer.text.startswith("Illegal.") and info["rewards"] == {"illegal": -0.05}
        assert (reward, terminated, truncated) == (-0.05, False, False)
        *_, reward, terminated, truncated, info = env.step(word)
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)


def test_the_environments_truncation_is_no_termination():
    env = text_env("tests/Echo-v0", module=__name__)
    env.reset(seed=0)
    ends = [env.step("zzzzz")[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    short = text_env("tests/Echo-v0", module=__name__, horizon=1)
    short.reset(seed=0)
    *_, truncated, info = short.step("z")
    assert truncated and info["success"] is False


def test_arrays_are_written_in_json():
    env = text_env("tests/Arrays-v0", module=__name__, parts=["x", "y"])
    (opening,), _ = env.reset(seed=0)
    assert opening.text.startswith("x: 0.1235\ny: 0.0\n")
    for text in ("[0.5]", "[2, 0]", "[", "x", '["a", 1]', "[[[", "null", "[1e400, 0]"):
        assert env.step(text)[4]["legal"] is False, text
    (answer,), reward, terminated, truncated, _ = env.step("[0.5, -0.25]")
    assert (answer.text, reward) == ("x: 0.5\ny: -0.25\n", 0.25)
    assert (terminated, truncated) == (True, False)  # terminated wins where both are set
    env.reset(seed=0)
    assert env.step(env.scripted_policies["random"](env, np.random.default_rng(0)))[4]["legal"]


def test_values_and_actions_of_other_spaces():
    assert value_text({"a": 1, "b": np.arange(2)}) == "a: 1\nb: [0, 1]"
    assert value_text((np.float32(0.5), "x")) == "0.5, x"
    assert parsed_action(spaces.Discrete(2, start=5), (), "6") == 6
    assert parsed_action(spaces.Discrete(2, start=5), ("no", "yes"), "yes") == 6
    assert parsed_action(spaces.Discrete(2), (), "2") is None
    assert parsed_action(spaces.MultiDiscrete([2, 3]), (), "[1, 2]").tolist() == [1, 2]
    assert parsed_action(spaces.MultiDiscrete([2, 3]), (), "[1, 3]") is None
    assert parsed_action(spaces.MultiBinary(2), (), "9" * 20_000) is None


def test_colors_become_words():
    assert without_escapes("\x1b[41mS\x1b[0mF") == "red[S]F"
    assert without_escapes("|\x1b[35m\x1b[43mR\x1b[0m\x1b[0m|") == "|magenta+yellow[R]|"
    assert without_escapes("\x1b[34;1mB\x1b[0m\x1b[2J: \x1b[1mx") == "blue[B]: x"


def test_value_iteration_is_the_expert():
    means = {}
    for name in ("Taxi-v4", "CliffWalking-v1"):
        env, returns = text_env(name), []
        for seed in range(10):
            rng, over, total = np.random.default_rng(seed), False, 0.0
            env.reset(seed=seed)
            while not over:
                action = env.scripted_policies["expert"](env, rng)
                _, reward, over, truncated, info = env.step(action)
                total += reward
                assert not truncated
            returns.append(total)
            assert info["success"]
        means[name] = np.mean(returns)
    assert means["CliffWalking-v1"] == -13 and means["Taxi-v4"] > 5  # 13 steps along the cliff


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Nothing-v0"}, "does not make 'Nothing-v0'"),
        ({"name": "Nothing-v0", "module": "no_such_module"}, "does not make 'Nothing-v0'"),
        ({"name": "os:Nothing-v0"}, "in the option module"),
        ({"env_options": {"colour": "red"}}, "colour"),
        ({"actions": ["left"]}, "which have no texts"),
        ({"horizon": 0}, "horizon"),
        ({"penalty": -1}, "penalty"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make("agentrl/GymnasiumText-v0", options)
