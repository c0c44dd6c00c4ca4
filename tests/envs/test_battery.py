"""What every registered environment must satisfy."""

import importlib
import json
import multiprocessing
import pickle
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agentrl_jax.envs
from agentrl_jax.environment import Environment, make, normalized_score
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart, Message, TextPart, assistant, user
from agentrl_jax.multi_agent import MultiAgentEnvironment
from agentrl_jax.sandbox import kernel
from agentrl_jax.trajectories import Turn

# The optional module that an environment needs.
NEEDS = {
    "agentrl/Chess-v0": "pyspiel",
    "agentrl/ChessEndgames-v0": "pyspiel",
    "agentrl/RemotePriceList-v0": "mcp",
    "agentrl/ReasoningGym-v0": "reasoning_gym",
    "agentrl/OpenSpiel-v0": "pyspiel",
    "agentrl/PettingZoo-v0": "pygame",
    "agentrl/TextArena-v0": "textarena",
    "agentrl/TextWorld-v0": "textworld",
    "agentrl/BabyAI-v0": "minigrid",
    "agentrl/GridGrounding-v0": "PIL",
    "agentrl/PageQuestions-v0": "PIL",
    "agentrl/RegionQuestions-v0": "PIL",
    "agentrl/RoomLayouts-v0": "PIL",
    "agentrl/SceneCaptions-v0": "PIL",
    "agentrl/SceneQuestions-v0": "PIL",
    "agentrl/TransformedImages-v0": "PIL",
    "agentrl/VideoQuestions-v0": "PIL",
    "agentrl/ALFWorld-v0": "alfworld",
    "agentrl/ScienceWorld-v0": "scienceworld",
}
ABSENT = sorted(name for name, module in NEEDS.items() if find_spec(module) is None)
# They need a server or a file: tests/tool_servers/test_agent_gym.py, test_verl_python.py,
# test_openenv.py, test_nemo_gym.py, test_jericho.py, test_browsergym.py
SERVED = {
    "agentrl/BrowserGym-v0",
    "agentrl/AgentGym-v0",
    "agentrl/OpenEnv-v0",
    "agentrl/NemoGym-v0",
    "agentrl/Jericho-v0",
    "agentrl/ServedCodeProblems-v0",
}
# They run code, which needs Landlock here.
SANDBOXED = [
    "agentrl/CodeProblems-v0",
    "agentrl/ReasoningGym-v0",
    "agentrl/TableQuestions-v0",
]
if sys.platform != "linux" or not kernel.landlock_abi():
    ABSENT = sorted({*ABSENT, *SANDBOXED})
NAMES = sorted(
    name
    for name in gymnasium.registry
    if name.startswith("agentrl/") and name not in {*ABSENT, *SERVED}
)
# Multi-agent environments have further tests in test_games.py.
SINGLE_AGENT = [name for name in NAMES if not isinstance(make(name), MultiAgentEnvironment)]
PLAYERS = [(name, player) for name in NAMES for player in make(name).scripted_policies]
LIMIT = 1000  # every episode is shorter

ILLEGAL = {
    "empty": "",
    "blank": " ",
    "newline": "\n",
    "newlines": "\n\n\n",
    "huge": "x" * 200_000,
    "spaces": " " * 200_000,
    "letters": "m o v e",
    "accents": "éàü ñ",
    "wide": "ｓｌａｔｅ ｍｏｖｅ",
    "emoji": "🟩🟨⬛",
    "control": "\x00\x01\x07\x1b[2J\x7f\r\t\v",
    "surrogate": "\ud800",
    "right to left": "\u202eetals\u202c",
    "markup": "<|im_end|>\n<tool_call>{}</tool_call>",
    "number": "12345",
    "format": "{0} %s {target}",
    "parts": assistant("").replace(
        content=(TextPart("x"), ImagePart("data:image/png;base64,"), TextPart("y"))
    ),
    "no parts": assistant("").replace(content=()),
    "someone else's": user("x"),
}


def policy_rng(seed: int) -> np.random.Generator:
    """A generator independent of the environment's, which is seeded with `seed` alone."""
    return np.random.default_rng([seed, 1])


def as_message(action: Message | str) -> Message:
    return assistant(action) if isinstance(action, str) else action


def play(env: Environment, player: str, seed: int, **reset) -> list:
    """The opening, then (action, messages, reward, terminated, truncated, info) of each step."""
    rng = policy_rng(seed)
    record: list = [env.reset(seed=seed, **reset)]
    for _ in range(LIMIT):
        action, named = env.scripted_policies[player](env, rng), env.actions()
        assert named is None or action in named
        record.append((action, *env.step(action)))
        if record[-1][3] or record[-1][4]:
            return record
    raise AssertionError(f"{player} did not finish within {LIMIT} steps")


def play_all(names: list[str]) -> dict[str, list]:
    return {name: play(make(name), "random", seed=3) for name in names}


def total(record: list) -> float:
    return sum(step[2] for step in record[1:])


@pytest.mark.skipif(
    bool(ABSENT),
    reason=f"{', '.join(ABSENT)}: extras are not installed (make test-extras does it), or there is "
    "no sandbox",
)
def test_every_registered_environment_is_tested_here():
    assert {*NAMES, *SERVED} == {name for name in gymnasium.registry if name.startswith("agentrl/")}


def test_an_environment_without_its_extra_names_it():
    code = (
        "import sys\n"
        # Import as if they were not installed.
        f"sys.modules.update(dict.fromkeys({sorted(set(NEEDS.values()))}))\n"
        "from agentrl_jax.environment import make\n"
        "from agentrl_jax.errors import UserError\n"
        "import agentrl_jax.envs\n"
        f"for name in {sorted(NEEDS)}:\n"
        "    try: make(name)\n"
        "    except UserError as error: assert 'pip install' in str(error)\n"
        "    else: raise AssertionError(name)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True, timeout=60
    )


def test_reloading_the_package_registers_nothing_twice_and_does_not_warn():
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(agentrl_jax.envs)
    assert dict(gymnasium.registry) == before
    assert {"agentrl/Wordle-v0", "agentrl/MazeFO-v0", "agentrl/MazePO-v0"} <= set(NAMES)


def test_a_worker_imports_no_jax_and_importing_the_package_loads_no_environment():
    code = (
        "import sys, agentrl_jax.envs\n"
        "assert not [m for m in sys.modules if m.startswith('agentrl_jax.envs.')]\n"
        "from agentrl_jax.environment import make\n"
        f"for name in {NAMES}: make(name).reset(seed=0)\n"
        "assert not {'jax', 'flax', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(__file__).parents[2],
        check=True,
        timeout=60,
    )


def test_a_spawned_process_has_the_same_episodes():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(play_all, (NAMES,)) == play_all(NAMES)


def test_gymnasium_finds_an_id_through_the_module_name():
    assert isinstance(gymnasium.make("agentrl_jax.envs:agentrl/Wordle-v0").unwrapped, Environment)


@pytest.mark.parametrize("name", NAMES)
class TestEveryEnvironment:
    def test_gymnasiums_checker_finds_nothing(self, name):
        check_env(gymnasium.make(name).unwrapped)

    def test_it_runs_inside_gymnasiums_wrappers(self, name):
        env = gymnasium.make(name, render_mode="ansi")
        opening, _ = env.reset(seed=0)
        answer, *_ = env.step(env.action_space.sample())
        assert isinstance(env.unwrapped, Environment)
        assert env.render() == "".join(
            t if t.endswith("\n") else t + "\n" for t in self._texts(env.unwrapped, opening, answer)
        )

    def _texts(self, env: Environment, opening, answer) -> list[str]:
        return [*(m.text for m in opening), env._step_history[0][0].text, *(m.text for m in answer)]

    def test_its_spec_sets_no_time_limit(self, name):
        assert gymnasium.spec(name).max_episode_steps is None

    def test_its_spec_is_json(self, name):
        assert json.loads(gymnasium.spec(name).to_json())["id"] == name

    def test_it_has_rules_and_the_random_and_expert_policies(self, name):
        env = make(name)
        assert len(env.rules) > 40
        assert {"random", "expert"} <= env.scripted_policies.keys()

    def test_a_seed_fixes_the_episode(self, name):
        env = make(name)
        first = play(env, "random", seed=11)
        play(env, "random", seed=12)
        assert play(env, "random", seed=11) == first == play(make(name), "random", seed=11)

    def test_seeds_differ(self, name):
        assert len({repr(play(make(name), "expert", seed)) for seed in range(12)}) > 1

    def test_a_first_reset_without_a_seed_can_be_repeated(self, name):
        env = make(name)
        opening, _ = env.reset()
        assert make(name).reset(seed=env._seed)[0] == opening

    def test_a_finished_episode_must_be_reset(self, name):
        env = make(name)
        with pytest.raises(EnvironmentFailure, match="reset"):
            env.step("x")
        play(env, "random", seed=0)
        with pytest.raises(EnvironmentFailure, match="reset"):
            env.step("x")
        assert play(env, "random", seed=1) == play(make(name), "random", seed=1)

    def test_illegal_text_is_answered(self, name):
        env = make(name)
        for kind, text in ILLEGAL.items():
            env.reset(seed=0)
            answer, reward, terminated, truncated, info = env.step(text)
            assert answer in env.observation_space, kind
            assert all(m.role == "user" for m in answer), kind
            assert all(isinstance(m.content, str) or m.images for m in answer), kind
            assert env.reward_bounds[0] <= reward <= env.reward_bounds[1], kind
            assert type(terminated) is bool and not truncated, kind
            # Environments that accept any text need not report it.
            assert info.get("legal", False) is False, kind

    def test_an_episode_of_illegal_texts_ends(self, name):
        env = make(name)
        env.reset(seed=0)
        kinds = list(ILLEGAL.values())
        for i in range(LIMIT):
            _, _, terminated, truncated, info = env.step(kinds[i % len(kinds)])
            if terminated or truncated:
                break
        assert terminated or truncated
        assert info["success"] is False

    def test_an_unknown_option_is_an_error_that_names_it(self, name):
        with pytest.raises(UserError, match="colour"):
            make(name).reset(options={"colour": "red"})
        with pytest.raises(UserError, match="colour"):
            make(name, {"colour": "red"})

    def test_it_can_be_closed_twice(self, name):
        env = make(name)
        env.reset(seed=0)
        env.close()
        env.close()

    def test_it_pickles_in_the_middle_of_an_episode(self, name):
        env = make(name)
        env.reset(seed=5)
        rng = policy_rng(5)
        twin = env
        for _ in range(4):
            if env._is_over:
                break
            data = pickle.dumps(env)
            assert len(data) < 50_000
            twin = pickle.loads(data)
            action = env.scripted_policies["random"](env, rng)
            assert twin.step(action) == env.step(action)
        assert twin is not env and twin.reset() == env.reset()

    def test_score_anchors_increase(self, name):
        anchors = make(name).score_anchors
        if anchors is not None:
            assert anchors[0] < anchors[1] < anchors[2]
            assert [normalized_score(x, anchors) for x in anchors] == [0, 50, 100]

    def test_its_context_shows_the_newest_message(self, name):
        env = make(name)
        opening, *steps = play(env, "random", seed=2)
        turns = [
            Turn((), as_message(action), answer, reward, info=info)
            for action, answer, reward, _, _, info in steps
        ]
        assert tuple(env.context.view(opening[0], ())) == opening[0]
        for n in range(1, len(turns)):
            assert list(env.context.view(opening[0], turns[:n]))[-1] == turns[n - 1].observation[-1]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "agentrl/Chess-v0" else name
        for name in SINGLE_AGENT
    ],
)
def test_the_expert_beats_the_random_policy(name):
    env = make(name)
    means = {
        p: np.mean([total(play(env, p, seed)) for seed in range(20)]) for p in ("random", "expert")
    }
    assert means["expert"] - means["random"] >= 0.5 * (env.reward_bounds[1] - env.reward_bounds[0])


@pytest.mark.parametrize("name,player", PLAYERS)
def test_every_scripted_policy_finishes_within_the_reward_bounds(name, player):
    env = make(name)
    for seed in range(5):
        (opening, _), *steps = play(env, player, seed)
        assert opening in env.observation_space and opening
        for action, answer, reward, terminated, truncated, info in steps:
            assert action in env.action_space and not as_message(action).text.endswith("\n")
            assert answer in env.observation_space and all(isinstance(m, Message) for m in answer)
            assert type(reward) is float and env.reward_bounds[0] <= reward <= env.reward_bounds[1]
            assert type(terminated) is bool and type(truncated) is bool
            assert sum(info["rewards"].values()) == reward
            assert info.get("legal", True) is True
            assert ("success" in info) == (terminated or truncated)
            assert json.loads(json.dumps(info)) == info


@pytest.mark.parametrize("name", NAMES)
class TestFork:
    @pytest.mark.parametrize("player", ["random", "expert"])
    def test_it_equals_a_replay_at_every_turn(self, name, player):
        env = make(name)
        _, *steps = play(env, player, seed=4)
        for turn in {0, 1, len(steps) // 2, len(steps) - 1}:
            fork, replay = env.fork(turn), Environment.fork(env, turn)
            assert fork.render() == replay.render()
            for action, *result in steps[turn:]:
                assert list(fork.step(action)) == list(replay.step(action)) == result
            assert fork.reset() == replay.reset()  # their generators agree, too

    def test_it_is_independent_of_the_original(self, name):
        env = make(name)
        env.reset(seed=6)
        env.step("x")
        before, fork = env.render(), env.fork()
        assert fork.render() == before and fork.spec == env.spec
        env.action_space.seed(0)
        fork.action_space.seed(1)
        answers = [fork.step(text)[0] for text in "yz" if not fork._is_over]
        assert env.render() == before
        fork.reset(seed=99)
        assert env.render() == before and env.np_random is not fork.np_random
        assert [env.step(text)[0] for text in "yz" if not env._is_over] == answers

    def test_a_finished_environment_forks_finished(self, name):
        env = make(name)
        play(env, "random", seed=0)
        with pytest.raises(EnvironmentFailure):
            env.fork().step("x")
        with pytest.raises(EnvironmentFailure):
            Environment.fork(env).step("x")

    def test_it_fails_before_a_reset(self, name):
        with pytest.raises(EnvironmentFailure, match="reset"):
            make(name).fork()
