"""`CodeProblems`: protocols, budgets, feedback, rewards and sessions, by hand."""

import copy
import json
import sys

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.code.code_problems import CodeProblems
from agentrl_jax.envs.code.critic import TurnSummary, feedback_text
from agentrl_jax.envs.code.episode_rewards import EpisodeCounts, artist, retool
from agentrl_jax.envs.code.protocols import PROTOCOLS, without_fence
from agentrl_jax.envs.code.scripted import call_python
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message
from agentrl_jax.sandbox import kernel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)


def make_problems(seed: int = 0, **options) -> CodeProblems:
    env = make("agentrl/CodeProblems-v0", {"generators": ["product"], **options})
    assert isinstance(env, CodeProblems)
    env.reset(seed=seed)
    return env


def run_code(env: CodeProblems, code: str) -> str:
    return env.step(call_python("", code))[0][0].text


def test_an_episode_by_hand():
    env = make_problems()
    (opening,), info = env.reset(seed=1)
    assert opening.text.startswith("What is ") and opening.text.endswith("\\boxed{answer}.")
    assert [tool["function"]["name"] for tool in info["tools"]] == ["python"]
    observation, reward, terminated, _, info = env.step(call_python("Try.", "x = 6\nx * 7"))
    assert [m.role for m in observation] == ["tool"] and observation[0].text == "42"
    assert (reward, terminated, info["called_tools"]) == (0.0, False, ["python"])
    assert run_code(env, "x + y") == "NameError: name 'y' is not defined"
    observation, reward, terminated, _, info = env.step(f"It is \\boxed{{{env.problem.answer}}}.")
    assert (reward, terminated, info["success"], info["void"]) == (1.0, True, True, False)
    assert info["answer"] == env.problem.answer and info["rewards"] == {"outcome": 1.0}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("replayed", [False, True])
def test_the_expert_solves_every_group_in_every_protocol(protocol: str, replayed: bool):
    """Code and answer are written in the protocol's format and read again, as a renderer does."""
    env = make("agentrl/CodeProblems-v0", {"protocol": protocol, "replayed_session": replayed})
    assert isinstance(env, CodeProblems)
    tool_format, rng = env.protocol.tool_format, np.random.default_rng(0)
    for seed in range(3 if replayed else 6):
        _, info = env.reset(seed=seed)
        success = None
        while success is None:
            action = env.scripted_policies["recovering"](env, rng)
            if isinstance(action, Message):
                written = tool_format.render(action.text, action.tool_calls)
                parsed = tool_format.parse(written, info["tools"])
                assert [json.loads(call.arguments) for call in parsed.calls] == [
                    json.loads(call.arguments) for call in action.tool_calls
                ]
                action = Message("assistant", parsed.content, tuple(parsed.calls))
            success = env.step(action)[4].get("success")
        assert success is True


def test_every_generator_is_solved_by_the_policy_that_mends_its_code():
    env, mended = make("agentrl/CodeProblems-v0", {"split": "train", "difficulty": 0.0}), 0
    for seed in range(60):
        episode = play_scripted_episode(env, "recovering", seed)
        assert episode.success is True
        failures = [turn.info["code_failed"] for turn in episode.turns]
        assert all(turn.action.text for turn in episode.turns)  # a thought in each turn
        mended += any(failures)
    assert 6 <= mended <= 32  # .3 of 60


def test_mints_budgets_of_turns_and_proposals():
    env = make_problems(protocol="mint", horizon=4, proposals=2, budget_notice=True)
    (text,) = (m.text for m in env.step("<solution>-1</solution>")[0])
    assert text == (
        "Your answer is wrong.\nYou have 3 steps left and 1 chances to propose solution left."
    )
    (text,) = (m.text for m in env.step("hello")[0])
    assert text.startswith("Invalid action. Write code in <execute>") and "2 steps" in text
    (text,) = (m.text for m in env.step(call_python("", "y = 1"))[0])
    assert text.startswith("Observation:\n[Executed Successfully with No Output]\nYou have 1 steps")
    assert text.endswith("You should take the last step to propose a solution.")
    _, reward, terminated, truncated, info = env.step("<solution>-1</solution>")
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)
    env.reset(seed=0)
    for _ in range(3):
        env.step("hello")
    *_, truncated, info = env.step("hello")
    assert truncated and info["success"] is False and info["void"]


def test_calls_are_limited():
    env = make_problems(calls=1, horizon=9)
    assert run_code(env, "1") == "1"
    assert run_code(env, "2").startswith("Error: at most 1 calls")
    assert (env.calls, env.failed_calls, env.last_output) == (2, 1, "1")


def test_without_tools_only_answers_count():
    env = make_problems(tools=False)
    _, info = env.reset(seed=0)
    assert info["tools"] == []
    observation, *_, info = env.step(call_python("", "1"))
    assert info["void"] and observation[0].text.startswith("Invalid action")
    assert play_scripted_episode(env, "expert", 3).success is True


@pytest.mark.parametrize(
    "turn,binary,textual",
    [
        (TurnSummary(None, None, False, "7", False), "BAD", "Run code first"),
        (TurnSummary(None, "7", False, "7", True), "GOOD", "The output is right"),
        (TurnSummary("9", "3", False, "7", False), "BAD", "The answer is smaller."),
        (TurnSummary("5", "3", False, "7", False), "BAD", "The answer is larger."),
        (TurnSummary(None, "E", True, "7", False), "BAD", "The code failed"),
        (TurnSummary(None, "3", False, None, False), "GOOD", "check that it computes"),
        (TurnSummary("5", "3", False, None, False), "BAD", "did not print what you proposed"),
    ],
)
def test_the_critic_by_hand(turn: TurnSummary, binary: str, textual: str):
    assert feedback_text("binary", turn) == f"This is {binary}."
    assert textual in feedback_text("textual", turn)
    assert turn.reference is None or turn.reference not in feedback_text("textual", turn)


def test_feedback_is_given_only_while_the_episode_goes_on():
    env = make_problems(feedback="textual", proposals=2)
    assert env.step("\\boxed{0}")[0][0].text.endswith(
        "Expert feedback:\nRun code first, and propose what it prints."
    )
    assert "The output is right" in run_code(env, env.problem.program)
    assert env.step(f"\\boxed{{{env.problem.answer}}}")[0] == ()


def test_simpletirs_code_may_answer_by_itself():
    env = make_problems(protocol="simpletir")
    *_, info = env.step(call_python("", f"final_answer({env.problem.answer})"))
    assert info["success"] is True and info["called_tools"] == ["python"]
    env.reset(seed=0)
    run_code(env, "import os; os._exit(0)")  # the session has ended; its prelude returns
    *_, info = env.step(call_python("", "final_answer(-1)"))
    assert info["success"] is False


def test_noise_stands_around_an_output_and_is_the_same_again():
    texts = [run_code(make_problems(noise=40), "6 * 7") for _ in range(2)]
    assert texts[0] == texts[1] and len(texts[0]) == 44 and "\n42\n" in texts[0]


def test_outputs_are_cut_and_limits_are_answers():
    env = make_problems(seconds=0.3)
    assert run_code(env, "print('a' * 600)") == "a" * 512 + "...\n[Output Truncated]"
    late = run_code(env, "import time\nwhile True: time.sleep(0.01)")
    assert late.endswith("It exceeded its limit of 0.3 s.")
    assert not env._is_over


def test_a_sandbox_that_fails_is_a_failure_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    env = make_problems()
    run_code(env, "1")
    assert env.python_tool._session is not None

    def fail(code: str):
        raise EnvironmentFailure("the sandbox's zygote has died", "died")

    monkeypatch.setattr(env.python_tool._session, "run", fail)
    with pytest.raises(EnvironmentFailure, match="zygote has died"):
        run_code(env, "1")


@pytest.mark.parametrize("replayed", [False, True])
def test_a_fork_has_the_variables_and_a_session_of_its_own(replayed: bool):
    env = make_problems(replayed_session=replayed, horizon=9)
    run_code(env, "x = [1]")
    fork = env.fork()
    assert isinstance(fork, CodeProblems) and fork.python_tool is not env.python_tool
    assert run_code(fork, "x.append(2)\nx") == "[1, 2]"
    twin = env.fork(1)
    assert isinstance(twin, CodeProblems)
    assert run_code(env, "x") == "[1]" and run_code(twin, "x") == "[1]"
    assert run_code(copy.copy(fork), "x") == "[1, 2]"


def test_the_parts_of_composite_rewards_by_hand():
    good = EpisodeCounts(True, True, 4, 1, 4, 0, 0)
    assert artist(good) == {"answer": 2.0, "format": 1.0, "tool": 0.75}
    bad = EpisodeCounts(False, False, 0, 0, 0, 2, 1)
    assert artist(bad) == {"answer": 0.0, "format": 0.0, "tool": 0.0}
    assert retool(good) == {"outcome": 1.0}
    assert retool(bad) == {"outcome": -1.0}
    assert retool(EpisodeCounts(False, True, 2, 0, 2, 0, 0))["outcome"] == pytest.approx(-0.8)
    assert retool(EpisodeCounts(False, True, 9, 0, 9, 0, 0))["outcome"] == -0.6
    env = make_problems(protocol="artist", reward="artist")
    run_code(env, "1")
    _, reward, *_ = env.step(f"I see. <answer>{env.problem.answer}</answer>")
    assert reward == 2.0 + 0.75 + 1.0  # the call had no thought


def test_answers_are_read_as_they_are_written():
    for name, protocol in PROTOCOLS.items():
        for answer in ("42", "a b", "def f(x):\n    return {x}"):
            assert protocol.answer_of(protocol.write_answer(answer)) == answer, name
        if protocol.start:
            assert protocol.answer_of("no answer") is None
            assert protocol.answer_of(protocol.start + "4") is None
    assert PROTOCOLS["boxed"].answer_of("\\boxed{1} or \\boxed{{2}}") == "{2}"
    assert PROTOCOLS["artist"].answer_of("<answer>\\boxed{3}</answer>") == "3"
    assert without_fence("```python\nx = 1\n```") == "x = 1" and without_fence("x") == "x"


def test_a_number_of_problems_recurs():
    env = make("agentrl/CodeProblems-v0", {"problems": 5})
    assert len({env.reset(seed=seed)[0][0].text for seed in range(60)}) == 5


@pytest.mark.parametrize(
    "option",
    [
        {"difficulty": 2}, {"protocol": "x"}, {"reward": "x"}, {"feedback": "x"}, {"split": "x"},
        {"generators": ["x"]}, {"proposals": 0}, {"noise": -1},
    ],
)  # fmt: skip
def test_options_out_of_range_are_errors_that_name_them(option):
    name = next(iter(option)).removesuffix("s")
    with pytest.raises(UserError, match=name):
        make("agentrl/CodeProblems-v0", option)
