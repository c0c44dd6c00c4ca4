"""The tools that `agentrl-tools` offers: calculator, Python in the sandbox, functions by name."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.python_tool import PythonTool, shared_sandbox
from agentrl_jax.sandbox.snippet import Snippet, describe_end
from agentrl_jax.tool_servers.arithmetic import calculate
from agentrl_jax.tools import Tool, tool

_GRACE_SECONDS = 10.0  # that the sandbox needs at most to end a call that is late


@dataclass(frozen=True)
class TrajectoryTools:
    """The tools of one trajectory, and what ends them."""

    tools: Sequence[Tool]
    close: Callable[[], None] = lambda: None


def stateless_python_tool(config: SandboxConfig, max_characters: int) -> Tool:
    """The tool `python` whose calls are programs of their own, for clients that share a server."""
    sandbox = shared_sandbox(config)

    def python(code: str) -> str:
        """Run a Python program; the output is what it prints.

        Args:
            code: the program
        """
        outcome = sandbox.run(Snippet(code))
        note = describe_end(outcome, config.limits) if outcome.exit_code != 1 else ""
        return f"{outcome.stdout}{outcome.stderr}{note}" or "(no output)"

    return tool(python, config.limits.seconds + _GRACE_SECONDS, max_characters)


def named_tool(name: str, seconds: float, max_characters: int) -> Tool:
    """The tool of a `module:function`, or a `Tool` of that name.

    Raises:
        UserError: there is none, or the function cannot be a tool.
    """
    module, _, attribute = name.partition(":")
    try:
        target = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"there is no tool {name!r} ({error}): name calculator, python, or a module:function "
            "whose module is on PYTHONPATH"
        ) from error
    if isinstance(target, Tool):
        return target
    if not isinstance(target, Callable):
        raise UserError(f"{name} is neither a function nor a Tool")
    return tool(target, seconds, max_characters)


def make_tools(
    names: Sequence[str],
    sandbox: SandboxConfig,
    keep_variables: bool,
    seconds: float = Tool.seconds,
    max_characters: int = Tool.max_characters,
) -> tuple[Tool, ...]:
    """The tools of these names: `calculator`, `python` or `module:function`.

    Args:
        names: of the tools.
        sandbox: where `python` runs.
        keep_variables: whether the calls of `python` are those of one session.
        seconds: of a call of the others.
        max_characters: of a result.

    Raises:
        UserError: a name is unknown, two tools have the same name, or there is no sandbox.
    """
    if keep_variables:
        return tuple(make_trajectory_tools(names, sandbox, seconds, max_characters).tools)
    pythons = [stateless_python_tool(sandbox, max_characters)] if "python" in names else []
    return _named_tools(names, pythons, seconds, max_characters)


def make_trajectory_tools(
    names: Sequence[str],
    sandbox: SandboxConfig,
    seconds: float = Tool.seconds,
    max_characters: int = Tool.max_characters,
) -> TrajectoryTools:
    """The tools of a trajectory, whose `python` has a session of its own; see `make_tools`."""
    if "python" not in names:
        return TrajectoryTools(_named_tools(names, (), seconds, max_characters))
    python = PythonTool(sandbox, max_characters)
    tools = _named_tools(names, [python.tool], seconds, max_characters)
    python.restart()
    return TrajectoryTools(tools, python.close)


def _named_tools(
    names: Sequence[str], pythons: Sequence[Tool], seconds: float, max_characters: int
) -> tuple[Tool, ...]:
    """The tools of the names; `pythons` holds that called python, if it is needed."""
    tools: list[Tool] = []
    for name in names:
        if name == "calculator":
            tools.append(tool(calculate, seconds, max_characters))
        elif name == "python":
            tools += pythons
        else:
            tools.append(named_tool(name, seconds, max_characters))
    known = ", ".join(t.name for t in tools)
    if not tools or len({t.name for t in tools}) < len(tools):
        raise UserError(f"a server needs tools of different names, not {known or 'none'}")
    return tuple(tools)
