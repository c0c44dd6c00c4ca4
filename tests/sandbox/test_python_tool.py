"""The tool `python` in an environment."""

import copy
import gc
import pickle
import sys
from typing import Any

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.messages import user
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.python_tool import PythonTool, shared_sandbox
from agentrl_jax.tool_environment import ToolEnvironment, tool_action

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
CONFIG = SandboxConfig(limits=SandboxLimits(seconds=1.0))


class Sum(ToolEnvironment):
    """What is the sum?"""

    horizon = 20

    def __init__(self) -> None:
        super().__init__()
        self.python_tool = PythonTool(CONFIG, max_characters=300)

    def _tools(self) -> Any:
        return (self.python_tool.tool,)

    def _reset(self, options: dict[str, Any]) -> Any:
        self.python_tool.restart(int(self.np_random.integers(2**31)))
        return (user("1 + 1?"),), {}

    def _step(self, text: str) -> Any:
        return (), float(text == "2"), True, False, {"success": text == "2"}

    def close(self) -> None:
        self.python_tool.close()


def test_a_policy_runs_code_call_after_call():
    env = Sum()
    _, info = env.reset(seed=0)
    (schema,) = [tool["function"] for tool in info["tools"]]
    assert schema["name"] == "python" and schema["parameters"]["required"] == ["code"]

    def answer(code: str) -> str:
        return env.step(tool_action("python", code=code))[0][0].text

    assert answer("x = 1 + 1\nx") == "2\n"
    assert answer("y = 1") == "(no output)"
    assert answer("x / 0").endswith("ZeroDivisionError: division by zero\n")
    assert answer("print('a' * 999)").endswith("[cut after 300 of 1,000 characters]")
    late = answer("print('now'); import time\nwhile True: time.sleep(0.01)")
    assert late.startswith("now\n") and late.endswith("It exceeded its limit of 1 s.")
    assert answer("x") == "2\n"
    ended = answer("import os; os._exit(3)")
    assert ended == "Its exit code is 3. The session has ended: all variables are lost."
    assert "NameError" in answer("x")
    assert "fewer" in answer("'fewer \\ud800'")
    assert env.step("2")[1] == 1.0
    env.reset(seed=0)
    assert "NameError" in answer("y")
    env.close()


def test_the_same_seed_gives_the_same_numbers():
    env, texts = Sum(), []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        texts.append(env.step(tool_action("python", code="import random; random.random()"))[0][0])
    assert texts[0].text == texts[1].text != texts[2].text
    env.close()


def test_environments_share_a_sandbox_and_sessions_begin_with_a_reset():
    assert shared_sandbox(CONFIG) is shared_sandbox(SandboxConfig(limits=SandboxLimits(1.0)))
    with pytest.raises(UserError, match="call restart"):
        PythonTool(CONFIG).python("1")


@pytest.mark.parametrize("replayed", [False, True])
def test_a_copy_has_a_session_of_its_own_in_which_the_same_code_has_run(replayed: bool):
    tool = PythonTool(CONFIG, replayed=replayed)
    tool.restart()
    tool.python("x = [1]")
    tool.python("print(undefined)")
    for twin in (copy.copy(tool), pickle.loads(pickle.dumps(tool))):
        assert twin.python("x.append(2)\nx") == "[1, 2]\n" and tool.python("x") == "[1]\n"
        twin.close()
    with pytest.raises(UserError, match="call restart"):
        twin.python("x")
    assert tool.python("x") == "[1]\n"
    tool.restart()
    assert tool.history == () and "NameError" in tool.python("x")
    tool.close()


def test_a_tool_that_is_deleted_ends_its_session():
    tool = PythonTool(CONFIG)
    tool.restart()
    tool.python("1")
    session = tool._session
    assert session is not None and not session.is_over
    del tool
    gc.collect()
    assert session.is_over
